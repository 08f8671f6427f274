"""``speaker cleanup``: one part that cannot be removed keeps none of the others, and is told."""

import asyncio

import pytest

from speaker.errors import EdgeError, Unsupported
from speaker.tools.cleanup import Part, clean


def part(name, removed, *left):
    async def remove():
        if isinstance(removed, Exception):
            raise removed
        return tuple(removed)

    return Part(name, remove, lambda: left)


TABLE, LINK = "nftables table inet eip-speaker", "link eip-speaker0"


@pytest.mark.parametrize(
    ("story", "parts", "removed", "left"),
    [
        ("nothing anywhere", [part("ipvs", []), part("nftables", [])], [], []),
        ("all of it", [part("ipvs", [LINK]), part("nftables", [TABLE])], [LINK, TABLE], []),
        (
            "a kernel without IPVS has nothing of it",
            [part("ipvs", Unsupported("this kernel has no IPVS")), part("nftables", [TABLE])],
            [TABLE],
            [],
        ),
        (
            "what stands there although nothing here can remove it is named with the reason",
            [part("ipvs", Unsupported("the program nft is not installed"), LINK), part("nftables", [TABLE])],
            [TABLE],
            [f"{LINK} is still there: the program nft is not installed"],
        ),
        (
            "a refusal is told and the next part has its turn",
            [part("ipvs", EdgeError("needs CAP_NET_ADMIN")), part("nftables", [TABLE])],
            [TABLE],
            ["ipvs: needs CAP_NET_ADMIN"],
        ),
    ],
)
def test_what_is_removed_and_what_is_said_to_be_left(story, parts, removed, left):
    assert asyncio.run(clean(tuple(parts))) == (removed, left), story
