"""A pool written down and read again is the same pool."""

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.eip import MAX_SELECTORS, pool
from speaker.api.fields import ApiObject, read
from speaker.errors import InvalidManifests
from speaker.model import (
    AddressRange,
    CanReach,
    Gratuitous,
    LabelRule,
    LabelSelector,
    LinkNames,
    OwnSubnet,
    Pool,
    PreferredNodes,
)

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
names = st.lists(labels, min_size=1, max_size=3).map(".".join)
keys = st.one_of(labels, st.tuples(names, labels).map("/".join))

# Slots of 2^16 addresses inside 10/8 and 2001:db8::/32: entries of one pool that never overlap.
slots = st.lists(st.integers(0, 2**8 - 1), min_size=1, max_size=6, unique=True)


@st.composite
def ranges_in(draw, slot):
    first = draw(st.sampled_from([IPv4Address("10.0.0.0"), IPv6Address("2001:db8::")])) + slot * 2**16
    match draw(st.sampled_from(["one", "some", "network"])):
        case "one":
            return AddressRange(first, first)
        case "some":
            return AddressRange(first + draw(st.integers(0, 99)), first + draw(st.integers(100, 2**16 - 1)))
    network = ip_network((first, first.max_prefixlen - draw(st.integers(0, 16))))
    return AddressRange(network.network_address, network.broadcast_address, network)


rules = st.one_of(
    st.builds(LabelRule, keys, st.sampled_from(["In", "NotIn"]), st.frozensets(labels, min_size=1, max_size=3)),
    st.builds(LabelRule, keys, st.sampled_from(["Exists", "DoesNotExist"])),
)
selectors = st.builds(LabelSelector, st.lists(rules, max_size=3).map(tuple))
preferred = st.builds(PreferredNodes, st.integers(1, 100), selectors.filter(lambda each: each.rules))
several = st.lists(selectors.filter(lambda each: each.rules), max_size=3).map(tuple)
interfaces = st.one_of(
    st.just(OwnSubnet()),
    st.lists(labels.filter(lambda name: name != "lo"), min_size=1, max_size=3, unique=True).map(tuple).map(LinkNames),
    st.sampled_from(["198.51.100.1", "2001:db8::1"]).map(lambda text: CanReach(read_address(text))),
)


def read_address(text):
    return (IPv6Address if ":" in text else IPv4Address)(text)


@st.composite
def pools(draw):
    addresses = tuple(draw(ranges_in(slot)) for slot in draw(slots))
    excluded = draw(st.lists(st.sampled_from(addresses), max_size=2))
    return Pool(
        name=draw(names),
        addresses=addresses,
        exclude=tuple(AddressRange(each.first, each.first) for each in excluded),
        interface=draw(interfaces),
        node_selector=draw(selectors),
        namespaces=draw(st.frozensets(labels, max_size=3)),
        namespace_selectors=draw(several),
        service_selectors=draw(several),
        per_namespace=draw(st.none() | st.integers(1, 2**31 - 1)),
        priority=draw(st.integers(-(2**31), 2**31 - 1)),
        auto_assign=draw(st.booleans()),
        avoid_network_and_broadcast=draw(st.booleans()),
        disabled=draw(st.booleans()),
        gratuitous=Gratuitous(
            draw(st.integers(1, 50)), draw(st.floats(0.05, 60)), draw(st.just(0.0) | st.floats(1, 86400))
        ),
        node_preference=tuple(draw(st.lists(preferred, max_size=16))),
        failback=draw(st.none() | st.integers(1, 86400).map(float)),
    )


def written(found):
    spec = {
        "addresses": list(map(range_text, found.addresses)),
        "exclude": list(map(range_text, found.exclude)),
        "interface": interface_text(found.interface),
        "nodeSelector": selector_data(found.node_selector),
        "nodePreference": [{"weight": term.weight, **selector_data(term.selector)} for term in found.node_preference]
        or None,
        "failback": "never" if found.failback is None else f"preferred-after {found.failback:.0f}s",
        "namespaces": sorted(found.namespaces) or None,
        **selectors_data("namespaceSelector", found.namespace_selectors),
        **selectors_data("serviceSelector", found.service_selectors),
        "perNamespace": {"max": found.per_namespace} if found.per_namespace is not None else None,
        "priority": found.priority,
        "autoAssign": found.auto_assign,
        "avoidNetworkAndBroadcast": found.avoid_network_and_broadcast,
        "disabled": found.disabled,
        "gratuitous": {
            "burst": found.gratuitous.burst,
            "interval": found.gratuitous.interval,
            "refresh": found.gratuitous.refresh,
        },
    }
    spec = {name: value for name, value in spec.items() if value is not None}
    return {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": found.name}, "spec": spec}


def selectors_data(name, several):
    """One may stand by itself, which a list of one may as well."""
    if len(several) == 1 and len(several[0].rules) % 2:
        return {name: selector_data(several[0])}
    return {f"{name}s": [selector_data(each) for each in several] or None}


def range_text(found):
    if found.network is not None:
        return str(found.network)
    return str(found.first) if found.first == found.last else f"{found.first}-{found.last}"


def interface_text(selector):
    match selector:
        case LinkNames(names):
            return ",".join(names)
        case CanReach(target):
            return f"can_reach:{target}"
    return None


def selector_data(selector):
    if selector is None or not selector.rules:
        return None
    return {
        "matchExpressions": [
            {"key": rule.key, "operator": rule.operator, "values": sorted(rule.values) or None}
            for rule in selector.rules
        ]
    }


@given(pools())
def test_a_pool_written_down_and_read_again_is_the_same(found):
    assert read(ApiObject(written(found)), pool) == found


def test_a_pool_has_no_more_selectors_than_there_may_be():
    selectors = [{"matchLabels": {"team": str(n)}} for n in range(MAX_SELECTORS + 1)]
    spec = {"addresses": ["192.0.2.1"], "serviceSelectors": selectors}
    body = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "lan"}, "spec": spec}
    with pytest.raises(InvalidManifests, match="must be 1 to 16 selectors"):
        read(ApiObject(body), pool)
    selectors.pop()
    assert len(read(ApiObject(body), pool).service_selectors) == MAX_SELECTORS
