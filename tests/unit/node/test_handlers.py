"""What an operator's commands come to: the objects of each answer, the last with ``done`` or ``error``."""

import asyncio
import json
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest

from speaker.allocator.settle import Settlement
from speaker.checks import said
from speaker.errors import InvalidField, InvalidManifests
from speaker.forwarding.forwarder import NoForwarder
from speaker.forwarding.plan import EMPTY
from speaker.model import Endpoint, Gratuitous, Link, Mac, Protocol, ServiceKey, World
from speaker.node.decide import Decision, MayHold
from speaker.node.handlers import handlers
from speaker.node.known.knowledge import InForce, Knowledge
from speaker.node.report import Report
from speaker.ownership.balance import Rebalancing
from speaker.settings import PeerSettings
from speaker.system.process import Priority
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import ClaimStatus, PeerSeen

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
A, B = ip_address("192.0.2.10"), ip_address("2001:db8::10")
N2 = PeerSeen("n2", "eth0", True, False)
ALONE = [{"error": "this speaker runs without --with-peers: there is nobody to share its EIPs with"}]


class Wire:
    """The wire process: what it will say, and what it was told."""

    def __init__(self, handed_over=(), rebalancings=(), peers=()):
        self._handed_over, self._rebalancings, self._peers = handed_over, rebalancings, peers
        self.draining, self.told = False, []

    async def claim_statuses(self, addresses):
        return {address: ClaimStatus(True, "n1", 7, 12.5) for address in addresses}

    async def peers(self):
        return list(self._peers)

    async def drain(self):
        self.draining = True
        for moved in self._handed_over:
            yield moved

    async def set_draining(self, on):
        self.told.append(on)

    async def rebalance(self):
        for each in self._rebalancings:
            yield each


async def nothing_new():
    """The cheap checks find what they found before."""


async def answers(command, wire, report, alone=False, cluster=False, look=nothing_new, **command_words):
    """Every object, as it reaches the other end of the socket."""
    peers = None if alone else PeerSettings()
    forwarder = NoForwarder(Path("no-runtime-dir"))
    found = handlers("n1", peers, wire, report, forwarder, look, cluster=cluster)[command](command_words)
    return [json.loads(json.dumps(each)) async for each in found]


@pytest.fixture
def report(tmp_path):
    return Report(Metrics(), tmp_path)


async def test_before_anything_is_in_force_a_status_names_the_node_and_its_peers(report):
    assert await answers("status", Wire(peers=[N2]), report) == [
        {
            "done": True,
            "node": "n1",
            "draining": False,
            "alone": False,
            "ready": False,
            "problems": [],
            "eips": [],
            "peers": [
                {
                    "node": "n2",
                    "link": "eth0",
                    "alive": True,
                    "draining": False,
                    "loss": None,
                    "loses": 0,
                    "patience_ms": 0,
                }
            ],
        }
    ]


async def test_a_status_holds_what_the_status_file_does_as_it_is_now(report):
    held = MayHold(A, "lan", (ServiceKey("default", "web"),), ETH0, Gratuitous())
    report.brought_about(InForce(Settlement({}, {}), Decision({A: held}, EMPTY), {}))
    wire = Wire()
    wire.draining = True
    (status,) = await answers("status", wire, report)
    filed = json.loads(json.dumps(report.status(report.in_force, await wire.claim_statuses([A]))))
    (eip,) = filed["eips"]
    filed["eips"] = [eip | {"answering": None, "ready_endpoints": None}]
    own = {"done": True, "node": "n1", "draining": True, "alone": False, "ready": False, "peers": []}
    assert status == own | filed
    assert status["eips"][0]["holder"] == "n1"


async def test_bad_manifests_are_told_before_anything_was_in_force(report):
    report.bad_manifests(
        InvalidManifests((InvalidField("spec.addresses", "x", "must be addresses"),)), still_serving=False
    )
    (status,) = await answers("status", Wire(), report)
    assert status["problems"] == ["spec.addresses: 'x': must be addresses"]


async def test_a_status_says_how_many_hosts_answer_and_how_many_endpoints_are_ready(report):
    key = ServiceKey("default", "web")
    endpoints = tuple(Endpoint(ip_address(f"10.0.0.{n}"), 80, Protocol.TCP, ready=n < 3) for n in range(1, 4))
    held = MayHold(A, "lan", (key,), ETH0, Gratuitous())
    decision = Decision({A: held}, EMPTY)
    report.brought_about(InForce(Settlement({}, {}), decision, {}, World(endpoints={key: endpoints})))
    report.answer_for({A: 2})
    (status,) = await answers("status", Wire(), report)
    assert {"answering": 2, "ready_endpoints": 2}.items() <= status["eips"][0].items()


@pytest.mark.parametrize(
    ("handed_over", "told"),
    [
        ([], [{"done": True, "left": []}]),
        ([(A, "n2")], [{"eip": "192.0.2.10", "to": "n2"}, {"done": True, "left": []}]),
        (
            [(A, "n2"), (B, None)],
            [
                {"eip": "192.0.2.10", "to": "n2"},
                {"eip": "2001:db8::10", "to": None},
                {"done": True, "left": ["2001:db8::10"]},
            ],
        ),
    ],
)
async def test_a_drain_names_each_eip_as_it_goes_and_at_the_end_those_that_nobody_took(report, handed_over, told):
    wire = Wire(handed_over)
    assert await answers("drain", wire, report) == told
    assert wire.draining


async def test_the_end_of_a_drain_is_handed_on(report):
    wire = Wire()
    assert await answers("undrain", wire, report) == [{"done": True}]
    assert wire.told == [False]


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ([], [{"planned": 0, "moved": 0, "refused": 0, "preferred": 0, "done": True}]),
        (
            [Rebalancing(3), Rebalancing(3, 1, 1), Rebalancing(3, 2, 1, finished=True)],
            [
                {"planned": 3, "moved": 0, "refused": 0, "preferred": 0},
                {"planned": 3, "moved": 1, "refused": 1, "preferred": 0},
                {"planned": 3, "moved": 2, "refused": 1, "preferred": 0},
                {"planned": 3, "moved": 2, "refused": 1, "preferred": 0, "done": True},
            ],
        ),
    ],
)
async def test_a_rebalancing_says_how_far_it_is_and_at_the_end_how_far_it_came(report, states, told):
    assert await answers("rebalance", Wire(rebalancings=states), report) == told


@pytest.mark.parametrize("command", ["drain", "undrain", "rebalance"])
async def test_a_speaker_without_peers_says_that_there_is_nobody_and_does_nothing(report, command):
    wire = Wire([(A, None)], [Rebalancing(1)])
    assert await answers(command, wire, report, alone=True) == ALONE
    assert (wire.draining, wire.told) == (False, [])


async def test_a_speaker_without_peers_has_a_status(report):
    ((status),) = await answers("status", Wire(), report, alone=True)
    assert status["done"]


async def test_facts_are_what_is_known_of_the_thing_that_is_asked_about(report):
    held = MayHold(A, "lan", (ServiceKey("default", "web"),), ETH0, Gratuitous())
    report.brought_about(InForce(Settlement({}, {}), Decision({A: held}, EMPTY), {}))
    ((told),) = await answers("facts", Wire(peers=[N2]), report, about=str(A))
    known = msgspec.convert(told["knowledge"], Knowledge)
    assert told["done"]
    assert [(eip.address, eip.holder, eip.link) for eip in known.eips.first] == [("192.0.2.10", "n1", "eth0")]
    assert [peer.node for peer in known.peers] == ["n2"]
    ((told),) = await answers("facts", Wire(), report, about="192.0.2.99")
    assert told["knowledge"]["eips"] == {"first": [], "more": 0}


async def test_facts_have_what_the_cheap_checks_find_now(report):
    async def look():
        report.environment(said("forwarding_off", ["it is off"], "sysctl"), Priority.NORMAL)

    ((told),) = await answers("facts", Wire(), report, look=look)
    assert [(each["kind"], each["what"]) for each in told["knowledge"]["problems"]] == [("forwarding_off", "it is off")]


async def test_checks_that_hang_keep_nobody_waiting_for_facts(report):
    ((told),) = await answers("facts", Wire(), report, look=asyncio.Event().wait)
    assert told["done"]


async def test_before_anything_is_in_force_facts_are_of_the_node_alone(report):
    ((told),) = await answers("facts", Wire(), report)
    known = msgspec.convert(told["knowledge"], Knowledge)
    assert (known.node, known.in_force, len(known.eips)) == ("n1", False, 0)


@pytest.mark.parametrize("cluster", [True, False])
async def test_whether_an_api_or_files_say_what_is_wanted_is_among_the_facts(report, cluster):
    (told,) = await answers("facts", Wire(), report, cluster=cluster)
    assert told["knowledge"]["cluster"] is cluster
