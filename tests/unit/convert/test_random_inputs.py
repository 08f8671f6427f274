"""Whatever is given: nothing is dropped in silence, nothing that is written is refused, and no pool serves more."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest
import yaml
from conversions import NAMES, given, of_data, text_of
from examples import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from peer_oracles import Probe, cilium, kubevip, metallb, openelb, purelb

from speaker.api.fields import ApiObject
from speaker.api.reading import read_world
from speaker.convert.document import leaves

KEYS, VALUES, NAMESPACES = ("app", "tier"), ("a", "b", "c"), ("red", "blue", "green")
EXAMPLES = examples(30)

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
some_labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=1)
valued = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True),
    }
)
bare = st.fixed_dictionaries({"key": st.sampled_from(KEYS), "operator": st.sampled_from(["Exists", "DoesNotExist"])})
selector = st.one_of(
    st.just({}),
    some_labels.map(lambda found: {"matchLabels": found}),
    st.lists(valued | bare, min_size=1, max_size=2).map(lambda found: {"matchExpressions": found}),
)
selectors = st.lists(selector, max_size=3)
namespaces = st.lists(st.sampled_from(NAMESPACES), max_size=2, unique=True)


@st.composite
def block(draw, position, single=False):
    """Addresses of one /28 of the test network, so that blocks of other positions do not overlap."""
    base = (0, 96, 240, 128)[position]
    if draw(st.booleans()):
        length = draw(st.integers(28, 32))
        return f"192.0.2.{base + draw(st.integers(0, 15)) // 2 ** (32 - length) * 2 ** (32 - length)}/{length}"
    first = draw(st.integers(base, base + 15))
    last = draw(st.integers(first, base + 15))
    return f"192.0.2.{first}" if single and draw(st.booleans()) else f"192.0.2.{first}-192.0.2.{last}"


def optional(**fields):
    return st.fixed_dictionaries({}, optional=fields)


def metadata(name, **more):
    return {"name": name, "namespace": "lb", **more}


@st.composite
def of_metallb(draw):
    made = []
    for i in range(draw(st.integers(1, 3))):
        to = optional(
            priority=st.integers(0, 3), namespaces=namespaces, namespaceSelectors=selectors, serviceSelectors=selectors
        )
        spec = draw(optional(autoAssign=st.booleans(), avoidBuggyIPs=st.booleans(), serviceAllocation=to))
        spec["addresses"] = [draw(block(i))]
        made.append(("IPAddressPool", metadata(f"pool-{i}", labels=draw(labels)), spec))
    for i in range(draw(st.integers(1, 3))):
        spec = draw(
            optional(
                ipAddressPools=st.lists(st.sampled_from(["pool-0", "pool-1"]), max_size=2, unique=True),
                ipAddressPoolSelectors=selectors,
                nodeSelectors=selectors,
                serviceSelectors=selectors,
                interfaces=st.lists(st.sampled_from(["eth0", "eth1"]), max_size=2, unique=True),
            )
        )
        made.append(("L2Advertisement", metadata(f"advertisement-{i}"), spec))
    return [
        {"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": meta, "spec": spec} for kind, meta, spec in made
    ]


@st.composite
def of_openelb(draw):
    made = []
    default = draw(st.integers(-1, 2))
    for i in range(draw(st.integers(1, 3))):
        spec = draw(
            optional(
                disable=st.booleans(),
                priority=st.integers(0, 3),
                namespaces=namespaces,
                namespaceSelector=some_labels,
                protocol=st.sampled_from(["layer2", "vip", "bgp"]),
            )
        )
        spec = {"address": draw(block(i, single=True)), "interface": "eth0", **spec}
        mark = {"annotations": {"eip.openelb.kubesphere.io/is-default-eip": "true"}} if i == default else {}
        kind = {"apiVersion": "network.kubesphere.io/v1alpha2", "kind": "Eip"}
        made.append({**kind, "metadata": {"name": f"pool-{i}", **mark}, "spec": spec})
    return made


@st.composite
def of_kubevip(draw):
    keys = st.sampled_from([f"{kind}-{name}" for kind in ("cidr", "range") for name in ("global", *NAMESPACES)])
    data = {}
    for i, key in enumerate(draw(st.lists(keys, min_size=1, max_size=4, unique=True))):
        texts = [draw(block(i)) for _ in range(draw(st.integers(1, 2)))]
        form = "/" if "/" in texts[0] else "-"
        data[key] = ",".join(text for text in texts if form in text)
    data |= draw(optional(**{"skip-end-ips-in-cidr": st.sampled_from(["true", "false"])}))
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kubevip", "namespace": "kube-system"},
            "data": data,
        }
    ]


@st.composite
def of_purelb(draw):
    made = []
    for i, name in enumerate(
        draw(st.lists(st.sampled_from(["default", "a", "b"]), min_size=1, max_size=3, unique=True))
    ):
        spec = {"namespaces": listed} if (listed := draw(namespaces)) else {}
        if listed:
            spec |= draw(optional(enforceNamespaces=st.booleans(), namespaceDefault=st.booleans()))
        entry = {"subnet": "192.0.2.0/24", "pool": draw(block(i))}
        spec[draw(st.sampled_from(["local", "local", "remote"]))] = {"v4pools": [entry]}
        made.append({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": metadata(name), "spec": spec})
    return made


@st.composite
def of_cilium(draw):
    keys = st.sampled_from(["io.kubernetes.service.namespace", "io.kubernetes.service.name", *KEYS])
    values = st.sampled_from([*NAMESPACES, "probe", *VALUES])
    rules = st.fixed_dictionaries(
        {
            "key": keys,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(values, min_size=1, max_size=2, unique=True),
        }
    ) | st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])})
    chosen = st.one_of(
        st.dictionaries(keys, values, min_size=1).map(lambda found: {"matchLabels": found}),
        st.lists(rules, min_size=1, max_size=2).map(lambda found: {"matchExpressions": found}),
    )
    made = []
    for i in range(draw(st.integers(1, 2))):
        spec = draw(
            optional(disabled=st.booleans(), allowFirstLastIPs=st.sampled_from(["Yes", "No"]), serviceSelector=chosen)
        )
        text = draw(block(i))
        first, _, last = text.partition("-")
        spec["blocks"] = [{"cidr": text} if "/" in text else {"start": first, "stop": last}]
        made.append(("CiliumLoadBalancerIPPool", f"pool-{i}", spec))
    for i in range(draw(st.integers(0, 3))):
        spec = draw(optional(loadBalancerIPs=st.booleans(), serviceSelector=chosen, nodeSelector=selector))
        made.append(("CiliumL2AnnouncementPolicy", f"policy-{i}", spec))
    return [
        {"apiVersion": "cilium.io/v2alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, name, spec in made
    ]


probes = st.builds(
    Probe,
    namespace=st.sampled_from([*NAMESPACES, "other"]),
    namespace_labels=labels,
    labels=labels,
    pool=st.sampled_from([None, None, "pool-0", "pool-1", "default", "a"]),
)
PEERS = {
    "metallb": (of_metallb(), metallb),
    "openelb": (of_openelb(), openelb),
    "kubevip": (of_kubevip(), kubevip),
    "purelb": (of_purelb(), purelb),
    "cilium": (of_cilium(), cilium),
}


def check(conversion):
    for document in conversion.documents:
        assert list(document.unaccounted()) == []
    read_world([ApiObject(each) for each in (*conversion.pools, *conversion.services)], default_class=True)


@pytest.mark.parametrize("peer", PEERS)
@settings(max_examples=EXAMPLES, deadline=None)
@for_all(data=st.data())
def test_no_service_gets_an_address_that_its_peer_would_not_give_to_it(peer, data):
    generated, oracle = PEERS[peer]
    documents, probe = data.draw(generated), data.draw(probes)
    if peer in ("kubevip", "cilium"):  # there nobody names a pool
        probe = replace(probe, pool=None)
    conversion = of_data(*documents)
    check(conversion)
    mine, theirs = given(conversion, probe), oracle(documents, probe)
    assert mine <= theirs
    if not conversion.decisions and probe.pool is None:
        assert mine == theirs


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["192.0.2.0/24", "::/0", "*"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=examples(100), deadline=None)
@for_all(name=st.sampled_from(NAMES), adopt=st.booleans(), data=st.data())
def test_any_value_anywhere_is_accounted_for_and_nothing_that_is_written_is_refused(name, adopt, data):
    documents = json.loads(json.dumps(list(yaml.safe_load_all(text_of(name)))))
    i = data.draw(st.integers(0, len(documents) - 1))
    path = data.draw(st.sampled_from(list(leaves(documents[i]))))
    path = path[: data.draw(st.integers(1, len(path)))]
    changed = deepcopy(documents)
    inner = changed[i]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = data.draw(ANYTHING)
    check(of_data(*changed, adopt=adopt))
