"""``speaker capture``: describes hellos, ARP and NDP on a link or in a file, in words.

Edge: reads frames from a link or a capture file, and writes them to a file, with scapy.

scapy is imported only when something is captured, and only the parts that are needed.
"""

import argparse
import json
import math
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias, cast

from speaker.errors import EdgeError, SettingError
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keyfile import read_keys
from speaker.ownership.hellos.keys import Keys
from speaker.packets import arp, ndp, sockets
from speaker.packets.bpf import ACCEPT, Program, if_equal, load_byte, load_half, only_if
from speaker.settings import parse_ethertype
from speaker.system.files import is_there
from speaker.tools.capture.neighbourhood import MAX_FRAME, Event, Neighbourhood, read, sentence

Frame: TypeAlias = tuple[float, bytes]
"""Seconds since 1970, and the bytes from the Ethernet header on."""

Write: TypeAlias = Callable[[float, bytes], None]

INSTALL = "pip install 'scapy>=2.6,<3'"
_ETHERNET = 1
"""LINKTYPE_ETHERNET (https://www.tcpdump.org/linktypes.html)."""
_IPV6_TYPE = 54
_TICK = 0.1
"""How often the listener wakes up although nothing came, so that silence is noticed."""


def need_scapy() -> None:
    """Raises SettingError if it is not installed."""
    import logging

    logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
    try:
        import scapy.config  # noqa: F401 -- whether it can be
    except ImportError as error:
        raise SettingError(f"capture needs scapy (GPL-2.0), which is not installed: {INSTALL}") from error


def wanted(ethertype: int) -> Program:
    """A program for the kernel, which drops everything else: hellos, ARP, and IPv6 neighbour solicitations and
    advertisements.

    IPv6 frames of other kinds with the same byte in that place are skipped later.
    """
    return (
        *only_if(load_half(12), ethertype, arp.ETHERTYPE, ndp.ETHERTYPE),
        if_equal(ndp.ETHERTYPE, 1, 0),
        ACCEPT,
        *only_if(load_byte(_IPV6_TYPE), ndp.SOLICITATION, ndp.ADVERTISEMENT),
        ACCEPT,
    )


def of_link(link: str, ethertype: int, seconds: float | None) -> Iterator[Frame | None]:
    """Every frame of ``link``, both ways, for so many seconds; None: forever. Yields None if none came for a while.
    Raises EdgeError."""
    from scapy.arch.linux import L2ListenSocket

    end = math.inf if seconds is None else time.monotonic() + seconds
    try:
        tap = L2ListenSocket(iface=link, promisc=True)
    except OSError as error:
        raise sockets.refused(f"{link}: capture", error) from error
    try:
        sockets.attach(tap.ins, wanted(ethertype))
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([tap.ins], [], [], min(left, _TICK))
            _, frame, at = tap.recv_raw(MAX_FRAME) if ready else (None, None, None)
            yield None if not frame else (time.time() if at is None else float(at), bytes(frame))
    except OSError as error:
        raise sockets.refused(f"{link}: capture", error) from error
    finally:
        tap.close()


def of_file(path: Path) -> Iterator[Frame]:
    """Every frame of a pcap or pcapng file. Raises EdgeError."""
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    try:
        with path.open("rb") as file, RawPcapReader(cast("str", file)) as reader:  # by name it may be left open
            for frame, about in reader:
                linktype = getattr(about, "linktype", None) or reader.linktype
                if linktype != _ETHERNET:
                    raise EdgeError(f"{path}: its frames are not Ethernet (link type {linktype}): capture on one link")
                yield _when(reader, about), bytes(frame)
    except OSError as error:
        raise EdgeError(f"{path}: {error.strerror}") from error
    except (Scapy_Exception, EOFError, struct.error, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise EdgeError(f"{path}: is not a pcap or pcapng file, or is damaged") from error


def _when(reader: Any, about: Any) -> float:
    """Seconds; 0 if the file has none."""
    if hasattr(about, "sec"):
        return float(about.sec) + float(about.usec) / (1e9 if reader.nano else 1e6)
    if about.tshigh is None:
        return 0.0
    return float((about.tshigh << 32 | about.tslow) / about.tsresol)


@contextmanager
def into(path: Path) -> Iterator[Write]:
    """A new pcap file. Raises SettingError if there already is one, EdgeError if it cannot be written."""
    from scapy.utils import RawPcapWriter

    with _refused(path):
        file = path.open("xb")
    try:
        writer = RawPcapWriter(file, linktype=_ETHERNET)
        writer.write_header(None)

        def write(at: float, frame: bytes) -> None:
            sec = int(max(at, 0))
            with _refused(path):
                writer.write_packet(frame, sec=sec, usec=int((max(at, 0) - sec) * 1e6))

        yield write
    finally:
        with _refused(path):
            file.close()  # with what it has not written yet


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Wraps only what is done to the file, as errors of stdout are handled elsewhere."""
    try:
        yield
    except FileExistsError as error:
        raise SettingError(f"--write {path}: exists: must be a new file") from error
    except OSError as error:
        raise EdgeError(f"--write {path}: {error.strerror}") from error


# ── The command ─────────────────────────────────────────────────────────────────────────────────────────────


class CaptureSettings(NamedTuple):
    """``target``: a link's name or a file. ``seconds``: None until Ctrl-C, or until the file ends."""

    target: str
    seconds: float | None = None
    write: Path | None = None
    key: Path | None = None
    ethertype: int = frames.ETHERTYPE
    all_hellos: bool = False
    as_json: bool = False


def command(args: argparse.Namespace) -> int:
    if args.seconds is not None and not 0 < args.seconds < 86400:
        raise SettingError(f"--seconds {args.seconds:g}: must be seconds above 0 and below a day")
    ethertype = frames.ETHERTYPE if args.ethertype is None else parse_ethertype(args.ethertype)
    settings = CaptureSettings(args.target, args.seconds, args.write, args.key, ethertype, args.all, args.json)
    return capture(settings, sys.stdout)


def capture(settings: CaptureSettings, out: TextIO) -> int:
    """Prints a line for each event, and at the end how many there were. Returns 0. Raises SettingError and
    EdgeError."""
    need_scapy()
    keys = None if settings.key is None else read_keys(settings.key)
    captured = _frames(settings)
    recording = into(settings.write) if settings.write is not None else nullcontext(_pass_over)
    counts: Counter[str] = Counter()
    try:
        with recording as write:
            began: float | None = None
            for event in heard(captured, keys, settings, write):
                began = event.at if began is None else began
                counts["alarms"] += event.alarm
                counts["events"] += 1
                print(json.dumps(event.as_json()) if settings.as_json else line(event, began), file=out, flush=True)
    except KeyboardInterrupt:  # the usual end of a capture, which prints the total too
        _sum_up(counts, settings, out)
        raise
    _sum_up(counts, settings, out)
    return 0


def _sum_up(counts: Counter[str], settings: CaptureSettings, out: TextIO) -> None:
    if not settings.as_json:
        print(f"events: {counts['events']}, alarms: {counts['alarms'] or 'none'}", file=out)


def line(event: Event, began: float) -> str:
    """Seconds since the first event, a mark if it should not happen, and the sentence."""
    return f"{event.at - began:9.3f}  {'!' if event.alarm else ' '} {sentence(event)}"


def heard(
    captured: Iterable[Frame | None], keys: Keys | None, settings: CaptureSettings, write: Write
) -> Iterator[Event]:
    """The events of the frames, in order; each frame that is about us is also written. None: time has passed."""
    neighbourhood = Neighbourhood(verified=keys is not None, all_hellos=settings.all_hellos)
    for frame in captured:
        if frame is None:
            yield from neighbourhood.pass_time(time.time())
        elif (seen := read(frame[1], keys, settings.ethertype)) is not None:
            write(*frame)
            yield from neighbourhood.notice(frame[0], seen)


def _frames(settings: CaptureSettings) -> Iterator[Frame | None]:
    links = [name for _, name in socket.if_nameindex()]
    if settings.target in links:
        return of_link(settings.target, settings.ethertype, settings.seconds)
    file = Path(settings.target)
    if not is_there(file):
        raise SettingError(f"{settings.target}: is neither a link of this host ({', '.join(links)}) nor a file")
    if settings.seconds is not None or settings.write is not None:
        flag = "--seconds" if settings.seconds is not None else "--write"
        raise SettingError(f"{flag}: {file} is a file, and this flag is for links")
    return iter(of_file(file))


def _pass_over(_at: float, _frame: bytes) -> None:
    """Discards a frame."""
