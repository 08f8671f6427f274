"""Edge: asks links by ARP and neighbour solicitation, and hears everybody who answers.

Politely: each address twice, from this node's own address on the link, which is true whatever caches learn from it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from speaker.diagnosis.facts import Asked
from speaker.errors import LinkGone
from speaker.model import IPAddress, Link, format_mac
from speaker.ownership.hello import Addresses
from speaker.packets.asker import Askers

TIMES, EVERY = 3, 0.2
"""Questions for each address, and seconds between two; after the last one it is listened for as long."""
MOST = 64
"""Addresses on a link, and MACs that answer for one."""
FRAMES, BUFFER = 2048, 1 << 18
"""Looked at on one link at most, each time that it is listened for; bytes that are kept until then."""


class Wanted(NamedTuple):
    address: IPAddress
    what: str


async def ask_links(
    links: Mapping[str, Link], own: Mapping[int, Addresses], wanted: Mapping[str, Sequence[Wanted]]
) -> tuple[Asked, ...]:
    """By name of the link. Raises EdgeError, Unsupported without CAP_NET_RAW."""
    asking = (_ask(links[name], own.get(links[name].index, ()), each) for name, each in wanted.items() if name in links)
    return tuple(asked for found in await asyncio.gather(*asking) for asked in found)


async def _ask(link: Link, own: Addresses, wanted: Sequence[Wanted]) -> list[Asked]:
    asked = {one.address: one for one in wanted[:MOST]}
    heard: dict[IPAddress, dict[str, None]] = {address: {} for address in asked}
    with suppress(LinkGone), Askers(FRAMES, BUFFER) as askers:
        askers.use([link], {link.index: own})
        for _ in range(TIMES):
            for address in asked:
                askers.ask(address, link.index)
            await asyncio.sleep(EVERY)
            for address, mac in askers.answers():
                if address in heard and len(heard[address]) < MOST:
                    heard[address][format_mac(mac)] = None
    return [Asked(str(one.address), link.name, one.what, tuple(heard[one.address])) for one in asked.values()]
