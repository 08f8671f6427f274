"""``speaker capture``: what hellos, ARP and NDP on a link say, in words, as it happens or from a file."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from speaker.errors import SettingError
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keyfile import read_keys
from speaker.ownership.hellos.keys import Keys
from speaker.system.files import is_there
from speaker.tools.capture import tap
from speaker.tools.capture.events import Event, sentence
from speaker.tools.capture.neighbourhood import Neighbourhood
from speaker.tools.capture.seen import read


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """``target``: a link's name or a file. ``seconds``: None until Ctrl-C, or the file's end."""

    target: str
    seconds: float | None = None
    write: Path | None = None
    key: Path | None = None
    ethertype: int = frames.ETHERTYPE
    all_hellos: bool = False
    as_json: bool = False


def capture(settings: CaptureSettings, out: TextIO) -> int:
    """Prints a line for each event, and how many there were; 0 at the end. Raises SettingError and EdgeError."""
    tap.need_scapy()
    keys = None if settings.key is None else read_keys(settings.key)
    captured = _frames(settings)
    recording = tap.into(settings.write) if settings.write is not None else nullcontext(_pass_over)
    with recording as write, _summed_up(settings, out) as told:
        began: float | None = None
        for event in heard(captured, keys, settings, write):
            began = event.at if began is None else began
            told["alarms"] += event.alarm
            told["events"] += 1
            print(json.dumps(event.as_json()) if settings.as_json else line(event, began), file=out, flush=True)
    return 0


@contextmanager
def _summed_up(settings: CaptureSettings, out: TextIO) -> Iterator[Counter[str]]:
    """Ctrl-C is the usual end of a capture, and has its sum as well."""
    told: Counter[str] = Counter()
    interrupted: KeyboardInterrupt | None = None
    try:
        yield told
    except KeyboardInterrupt as error:
        interrupted = error
    if not settings.as_json:
        print(f"events: {told['events']}, alarms: {told['alarms'] or 'none'}", file=out)
    if interrupted is not None:
        raise interrupted


def line(event: Event, began: float) -> str:
    """Seconds since the first event, a mark on what should not be, and the sentence."""
    return f"{event.at - began:9.3f}  {'!' if event.alarm else ' '} {sentence(event)}"


def heard(
    captured: Iterable[tap.Frame | None], keys: Keys | None, settings: CaptureSettings, write: tap.Write
) -> Iterator[Event]:
    """What frames come to, in their order; each that is about us is written, too. None: time has passed."""
    neighbourhood = Neighbourhood(verified=keys is not None, all_hellos=settings.all_hellos)
    for frame in captured:
        if frame is None:
            yield from neighbourhood.pass_time(time.time())
        elif (seen := read(frame[1], keys, settings.ethertype)) is not None:
            write(*frame)
            yield from neighbourhood.notice(frame[0], seen)


def _frames(settings: CaptureSettings) -> Iterator[tap.Frame | None]:
    links = tap.links()
    if settings.target in links:
        return tap.of_link(settings.target, settings.ethertype, _deadline(settings.seconds))
    file = Path(settings.target)
    if not is_there(file):
        raise SettingError(f"{settings.target}: is neither a link of this host ({', '.join(links)}) nor a file")
    if settings.seconds is not None or settings.write is not None:
        flag = "--seconds" if settings.seconds is not None else "--write"
        raise SettingError(f"{flag}: {file} is a file: only what a link carries has to end, or to be kept")
    return iter(tap.of_file(file))


def _deadline(seconds: float | None) -> Callable[[], float | None]:
    if seconds is None:
        return lambda: None
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


def _pass_over(_at: float, _frame: bytes) -> None:
    """Nobody keeps it."""
