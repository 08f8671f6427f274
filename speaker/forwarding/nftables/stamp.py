"""Whether anybody has changed nftables since we last looked: two questions to the kernel, no list. An edge.

``NFT_MSG_GETGEN`` and ``NFT_MSG_GETTABLE`` of net/netfilter/nf_tables_api.c.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOENT
from typing import TypeVar

from speaker.errors import EdgeError
from speaker.netlink.messages import attribute, attributes
from speaker.netlink.requests import Netlink, Request

NETLINK_NETFILTER = 12
_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
_GET_TABLE, _GET_GENERATION = _SUBSYSTEM | 1, _SUBSYSTEM | 16
_NFPROTO = {"inet": 1, "ip": 2, "ip6": 10}
_HEADER = struct.Struct("!BBH")  # struct nfgenmsg
_GENERATION_ID = 1  # NFTA_GEN_ID
_NAME, _USE, _HANDLE = 1, 3, 4  # NFTA_TABLE_*
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stamp:
    """``generation`` counts the transactions of this network namespace, whoever's. ``table``, None where there is
    none, is another one for each table that is ever made, and with each chain or set that comes or goes."""

    generation: int
    table: tuple[int, int] | None


def stamp(table: str, family: str = "inet") -> Stamp:
    """Of the table ``family`` ``table``, as it is now. Raises EdgeError; microseconds."""
    return _asked(lambda kernel: Stamp(_generation(kernel), _table(kernel, table, family)))


def generation() -> int:
    """As it is now; see ``Stamp``. Raises EdgeError; microseconds."""
    return _asked(_generation)


def _asked(ask: Callable[[Netlink], _T]) -> _T:
    try:
        with Netlink(NETLINK_NETFILTER) as kernel:
            return ask(kernel)
    except OSError as error:
        raise EdgeError(f"nftables: {error}") from error


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
