"""What ``nft monitor trace`` prints: which rule dropped a new connection or its answer, and how far they came. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"trace id (\w+) (\w+) (\S+) (\S+) (packet|rule|verdict|policy|unknown rule handle \d+):? ?(.*)")
_VERDICT = re.compile(r"\(verdict (\w+).*\)\s*$")
_OUT = re.compile(r'\boif "([^"]+)"')


@dataclass(slots=True)
class Way:
    """Of one packet. ``dropped``: the chain and the rule; ``last``: the chain that it met last; ``out``: the link that
    it was to leave by there."""

    seen: bool = False
    dropped: str = ""
    last: str = ""
    out: str = ""


def read(lines: Iterable[str], own: str) -> tuple[Way, Way]:
    """Of the packet that the table netdev ``own`` began to trace, and of the one that the table inet ``own`` did."""
    ways: dict[str, Way] = {}
    asked, answer = Way(), Way()
    for found in filter(None, map(_LINE.match, lines)):
        number, family, table, chain, what, rest = found.groups()
        way = ways.setdefault(number, Way())
        if table != own:
            _on(way, f"chain {family} {table} {chain}", what, rest)
        elif what == "rule":  # the packet itself passes the other table too, and meets none there
            way.seen = True
            asked, answer = (way, answer) if family == "netdev" else (asked, way)
    return asked, answer


def _on(way: Way, where: str, what: str, rest: str) -> None:
    if what == "packet":
        out = _OUT.search(rest)
        way.last, way.out = where, out[1] if out else way.out
    verdict = _VERDICT.search(rest)
    if what == "policy" and rest.strip() == "drop":
        way.dropped = f"{where}, by its policy"
    elif verdict is not None and verdict[1] == "drop":
        way.dropped = f"{where}, by {rest[: verdict.start()].strip() or what}"
