"""Which virtual servers are taken from kube-proxy, and for how long."""

import asyncio
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from speaker.errors import EdgeError
from speaker.forwarding.changes import LINGER, Assisted, Flow, past_dead, stays
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.forwarder import RENEW, AssistForwarder
from speaker.forwarding.nftables.ruleset import assist_ruleset, expressible, rebuild_script
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer
from speaker.model import Protocol

ALIVE, DEAD = (RealServer(ip_address(f"10.0.0.{last}"), 8080, weight) for last, weight in ((3, 1), (4, 0)))
OTHER = replace(DEAD, port=1, weight=1)
AS_EVER = VirtualServer(ip_address("192.0.2.10"), Protocol.TCP, 80, real_servers=(ALIVE, replace(DEAD, weight=1)))
PAST = replace(AS_EVER, real_servers=(ALIVE, DEAD), without=("n2",))
KNOWN = replace(PAST, without=())
"""Kubernetes knows: the endpoint is not ready."""


def plan_of(*servers: VirtualServer) -> Plan:
    return Plan(frozenset(), {server.key: server for server in servers})


STORIES = [
    ("all nodes live", [(0, [AS_EVER])], []),
    ("one dies", [(0, [AS_EVER]), (1, [PAST])], [[ALIVE]]),
    ("for as long as it is dead and Kubernetes does not know", [(0, [PAST]), (100, [PAST])], [[ALIVE]]),
    ("Kubernetes knows, and kube-proxy perhaps not yet", [(0, [PAST]), (LINGER - 1, [KNOWN])], [[ALIVE]]),
    ("kube-proxy knows, too", [(0, [PAST]), (LINGER, [KNOWN])], []),
    ("it is back", [(0, [PAST]), (LINGER, [AS_EVER])], []),
    ("the Service goes meanwhile", [(0, [PAST]), (1, [])], []),
    ("it comes again, and nobody is dead", [(0, [PAST]), (1, []), (2, [AS_EVER])], []),
    ("its last endpoint goes meanwhile", [(0, [PAST]), (1, [replace(KNOWN, real_servers=(DEAD,))])], []),
    ("the policy becomes Local meanwhile", [(0, [PAST]), (1, [replace(KNOWN, masquerade=False)])], []),
    ("another endpoint lives by now", [(0, [PAST]), (1, [replace(PAST, real_servers=(DEAD, OTHER))])], [[OTHER]]),
]  # fmt: skip


@pytest.mark.parametrize(("story", "plans", "found"), STORIES, ids=[story for story, *_ in STORIES])
def test_what_is_taken_from_kube_proxy(story, plans, found):
    assisted = Assisted()
    for now, servers in plans:
        taken = assisted.of(plan_of(*servers), now)
    assert [list(server.real_servers) for server in taken.virtual_servers.values()] == found
    assert not taken.eips, "what no rule takes is kube-proxy's to refuse"


def test_source_ranges_are_those_of_now_while_kube_proxy_is_assisted():
    assisted = Assisted()
    assisted.of(plan_of(PAST), 0)
    fenced = replace(KNOWN, sources=(ip_network("198.51.100.0/24"),))
    (server,) = assisted.of(plan_of(fenced), 1).virtual_servers.values()
    assert server.sources == fenced.sources


@pytest.mark.parametrize(
    ("sources", "restricted", "let_in"),
    [
        ([], False, ""),
        (["198.51.100.0/24"], True, "198.51.100.0/24"),
        (["2001:db8::/32"], True, "0.0.0.0"),  # nobody of this family
        (["0.0.0.0/0"], False, ""),
    ],
)
def test_the_rules_let_in_whom_the_source_ranges_name(sources, restricted, let_in):
    fenced = replace(PAST, sources=tuple(map(ip_network, sources)))
    rules = assist_ruleset(expressible(plan_of(fenced)))
    assert bool(rules.elements["restricted4"]) is restricted
    assert all(element.endswith(f" . {let_in}") for element in rules.elements["sources4"])


FLOWS = [
    ("to a living endpoint", Protocol.TCP, ALIVE, True, True),
    ("to a living endpoint that has not answered yet", Protocol.TCP, ALIVE, False, True),
    ("established with a dead one: nobody else knows it", Protocol.TCP, DEAD, True, True),
    ("begun with a dead one, which never answered", Protocol.TCP, DEAD, False, False),
    ("UDP to a dead one", Protocol.UDP, DEAD, True, False),
    ("UDP to a living one", Protocol.UDP, ALIVE, True, True),
]


@pytest.mark.parametrize(
    ("protocol", "real", "answered", "goes_on"), [row[1:] for row in FLOWS], ids=[r[0] for r in FLOWS]
)
def test_which_connections_begin_anew(protocol, real, answered, goes_on):
    server = replace(PAST, protocol=protocol, real_servers=(ALIVE,))
    flow = Flow(server.key, ip_address("192.0.2.100"), 40000, real.address, real.port, answered)
    assert stays(flow, plan_of(server)) is goes_on


# ── The edge ──────────────────────────────────────────────────────────────────────────────────────────────────


class Kernel:
    """Takes scripts, or refuses them, and says whether there is a table."""

    def __init__(self) -> None:
        self.scripts: list[str] = []
        self.refuses = False

    async def run(self, script: str, *, check: bool = False) -> None:
        if self.refuses:
            raise EdgeError("nft: no")
        self.scripts.append(script)

    def stamp(self, table: str, family: str = "inet") -> nft.Stamp:
        there = bool(self.scripts) and not self.scripts[-1].startswith("delete table")
        return nft.Stamp(0, (1, 1) if there else None)


@pytest.fixture
def kernel(monkeypatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(nft, "run", made.run)
    monkeypatch.setattr(nft, "stamp", made.stamp)

    async def forget(self, changes, plan):
        pass

    monkeypatch.setattr(AssistForwarder, "_forget", forget)
    return made


def brought(*steps: tuple[float, Plan | None]) -> AssistForwarder:
    """A forwarder that was told so at these times; None: it tends."""
    now = [0.0]
    forwarder = AssistForwarder(lambda: now[0])

    async def main() -> None:
        for now[0], plan in steps:
            await (forwarder.tend() if plan is None else forwarder.apply(plan))

    asyncio.run(main())
    return forwarder


TAKEN = Assisted().of(plan_of(PAST), 0)


def test_whom_it_assists_past_is_told_until_kubernetes_knows():
    assisted = Assisted()
    assert past_dead(assisted.of(plan_of(AS_EVER), 0)) == {}
    assert past_dead(assisted.of(plan_of(PAST), 0)) == {"n2": 1}
    assert past_dead(assisted.of(plan_of(KNOWN), 1)) == {}


def test_the_kernel_is_left_alone_while_all_nodes_live(kernel):
    brought((0, EMPTY), (5, None), (100, None))
    assert kernel.scripts == []


def test_what_an_earlier_speaker_left_goes(kernel):
    kernel.scripts.append("table inet eip-speaker-assist")
    brought((0, EMPTY))
    assert kernel.scripts[1:] == ["delete table inet eip-speaker-assist\n"]


def test_the_table_is_made_renewed_and_taken_away(kernel):
    made = rebuild_script(assist_ruleset(expressible(TAKEN)))
    brought((0, TAKEN), (5, None), (RENEW, None), (RENEW + 1, TAKEN), (RENEW + 2, EMPTY), (30, None))
    assert kernel.scripts == [made, made, "delete table inet eip-speaker-assist\n"]


def test_a_kernel_that_refuses_keeps_no_plan_from_being_applied_and_is_asked_again(kernel):
    kernel.refuses = True
    forwarder = brought((0, TAKEN))
    (problem,) = asyncio.run(forwarder.problems())
    assert problem.kind == "edge_fails"
    assert asyncio.run(forwarder.pending(TAKEN))
    with pytest.raises(EdgeError):
        asyncio.run(forwarder.tend())
    kernel.refuses = False
    asyncio.run(forwarder.tend())
    assert asyncio.run(forwarder.pending(TAKEN)) == ()
    assert asyncio.run(forwarder.problems()) == ()
