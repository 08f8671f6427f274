"""Edge: the ``nft`` program. One script is one transaction, which the kernel applies completely or not at all.

The kernel itself says whether anybody has changed nftables since the last look, without a program or a list:
``NFT_MSG_GETGEN`` and ``NFT_MSG_GETTABLE`` of net/netfilter/nf_tables_api.c.
"""

import struct
from collections.abc import Callable
from errno import ENOENT
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from speaker.errors import EdgeError, as_edge_error
from speaker.netlink.messages import attribute, attributes
from speaker.netlink.requests import Netlink, Request
from speaker.system import programs
from speaker.system.decoding import UNFIT

NETLINK_NETFILTER = 12
_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
_GET_TABLE, _GET_GENERATION = _SUBSYSTEM | 1, _SUBSYSTEM | 16
_NFPROTO = {"inet": 1, "ip": 2, "ip6": 10}
_HEADER = struct.Struct("!BBH")  # struct nfgenmsg
_GENERATION_ID = 1  # NFTA_GEN_ID
_NAME, _USE, _HANDLE = 1, 3, 4  # NFTA_TABLE_*
_T = TypeVar("_T")

LOOK_SECONDS = 10.0
"""For a look that is repeated: if nft hangs, people are told by then, and only one look is lost."""


class Refused(EdgeError):
    """Raised when nft ran and said no."""


Listed: TypeAlias = list[dict[str, dict[str, Any]]]


class _Listing(msgspec.Struct):
    nftables: Listed


_listing = msgspec.json.Decoder(_Listing)


async def run(script: str, *, check: bool = False) -> None:
    """Hands ``script`` to the kernel as one transaction; with ``check`` the kernel only says whether it would accept
    it.

    Raises Refused with nft's own words, and EdgeError if it could not be run; nothing was changed then.
    """
    status, _, complaint = await _nft(*(["--check"] if check else []), "-f", "-", script=script)
    if status != 0:
        raise Refused(f"nft: {complaint}")


async def list_table(table: str) -> Listed | None:
    """What table ``inet`` ``table`` contains, as nft's JSON objects, or None if there is no such table."""
    output = await list_object("table", "inet", table)
    return None if output is None else listed(output, f"table inet {table}")


async def list_object(*what: str) -> bytes | None:
    """nft's JSON for ``list`` of ``"map", "ip", TABLE, NAME`` and the like, or None if there is none."""
    # Numeric: whether nft prints `tcp` or 6 depends on /etc/protocols, which small images lack.
    status, output, complaint = await _nft("--json", "--numeric", "list", *what)
    if status == 0:
        return output
    if "No such file or directory" in complaint:
        return None
    raise EdgeError(f"nft list {' '.join(what)}: {complaint}")


async def list_chains() -> Listed:
    """Every program's chains, without their rules."""
    status, output, complaint = await _nft("--json", "list", "chains", seconds=LOOK_SECONDS)
    if status != 0:
        raise EdgeError(f"nft list chains: {complaint}")
    return listed(output, "chains")


async def _nft(*arguments: str, script: str = "", seconds: float | None = None) -> programs.Ended:
    return await programs.run("nft", *arguments, text=script, seconds=seconds)


def listed(output: bytes, what: str) -> Listed:
    """Raises EdgeError if the output is not nft's: it is truncated, or from another program."""
    with as_edge_error(f"nft list {what}: its output cannot be read", UNFIT):
        return _listing.decode(output).nftables


# ── Has anybody changed it? ───────────────────────────────────────────────────────────────────────────────────


class Stamp(NamedTuple):
    """``generation`` counts the transactions in this network namespace, whoever made them. ``table`` (None if there is
    no table) differs for each table that is ever made, and changes whenever a chain or set is added or removed."""

    generation: int
    table: tuple[int, int] | None


def stamp(table: str, family: str = "inet") -> Stamp:
    """The stamp of the table ``family`` ``table`` now. Raises EdgeError. Takes microseconds."""
    return _asked(lambda kernel: Stamp(_generation(kernel), _table(kernel, table, family)))


def generation() -> int:
    """The generation now; see ``Stamp``. Raises EdgeError. Takes microseconds."""
    return _asked(_generation)


def _asked(ask: Callable[[Netlink], _T]) -> _T:
    with as_edge_error("nftables"), Netlink(NETLINK_NETFILTER) as kernel:
        return ask(kernel)


def _generation(kernel: Netlink) -> int:
    return _number(kernel.ask(Request(_GET_GENERATION, _HEADER.pack(0, 0, 0))), _GENERATION_ID)


def _table(kernel: Netlink, name: str, family: str) -> tuple[int, int] | None:
    request = Request(_GET_TABLE, _HEADER.pack(_NFPROTO[family], 0, 0) + attribute(_NAME, name.encode() + b"\0"))
    try:
        answer = kernel.ask(request)
    except OSError as error:
        if error.errno == ENOENT:
            return None
        raise
    return _number(answer, _HANDLE), _number(answer, _USE)


def _number(answer: bytes, kind: int) -> int:
    found = attributes(answer, _HEADER.size).get(kind)
    if found is None:
        raise EdgeError("nftables: the kernel's answer lacks what was asked for")
    return int.from_bytes(found, "big")
