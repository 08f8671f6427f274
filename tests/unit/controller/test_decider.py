"""Whatever stands in the API: nobody's mistake stops the others, no EIP is given twice, and a restart agrees."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speaker.cluster.kinds import ServiceObject
from speaker.controller.decider import ControllerSettings, Decider

AT = "2026-01-02T00:00:00Z"

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


def written(found: ServiceObject, bodies: dict[str, Any]) -> ServiceObject:
    """The Service as the API holds it after the writes."""
    path = f"/api/v1/namespaces/default/services/{found.metadata.name}/status"
    data = msgspec.json.decode(msgspec.json.encode(found))
    if (body := bodies.get(path)) is not None:
        status = body.get("status", {})
        balancer = status.get("loadBalancer", {"ingress": data["status"]["loadBalancer"].get("ingress")})
        data["status"] = {
            "loadBalancer": {"ingress": balancer["ingress"] or []},
            "conditions": status.get("conditions", data["status"]["conditions"]),
        }
        for name, value in body["metadata"].get("annotations", {}).items():
            data["metadata"]["annotations"].pop(name, None)
            if value is not None:
                data["metadata"]["annotations"][name] = value
        data["metadata"]["resourceVersion"] += "1"
    return msgspec.convert(data, ServiceObject)


@given(described=SERVICES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_services_say(service_object, eip_object, described):
    services = [service_object(f"s{number}", **parts) for number, parts in enumerate(described)]
    pools = [eip_object("lan", "192.0.2.1-192.0.2.3", "2001:db8::1-2001:db8::2")]
    decider = Decider(ControllerSettings())
    for _ in range(3):  # what somebody gives up the next reading may give to who waits
        bodies = {write.path: write.body() for write in decider.decide(services, pools, [], 1.0, AT)}
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
        return {each.path for each in by.decide(services, pools, [], 1.0, AT) if "/services/" in each.path}

    assert said(decider) == set()
    assert said(Decider(ControllerSettings())) == set()  # a new leader finds nothing to change
