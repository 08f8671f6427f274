"""``speaker connections``: the kernel's table of connections in words: IPVS's, or conntrack's if nftables forwards."""

import json
import socket
from collections.abc import Collection, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, TextIO

from speaker.errors import EdgeError, SettingError, written
from speaker.forwarding.connections import CONNTRACK, IPVS, Dialect, Survey, connection_lines, real_server_lines, survey
from speaker.model import NO_GROUP, Group, IPAddress
from speaker.settings import number
from speaker.system.files import read_regular
from speaker.tools.terminal import table, write

NET = Path("/proc/thread-self/net")
MAX_STATUS = 256 * 1024 * 1024
"""Bytes; ten thousand EIPs take three million."""


class Source(NamedTuple):
    file: Path
    dialect: Dialect
    eips: Collection[IPAddress] | None
    """None: all that are there."""


def connections(runtime_dir: Path, out: TextIO, eip: str, limit: str, as_json: bool, group: Group = NO_GROUP) -> int:
    """Writes how many connections each real server has, then ``limit`` connections; if ``eip`` is not '', only those of
    it. Returns 0. Raises EdgeError if the kernel shows none, and SettingError for an invalid EIP or limit."""
    shown = number("--limit", limit, 0, 10**9 - 1)
    source = _source(runtime_dir, group, _address(eip))
    try:
        with source.file.open(errors="replace") as lines:
            found = survey(lines, source.dialect, shown, source.eips)
    except FileNotFoundError as error:
        raise EdgeError(f"this kernel does not list connections: it has no {source.file}") from error
    except OSError as error:
        raise EdgeError(f"cannot list connections: {source.file}: {error.strerror}") from error
    write(out, [json.dumps(_object(found, source.dialect))] if as_json else describe(found, source.dialect, shown))
    return 0


def _address(text: str) -> IPAddress | None:
    try:
        if "%" in text:
            raise ValueError("no EIP has a scope id")
        return ip_address(text) if text else None
    except ValueError as error:
        raise SettingError(f"{written(text)}: must be an IPv4 or IPv6 address without a scope id: an EIP") from error


def _source(runtime_dir: Path, group: Group, eip: IPAddress | None) -> Source:
    """The group's link shows that IPVS forwards here. IPVS's table has only virtual servers, but conntrack's has
    everything, so there one must know which addresses are EIPs."""
    asked = None if eip is None else (eip,)
    if any(name == group.link for _, name in socket.if_nameindex()):
        return Source(NET / "ip_vs_conn", IPVS, asked)
    return Source(NET / "nf_conntrack", CONNTRACK, asked or _eips(runtime_dir / "status.json"))


def _eips(status: Path) -> Collection[IPAddress]:
    try:
        return [ip_address(eip["address"]) for eip in json.loads(read_regular(status, MAX_STATUS)[0])["eips"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EdgeError(f"cannot tell which addresses are EIPs, because {status} does not say so: name one") from error


def _object(found: Survey, dialect: Dialect) -> dict[str, object]:
    return {
        "connections": found.total,
        "unreadable": found.unreadable,
        "real_servers": [line._asdict() for line in real_server_lines(found, dialect, len(found.real_servers))],
        "shown": [line._asdict() for line in connection_lines(found, dialect)],
    }


def describe(found: Survey, dialect: Dialect, limit: int) -> Iterator[str]:
    yield f"connections {found.total}, real servers with any {len(found.real_servers)}"
    if found.unreadable:
        yield f"{found.unreadable} lines of the kernel's listing could not be read"
    if not found.real_servers:
        return
    servers = real_server_lines(found, dialect, limit)
    yield ""
    yield from table(
        ("VIRTUAL SERVER", "REAL SERVER", "ESTABLISHED", "OTHERS", "STICKING"),
        ((f"{line.protocol} {line.virtual_server}", line.real_server, *map(str, line[3:])) for line in servers),
    )
    yield from _more(len(found.real_servers), limit)
    yield ""
    yield from table(
        ("CLIENT", "VIRTUAL SERVER", "REAL SERVER", "STATE", "FORGOTTEN IN"),
        (
            (
                line.client,
                f"{line.protocol} {line.virtual_server}",
                line.real_server,
                line.state,
                "" if line.forgotten_in is None else f"{line.forgotten_in} s",
            )
            for line in connection_lines(found, dialect)
        ),
    )
    yield from _more(found.total + sum(counts.sticking for counts in found.real_servers.values()), limit)


def _more(count: int, limit: int) -> Iterator[str]:
    if count > limit:
        yield f"… and {count - limit} more: --limit"
