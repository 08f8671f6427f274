"""nft of the image and nft of the node meet in one network namespace: neither may stumble over what the other wrote.

nft 1.0.6 crashes wherever it lists sets that 1.1.3 declared with ``type``, and kube-proxy in nftables mode lists all.
"""

import os
import subprocess
from ipaddress import ip_address, ip_network

import pytest
from debian_release import NFT, unpacked

from speaker.forwarding.handing_over import NextHop
from speaker.forwarding.nftables.forwarder import NftablesForwarder, open_guard
from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.forwarding.unknown_flows import UnknownFlows
from speaker.model import Mac, Protocol

pytestmark = pytest.mark.netns

RELEASES = {"bookworm": "v1.0.6", "trixie": "v1.1.3"}
HERE, THERE = ip_address("192.0.2.10"), ip_address("2001:db8::10")
SERVERS = (
    VirtualServer(HERE, Protocol.TCP, 80, "rr", sources=(ip_network("192.0.2.0/24"),),
                  real_servers=(RealServer(ip_address("10.0.0.3"), 8080, local=True),)),
    VirtualServer(HERE, Protocol.UDP, 53, "sh", real_servers=(RealServer(ip_address("10.0.0.4"), 53),)),
    VirtualServer(THERE, Protocol.SCTP, 80, "mh-port", sources=(ip_network("2001:db8::/64"),),
                  real_servers=(RealServer(ip_address("2001:db8:1::3"), 8080),)),
)  # fmt: skip
PLAN = Plan(frozenset({HERE, THERE}), {each.key: each for each in SERVERS})
NEXT_HOPS = {
    HERE: NextHop("lo", ip_address("192.0.2.2")),
    THERE: NextHop("lo", ip_address("fe80::2")),
    ip_address("192.0.2.11"): None,
}


async def _forwarder() -> object:
    return await NftablesForwarder().apply(PLAN)


async def _guard() -> object:
    return await (await open_guard()).apply(PLAN)


async def _unknown_flows() -> object:
    return await UnknownFlows().bring_to(NEXT_HOPS, frozenset({Mac(bytes(6))}))


TABLES = {"forwarder": _forwarder, "guard": _guard, "unknown flows handed over": _unknown_flows}


@pytest.fixture
def take(monkeypatch):
    """Whoever asks for ``nft`` from now on gets this release's."""
    path = os.environ["PATH"]

    def taken(release):
        program = unpacked(release, "nft", NFT).program("usr/sbin/nft")
        monkeypatch.setenv("PATH", f"{program.parent}:{path}")
        said = subprocess.run(["nft", "--version"], check=True, capture_output=True, text=True).stdout
        assert RELEASES[release] in said

    return taken


@pytest.mark.parametrize(("writer", "reader"), [("bookworm", "trixie"), ("trixie", "bookworm")])
@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())
def test_what_one_release_writes_the_other_lists(new_namespace, inside, sh, take, make, writer, reader):
    node = new_namespace("node")
    take(writer)
    assert inside(node, make)
    take(reader)
    for line in ("nft list tables", "nft list ruleset", "nft --json list ruleset", "nft list sets", "nft list maps"):
        assert "eip-speaker" in sh(node, line) or line == "nft list maps"


@pytest.mark.parametrize(("writer", "reader"), [("bookworm", "trixie"), ("trixie", "bookworm")])
@pytest.mark.parametrize("make", [_forwarder, _guard], ids=["forwarder", "guard"])
def test_what_one_release_wrote_the_other_finds_as_it_should_be(new_namespace, inside, take, make, writer, reader):
    node = new_namespace("node")
    take(writer)
    assert inside(node, make)
    take(reader)
    assert not inside(node, make)
