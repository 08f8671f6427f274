"""The links below a bridge: what is dropped there reaches nobody above it."""

import asyncio

import pytest

from speaker.diagnosis.gather import gather

pytestmark = pytest.mark.netns


@pytest.mark.parametrize(
    ("lines", "uplinks"),
    [
        (("ip link add uplink type ifb", "ip link set uplink master br0"), ("uplink",)),
        ((), ("pod0", "pod1")),
    ],
    ids=["beside those of pods", "of pods alone"],
)
def test_the_uplinks_of_a_bridge_are_seen(new_namespace, sh, tmp_path, lines, uplinks):
    node = new_namespace("node")
    sh(node, "ip link add br0 type bridge")
    for number in (0, 1):
        sh(node, f"ip link add pod{number} type veth peer name eth{number}")
        sh(node, f"ip link set pod{number} master br0")
    for line in lines:
        sh(node, line)
    with node.entered():
        facts = asyncio.run(gather(tmp_path))
    seen = {link.name: tuple(sorted(link.uplinks)) for link in facts.links if link.uplinks}
    assert seen == {"br0": uplinks}
