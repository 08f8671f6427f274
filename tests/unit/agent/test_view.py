"""What is asked of a node, from the objects of the API."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.agent.view import (
    DRAIN,
    MAX_READ,
    OUT_OF_SERVICE,
    News,
    Reader,
    ViewSettings,
    is_or_was_assigned,
    node_intent,
)
from speaker.api.endpoints import MAX_ENDPOINTS
from speaker.api.kinds import (
    ASSIGNED,
    ASSIGNED_FROM,
    MAX_SAID,
    AssignedObject,
    EipObject,
    NodeObject,
    ServiceObject,
    SliceObject,
    pools_read,
)
from speaker.api.objects import Key
from speaker.api.service import MAX_HELD, parse_preference
from speaker.model import Assignment, Endpoint, Family, LinkNames, Protocol, ServiceKey
from speaker.ownership.eligibility import EXCLUDE

WEB = ServiceKey("default", "web")
EIP = "192.0.2.10"
OURS = ({"type": ASSIGNED, "status": "True"},)
AS_IT_COMES = ViewSettings()

MakeService = Callable[..., AssignedObject]
MakeEip = Callable[..., EipObject]


@pytest.fixture
def service_object(service_object: Callable[..., ServiceObject]) -> MakeService:
    """The same, as an agent decodes it."""

    def made(name: str, **parts: Any) -> AssignedObject:
        return msgspec.json.decode(msgspec.json.encode(service_object(name, **parts)), type=AssignedObject)

    return made


def node(
    *,
    labels: Any = None,
    annotations: Any = None,
    taints: Any = None,
    cordoned: Any = False,
    ready: Any = None,
    conditions: Any = None,
) -> NodeObject:
    conditions = conditions if ready is None else [{"type": "Ready", "status": ready}]
    data = {
        "metadata": {"name": "n1", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"unschedulable": cordoned, "taints": taints},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(data, NodeObject)


def slice_of(*endpoints: Any, name: str = "web-1", family: str = "IPv4", ports: Any = ({"port": 8080},)) -> SliceObject:
    data = {
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": family,
        "endpoints": endpoints or None,
        "ports": ports,
    }
    return msgspec.convert(data, SliceObject)


def at(address: str, node: str | None = None, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "nodeName": node, "conditions": conditions}


def news_of(services: Any = (), eips: Any = None, gone: Any = ()) -> News:
    found = {each.key: each for each in services} | dict.fromkeys(gone)
    return News(found, {WEB}, tuple(eips) if eips is not None else None)


def read(reader: Reader, services: Any = (), eips: Any = None, slices: Any = (), gone: Any = ()) -> Any:
    """World and settlement, when ``services`` and the endpoints of WEB are news."""
    return reader.read(news_of(services, eips, gone), lambda key: tuple(slices) if key == WEB else ())[:2]


def made_service(name: str, number: int, **spec: Any) -> AssignedObject:
    data = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "eip-speaker.io/speaker",
            "ports": [{"port": 80}],
            **spec,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": f"192.0.2.{number}"}]}, "conditions": OURS},
    }
    return msgspec.convert(data, AssignedObject)


def endpoints_of(service: ServiceKey) -> tuple[SliceObject, ...]:
    labels = {"kubernetes.io/service-name": service.name}
    data = {
        "metadata": {"name": service.name, "namespace": service.namespace, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [at("198.51.100.1")],
        "ports": [{"port": 8080}],
    }
    return (msgspec.convert(data, SliceObject),)


# ── Our Node ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("found", "settings", "drained"),
    [
        (node(), AS_IT_COMES, None),
        (node(annotations={DRAIN: "true"}), AS_IT_COMES, f"annotation {DRAIN}"),
        (node(annotations={DRAIN: "false"}), AS_IT_COMES, None),
        (node(taints=[{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]), AS_IT_COMES, f"taint {OUT_OF_SERVICE}"),
        (node(taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]), AS_IT_COMES, None),
        (node(cordoned=True), AS_IT_COMES, None),
        (node(cordoned=True), ViewSettings(drain_cordoned=True), "cordoned"),
    ],
)
def test_a_node_is_drained_by_annotation_and_taint_and_where_that_is_wanted_by_cordon(found, settings, drained):
    assert node_intent("n1", found, settings).drained == drained


@pytest.mark.parametrize(("ready", "counts"), [("True", True), ("False", False), ("Unknown", False), (None, True)])
def test_a_node_that_is_not_ready_still_holds_but_goes_last(ready, counts):
    wishes = node_intent("n1", node(ready=ready), AS_IT_COMES)
    assert wishes.ready is counts
    assert not wishes.node.excluded
    assert wishes.drained is None


@pytest.mark.parametrize(("unavailable", "counts"), [("True", False), ("False", True), ("Unknown", True)])
def test_a_node_whose_network_is_not_set_up_goes_last(unavailable, counts):
    conditions = [{"type": "NetworkUnavailable", "status": unavailable}, {"type": "Ready", "status": "True"}]
    assert node_intent("n1", node(conditions=conditions), AS_IT_COMES).ready is counts


def test_the_exclude_label_counts_unless_it_is_to_be_ignored():
    found = node(labels={EXCLUDE: ""})
    assert node_intent("n1", found, AS_IT_COMES).node.excluded
    assert not node_intent("n1", found, ViewSettings(ignore_exclude=True)).node.excluded


def test_a_node_that_the_api_does_not_know_serves_what_asks_for_no_label():
    wishes = node_intent("n1", None, AS_IT_COMES)
    assert (wishes.drained, wishes.ready, wishes.node.excluded) == (None, True, False)


def test_a_node_that_is_there_and_cannot_be_read_holds_nothing():
    assert node_intent("n1", None, AS_IT_COMES, unreadable=True).node.excluded


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_service_has_what_our_controller_wrote_into_its_status(service_object: MakeService, eip_object: MakeEip):
    found = service_object("web", ingress=[EIP, "2001:db8::10"], conditions=OURS)
    world, settlement = read(Reader(AS_IT_COMES), [found], [eip_object("lan", "192.0.2.0/24")])
    assert settlement.assignments == {WEB: Assignment(WEB, (ip_address(EIP), ip_address("2001:db8::10")), ("lan", ""))}
    assert set(world.services) == {WEB}
    assert set(world.pools) == {"lan"}


@pytest.mark.parametrize(
    "parts",
    [
        {"ingress": [EIP]},
        {"conditions": OURS},
        {"ingress": [EIP], "conditions": OURS, "type": "ClusterIP"},
        {"ingress": [EIP], "conditions": OURS, "loadBalancerClass": "example.com/other"},
        {"ingress": [EIP], "conditions": OURS, "loadBalancerClass": None},
    ],
    ids=["another controller's address", "no address", "another type", "another class", "no class"],
)
def test_nothing_is_announced_that_our_controller_has_not_assigned(service_object: MakeService, parts):
    world, settlement = read(Reader(AS_IT_COMES), [service_object("web", **parts)])
    assert (world.services, settlement.assignments) == ({}, {})


# ── Pools of EIPs in use ──────────────────────────────────────────────────────────────────────────────────────

FROM_LAN = (*OURS, {"type": ASSIGNED_FROM, "status": "True", "reason": "Recorded", "message": "IPv4 from lan"})
RACK_A = {"nodeSelector": {"matchLabels": {"rack": "a"}}, "interface": "eth1"}


@pytest.mark.parametrize(
    ("edit", "known"),
    [
        ({"lan": (["192.0.2.10-192.0.2.20"], {"exclude": ["192.0.2.10"]})}, True),
        ({"lan": (["192.0.2.11-192.0.2.20"], {})}, True),
        ({"lan": (["192.0.2.10-192.0.2.29"], {}), "wan": (["192.0.2.25-192.0.2.30"], {"age": 2})}, True),
        ({"lan": (["192.0.2.10-192.0.2.20"], {}), "wan": (["192.0.2.0/24"], {"age": 2})}, True),
        ({"lan": (["192.0.2.11-192.0.2.20"], {}), "wan": (["192.0.2.8-192.0.2.10"], {"age": 2})}, True),
        ({"lan": (["192.0.2.10-x"], {})}, True),
        ({}, True),
        ({"lan": (["192.0.2.11-192.0.2.20"], {})}, False),
        ({"lan": (["192.0.2.10-192.0.2.29"], {}), "wan": (["192.0.2.25-192.0.2.30"], {"age": 2})}, False),
    ],
    ids=[
        *("excluded", "shrunk", "widened over an older one", "an older one widened over it", "given to another"),
        *("unreadable", "deleted by force", "shrunk before we came", "refused before we came"),
    ],
)
def test_an_eip_in_use_is_served_by_its_own_pools_rules_whatever_becomes_of_what_that_offers(
    service_object: MakeService, eip_object: MakeEip, edit, known
):
    reader = Reader(AS_IT_COMES)
    found = service_object("web", ingress=[EIP], conditions=FROM_LAN)
    if known:
        read(reader, [found], [eip_object("lan", "192.0.2.10-192.0.2.20", **RACK_A)])
    edited = [
        eip_object(name, *addresses, **({"interface": "eth0"} if name == "wan" else RACK_A), **parts)
        for name, (addresses, parts) in edit.items()
    ]
    world, settlement = read(reader, [] if known else [found], edited)
    assert settlement.assignments == {WEB: Assignment(WEB, (ip_address(EIP),), ("lan",))}
    assert world.pools["lan"].interface == LinkNames(("eth1",))
    assert not world.pools["lan"].node_selector.matches({"rack": "b"})


def test_the_rules_of_a_pool_hold_as_they_are_now(service_object: MakeService, eip_object: MakeEip):
    reader = Reader(AS_IT_COMES)
    read(reader, [service_object("web", ingress=[EIP], conditions=FROM_LAN)], [eip_object("lan", "192.0.2.0/24")])
    world, _ = read(reader, eips=[eip_object("lan", "198.51.100.0/24", **RACK_A)])
    assert world.pools["lan"].interface == LinkNames(("eth1",))


def test_what_is_recorded_of_a_pool_that_nobody_here_knew_is_no_reason_to_guess(service_object, eip_object):
    found = service_object("web", ingress=[EIP], conditions=FROM_LAN)
    world, settlement = read(Reader(AS_IT_COMES), [found], [eip_object("wan", "192.0.2.0/24")])
    assert settlement.assignments[WEB].pools == ("lan",)
    assert "lan" not in world.pools


def test_what_was_known_of_a_pool_that_is_gone_is_forgotten_with_its_last_eip(service_object, eip_object):
    reader = Reader(AS_IT_COMES)
    found = service_object("web", ingress=[EIP], conditions=FROM_LAN)
    read(reader, [found], [eip_object("lan", "192.0.2.0/24")])
    assert set(read(reader, eips=[])[0].pools) == {"lan"}
    read(reader, gone=[found.key])
    assert set(read(reader, eips=[eip_object("wan", "198.51.100.0/24")])[0].pools) == {"wan"}


@pytest.mark.parametrize(("status", "served"), [("True", True), (None, True), ("False", False)])
def test_beside_our_word_that_nothing_is_assigned_an_address_is_anothers(service_object: MakeService, status, served):
    """``None``: as an earlier release kept it for a start without an API."""
    ours = {"type": ASSIGNED} if status is None else {"type": ASSIGNED, "status": status}
    found = service_object("web", ingress=[EIP], conditions=[ours])
    assert is_or_was_assigned(None, found) is served
    _, settlement = read(Reader(AS_IT_COMES), [found])
    assert (WEB in settlement.assignments) is served


@pytest.mark.parametrize("at_once", [False, True])
def test_the_rules_of_a_pool_that_is_gone_hold_for_an_eip_that_was_heard_of_with_that(
    service_object, eip_object, at_once
):
    reader, lan = Reader(AS_IT_COMES), eip_object("lan", EIP, interface="eth1")
    from_lan = ({"type": ASSIGNED_FROM, "status": "True", "message": "IPv4 from lan"}, *OURS)
    web = service_object("web", ingress=[EIP], conditions=from_lan)
    read(reader, eips=[lan])
    if not at_once:
        read(reader, [web])
    world, settlement = read(reader, [web], eips=[])
    assert settlement.assignments[WEB].pools == ("lan",)
    assert world.pools["lan"].interface == LinkNames(("eth1",))


def test_a_pool_whose_reading_meets_a_bug_stays_as_it_was_and_is_told(service_object, eip_object):
    reader, lan = Reader(AS_IT_COMES), eip_object("lan", EIP, interface="eth1")
    from_lan = ({"type": ASSIGNED_FROM, "status": "True", "message": "IPv4 from lan"}, *OURS)
    read(reader, [service_object("web", ingress=[EIP], conditions=from_lan)], [lan])
    # What no API server comes to, and nothing here expects.
    bad = msgspec.structs.replace(lan, spec={**lan.spec, "priority": object()})
    world, settlement = read(reader, eips=[bad, eip_object("other", "192.0.2.77")])
    assert world.pools["lan"].interface == LinkNames(("eth1",))
    assert "other" in world.pools
    assert settlement.assignments[WEB].pools == ("lan",)
    (problem,) = reader.problems()
    assert problem.startswith("Eip/lan: set aside because of a bug in the speaker")
    read(reader, eips=[lan])
    assert reader.problems() == ()


def test_where_nothing_was_recorded_the_pool_that_has_the_address_now_counts(service_object, eip_object):
    found = service_object("web", ingress=[EIP, "2001:db8::10"], conditions=FROM_LAN)
    _, settlement = read(Reader(AS_IT_COMES), [found], [eip_object("wan", "192.0.2.0/24", "2001:db8::/64")])
    assert settlement.assignments[WEB].pools == ("lan", "wan")


@pytest.mark.parametrize(
    ("said", "pools"),
    [
        ("IPv4 from lan and dmz, IPv6 from six", ("lan", "dmz", "six")),
        ("IPv4 from ? and dmz", ("wan", "dmz", "wan")),
        ("IPv4 from lan", ("wan", "wan", "wan")),
        ("IPv4 from lan and dmz and more", ("wan", "wan", "wan")),
    ],
)
def test_of_several_addresses_of_a_family_each_has_its_own_pool(service_object, eip_object, said, pools):
    """Where what was recorded does not go with the addresses, it is not guessed which of them it is about."""
    conditions = (*OURS, {"type": ASSIGNED_FROM, "status": "True", "message": said})
    found = service_object("web", ingress=[EIP, "192.0.2.99", "2001:db8::10"], conditions=conditions)
    _, settlement = read(Reader(AS_IT_COMES), [found], [eip_object("wan", "192.0.2.0/24", "2001:db8::/64")])
    assert settlement.assignments[WEB].addresses == tuple(map(ip_address, (EIP, "192.0.2.99", "2001:db8::10")))
    assert settlement.assignments[WEB].pools == pools


def test_of_what_a_condition_says_without_end_no_more_is_read_than_one_of_ours_says():
    assert len(pools_read("IPv4 from lan" + " and lan" * 1_000_000)[Family.IPV4]) < MAX_SAID
    longest = " and ".join(["a" * 253] * MAX_HELD)
    assert len(pools_read(f"IPv4 from {longest}")[Family.IPV4]) == MAX_HELD


@pytest.mark.parametrize("annotation", ["eip-speaker.io/pool", "eip-speaker.io/assigned-pools", ASSIGNED_FROM])
def test_who_owns_a_service_does_not_say_which_pools_rules_hold_for_its_eip(service_object, eip_object, annotation):
    found = service_object("web", ingress=[EIP], conditions=FROM_LAN)
    data = msgspec.to_builtins(found)
    data["metadata"]["annotations"] = {annotation: "IPv4 from wan"}
    pools = [eip_object("lan", "192.0.2.0/24"), eip_object("wan", "198.51.100.0/24")]
    _, settlement = read(Reader(AS_IT_COMES), [msgspec.convert(data, AssignedObject)], pools)
    assert settlement.assignments[WEB].pools == ("lan",)


def test_a_service_that_goes_while_pools_change_is_gone(service_object: MakeService, eip_object: MakeEip):
    reader = Reader(AS_IT_COMES)
    found = service_object("web", ingress=[EIP], conditions=FROM_LAN)
    read(reader, [found], [eip_object("lan", "192.0.2.0/24")])
    _, settlement = read(reader, eips=[eip_object("wan", "192.0.2.0/24")], gone=[found.key])
    assert settlement.assignments == {}
    assert reader.services_on(ip_address(EIP)) == ()


def test_the_addresses_of_all_nodes_are_known_and_a_change_of_them_may_change_anything():
    def host(name, *addresses):
        status = {"addresses": [{"type": "InternalIP", "address": each} for each in addresses]}
        return Key("", name), msgspec.convert({"metadata": {"name": name}, "status": status}, NodeObject)

    reader = Reader(AS_IT_COMES)
    told = dict([host("n1", "192.0.2.1", "n1.example.com"), host("n2", "192.0.2.2", "2001:db8::2")])
    world, _, changed = reader.read(News(nodes=told), lambda _: ())
    assert {str(address): whose for address, whose in world.reserved.items()} == {
        "192.0.2.1": "node n1",
        "192.0.2.2": "node n2",
        "2001:db8::2": "node n2",
    }
    assert changed is None
    assert reader.read(News(nodes=dict([host("n1", "192.0.2.1")])), lambda _: ())[2] == frozenset()
    world, _, changed = reader.read(News(nodes={Key("", "n2"): None}), lambda _: ())
    assert set(map(str, world.reserved)) == {"192.0.2.1"}
    assert changed is None


def test_a_service_without_a_class_is_served_where_ours_is_the_default(service_object: MakeService):
    found = service_object("web", ingress=[EIP], conditions=OURS, loadBalancerClass=None)
    _, settlement = read(Reader(ViewSettings(default_class=True)), [found])
    assert set(settlement.assignments) == {WEB}


def test_a_service_with_a_mistake_keeps_its_address_on_the_lan(service_object: MakeService):
    found = service_object("web", ingress=[EIP], conditions=OURS, annotations={"scheduler": "no such"})
    _, settlement = read(Reader(AS_IT_COMES), [found])
    assert set(settlement.assignments) == {WEB}


def test_a_service_says_which_nodes_it_prefers_and_a_mistake_there_prefers_none(service_object: MakeService):
    for asked, preferred in (("80 zone=a", parse_preference("80 zone=a")), ("800 zone=a", ())):
        reader = Reader(AS_IT_COMES)
        found = service_object("web", ingress=[EIP], conditions=OURS, annotations={"node-preference": asked})
        world, settlement = read(reader, [found])
        assert world.services[WEB].node_preference == preferred
        assert set(settlement.assignments) == {WEB}
        assert bool(reader.problems()) is not bool(preferred)


def with_old_annotation(found: AssignedObject, ranges: str) -> AssignedObject:
    data = msgspec.to_builtins(found)
    data["metadata"]["annotations"] = {"service.beta.kubernetes.io/load-balancer-source-ranges": ranges}
    return msgspec.convert(data, AssignedObject)


@pytest.mark.parametrize(
    ("parts", "old"),
    [
        ({"loadBalancerSourceRanges": ["10.0.0.0/8"], "annotations": {"scheduler": "no such"}}, None),
        ({"loadBalancerSourceRanges": [" 10.0.0.0/8"]}, None),
        ({"loadBalancerSourceRanges": ["10.0.0.0/8", "nonsense"]}, None),
        ({}, "10.0.0.0/8"),
    ],
    ids=["a mistake elsewhere", "a blank in front", "one that is none", "the old annotation"],
)
def test_source_ranges_hold_whatever_else_is_wrong(service_object: MakeService, parts, old):
    found = service_object("web", ingress=[EIP], conditions=OURS, **parts)
    world, _ = read(Reader(ViewSettings(forwards=True)), [with_old_annotation(found, old) if old else found])
    assert world.services[WEB].source_ranges == (ip_network("10.0.0.0/8"),)


@pytest.mark.parametrize(("forwards", "told"), [(False, True), (True, False)])
def test_an_annotation_that_kube_proxy_does_not_read_is_a_problem_where_kube_proxy_forwards(
    service_object: MakeService, forwards, told
):
    reader = Reader(ViewSettings(forwards=forwards))
    found = with_old_annotation(service_object("web", ingress=[EIP], conditions=OURS), "10.0.0.0/8")
    _, settlement = read(reader, [found])
    assert set(settlement.assignments) == {WEB}
    assert any("is not enforced" in problem for problem in reader.problems()) is told


def test_what_is_wrong_with_a_service_is_told_until_it_is_mended(service_object: MakeService):
    reader = Reader(AS_IT_COMES)
    read(reader, [service_object("web", ingress=[EIP], conditions=OURS, annotations={"scheduler": "no such"})])
    (told,) = reader.problems()
    assert "'no such': is not an IPVS scheduler" in told
    read(reader, [service_object("web", ingress=[EIP], conditions=OURS)])
    assert reader.problems() == ()


@pytest.mark.parametrize(
    ("families", "served"), [(["IPv4"], [EIP]), (["IPv6"], ["2001:db8::10"]), (["IPv6", "IPv4"], [EIP, "2001:db8::10"])]
)
def test_an_eip_of_a_family_that_the_service_has_not_is_not_served(service_object: MakeService, families, served):
    found = service_object(
        "web", ingress=[EIP, "2001:db8::10"], conditions=OURS, ipFamilies=families, ipFamilyPolicy="PreferDualStack"
    )
    _, settlement = read(Reader(AS_IT_COMES), [found])
    assert settlement.assignments[WEB].addresses == tuple(map(ip_address, served))


def test_an_address_is_of_the_pool_that_offers_it_now(service_object: MakeService, eip_object: MakeEip):
    reader, found = Reader(AS_IT_COMES), service_object("web", ingress=[EIP], conditions=OURS)
    pools = []
    for eips in ([eip_object("a", "192.0.2.0/24")], [eip_object("b", "192.0.2.0/24")], []):
        _, settlement = read(reader, [found], eips)
        pools += settlement.assignments[WEB].pools
    assert pools == ["a", "b", ""]


def test_only_what_changed_is_told_and_everything_where_a_pool_did(service_object: MakeService, eip_object: MakeEip):
    reader, nothing = Reader(AS_IT_COMES), lambda _: ()
    web, dns = (service_object(name, ingress=[EIP], conditions=OURS) for name in ("web", "dns"))
    told = [
        reader.read(news, nothing)[2]
        for news in (
            News({web.key: web}, eips=(eip_object("lan", "192.0.2.0/24"),)),
            News({dns.key: dns}),
            News({web.key: web}),
            News(eips=(eip_object("lan", "192.0.2.0/24", status={"observedGeneration": 1}),)),
            News(eips=(eip_object("lan", "192.0.2.0/25"),)),
            News({dns.key: None}),
        )
    ]
    key = ServiceKey("default", "dns")
    assert told == [None, {key}, set(), set(), None, {key}]


def test_a_service_that_goes_away_or_loses_its_address_is_forgotten(service_object: MakeService):
    reader = Reader(AS_IT_COMES)
    web, dns = (service_object(name, ingress=[EIP], conditions=OURS) for name in ("web", "dns"))
    read(reader, [web, dns])
    assert reader.services_on(ip_address(EIP)) == ("default/dns", "default/web")
    world, settlement = read(reader, [service_object("dns", conditions=OURS)], gone=[web.key])
    assert (world.services, settlement.assignments) == ({}, {})
    assert reader.services_on(ip_address(EIP)) == ()


@pytest.mark.parametrize(
    ("before", "after", "looked_at"),
    [
        (None, (), False),
        ((), (EIP,), True),
        ((EIP,), (EIP,), True),
        ((EIP,), (), True),
        ((EIP,), None, True),
        ((), (), False),
        ((), None, False),
    ],
)
def test_a_service_is_looked_at_when_it_is_assigned_or_was(service_object: MakeService, before, after, looked_at):
    changed = (
        service_object("web", ingress=list(each), conditions=OURS) if each is not None else None
        for each in (before, after)
    )
    assert is_or_was_assigned(*changed) is looked_at


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, 1, 2]), st.booleans()), max_size=12))
def test_news_upon_news_comes_to_the_same_as_everything_at_once(history):
    """Services that come, move to another address, become Local and go."""
    reader, standing = Reader(AS_IT_COMES), {}
    now: Any = ({}, {})
    for name, number, local in history:
        key = Key("default", name)
        policy = "Local" if local else "Cluster"
        found = None if number is None else made_service(name, number, externalTrafficPolicy=policy)
        standing[key] = found
        now = reader.read(News({key: found}), endpoints_of)[:2]
    fresh = Reader(AS_IT_COMES).read(News(dict(standing)), endpoints_of)[:2]
    if history:
        assert now == fresh


def test_the_port_for_health_checks_is_read():
    found = made_service("web", 10, externalTrafficPolicy="Local", healthCheckNodePort=30001)
    world, _ = read(Reader(ViewSettings()), [found])
    assert world.services[WEB].health_check_port == 30001


def test_a_port_for_health_checks_that_there_is_not_is_none():
    found = made_service("web", 10, externalTrafficPolicy="Local", healthCheckNodePort=70000)
    world, _ = read(Reader(ViewSettings()), [found])
    assert world.services[WEB].health_check_port is None


# ── Endpoints ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "forwards", "read_them"),
    [("Cluster", False, False), ("Local", False, True), ("Cluster", True, True)],
)
def test_endpoints_are_read_where_the_policy_or_the_forwarder_asks(
    service_object: MakeService, policy, forwards, read_them
):
    found = service_object("web", ingress=[EIP], conditions=OURS, externalTrafficPolicy=policy)
    world, _ = read(Reader(ViewSettings(forwards=forwards)), [found], [], [slice_of(at("198.51.100.1", "n1"))])
    assert (WEB in world.endpoints) is read_them


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, (True, True, False)),
        ({"ready": False}, (False, False, False)),
        ({"ready": False, "serving": True, "terminating": True}, (False, True, True)),
        ({"ready": True, "serving": True}, (True, True, False)),
    ],
)
def test_conditions_that_are_not_told_are_taken_as_the_api_says(service_object: MakeService, conditions, expected):
    found = service_object("web", ingress=[EIP], conditions=OURS)
    world, _ = read(
        Reader(ViewSettings(forwards=True)), [found], [], [slice_of(at("198.51.100.1", "n1", **conditions))]
    )
    expected_endpoint = Endpoint(ip_address("198.51.100.1"), 8080, Protocol.TCP, "", *expected, "n1")
    assert world.endpoints[WEB] == (expected_endpoint,)


@pytest.mark.parametrize(
    "odd",
    [slice_of(), slice_of(ports=None), slice_of(at("example.com"), family="FQDN")],
    ids=["no endpoints", "as the controller makes it where no pod is", "names"],
)
def test_a_slice_that_says_nothing_of_use_gives_no_endpoint(service_object: MakeService, odd):
    found, reader = service_object("web", ingress=[EIP], conditions=OURS), Reader(ViewSettings(forwards=True))
    world, _ = read(reader, [found], [], [odd])
    assert world.endpoints[WEB] == ()
    assert reader.problems() == ()


GOOD_PORT, GOOD = {"name": "good", "port": 8080}, at("198.51.100.1")
OF_THE_SLICE = "EndpointSlice/default/web-1: "


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        *(
            (
                slice_of(GOOD, ports=[GOOD_PORT, {"name": "odd", "port": number}]),
                "ports[1].port: is required" if number is None else f"ports[1].port: {number}: must be",
            )
            for number in (0, -1, 65536, 2**31 - 1, None)
        ),
        (slice_of(GOOD, ports=[{"port": 1, "protocol": "QUIC"}, GOOD_PORT]), "ports[0].protocol: 'QUIC': must be"),
        *(
            (slice_of(GOOD, at(address), ports=[GOOD_PORT]), f"endpoints[1].addresses[0]: '{address}': must ")
            for address in (
                "127.0.0.1",
                "0.0.0.0",
                "169.254.1.1",
                "224.0.0.1",
                "239.1.1.1",
                "255.255.255.255",
                "2001:db8::1",
                "::ffff:198.51.100.1",
                "no address",
                "198.51.100.1%eth0",
                "",
            )
        ),
    ],
)
def test_what_is_wrong_in_a_slice_is_left_out_and_told_with_its_name_and_value(
    service_object: MakeService, odd, problem
):
    found, reader = service_object("web", ingress=[EIP], conditions=OURS), Reader(ViewSettings(forwards=True))
    world, _ = read(reader, [found], [], [odd])
    assert world.endpoints[WEB] == (Endpoint(ip_address("198.51.100.1"), 8080, Protocol.TCP, "good"),)
    (told,) = reader.problems()
    assert told.startswith(f"{OF_THE_SLICE}{problem}")
    read(reader, [], [], [slice_of(GOOD)])
    assert reader.problems() == ()


def test_endpoints_without_a_port_are_told(service_object: MakeService):
    found, reader = service_object("web", ingress=[EIP], conditions=OURS), Reader(ViewSettings(forwards=True))
    world, _ = read(reader, [found], [], [slice_of(GOOD, ports=None)])
    assert world.endpoints[WEB] == ()
    assert reader.problems() == (
        f"{OF_THE_SLICE}ports: must list the ports of its endpoints: without them none is used",
    )


def test_a_slice_full_of_mistakes_is_told_in_a_few_lines(service_object: MakeService):
    found, reader = service_object("web", ingress=[EIP], conditions=OURS), Reader(ViewSettings(forwards=True))
    read(reader, [found], [], [slice_of(*[at("127.0.0.1")] * 1000, GOOD)])
    assert len(reader.problems()) == 6
    assert reader.problems()[-1] == f"{OF_THE_SLICE}995 more of its values are left out"


def test_a_slice_and_a_service_have_no_more_endpoints_than_can_be_carried(service_object: MakeService):
    found, reader = service_object("web", ingress=[EIP], conditions=OURS), Reader(ViewSettings(forwards=True))

    def part(name: str, net: int) -> SliceObject:
        addresses = [at(f"10.{net}.{i // 250}.{i % 250}") for i in range(500)]
        return slice_of(*addresses, name=name, ports=[{"name": f"p{i}", "port": 1000 + i} for i in range(100)])

    many = [part("b", 2), part("a", 1)]
    world, _ = read(reader, [found], [], many)
    assert len(world.endpoints[WEB]) == MAX_ENDPOINTS
    assert {str(endpoint.address)[:5] for endpoint in world.endpoints[WEB]} == {"10.1."}, "by the names of the slices"
    assert len(reader.problems()) == 3


@pytest.mark.parametrize("backwards", [False, True])
def test_of_slices_without_end_no_more_are_read_than_may_be_used_whichever_came_first(
    service_object: MakeService, backwards: bool
):
    found, reader = service_object("web", ingress=[EIP], conditions=OURS), Reader(ViewSettings(forwards=True))
    ports = [{"name": f"p{i}", "port": 1000 + i} for i in range(100)]
    slices = [
        slice_of(*(at(f"10.{net}.0.{i}") for i in range(100)), name=f"web-{net}", ports=ports) for net in range(10, 30)
    ]
    for number in range(1, 21):
        world, _ = read(reader, [found], [], slices[-number:] if backwards else slices[:number])
    assert len(reader._slices) == MAX_READ // 10_000 + 1
    assert {str(endpoint.address)[:6] for endpoint in world.endpoints[WEB]} == {"10.10.", "10.11."}
    assert reader.problems() == (
        "Service/default/web: 15 of its EndpointSlices are left out, "
        "because those before them have more than 40000 address and port pairs",
        f"Service/default/web: only {MAX_ENDPOINTS} of its 50000 address and port pairs are used",
    )
    world, _ = read(reader, [found], [], slices[-1:])
    assert len(world.endpoints[WEB]) == 10_000
    assert reader.problems() == ()


def test_an_eip_that_a_slice_names_as_its_own_endpoint_is_told(service_object: MakeService):
    found, reader = service_object("web", ingress=[EIP], conditions=OURS), Reader(ViewSettings(forwards=True))
    read(reader, [found], [], [slice_of(at(EIP))])
    assert reader.problems() == (
        f"Service/default/web: an EndpointSlice contains its own EIP {EIP}, which is left out",
    )


def test_a_slice_that_changed_is_read_again_and_one_that_went_is_forgotten(service_object: MakeService):
    reader, found = Reader(ViewSettings(forwards=True)), service_object("web", ingress=[EIP], conditions=OURS)
    one, other = slice_of(at("198.51.100.1")), slice_of(at("198.51.100.2"), name="web-2")
    seen = []
    for slices in ([one], [one, other], [slice_of(at("198.51.100.3"))], []):
        world, _ = read(reader, [found], [], slices)
        seen.append([str(endpoint.address)[-1] for endpoint in world.endpoints[WEB]])
    assert seen == [["1"], ["1", "2"], ["3"], []]


class Odd:
    """Of a kind that no decoder gives."""

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError(name)


def test_a_service_that_meets_a_bug_stays_as_it_was_and_the_others_are_read(service_object: MakeService):
    reader = Reader(ViewSettings(forwards=True))
    web = service_object("web", ingress=[EIP], conditions=OURS)
    before, _ = read(reader, [web], [], [])
    odd = AssignedObject(web.metadata, Odd(), web.status)  # type: ignore[arg-type]
    dns = service_object("dns", ingress=["192.0.2.11"], conditions=OURS)
    world, settlement = read(reader, [odd, dns], [], [])
    assert world.services[WEB] == before.services[WEB]
    assert ServiceKey("default", "dns") in settlement.assignments
    assert set(settlement.failed) == {WEB}
    _, settlement = read(reader, [web], [], [])
    assert not settlement.failed


def test_what_met_a_bug_is_read_again_though_nothing_of_it_is_news(service_object: MakeService, eip_object):
    reader, lan = Reader(ViewSettings(forwards=True)), eip_object("lan", EIP)
    bad = msgspec.structs.replace(lan, spec={**lan.spec, "priority": object()})
    web, spec = service_object("web", ingress=[EIP], conditions=OURS), service_object("web").spec
    odd = AssignedObject(web.metadata, Odd(), web.status)  # type: ignore[arg-type]
    world, settlement = read(reader, [odd], [bad])
    assert (set(settlement.failed), len(reader.problems())) == ({WEB}, 1)
    msgspec.structs.force_setattr(odd, "spec", spec)
    bad.spec["priority"] = 0
    world, settlement = read(reader)
    assert (dict(settlement.failed), reader.problems()) == ({}, ())
    assert WEB in world.services
    assert "lan" in world.pools


def test_endpoints_that_met_a_bug_are_read_again_though_nothing_of_them_is_news(service_object: MakeService):
    reader = Reader(ViewSettings(forwards=True))
    web, one = service_object("web", ingress=[EIP], conditions=OURS), slice_of(at("198.51.100.1"))
    odd = msgspec.structs.replace(one)
    msgspec.structs.force_setattr(odd, "endpoints", Odd())
    _, settlement, _ = reader.read(News(services={web.key: web}), lambda _: [odd])
    assert set(settlement.failed) == {WEB}
    world, settlement, changed = reader.read(News(), lambda _: [one])
    assert not settlement.failed
    assert changed == {WEB}
    assert [str(endpoint.address) for endpoint in world.endpoints[WEB]] == ["198.51.100.1"]


def test_a_slice_that_meets_a_bug_sets_its_service_aside_until_it_is_another(service_object: MakeService):
    reader = Reader(ViewSettings(forwards=True))
    web, one = service_object("web", ingress=[EIP], conditions=OURS), slice_of(at("198.51.100.1"))
    odd = msgspec.structs.replace(one)
    msgspec.structs.force_setattr(odd, "endpoints", Odd())
    failed, seen = [], []
    for services, found in (([web], odd), ([], one), ([], odd), ([], slice_of(at("198.51.100.2")))):
        world, settlement = read(reader, services, slices=[found])
        assert reader.follows(WEB)
        failed.append([*settlement.failed])
        seen.append([str(endpoint.address)[-1] for endpoint in world.endpoints.get(WEB, ())])
    assert seen == [[], ["1"], ["1"], ["2"]]
    assert failed == [[WEB], [], [WEB], []]
    _, settlement = read(reader, slices=[odd], gone=[web.key])
    assert (settlement.failed, reader.follows(WEB)) == ({}, False)


@pytest.mark.parametrize(
    ("settings", "mode", "alone"),
    [
        (AS_IT_COMES, "VIP", []),
        (AS_IT_COMES, "Proxy", [EIP]),
        (ViewSettings(forwards=True), "Proxy", []),
    ],
)
def test_an_eip_that_neither_kube_proxy_nor_this_node_carries_is_named(settings, mode, alone):
    reader = Reader(settings)
    for ip_mode in ("VIP", "Proxy", mode):  # it changes while all else stays
        found = msgspec.convert(
            {
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {
                    "type": "LoadBalancer",
                    "loadBalancerClass": "eip-speaker.io/speaker",
                    "ports": [{"port": 80}],
                },
                "status": {"loadBalancer": {"ingress": [{"ip": EIP, "ipMode": ip_mode}]}, "conditions": OURS},
            },
            AssignedObject,
        )
        world, _ = read(reader, [found])
    assert world.services[WEB].left_alone == frozenset(map(ip_address, alone))
