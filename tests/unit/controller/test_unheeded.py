"""A Service of ours that asks another balancer: the controller says so once and for all, or obeys it."""

import msgspec
import pytest

from speaker.api.kinds import ASSIGNED, ServiceObject, condition_of
from speaker.controller.decider import ControllerSettings, Decider, News
from speaker.controller.wanted import LOGGED
from speaker.model import Balancer

AT = "2026-01-02T00:00:00Z"
PATH = "/api/v1/namespaces/default/services/web/status"


@pytest.fixture
def asking(service_object):
    def made(others, **parts):
        data = msgspec.to_builtins(service_object("web", **parts))
        data["metadata"]["annotations"] |= others
        return msgspec.convert(data, ServiceObject)

    return made


@pytest.fixture
def lan(eip_object):
    return eip_object("lan", "192.0.2.1-192.0.2.9")


def decided(found, pool, honoured=(), decider=None):
    decider = decider or Decider(ControllerSettings(honoured=frozenset(honoured)))
    return decider.decide(News({found.key: found}, {pool.key: pool}), 1.0, AT)[PATH]


def said(write):
    return condition_of(tuple(write.body()["status"]["conditions"]), ASSIGNED)


def given(write):
    return [each["ip"] for each in (write.body()["status"].get("loadBalancer") or {}).get("ingress") or ()]


def test_an_annotation_that_is_not_obeyed_is_in_the_condition_the_event_and_the_log(asking, lan):
    write = decided(asking({"metallb.io/loadBalancerIPs": "192.0.2.7"}), lan)
    told = (
        "from pool lan; another balancer's metallb.io/loadBalancerIPs is not obeyed: write eip-speaker.io/addresses, "
        "or set --honour-annotations metallb"
    )
    condition = said(write)
    assert given(write) == ["192.0.2.1"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", "Unheeded", told)
    event = write.event
    assert (event.level, event.reason, event.message) == ("Warning", "Unheeded", f"192.0.2.1 {told}")
    assert LOGGED[event.reason] == "unheeded"


def test_a_refused_service_is_told_both(asking, lan):
    write = decided(asking({"metallb.io/loadBalancerIPs": "192.0.2.7"}, annotations={"pool": "other"}), lan)
    assert said(write)["reason"] == "NoSuchPool"
    assert "metallb.io/loadBalancerIPs is not obeyed" in said(write)["message"]


def test_one_that_has_its_eip_already_is_told_when_somebody_adds_an_annotation(asking, lan):
    decider = Decider(ControllerSettings())
    before = decided(asking({}), lan, decider=decider).body()["status"]
    now = asking({"purelb.io/service-group": "x"}, ingress=["192.0.2.1"], conditions=before["conditions"])
    write = decided(now, lan, decider=decider)
    assert write.event.reason == "Unheeded"
    assert write.ingress is None
    kept = asking(
        {"purelb.io/service-group": "x", "eip-speaker.io/record": "192.0.2.1"},
        ingress=["192.0.2.1"],
        conditions=write.body()["status"]["conditions"],
    )
    assert decided(kept, lan, decider=decider) is None
    gone = asking(
        {"eip-speaker.io/record": "192.0.2.1"}, ingress=["192.0.2.1"], conditions=write.body()["status"]["conditions"]
    )
    assert said(decided(gone, lan, decider=decider))["reason"] == "Assigned"


@pytest.mark.parametrize(
    ("name", "balancer"),
    [
        ("metallb.universe.tf/loadBalancerIPs", Balancer.METALLB),
        ("lbipam.cilium.io/ips", Balancer.CILIUM),
        ("io.cilium/lb-ipam-ips", Balancer.CILIUM),
        ("kube-vip.io/loadbalancerIPs", Balancer.KUBE_VIP),
        ("eip.openelb.kubesphere.io/v1alpha1", Balancer.OPENELB),
        ("purelb.io/addresses", Balancer.PURELB),
    ],
)
def test_an_honoured_one_is_obeyed_within_the_bounds_of_our_own(asking, lan, name, balancer):
    assert given(decided(asking({name: "192.0.2.7"}), lan, [balancer])) == ["192.0.2.7"]
    outside = decided(asking({name: "203.0.113.7"}), lan, [balancer])
    assert (given(outside), said(outside)["reason"]) == ([], "AddressNotInPool")
    bad = decided(asking({name: "192.0.2.7/24"}), lan, [balancer])
    assert (given(bad), said(bad)["reason"]) == ([], "Invalid")
    assert name in said(bad)["message"]


def test_a_service_keeps_what_it_has_when_an_honoured_annotation_becomes_unreadable(asking, lan):
    decider = Decider(ControllerSettings(honoured=frozenset(Balancer)))
    first = decided(asking({"metallb.io/loadBalancerIPs": "192.0.2.7"}), lan, decider=decider)
    assert given(first) == ["192.0.2.7"]
    now = asking(
        {"metallb.io/loadBalancerIPs": "?"}, ingress=["192.0.2.7"], conditions=first.body()["status"]["conditions"]
    )
    write = decided(now, lan, decider=decider)
    assert (said(write)["status"], said(write)["reason"], write.ingress) == ("True", "Invalid", None)


def test_two_services_share_by_the_key_of_an_honoured_balancer_and_not_by_another_ones(asking, lan, service_object):
    for honoured, shared in (([Balancer.METALLB], True), ([Balancer.CILIUM], False)):
        decider = Decider(ControllerSettings(honoured=frozenset(honoured)))
        services = {}
        for name, port in (("a", 80), ("b", 81)):
            data = msgspec.to_builtins(
                service_object(name, ports=[{"port": port}], annotations={"addresses": "192.0.2.7"})
            )
            data["metadata"]["annotations"]["metallb.io/allow-shared-ip"] = "key"
            found = msgspec.convert(data, ServiceObject)
            services[found.key] = found
        orders = decider.decide(News(services, {lan.key: lan}), 1.0, AT)
        got = [given(write) for path, write in sorted(orders.items()) if "/services/" in path]
        assert got == [["192.0.2.7"], ["192.0.2.7"] if shared else []]
