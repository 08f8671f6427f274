"""Unknown flows where a kernel has iptables but no nft: what ``rules.py`` says, in chains. Pure.

Rules are written as iptables-save prints them. A packet of an unknown flow costs a rule for every speaker and two for
every EIP, which all other packets do not: nft does better.
"""

from collections.abc import Iterator

from speaker.forwarding.iptables import Table, build, remove
from speaker.forwarding.unknown_flows.rules import NextHop, Wanted, versions
from speaker.model import format_mac

STRAYS, STRAY = "EIP-SPEAKER-STRAYS", "EIP-SPEAKER-STRAY"
"""Our chains: what all packets go through, and what is done with unknown flows."""

_NO_FURTHER = {4: "-m ttl --ttl-lt 2", 6: "-m hl --hl-lt 2"}
_INVALID = {True: ("FIN,SYN FIN", "SYN,RST RST"), False: ("SYN NONE",)}


def script(saved: str, want: Wanted, version: int) -> str:
    """What iptables-restore makes of ``saved`` (iptables-save's output) what is wanted; '' for nothing."""
    change = build if version in versions(want.next_hops) else remove
    return change(_table(want, version), saved)


def _table(want: Wanted, version: int) -> Table:
    caught = (
        f"-p tcp -m conntrack --ctstate NEW -m tcp --tcp-flags SYN,RST NONE -g {STRAY}",
        *(
            f"-p tcp -m conntrack --ctstate INVALID -m tcp --tcp-flags {flags} -g {STRAY}"
            for flags in _INVALID[want.loose]
        ),
    )
    return Table("mangle", {"PREROUTING": STRAYS}, {STRAYS: caught, STRAY: tuple(_rules(want, version))})


def _rules(want: Wanted, version: int) -> Iterator[str]:
    for mac in sorted(want.speakers):
        yield f"-m mac --mac-source {format_mac(mac)} -j RETURN"
    yield f"{_NO_FURTHER[version]} -j RETURN"
    for eip, hop in want.next_hops.items():
        if eip.version == version:
            yield from (f"-d {eip}/{eip.max_prefixlen} -j {target}" for target in _targets(hop, want))


def _targets(hop: NextHop | None, want: Wanted) -> tuple[str, ...]:
    if hop is None:
        return ("DROP",)
    return (f"TEE --gateway {hop.address} --oif {hop.link}", "DROP") if want.links[hop.link] else ()
