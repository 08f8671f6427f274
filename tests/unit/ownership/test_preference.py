"""How much a node is preferred, by a pool or by the Services on an EIP (rule 41)."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.api.service import parse_preference
from speaker.model import AddressRange, LabelRule, LabelSelector, Pool, PreferredNodes, Service, ServiceKey
from speaker.ownership.preference import preference

EIP = ip_address("192.0.2.1")
LAN = Pool("lan", (AddressRange(EIP, EIP),), failback=300.0)
NODE = {"zone": "a", "disk": "ssd"}


def service(name: str, asked: str = "") -> Service:
    return Service(ServiceKey("shop", name), (), node_preference=parse_preference(asked) if asked else ())


def preferring(text: str) -> Pool:
    return replace(LAN, node_preference=parse_preference(text))


@pytest.mark.parametrize(
    ("pool", "services", "weight"),
    [
        ("80 zone=a; 20 disk=ssd; 10 zone=b", [""], 100),
        ("80 zone=b", [""], 0),
        ("80 zone=a,disk=hdd", [""], 0),
        ("80 zone=a", ["5 disk=ssd"], 5),
        ("80 zone=a", ["", "7 zone=a", "9 zone=a"], 7),
    ],
    ids=[
        "terms add up",
        "none matches",
        "all labels of a term",
        "a Service's own",
        "of several the first that has one",
    ],
)
def test_what_a_node_is_worth(pool: str, services: list[str], weight: int) -> None:
    found = preference(preferring(pool), [service(str(n), asked) for n, asked in enumerate(services)], NODE)
    assert found is not None
    assert (found.weight, found.failback) == (weight, 300.0)


def test_without_any_terms_all_nodes_are_alike() -> None:
    assert preference(LAN, [service("web")], NODE) is None
    assert preference(None, [service("web")], NODE) is None


def test_a_preference_has_one_number_on_all_nodes_and_no_other_has_it() -> None:
    def number(pool: Pool | None, asked: str = "") -> int:
        return {
            found.number for labels in (NODE, {}) if (found := preference(pool, [service("web", asked)], labels))
        }.pop()

    asked = PreferredNodes(80, LabelSelector((LabelRule("zone", "In", frozenset({"c", "a", "b"})),)))
    elsewhere = replace(preferring("80 zone=a"), node_selector=LabelSelector((LabelRule("edge", "Exists"),)))
    numbers = [
        number(preferring("80 zone=a")),
        number(preferring("81 zone=a")),
        number(preferring("80 zone=b")),
        number(elsewhere),
        number(replace(LAN, node_preference=(asked,))),
        number(LAN, "80 zone=a"),
    ]
    assert len(set(numbers)) == len(numbers)
    assert numbers[4] == 6293403144113265827  # whatever Python hashes strings to
    assert all(each < 1 << 63 for each in numbers[:5])
    assert numbers[5] >= 1 << 63


def test_it_is_the_same_for_pools_of_other_names_and_addresses() -> None:
    one, other = preferring("80 zone=a"), replace(preferring("80 zone=a"), name="dmz", failback=None)
    assert preference(one, [], NODE) == preference(other, [], NODE)._replace(failback=300.0)  # type: ignore[union-attr]
