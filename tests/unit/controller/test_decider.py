"""Whatever stands in the API: nobody's mistake stops the others, no EIP is given twice, and a restart agrees."""

from dataclasses import replace
from ipaddress import ip_address

import msgspec
import pytest
from api_after import written
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from speaker.api.kinds import ASSIGNED, ASSIGNED_FROM, HostObject, ServiceObject
from speaker.api.objects import Key, Metadata, Object
from speaker.controller.announced import Users
from speaker.controller.decider import HINT_SECONDS, ControllerSettings, Decider, News
from speaker.controller.wanted import FINALIZER, IpMode

AT = "2026-01-02T00:00:00Z"
MARK = {"type": ASSIGNED, "status": "True", "reason": "Assigned", "message": ""}

ADDRESS = st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.3", "203.0.113.9", "2001:db8::1", "2001:db8::1%eth0"])
TEXT = st.one_of(ADDRESS, st.text(max_size=8), st.sampled_from(["lan", "dns", "192.0.2.1,2001:db8::1", ","]))
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["pool", "addresses", "share", "share-namespaces", "record", "recrod"]), TEXT, max_size=3
)
SERVICES = st.lists(
    st.fixed_dictionaries(
        {
            "age": st.integers(0, 3),
            "annotations": ANNOTATIONS,
            "ingress": st.lists(ADDRESS, max_size=2),
            "loadBalancerIP": st.one_of(st.just(""), TEXT),
            "ports": st.sampled_from([[{"port": 80}], [{"port": 81}], [{"port": 0}]]),
            "type": st.sampled_from(["LoadBalancer", "LoadBalancer", "ClusterIP", "?"]),
        }
    ),
    min_size=1,
    max_size=6,
)


def news(services, pools=()):
    return News({found.key: found for found in services}, {found.key: found for found in pools})


def test_the_mode_of_all_addresses_follows_what_is_found_out(service_object, eip_object):
    path = "/api/v1/namespaces/default/services/web/status"

    def mode(orders):
        order = orders[path]
        return [each["ipMode"] for each in order.body()["status"]["loadBalancer"]["ingress"]] if order else None

    decider = Decider(ControllerSettings(ip_mode=None))
    web, pool = service_object("web"), eip_object("lan", "192.0.2.1")
    assert mode(decider.decide(news([web], [pool]), 1.0, AT)) == ["VIP"]
    assert mode(decider.decide(News(ip_mode=IpMode.PROXY), 2.0, AT)) == ["Proxy"]
    assert path not in decider.decide(News(ip_mode=IpMode.PROXY), 3.0, AT)
    assert path not in decider.decide(News(), 4.0, AT)
    assert mode(decider.decide(News(ip_mode=IpMode.VIP), 5.0, AT)) == ["VIP"]


RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


def annotated(found):
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, annotations={RANGES: "10.0.0.0/8"})
    )


@pytest.mark.parametrize(
    ("mode", "ingress", "assigned"),
    [(IpMode.VIP, [], False), (IpMode.PROXY, [], True), (None, [], False), (IpMode.VIP, ["192.0.2.1"], True)],
)
def test_source_ranges_that_nobody_would_enforce_are_worth_no_eip_and_one_that_is_there_stays_and_is_told(
    service_object, eip_object, mode, ingress, assigned
):
    web = annotated(service_object("web", ingress=ingress, conditions=[MARK] if ingress else []))
    orders = Decider(ControllerSettings(ip_mode=mode)).decide(news([web], [eip_object("lan", "192.0.2.1")]), 1.0, AT)
    said = condition(orders)
    assert said["status"] == str(assigned)
    if mode is not IpMode.PROXY:
        assert said["reason"] == "Invalid"
        assert "is not enforced" in said["message"]


def test_who_forwards_may_change_and_with_it_whether_source_ranges_are_enforced(service_object, eip_object):
    decider = Decider(ControllerSettings(ip_mode=None))
    decider.decide(news([annotated(service_object("web"))], [eip_object("lan", "192.0.2.1")]), 1.0, AT)
    assert condition(decider.decide(News(ip_mode=IpMode.PROXY), 2.0, AT))["reason"] == "Assigned"
    said = condition(decider.decide(News(ip_mode=IpMode.VIP), 3.0, AT))
    assert (said["status"], said["reason"]) == ("True", "Invalid")


def condition(orders):
    body = orders["/api/v1/namespaces/default/services/web/status"].body()
    return next(each for each in body["status"]["conditions"] if each["type"] == ASSIGNED)


def test_the_users_of_an_eip_are_its_services_and_its_pool(service_object, eip_object):
    decider = Decider(ControllerSettings())
    web, lan = service_object("web"), eip_object("lan", "192.0.2.1")
    decider.decide(news([web], [lan]), 1.0, AT)
    assert decider.users({"192.0.2.1", "192.0.2.2"}) == {"192.0.2.1": Users([web.metadata], lan.metadata)}
    decider.decide(News({web.key: None}), 2.0, AT)
    assert decider.users({"192.0.2.1"}) == {}


def reasons(decider, now):
    return [(event.about.name, event.reason) for event in decider.hints(now, AT)]


def test_who_names_no_class_and_is_served_by_nobody_is_told_once_what_to_do(service_object, eip_object):
    decider = Decider(ControllerSettings())
    decider.decide(news([service_object("web", loadBalancerClass=None)], [eip_object("lan", "192.0.2.1")]), 100.0, AT)
    assert reasons(decider, 100.0 + HINT_SECONDS - 0.1) == []
    assert reasons(decider, 100.0 + HINT_SECONDS) == [("web", "NotServed")]
    assert reasons(decider, 100.0 + 3 * HINT_SECONDS) == []


@pytest.mark.parametrize(
    ("service", "pools", "default_class"),
    [
        pytest.param({"loadBalancerClass": None}, 0, False, id="nothing of ours is about"),
        pytest.param({"loadBalancerClass": "else.where/lb"}, 1, False, id="it is another's"),
        pytest.param({"loadBalancerClass": None}, 1, True, id="it is served"),
        pytest.param({"loadBalancerClass": None, "ingress": ["203.0.113.1"]}, 1, False, id="another serves it"),
        pytest.param({"loadBalancerClass": None, "type": "ClusterIP"}, 1, False, id="it is no load balancer"),
    ],
)
def test_nobody_else_is_told(service, pools, default_class, service_object, eip_object):
    decider = Decider(ControllerSettings(default_class=default_class))
    lan = [eip_object("lan", "192.0.2.1")][:pools]
    decider.decide(news([service_object("web", **service)], lan), 100.0, AT)
    assert reasons(decider, 1000.0) == []


def test_our_annotations_are_a_wish_where_there_is_no_pool(service_object):
    decider = Decider(ControllerSettings())
    asks = service_object("web", loadBalancerClass=None, annotations={"pool": "lan"})
    decider.decide(news([asks]), 100.0, AT)
    assert reasons(decider, 1000.0) == [("web", "NotServed")]


def test_one_that_is_deleted_or_served_meanwhile_is_not_told(service_object, eip_object):
    decider = Decider(ControllerSettings())
    asks = service_object("web", loadBalancerClass=None)
    decider.decide(news([asks], [eip_object("lan", "192.0.2.1")]), 100.0, AT)
    decider.decide(News({asks.key: None}), 101.0, AT)
    assert reasons(decider, 1000.0) == []


@pytest.mark.parametrize("stands", [IpMode.VIP, IpMode.PROXY])
def test_a_leader_that_has_not_found_out_leaves_the_mode_as_it_stands(service_object, eip_object, stands):
    before = Decider(ControllerSettings(ip_mode=stands))
    web, pool = service_object("web"), eip_object("lan", "192.0.2.1")
    bodies = {path: order.body() for path, order in before.decide(news([web], [pool]), 1.0, AT).items() if order}
    found = written(web, bodies)
    assert [each.ip_mode for each in found.status.load_balancer.ingress] == [stands]
    orders = Decider(ControllerSettings(ip_mode=None)).decide(news([found], [pool]), 2.0, AT)
    assert orders["/api/v1/namespaces/default/services/web/status"] is None


MISTAKEN = {
    "age": 0,
    "annotations": {"share": "dns", "addresses": ""},
    "loadBalancerIP": "",
    "ports": [{"port": 80}],
    "type": "LoadBalancer",
}
"""It keeps what it has and is given nothing."""


@example(
    described=[  # the second is suspended at the EIP that it names first
        {**MISTAKEN, "ingress": ["2001:db8::1"]},
        {**MISTAKEN, "ingress": ["2001:db8::1", "192.0.2.1"]},
    ]
)
@given(described=SERVICES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_whatever_services_say(service_object, eip_object, described):
    services = [service_object(f"s{number}", **parts) for number, parts in enumerate(described)]
    pools = [eip_object("lan", "192.0.2.1-192.0.2.3", "2001:db8::1-2001:db8::2")]
    decider = Decider(ControllerSettings())
    for _ in range(3):  # what somebody gives up the next reading may give to who waits
        orders = decider.decide(news(services, pools), 1.0, AT)
        bodies = {path: order.body() for path, order in orders.items() if order is not None}
        services = [written(found, bodies) for found in services]

    ours = [found for found in services if found.metadata.annotations.get("eip-speaker.io/record")]
    served: dict[str, list[ServiceObject]] = {}
    for found in ours:
        if found.spec.type == "LoadBalancer":
            for ingress in found.status.load_balancer.ingress:
                served.setdefault(ingress.ip, []).append(found)
    for holders in served.values():
        shares = {found.metadata.annotations.get("eip-speaker.io/share") for found in holders}
        assert len(holders) == 1 or (len(shares) == 1 and None not in shares)

    def said(by: Decider) -> set[str]:
        orders = by.decide(news(services, pools), 1.0, AT)
        return {path for path, order in orders.items() if order is not None and "/services/" in path}

    assert said(decider) == set()
    assert said(Decider(ControllerSettings())) == set()  # a new leader finds nothing to change


def test_a_change_is_answered_with_what_changes(service_object, eip_object):
    decider = Decider(ControllerSettings())
    lan = eip_object("lan", "192.0.2.1-192.0.2.9")
    first = decider.decide(news([service_object("a"), service_object("b")], [lan]), 1.0, AT)
    assert {path for path in first if "/services/" in path} == {path_of("a"), path_of("b")}
    back = written(service_object("a"), {path: order.body() for path, order in first.items() if order is not None})
    assert decider.decide(news([back]), 1.0, AT)[path_of("a")] is None
    more = decider.decide(news([service_object("c")]), 1.0, AT)
    assert {path for path in more if "/services/" in path} == {path_of("c")}
    gone = decider.decide(News({back.key: None}), 1.0, AT)
    assert {path: order for path, order in gone.items() if "/services/" in path} == {path_of("a"): None}


@pytest.mark.parametrize(
    "mistake",
    [
        {"ipFamilies": ["IPv5"]},
        {"ipFamilies": ["IPv4", "IPv5"]},
        {"ipFamilyPolicy": "Sideways", "ipFamilies": ["IPv4", "IPv6"]},
        {"type": "Sideways"},
        {"ports": [{"port": 0}]},
        {"annotations": {"pool": "UPPER"}},
        {"annotations": {"addresses": "192.0.2.2", "adresses": "192.0.2.2"}},
    ],
)
@pytest.mark.parametrize("families", [["IPv4"], ["IPv4", "IPv6"]])
def test_a_service_that_cannot_be_read_any_more_keeps_what_it_holds_and_gets_nothing_new(
    service_object, eip_object, mistake, families
):
    decider = Decider(ControllerSettings())
    lan = eip_object("lan", "192.0.2.1-192.0.2.2", "2001:db8::1-2001:db8::2")
    good = {"ipFamilies": families, "ipFamilyPolicy": "PreferDualStack"}
    first = decider.decide(news([service_object("a", **good)], [lan]), 1.0, AT)
    held = first[path_of("a")].body()["status"]["loadBalancer"]["ingress"]
    assert len(held) == len(families)
    ingress = [each["ip"] for each in held]
    told = decider.decide(news([service_object("a", ingress=ingress, **{**good, **mistake})]), 1.0, AT)
    status = told[path_of("a")].body()["status"]
    assert "loadBalancer" not in status
    assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == ("True", "Invalid")


def test_a_service_whose_reading_meets_a_bug_keeps_what_it_holds(service_object, eip_object):
    decider = Decider(ControllerSettings())
    web = service_object("web")
    first = decider.decide(news([web], [eip_object("lan", "192.0.2.1-192.0.2.2")]), 1.0, AT)
    web = written(web, {path_of("web"): first[path_of("web")].body()})
    orders = decider.decide(news([met_with_a_bug(web), service_object("other")]), 1.0, AT)
    assert [key.name for key in decider.failed] == ["web"]
    assert "loadBalancer" not in orders[path_of("web")].body()["status"]
    other = orders[path_of("other")].body()["status"]["loadBalancer"]["ingress"]
    assert other == [{"ip": "192.0.2.2", "ipMode": "VIP"}], "web's is not free"


def test_a_service_whose_reading_met_a_bug_is_read_again_though_nothing_of_it_is_news(service_object, eip_object):
    decider = Decider(ControllerSettings())
    bad = met_with_a_bug(service_object("web"))
    decider.decide(news([bad], [eip_object("lan", "192.0.2.1-192.0.2.2")]), 1.0, AT)
    orders = decider.decide(News(), 2.0, AT)
    assert [key.name for key in decider.failed] == ["web"]
    del bad.metadata.labels["tier"]
    orders = decider.decide(News(), 3.0, AT)
    assert not decider.failed
    ingress = orders[path_of("web")].body()["status"]["loadBalancer"]["ingress"]
    assert ingress == [{"ip": "192.0.2.1", "ipMode": "VIP"}]


def met_with_a_bug(found):
    """No API server comes to such a label, and nothing here expects it."""
    metadata = msgspec.structs.replace(found.metadata, labels={"tier": object()}, resource_version="99")
    return msgspec.structs.replace(found, metadata=metadata)


def test_a_new_leader_gives_the_eip_of_a_service_whose_reading_meets_a_bug_to_nobody(service_object, eip_object):
    lan = eip_object("lan", "192.0.2.1-192.0.2.3")
    some = [service_object(f"s{port}", ports=[{"port": port}], annotations={"share": "k"}) for port in (80, 81)]
    first = Decider(ControllerSettings()).decide(news(some, [lan]), 1.0, AT)
    bodies = {path: order.body() for path, order in first.items() if order is not None}
    bad, good = (written(found, bodies) for found in some)
    decider = Decider(ControllerSettings())
    orders = decider.decide(news([met_with_a_bug(bad), good, service_object("other")], [lan]), 1.0, AT)
    assert [key.name for key in decider.failed] == ["s80"]
    status = orders[path_of("s80")].body()["status"]
    assert "loadBalancer" not in status
    assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == ("True", "Invalid")
    assert orders[path_of("s81")] is None, "who shares it notices nothing"
    other = orders[path_of("other")].body()["status"]["loadBalancer"]["ingress"]
    assert other == [{"ip": "192.0.2.2", "ipMode": "VIP"}]


def after(services, orders):
    bodies = {path: order.body() for path, order in orders.items() if order is not None}
    return [written(found, bodies) for found in services]


def ips(services):
    return [[each.ip for each in found.status.load_balancer.ingress] for found in services]


@pytest.mark.parametrize(
    "lan",
    [
        {"disabled": True},
        {"addresses": ["192.0.2.5-192.0.2.9"]},
        {"autoAssign": False},
        {"perNamespace": 1},
        {"addresses": ["192.0.2.300"]},
    ],
    ids=["disabled", "shrunk", "by name only", "limited", "invalid"],
)
@pytest.mark.parametrize("lacking", [1, 3])
@pytest.mark.parametrize("mistake", [{}, {"type": "Sideways"}])
def test_services_that_a_first_list_lacked_keep_their_eips(service_object, eip_object, lan, lacking, mistake):
    """Whether the API lost them for a while or etcd was restored: nobody else has them."""
    services = [
        service_object("a", annotations={"share": "k"}),
        service_object("b", annotations={"share": "k"}, ports=[{"port": 81}]),
        service_object("c"),
    ]
    before = Decider(ControllerSettings()).decide(news(services, [eip_object("lan", "192.0.2.1-192.0.2.9")]), 1.0, AT)
    services = after(services, before)
    held = ips(services)
    assert held == [["192.0.2.1"], ["192.0.2.1"], ["192.0.2.2"]]
    spec = msgspec.structs.replace(services[0].spec, **mistake)
    services[0] = msgspec.structs.replace(services[0], spec=spec)
    decider = Decider(ControllerSettings())
    decider.decide(
        news(services[lacking:], [eip_object("lan", **{"addresses": ["192.0.2.1-192.0.2.9"], **lan})]), 1.0, AT
    )
    assert ips(after(services, decider.decide(news(services[:lacking]), 2.0, AT))) == held


def test_a_service_that_comes_back_takes_its_eip_from_nobody(service_object, eip_object):
    lan = eip_object("lan", "192.0.2.1-192.0.2.9")
    (web,) = after(
        [service_object("web")], Decider(ControllerSettings()).decide(news([service_object("web")], [lan]), 1.0, AT)
    )
    decider = Decider(ControllerSettings())
    (other,) = after([service_object("other")], decider.decide(news([service_object("other")], [lan]), 1.0, AT))
    services = after([web, other], decider.decide(news([web]), 2.0, AT))
    assert ips(services) == [["192.0.2.2"], ["192.0.2.1"]]


def test_a_tenant_who_claims_an_eip_by_annotation_is_not_one_that_comes_back(service_object, eip_object):
    decider = Decider(ControllerSettings())
    decider.decide(news([], [eip_object("lan", "192.0.2.1-192.0.2.9", autoAssign=False)]), 1.0, AT)
    asks = service_object("web", annotations={"record": "192.0.2.1"}, ingress=["192.0.2.1"])
    assert condition(decider.decide(news([asks]), 2.0, AT))["status"] == "False"


@pytest.mark.parametrize("spec", [{}, {"externalTrafficPolicy": "Local", "selector": {"app": "web"}}])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("age", [0, 2])
def test_a_service_without_room_and_who_shares_its_eip_keep_it(service_object, eip_object, spec, restarts, age):
    """Of what is set aside it is not known whether they still agree: they did."""
    where = ["one", "one"] if spec else ["one", "two"]
    services = [
        service_object("a", age=age, annotations={"share": "k", "share-namespaces": "two"}, **spec),
        service_object("b", age=1, annotations={"share": "k", "share-namespaces": "one"}, ports=[{"port": 81}], **spec),
    ]
    services = [in_namespace(found, name) for found, name in zip(services, where, strict=True)]
    lan, decider = eip_object("lan", "192.0.2.1-192.0.2.9"), Decider(ControllerSettings())
    whole = after(services, decider.decide(news(services, [lan]), 1.0, AT))
    assert ips(whole) == [["192.0.2.1"], ["192.0.2.1"]]
    aside = [whole[0].remnant(), relabelled(whole[1])]
    if restarts:
        decider = Decider(ControllerSettings())
    told = after(whole, decider.decide(news(aside, [lan] if restarts else []), 2.0, AT))
    assert ips(told) == [["192.0.2.1"], ["192.0.2.1"]]
    third = in_namespace(service_object("c", annotations={"share": "k"}), where[0])
    assert ips(after([third], decider.decide(news([third]), 3.0, AT))) == [["192.0.2.2"]], "nobody joins unseen"
    assert ips(after(whole, decider.decide(news(whole), 4.0, AT))) == [["192.0.2.1"], ["192.0.2.1"]]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_service_that_was_suspended_is_not_served_for_want_of_room(service_object, eip_object, restarts):
    lan, decider = eip_object("lan", "192.0.2.1-192.0.2.9"), Decider(ControllerSettings())
    a, b = (service_object(name, ports=[{"port": n}], annotations={"share": "k"}) for name, n in (("a", 80), ("b", 81)))
    a, b = after([a, b], decider.decide(news([a, b], [lan]), 1.0, AT))
    clashing = msgspec.structs.replace(a, spec=msgspec.structs.replace(a.spec, ports=b.spec.ports))
    a, b = after([clashing, b], decider.decide(news([clashing]), 2.0, AT))
    assert ips([a, b]) == [[], ["192.0.2.1"]]
    if restarts:
        decider = Decider(ControllerSettings())
    assert ips(after([a, b], decider.decide(news([a.remnant(), b], [lan]), 3.0, AT))) == [[], ["192.0.2.1"]]


def in_namespace(found, namespace):
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, namespace=namespace))


def relabelled(found):
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels={"a": "b"}))


@pytest.mark.parametrize("cls", ["else.where/lb", None])
def test_nothing_is_written_to_a_service_of_another_whose_reading_meets_a_bug(service_object, eip_object, cls):
    decider = Decider(ControllerSettings())
    theirs = service_object("theirs", loadBalancerClass=cls, ingress=["203.0.113.1"])
    orders = decider.decide(news([met_with_a_bug(theirs)], [eip_object("lan", "192.0.2.1")]), 1.0, AT)
    assert [key.name for key in decider.failed] == ["theirs"]
    assert orders[path_of("theirs")] is None


class Unequal:
    def __eq__(self, other):
        raise ValueError("not to be compared")

    __hash__ = None


def test_a_service_whose_status_meets_a_bug_is_named_and_what_was_written_last_stays(service_object, eip_object):
    decider = Decider(ControllerSettings())
    web = service_object("web")
    first = decider.decide(news([web], [eip_object("lan", "192.0.2.1-192.0.2.2")]), 1.0, AT)
    web = written(web, {path_of("web"): first[path_of("web")].body()})
    # A type that no API server comes to, and nothing here expects.
    status = msgspec.structs.replace(web.status, conditions=({"type": ASSIGNED, "status": Unequal()},))
    orders = decider.decide(news([msgspec.structs.replace(web, status=status), service_object("other")]), 1.0, AT)
    assert [key.name for key in decider.failed] == ["web"]
    assert path_of("web") not in orders, "None would say that nothing is to be written any more"
    assert orders[path_of("other")] is not None


def test_preferring_two_families_is_no_mistake_where_the_cluster_has_one(service_object, eip_object):
    asking = service_object("a", ipFamilies=["IPv4"], ipFamilyPolicy="PreferDualStack")
    for pool in (eip_object("lan", "192.0.2.1", "2001:db8::1"), eip_object("lan", "192.0.2.1")):
        orders = Decider(ControllerSettings()).decide(news([asking], [pool]), 1.0, AT)
        status = orders[path_of("a")].body()["status"]
        assert [each["ip"] for each in status["loadBalancer"]["ingress"]] == ["192.0.2.1"]
        assert status["conditions"][0]["reason"] == "Assigned"


def test_a_pool_that_is_gone_is_written_to_no_more(eip_object):
    decider = Decider(ControllerSettings())
    lan = eip_object("lan", "192.0.2.1-192.0.2.9")
    status = "/apis/eip-speaker.io/v1alpha1/eips/lan/status"
    assert decider.decide(news([], [lan]), 1.0, AT)[status] is not None
    assert decider.decide(News(eips={lan.key: None}), 1.0, AT)[status] is None


@pytest.mark.parametrize("labels", [{}, {"tier": "gold"}])
def test_who_may_use_a_pool_follows_the_labels_of_the_namespace(service_object, eip_object, labels):
    decider = Decider(ControllerSettings())
    lan = eip_object("lan", "192.0.2.1", namespaceSelector={"matchLabels": {"tier": "gold"}})
    first = decider.decide(news([service_object("a")], [lan]), 1.0, AT)[path_of("a")]
    assert first.body()["status"]["conditions"][0]["status"] == "False"
    default = Object(Metadata(name="default", labels=labels))
    then = decider.decide(News(namespaces={default.key: default}), 1.0, AT)
    assert (path_of("a") in then) == bool(labels)


NO_TIER = {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
NO_TIN = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["tin"]}]}
GOLD = {"matchLabels": {"tier": "gold"}}
BY_NAME = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}


@pytest.mark.parametrize(
    ("selector", "labels", "served"),
    [
        (GOLD, {"tier": "gold"}, True),
        (GOLD, {}, False),
        (NO_TIER, {}, True),
        (NO_TIER, {"tier": "gold"}, False),
        (NO_TIN, {"tier": "tin"}, False),
    ],
)
def test_by_its_record_a_service_has_what_the_labels_of_its_namespace_allow(
    service_object, eip_object, selector, labels, served
):
    default = Object(Metadata(name="default", labels=labels))
    web = service_object("web", annotations={"record": "192.0.2.7"})
    change = news([web], [lan(eip_object, namespaceSelector=selector)])
    decider = Decider(ControllerSettings())
    decider.decide(News(change.services, change.eips, {default.key: default}), 1.0, AT)
    assert addresses(decider) == (["192.0.2.7"] if served else [])


@pytest.mark.parametrize(
    ("selector", "labels", "before", "after"),
    [
        (NO_TIER, {"tier": "gold"}, [], []),
        (NO_TIER, {}, [], ["192.0.2.1"]),
        (NO_TIN, {"tier": "tin"}, [], []),
        (NO_TIN, {"tier": "gold"}, [], ["192.0.2.1"]),
        (BY_NAME, {"tier": "gold"}, ["192.0.2.1"], ["192.0.2.1"]),
    ],
)
def test_a_service_that_is_heard_of_before_its_namespace_waits_for_the_labels_where_a_pool_looks_at_them(
    service_object, eip_object, selector, labels, before, after
):
    decider = Decider(ControllerSettings())
    decider.decide(news([], [lan(eip_object, namespaceSelector=selector)]), 1.0, AT)
    decider.decide(news([service_object("web")]), 2.0, AT)
    assert addresses(decider) == before
    default = Object(Metadata(name="default", labels=labels))
    decider.decide(News(namespaces={default.key: default}), 3.0, AT)
    assert addresses(decider) == after


def made_anew(found):
    """Another one under the same name, without what was written to it."""
    metadata = msgspec.structs.replace(found.metadata, uid="another", resource_version="99")
    return msgspec.structs.replace(found, metadata=metadata)


@pytest.mark.parametrize("at_once", [False, True], ids=["each change by itself", "both changes in one"])
@pytest.mark.parametrize(
    ("anew", "has"),
    [
        ({"annotations": {"share": "k"}, "ports": [{"port": 81}]}, "192.0.2.1"),
        ({"annotations": {"share": "k"}, "ports": [{"port": 80}]}, "192.0.2.2"),
        ({"annotations": {}, "ports": [{"port": 81}]}, "192.0.2.2"),
    ],
    ids=["shares as before", "clashes", "shares no more"],
)
def test_a_service_that_is_made_anew_is_a_new_one_however_its_end_and_its_beginning_are_heard_of(
    service_object, eip_object, at_once, anew, has
):
    decider, parts = Decider(ControllerSettings()), {"annotations": {"share": "k"}}
    some = [service_object(f"s{port}", ports=[{"port": port}], **parts) for port in (80, 81)]
    decider.decide(news(some, [lan(eip_object)]), 1.0, AT)
    other = made_anew(service_object("s81", **anew))
    if not at_once:
        decider.decide(News({other.key: None}), 2.0, AT)
    orders = decider.decide(news([other]), 2.0, AT)
    assert orders[path_of("s81")].body()["status"]["loadBalancer"]["ingress"] == [{"ip": has, "ipMode": "VIP"}]


@pytest.mark.parametrize("uids", [("", "web"), ("web", "")])
def test_a_service_without_a_uid_is_the_one_of_its_name(service_object, eip_object, uids):
    """One that could not be decoded; its pool gives nothing new meanwhile."""

    def known_as(uid):
        found = service_object("web", ingress=["192.0.2.1"], conditions=[MARK])
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, uid=uid))

    decider, (before, after) = Decider(ControllerSettings()), map(known_as, uids)
    decider.decide(news([before], [lan(eip_object, disabled=True)]), 1.0, AT)
    decider.decide(news([after]), 2.0, AT)
    assert addresses(decider) == ["192.0.2.1"]


def test_a_service_that_is_made_anew_as_it_was_keeps_its_address(service_object, eip_object):
    decider, web = Decider(ControllerSettings()), service_object("web")
    decider.decide(news([service_object("a"), web], [lan(eip_object)]), 1.0, AT)
    orders = decider.decide(news([made_anew(web)]), 2.0, AT)
    assert orders[path_of("web")].body()["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.2", "ipMode": "VIP"}]


# ── Services that a backup brings back ────────────────────────────────────────────────────────────────────────


def restored_while_one_leads(decider, eip_object, *came, pools=None):
    """What each of ``came`` has."""
    decider.decide(news([], pools or [lan(eip_object, "192.0.2.1-192.0.2.9", "2001:db8::1-2001:db8::9")]), 1.0, AT)
    decider.decide(news(came), 2.0, AT)
    outcomes = decider.decided().outcomes
    return {key.name: [str(each) for each in outcomes[key].assignment.addresses] for key in sorted(outcomes)}


def test_a_service_that_comes_back_from_a_backup_while_one_leads_has_the_addresses_of_its_record(
    service_object, eip_object
):
    both = {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"}
    web = service_object("web", annotations={"record": "192.0.2.7,2001:db8::7"}, **both)
    new = service_object("a-new-one", age=1)
    assert restored_while_one_leads(Decider(ControllerSettings()), eip_object, web, new) == {
        "a-new-one": ["192.0.2.1"],
        "web": ["2001:db8::7", "192.0.2.7"],
    }


def test_no_free_choice_takes_what_one_that_comes_back_with_it_had(service_object, eip_object):
    older, back = service_object("older", age=1), service_object("back", annotations={"record": "192.0.2.1"})
    assert restored_while_one_leads(Decider(ControllerSettings()), eip_object, older, back) == {
        "back": ["192.0.2.1"],
        "older": ["192.0.2.2"],
    }


def test_services_that_shared_an_eip_come_back_to_it_together(service_object, eip_object):
    parts = {"annotations": {"record": "192.0.2.7", "share": "k"}}
    some = [service_object(f"s{port}", ports=[{"port": port}], **parts) for port in (80, 81)]
    assert restored_while_one_leads(Decider(ControllerSettings()), eip_object, *some) == {
        "s80": ["192.0.2.7"],
        "s81": ["192.0.2.7"],
    }


def test_of_two_that_come_with_one_record_the_older_has_the_address(service_object, eip_object):
    copies = [service_object(name, age=age, annotations={"record": "192.0.2.7"}) for name, age in (("a", 1), ("b", 2))]
    assert restored_while_one_leads(Decider(ControllerSettings()), eip_object, *copies) == {
        "a": ["192.0.2.1"],
        "b": ["192.0.2.7"],
    }


def test_what_went_in_the_same_news_is_free_for_one_that_had_it_before(service_object, eip_object):
    """As after etcd went back: what was given since is gone, and who was deleted since is back."""
    decider, since = Decider(ControllerSettings()), service_object("since")
    decider.decide(news([since], [lan(eip_object)]), 1.0, AT)
    assert addresses(decider) == ["192.0.2.1"]
    back = service_object("back", annotations={"record": "192.0.2.1"})
    decider.decide(News({since.key: None, back.key: back}), 2.0, AT)
    assert addresses(decider) == ["192.0.2.1"]


def test_it_has_what_it_had_also_where_its_namespace_or_its_pool_is_heard_of_later(service_object, eip_object):
    decider = Decider(ControllerSettings())
    decider.decide(news([]), 1.0, AT)
    decider.decide(news([service_object("web", annotations={"record": "192.0.2.7"})]), 2.0, AT)
    decider.decide(news([], [lan(eip_object, namespaceSelector=GOLD)]), 100.0, AT)
    assert addresses(decider) == []
    default = Object(Metadata(name="default", labels={"tier": "gold"}))
    decider.decide(News(namespaces={default.key: default}), 200.0, AT)
    assert addresses(decider) == ["192.0.2.7"]


@pytest.mark.parametrize(
    ("pool", "has"),
    [
        ({}, "192.0.2.9"),
        ({"serviceSelector": {"matchLabels": {"tier": "gold"}}}, None),
        ({"disabled": True}, None),
        ({"exclude": ["192.0.2.9"]}, "192.0.2.2"),
    ],
)
def test_a_record_is_worth_no_more_than_a_wish(service_object, eip_object, pool, has):
    decider = Decider(ControllerSettings())
    decider.decide(news([service_object("holds")], [lan(eip_object, **{**pool, "disabled": False})]), 1.0, AT)
    decider.decide(news([], [lan(eip_object, **pool)]), 1.0, AT)
    decider.decide(news([service_object("back", annotations={"record": "192.0.2.9"})]), 2.0, AT)
    given = {key.name: outcome.assignment for key, outcome in decider.decided().outcomes.items()}
    assert (str(given["back"].addresses[0]) if given["back"] else None) == has


def test_a_record_takes_nothing_from_anybody(service_object, eip_object):
    decider = Decider(ControllerSettings())
    decider.decide(news([service_object("holds")], [lan(eip_object)]), 1.0, AT)
    decider.decide(news([service_object("copy", annotations={"record": "192.0.2.1"})]), 2.0, AT)
    assert addresses(decider) == ["192.0.2.1", "192.0.2.2"]


def addresses(decider):
    outcomes = decider.decided().outcomes.values()
    return [str(address) for each in outcomes if each.assignment for address in each.assignment.addresses]


@pytest.mark.parametrize(("conditions", "kept"), [([], ["192.0.2.1"]), ([MARK], [])])
def test_what_another_gave_a_service_that_is_ours_now_is_no_eip_where_it_is_a_nodes_own_address(
    service_object, eip_object, conditions, kept
):
    web = service_object("web", ingress=["192.0.2.7"], conditions=conditions)
    change = news([web], [lan(eip_object)])
    decider = Decider(ControllerSettings())
    decider.decide(News(change.services, change.eips, nodes=host("n1", "192.0.2.7")), 1.0, AT)
    assert addresses(decider) == kept
    decider.decide(News(nodes={Key("", "n1"): None}), 2.0, AT)
    assert addresses(decider) == (kept or ["192.0.2.7"])


@pytest.mark.parametrize(
    ("record", "has", "waits"),
    [
        ("192.0.2.7", ["192.0.2.7"], ["192.0.2.7"]),
        ("192.0.2.9", [], ["192.0.2.9"]),
        (None, [], ["192.0.2.9"]),
    ],
    ids=["another controller wrote it there", "a host has what we gave", "nobody knows"],
)
def test_a_nodes_own_address_beside_our_mark_is_an_eip_where_the_record_names_it(
    service_object, eip_object, record, has, waits
):
    """As where two controllers write over each other's status while the leader changes."""
    annotations = {"record": record} if record else {}
    web = service_object("web", ingress=["192.0.2.9"], conditions=[MARK], annotations=annotations)
    change = news([web], [lan(eip_object)])
    decider = Decider(ControllerSettings())
    decider.decide(News(change.services, change.eips, nodes=host("n1", "192.0.2.9")), 1.0, AT)
    assert addresses(decider) == has
    decider.decide(News(nodes={Key("", "n1"): None}), 2.0, AT)
    assert addresses(decider) == waits


def path_of(name):
    return f"/api/v1/namespaces/default/services/{name}/status"


def test_who_waits_for_a_pool_is_served_when_there_is_one(service_object, eip_object):
    decider = Decider(ControllerSettings())
    assert (
        decider.decide(news([service_object("a")]), 1.0, AT)[path_of("a")].body()["status"].get("loadBalancer") is None
    )
    lan = eip_object("lan", "192.0.2.1")
    then = decider.decide(news([], [lan]), 1.0, AT)[path_of("a")]
    assert then.body()["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.1", "ipMode": "VIP"}]
    moved = eip_object("lan", "192.0.2.9")
    flagged = decider.decide(news([], [moved]), 1.0, AT)[path_of("a")]
    assert flagged.body()["status"]["conditions"][0]["reason"] == "Flagged"


# ── Pools of EIPs in use, and addresses that are none ─────────────────────────────────────────────────────────


def told(orders, name):
    """Reason, and the pools that are recorded."""
    conditions = {each["type"]: each for each in orders[path_of(name)].body()["status"]["conditions"]}
    return conditions[ASSIGNED]["reason"], conditions.get(ASSIGNED_FROM, {}).get("message")


def host(name, *addresses):
    status = {"addresses": [{"type": "InternalIP", "address": each} for each in addresses]}
    found = msgspec.convert({"metadata": {"name": name}, "status": status}, HostObject)
    return {found.key: found}


def lan(eip_object, *addresses, **parts):
    return eip_object("lan", *(addresses or ("192.0.2.1-192.0.2.9",)), **parts)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda e: [lan(e, "192.0.2.1-192.0.2.9", exclude=["192.0.2.1"])], ("Flagged", "IPv4 from lan")),
        (lambda e: [lan(e, "192.0.2.5-192.0.2.9")], ("Flagged", "IPv4 from lan")),
        (lambda e: [lan(e), e("wide", "192.0.2.0/24", age=5)], ("Flagged", "IPv4 from lan")),
        (lambda e: [lan(e, "192.0.2.1-192.0.2.20"), e("old", "192.0.2.20", age=5)], ("Flagged", "IPv4 from lan")),
        (lambda e: [lan(e, "192.0.2.1-x"), e("wide", "192.0.2.0/24")], ("Flagged", "IPv4 from lan")),
        (lambda e: [lan(e, "192.0.2.5"), e("other", "192.0.2.1")], ("Assigned", "IPv4 from other")),
        (lambda e: [e("renamed", "192.0.2.1-192.0.2.9")], ("Assigned", "IPv4 from renamed")),
    ],
    ids=["excluded", "shrunk", "an older one widened", "widened", "unreadable", "moved to another", "renamed"],
)
def test_an_eip_stays_its_pools_unless_another_has_it_now_and_its_own_does_not(
    service_object, eip_object, edit, said, restarted
):
    decider = Decider(ControllerSettings())
    first = decider.decide(news([service_object("web")], [lan(eip_object)]), 1.0, AT)
    assert told(first, "web") == ("Assigned", "IPv4 from lan")
    web = written(service_object("web"), {path_of("web"): first[path_of("web")].body()})
    if restarted:
        decider = Decider(ControllerSettings())
        services = [web]
    else:
        decider.decide(news([web]), 1.0, AT)
        services = []
    edited = edit(eip_object)
    gone = {} if any(each.key.name == "lan" for each in edited) else {Key("", "lan"): None}
    change = news(services, edited)
    orders = decider.decide(News(change.services, {**change.eips, **gone}), 1.0, AT)
    if orders.get(path_of("web")) is None:
        assert said == ("Assigned", "IPv4 from lan")
    else:
        assert told(orders, "web") == said
    assert [each.ip for each in web.status.load_balancer.ingress] == ["192.0.2.1"]


def test_what_no_pool_was_recorded_of_is_that_of_the_pool_which_has_it_also_where_that_must_not_be_used(
    service_object, eip_object
):
    web = service_object("web", ingress=["192.0.2.1"], conditions=[MARK])
    younger, older = lan(eip_object, "192.0.2.1-192.0.2.20"), eip_object("old", "192.0.2.20", age=5)
    orders = Decider(ControllerSettings()).decide(news([web], [younger, older]), 1.0, AT)
    assert told(orders, "web") == ("Flagged", "IPv4 from lan")


def test_an_address_of_a_node_is_no_eip_and_who_asks_for_it_is_told_so_and_not_whose_it_is(service_object, eip_object):
    decider = Decider(ControllerSettings())
    asks = service_object("asks", annotations={"addresses": "192.0.2.1"})
    found = news([service_object("web"), asks], [lan(eip_object)])
    orders = decider.decide(News(found.services, found.eips, nodes=host("n1", "192.0.2.1", "n1.example.com")), 1.0, AT)
    assert orders[path_of("web")].body()["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.2", "ipMode": "VIP"}]
    assert told(orders, "asks") == ("HostAddress", None)
    message = orders[path_of("asks")].body()["status"]["conditions"][0]["message"]
    assert message.startswith("192.0.2.1 is a host's own address")
    assert "n1" not in message


def test_an_eip_that_turns_out_to_be_a_nodes_is_served_no_more_until_it_is_the_nodes_no_more(
    service_object, eip_object
):
    decider = Decider(ControllerSettings())
    first = decider.decide(news([service_object("web")], [lan(eip_object)]), 1.0, AT)
    web = written(service_object("web"), {path_of("web"): first[path_of("web")].body()})
    decider.decide(news([web]), 1.0, AT)
    taken = decider.decide(News(nodes=host("n1", "192.0.2.1")), 1.0, AT)
    assert told(taken, "web") == ("HostAddress", None)
    assert taken[path_of("web")].body()["status"]["loadBalancer"] == {"ingress": None}
    waits = written(web, {path_of("web"): taken[path_of("web")].body()})
    decider.decide(news([waits]), 1.0, AT)
    back = decider.decide(News(nodes={Key("", "n1"): None}), 1.0, AT)
    assert told(back, "web") == ("Assigned", "IPv4 from lan")
    assert back[path_of("web")].body()["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.1", "ipMode": "VIP"}]


def test_a_pool_is_not_gone_while_a_service_keeps_a_place_there_that_a_host_has(service_object, eip_object):
    decider = Decider(ControllerSettings())
    first = decider.decide(news([service_object("web")], [lan(eip_object)]), 1.0, AT)
    pool = "/apis/eip-speaker.io/v1alpha1/eips/lan"
    assert first[pool].body()["metadata"]["finalizers"] == [FINALIZER]
    in_use = lan(eip_object, metadata={"finalizers": [FINALIZER]})
    web = written(service_object("web"), {path_of("web"): first[path_of("web")].body()})
    decider.decide(news([web], [in_use]), 1.0, AT)
    assert decider.decide(News(nodes=host("n1", "192.0.2.1")), 1.0, AT)[pool] is None
    released = decider.decide(News({web.key: None}), 1.0, AT)
    assert released[pool].body()["metadata"]["finalizers"] is None


@pytest.mark.parametrize(
    ("parts", "older"),
    [({"priority": "high"}, ()), ({}, ("192.0.2.9",))],
    ids=["one that cannot be read", "one that overlaps an older one"],
)
def test_a_pool_that_is_deleted_names_who_it_waits_for_also_where_it_must_not_be_used(
    service_object, eip_object, parts, older
):
    decider, web = Decider(ControllerSettings()), service_object("web")
    decider.decide(news([web], [lan(eip_object)]), 1.0, AT)
    others = [eip_object("old", *older, age=5)] if older else []
    deleted = lan(eip_object, metadata={"finalizers": [FINALIZER], "deletionTimestamp": AT}, **parts)
    orders = decider.decide(news([], [*others, deleted]), 2.0, AT)
    (condition,) = orders["/apis/eip-speaker.io/v1alpha1/eips/lan/status"].body()["status"]["conditions"]
    assert (condition["reason"], condition["status"]) == ("Terminating", "False")
    assert "192.0.2.1 (default/web)" in condition["message"]
    assert addresses(decider) == ["192.0.2.1"]


def met_with_another_bug(pool):
    """What no API server comes to, and nothing here expects."""
    spec = {**pool.spec, "priority": object()}
    return msgspec.structs.replace(pool, spec=spec)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pool_whose_reading_meets_a_bug_keeps_what_it_gave_and_nobody_else_waiting(
    service_object, eip_object, restarted
):
    decider, web, other = Decider(ControllerSettings()), service_object("web"), eip_object("other", "192.0.2.20")
    first = decider.decide(news([web], [lan(eip_object)]), 1.0, AT)
    web = written(web, {path_of("web"): first[path_of("web")].body()})
    if restarted:
        decider = Decider(ControllerSettings())
    bad = met_with_another_bug(lan(eip_object))
    orders = decider.decide(news([web, service_object("new", age=1)], [bad, other]), 2.0, AT)
    assert [str(error) for error in decider.failed_pools.values()] == ["Encoding objects of type object is unsupported"]
    assert addresses(decider) == ["192.0.2.1", "192.0.2.20"]
    assert told(orders, "web") == ("Flagged", "IPv4 from lan")
    (condition, _) = orders["/apis/eip-speaker.io/v1alpha1/eips/lan/status"].body()["status"]["conditions"]
    assert condition["reason"] == "Invalid"
    assert "bug in the speaker" in condition["message"]
    decider.decide(News(), 3.0, AT)
    assert list(decider.failed_pools) == ["lan"], "it is read again, and fails again"
    bad.spec["priority"] = 0
    decider.decide(News(), 4.0, AT)
    assert decider.failed_pools == {}


def test_a_flagged_eip_is_said_to_be_none_that_its_own_pool_offers_as_another_may(service_object, eip_object):
    decider, web = Decider(ControllerSettings()), service_object("web", annotations={"pool": "lan"})
    decider.decide(news([web], [lan(eip_object)]), 1.0, AT)
    split = [lan(eip_object, exclude=["192.0.2.1"]), eip_object("dmz", "192.0.2.1")]
    orders = decider.decide(news([], split), 2.0, AT)
    assert told(orders, "web") == ("Flagged", "IPv4 from lan")
    conditions = orders[path_of("web")].body()["status"]["conditions"]
    assert "its pool no longer offers it" in conditions[0]["message"]


def given_by(orders):
    path = "/api/v1/namespaces/default/services/web/status"
    return [each["ip"] for each in orders[path].body()["status"]["loadBalancer"]["ingress"]]


@pytest.mark.parametrize("eips", [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")])
def test_what_another_group_holds_on_the_lan_is_assigned_to_nobody(service_object, eip_object, eips):
    first, second = eips
    families = {"ip_families": ("IPv6",)} if ":" in first else {}
    web = service_object("web")
    if families:
        web = msgspec.structs.replace(web, spec=msgspec.structs.replace(web.spec, **families))
    decider = Decider(ControllerSettings(ip_mode=IpMode.VIP))
    decider.decide(News(groups={ip_address(first): "another group"}), 0.0, AT)
    assert given_by(decider.decide(news([web], [eip_object("lan", f"{first}-{second}")]), 1.0, AT)) == [second]


def test_no_agents_word_takes_an_eip_from_a_service_that_has_it(service_object, eip_object):
    decider = Decider(ControllerSettings(ip_mode=IpMode.VIP))
    assert given_by(decider.decide(news([service_object("web")], [eip_object("lan", "192.0.2.1")]), 1.0, AT)) == [
        "192.0.2.1"
    ]
    path = "/api/v1/namespaces/default/services/web/status"
    assert path not in decider.decide(News(groups={ip_address("192.0.2.1"): "another group"}), 2.0, AT)


@pytest.mark.parametrize("late", [False, True])
def test_a_new_leader_that_hears_of_other_groups_first_takes_no_eip_from_a_service_that_has_it(
    service_object, eip_object, late
):
    lan, group = eip_object("lan", "192.0.2.1"), {ip_address("192.0.2.1"): "another group"}
    orders = Decider(ControllerSettings()).decide(news([service_object("web")], [lan]), 1.0, AT)
    (web,) = after([service_object("web")], orders)
    decider = Decider(ControllerSettings())
    first = decider.decide(replace(news([] if late else [web], [lan]), groups=group), 2.0, AT)
    assert ips(after([web], decider.decide(news([web]), 3.0, AT) if late else first)) == [["192.0.2.1"]]


def test_when_the_group_lets_go_who_waited_for_the_address_gets_it(service_object, eip_object):
    decider = Decider(ControllerSettings(ip_mode=IpMode.VIP))
    held = News(groups={ip_address("192.0.2.1"): "another group"})
    decider.decide(held, 0.0, AT)
    decider.decide(news([service_object("web")], [eip_object("lan", "192.0.2.1")]), 1.0, AT)
    assert given_by(decider.decide(News(groups={}), 2.0, AT)) == ["192.0.2.1"]
