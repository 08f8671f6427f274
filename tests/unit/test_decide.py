"""What one node does with every EIP in use: held on a link, or not and why; and the virtual servers either way."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface

import pytest

from speaker.api.ranges import parse_range
from speaker.decide import Held, NotHeld, decide
from speaker.interfaces.snapshot import LinkAddress, Snapshot
from speaker.model import (
    Assignment,
    Gratuitous,
    LabelRule,
    LabelSelector,
    Link,
    LinkNames,
    Mac,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
    World,
)
from speaker.settings import Node

EIP = ip_address("192.0.2.10")
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"), up=True, carrier=True)
ETH1 = Link(3, "eth1", Mac(b"\x02\0\0\0\0\x02"), up=True, carrier=True)
POOL = Pool("lan", (parse_range("192.0.2.0/24"),), interface=LinkNames(("eth1",)), gratuitous=Gratuitous(burst=9))
NODE = Node.parse("n1")


def service(key=WEB, port=80, **more):
    return Service(key, (ServicePort(Protocol.TCP, port),), **more)


def world(*services, pools=(POOL,)):
    return World(pools={pool.name: pool for pool in pools}, services={each.key: each for each in services})


def assigned(*keys, pool="lan"):
    return {key: Assignment(key, (EIP,), (pool,)) for key in keys}


@pytest.fixture
def snapshot():
    """eth0 has the EIP's subnet, eth1 has nothing."""
    bound = ip_interface("192.0.2.1/24")
    return Snapshot(
        links={link.index: link for link in (ETH0, ETH1)},
        addresses=(LinkAddress(ETH0.index, bound.ip, bound.network),),
    )


def test_an_eip_is_held_on_the_link_its_pool_asks_for_and_announced_as_the_pool_says(snapshot):
    decision = decide(world(service()), assigned(WEB), snapshot, NODE)
    assert decision.eips == {EIP: Held(EIP, "lan", (WEB,), ETH1, Gratuitous(burst=9))}


def test_services_that_share_an_eip_are_held_once_and_forwarded_each(snapshot):
    decision = decide(world(service(), service(DNS, 53)), assigned(WEB, DNS), snapshot, NODE)
    assert [eip.services for eip in decision.held().values()] == [(DNS, WEB)]
    assert {port for _, _, port in decision.forwarding.virtual_servers} == {80, 53}


def test_an_eip_whose_pool_is_gone_is_held_on_the_link_of_its_own_subnet(snapshot):
    decision = decide(world(service(), pools=()), assigned(WEB), snapshot, NODE)
    assert decision.eips == {EIP: Held(EIP, "lan", (WEB,), ETH0, Gratuitous())}


@pytest.mark.parametrize(
    ("story", "pool", "wanted", "reason"),
    [
        ("no such link", replace(POOL, interface=LinkNames(("eth9",))), service(), "no_such_link"),
        (
            "another node's pool",
            replace(POOL, node_selector=LabelSelector((LabelRule("rack", "Exists"),))),
            service(),
            "node_not_selected",
        ),
        ("nothing local", POOL, service(traffic_policy=TrafficPolicy.LOCAL), "no_local_endpoint"),
    ],
)
def test_an_eip_that_must_not_be_held_says_why_and_is_forwarded_all_the_same(story, pool, wanted, reason, snapshot):
    decision = decide(world(wanted, pools=(pool,)), assigned(WEB), snapshot, NODE)
    eip = decision.eips[EIP]
    assert isinstance(eip, NotHeld)
    assert eip.reason == reason
    assert decision.held() == {}
    assert (EIP, Protocol.TCP, 80) in decision.forwarding.virtual_servers


def test_a_cable_that_is_pulled_takes_the_eip_with_it(snapshot):
    pulled = replace(snapshot, links={**snapshot.links, ETH1.index: replace(ETH1, carrier=False)})
    eip = decide(world(service()), assigned(WEB), pulled, NODE).eips[EIP]
    assert isinstance(eip, NotHeld)
    assert eip.reason == "no_carrier"
