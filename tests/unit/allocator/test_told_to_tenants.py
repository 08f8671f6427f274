"""What a Service's owner is told of a refusal: nothing of other tenants, of their pools, or of whose a host is.

The names of all these begin with ``secret``; who runs the cluster reads them in the whole message.
"""

from ipaddress import ip_address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speaker.allocator.assign import Allocator

THEIRS = "198.51.100.0/29"


def asked(make_pool, make_service, pools, others=(), **fields):
    """The Refusal of a Service of namespace ``mine``, behind others that have what they ask for."""
    allocator = Allocator(60.0)
    allocator.set_pools({each.name: each for each in pools}, {}, {ip_address("203.0.113.9"): "Node secret-node"})
    for other in others:
        assert allocator.assign(other, 0.0).refusal is None
    return allocator.assign(make_service("mine/web", **fields), 0.0).refusal


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "no_pool_fits"),
        ({"pool": "nope"}, "no_such_pool"),
        ({"addresses": "198.51.100.1"}, "pool_not_allowed"),
        ({"addresses": "198.51.100.0"}, "address_not_in_pool"),
        ({"addresses": "198.51.100.3"}, "address_not_in_pool"),
        ({"addresses": "203.0.113.9"}, "host_address"),
        ({"addresses": "192.0.2.9"}, "address_in_use"),
        ({"addresses": "192.0.2.9", "share": "s", "share_with": "secret-ns"}, "address_in_use"),
        ({"addresses": "192.0.2.8", "share": "s", "share_with": "secret-ns"}, "shared_namespace"),
    ],
)
def test_of_what_is_not_for_it_it_is_told_no_name(pool, service, fields, reason):
    pools = [
        pool("secret-pool", THEIRS, exclude="198.51.100.3", namespaces="secret-ns"),
        pool("secret-label", "198.51.100.16/29", service_label="secret=yes"),
        pool("open", "192.0.2.8-192.0.2.15", auto_assign=False),
        pool("hosts", "203.0.113.9", auto_assign=False),
    ]
    others = [
        service("secret-ns/a", addresses="192.0.2.9"),
        service("secret-ns/b", addresses="192.0.2.8", share="s"),
    ]
    refusal = asked(pool, service, pools, others, **fields)
    assert refusal.reason.value == reason
    assert "secret" not in refusal.told
    told_the_operator = reason not in ("no_such_pool", "address_not_in_pool")
    assert ("secret" in refusal.message) is told_the_operator
    assert refusal.message.startswith(refusal.told)


def test_what_it_may_use_is_named(pool, service):
    pools = [pool("open", "192.0.2.8", auto_assign=False), pool("off", "192.0.2.9", disabled=True)]
    told = asked(pool, service, pools).told
    assert "open: its autoAssign is false" in told
    assert "off: it is disabled" in told
    assert "it may use: off, open" in asked(pool, service, pools, pool="nope").told
    full = asked(pool, service, [pool("mine", "192.0.2.8")], [service("mine/other")])
    assert "pool has no free IPv4 address: mine" in full.told


def test_whom_it_agreed_to_share_with_is_named(pool, service):
    other = service("theirs/a", addresses="192.0.2.8", share="s", share_with="mine")
    told = asked(
        pool, service, [pool("open", "192.0.2.8")], [other], addresses="192.0.2.8", share="s", share_with="theirs"
    )
    assert (told.reason.value, "theirs/a" in told.told) == ("shared_port_clash", True)


NAMES = st.sampled_from(["secret-1", "secret-2"])
POOLS = st.lists(
    st.tuples(NAMES, st.sampled_from(["192.0.2.0/30", "192.0.2.4/30", "2001:db8::/126"]), st.booleans(), st.booleans()),
    max_size=3,
    unique_by=(lambda each: each[0], lambda each: each[1]),
)
ASKS = st.fixed_dictionaries(
    {
        "addresses": st.sampled_from(["", "192.0.2.0", "192.0.2.1", "192.0.2.5", "2001:db8::1", "203.0.113.9"]),
        "families": st.sampled_from(["4", "6", "46"]),
        "policy": st.sampled_from(["single", "prefer", "require"]),
        "share": st.sampled_from([None, "s"]),
        "share_with": st.sampled_from(["", "secret-ns"]),
        "local": st.booleans(),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # they make values
@given(POOLS, ASKS, ASKS)
def test_whatever_it_asks_for_it_is_told_no_name_that_it_does_not_know(pool, service, pools, mine, theirs):
    made = [
        pool(name, addresses, namespaces="secret-ns" if closed else "", service_label="secret=yes" if labelled else "")
        for name, addresses, closed, labelled in pools
    ]
    allocator = Allocator(60.0)
    allocator.set_pools({each.name: each for each in made}, {}, {ip_address("192.0.2.5"): "Node secret-node"})
    allocator.assign(service("secret-ns/web", label="secret=yes", **theirs), 0.0)
    asking = service("mine/web", **mine)
    refusal = allocator.assign(asking, 0.0).refusal
    may = {each.name for each in made if allocator._book.catalogue.objection(each, asking) is None}
    words = refusal.told if refusal is not None else ""
    for name in may:
        words = words.replace(name, "")
    assert "secret" not in words
