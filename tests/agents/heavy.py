"""What a tenant may write that weighs much: for each a name, and what is sent to the API. Pure.

``BYTES`` of JSON each, in objects as large as etcd takes them, or in very many small ones.
"""

import random
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple

Body = dict[str, Any]

TENANT = "tenant"
BYTES = 90_000_000
SERVICES = f"/api/v1/namespaces/{TENANT}/services"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{TENANT}/endpointslices"
EVENTS = f"/api/v1/namespaces/{TENANT}/events"
NODES, NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/eip-speaker-agents/leases"
SECRETS = "/api/v1/namespaces/eip-speaker-agents/secrets"
OURS = "eip-speaker.io/speaker"


class Request(NamedTuple):
    """``path`` of a collection for a POST, of an object for a PATCH or DELETE."""

    method: str
    path: str
    body: Body | None = None


Attack = Callable[[], Iterator[Request]]


def service(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Body:
    """Of ours."""
    whole = {
        "type": "LoadBalancer",
        "loadBalancerClass": OURS,
        "allocateLoadBalancerNodePorts": False,
        "ports": [{"port": 80}],
        **spec,
    }
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": whole}


def endpoint_slice(name: str, owner: str, endpoints: list[Body], ports: list[Body] | None = None, **more: Any) -> Body:
    labels = {"kubernetes.io/service-name": owner} if owner else {}
    return {
        "metadata": {"name": name, "labels": labels},
        "addressType": "IPv4",
        "ports": ports or [{"name": "", "port": 80, "protocol": "TCP"}],
        "endpoints": endpoints,
        **more,
    }


def many(count: int, made: Callable[[int], Request]) -> Iterator[Request]:
    return (made(number) for number in range(count))


def post(path: str, body: Body) -> Request:
    return Request("POST", path, body)


def _addresses(count: int, each: int, start: int = 0x0A000001) -> list[Body]:
    return [{"addresses": [str(IPv4Address(start + at * each + one)) for one in range(each)]} for at in range(count)]


def _six(count: int, each: int) -> list[Body]:
    base = int(IPv6Address("2001:db8:1111:2222:3333:4444::1"))
    return [{"addresses": [str(IPv6Address(base + at * each + one)) for one in range(each)]} for at in range(count)]


def _ranges(
    count: int, written: Callable[[int], str] = lambda at: f"{IPv4Address(0x0A000001 + 3 * at)}/32"
) -> list[str]:
    return [written(at) for at in range(count)]


LARGE = _addresses(1000, 100)
LONG = "x" * 253


def slices(owner: str, **more: Any) -> Attack:
    body = endpoint_slice("", owner, more.pop("endpoints", LARGE), **more)

    def attack() -> Iterator[Request]:
        if owner:
            yield post(SERVICES, service(owner))
        for at in range(62):
            yield post(SLICES, {**body, "metadata": {**body["metadata"], "name": f"heavy-{at}"}})

    return attack


def services(count: int, annotations: dict[str, str] | None = None, **spec: Any) -> Attack:
    return lambda: many(count, lambda at: post(SERVICES, service(f"heavy-{at}", annotations, **spec)))


def labelled(count: int) -> Attack:
    labels = {f"{'p' * 60}.{at}.example/{'n' * 60}": "v" * 63 for at in range(4500)}

    def made(at: int) -> Request:
        body = service(f"heavy-{at}")
        return post(SERVICES, {**body, "metadata": {**body["metadata"], "labels": labels}})

    return lambda: many(count, made)


def finalized(count: int) -> Attack:
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"owner-{at}", "uid": f"u-{at:0>60}"} for at in range(8000)
    ]

    def made(at: int) -> Request:
        body = service(f"heavy-{at}")
        return post(SERVICES, {**body, "metadata": {**body["metadata"], "ownerReferences": owners}})

    return lambda: many(count, made)


def churn(kind: str) -> Attack:
    def attack() -> Iterator[Request]:
        yield post(SERVICES, service("churned"))
        yield post(SLICES, endpoint_slice("churned", "churned", _addresses(1, 1)))
        for at in range(60):
            if kind == "slice":
                yield Request("PATCH", f"{SLICES}/churned", {"endpoints": _addresses(1000, 100, 0x0A000001 + at)})
            else:
                spec = {
                    "loadBalancerSourceRanges": _ranges(
                        50_000, lambda n, at=at: f"{IPv4Address(0x0B000000 + at + n)}/32"
                    )
                }
                yield Request("PATCH", f"{SERVICES}/churned", {"spec": spec})

    return attack


def becoming_ours() -> Iterator[Request]:
    """Slices that are nobody's, until their Service is ours; and nobody's again."""
    yield post(
        SERVICES, service("fickle", type="ClusterIP", loadBalancerClass=None, allocateLoadBalancerNodePorts=None)
    )
    for at in range(40):
        yield post(SLICES, endpoint_slice(f"heavy-{at}", "fickle", LARGE))
    ours = {"type": "LoadBalancer", "loadBalancerClass": OURS, "allocateLoadBalancerNodePorts": False}
    for at in range(20):
        yield Request("PATCH", f"{SERVICES}/fickle", {"spec": ours})
        yield Request(
            "PATCH",
            f"{SERVICES}/fickle",
            {"spec": dict.fromkeys(ours) | {"type": "ClusterIP"}, "metadata": {"labels": {"n": str(at)}}},
        )
    yield Request("PATCH", f"{SERVICES}/fickle", {"spec": ours})


def conditions() -> Iterator[Request]:
    found = [
        {"type": f"example.com/C{at}", "status": "True", "reason": "R", "message": "m" * 200} for at in range(3500)
    ]
    when = "2026-11-21T12:00:00Z"
    status = {"status": {"conditions": [{**each, "lastTransitionTime": when} for each in found]}}
    for at in range(62):
        yield post(SERVICES, service(f"heavy-{at}"))
        yield Request("PATCH", f"{SERVICES}/heavy-{at}/status", status)


def annotated(path: str, count: int, **body: Any) -> Attack:
    notes = {f"eip-speaker.io/{'n' * 30}{at}": "v" * 1000 for at in range(240)}
    return lambda: many(
        count, lambda at: post(path, {"metadata": {"name": f"heavy-{at}", "annotations": notes}, **body})
    )


def many_small(at_once: int, made: Callable[[int], Iterator[Request]]) -> Attack:
    return lambda: (request for at in range(at_once) for request in made(at))


def _served_by_many(at: int) -> Iterator[Request]:
    """As many endpoints as a Service may have, of each of many."""
    yield post(
        SERVICES,
        service(
            f"heavy-{at}",
            {"eip-speaker.io/share": "all"},
            externalTrafficPolicy="Local",
            selector={"app": "x"},
            ports=[{"port": 1000 + at}],
        ),
    )
    yield post(SLICES, endpoint_slice(f"heavy-{at}", f"heavy-{at}", _addresses(200, 100)))


SEEN: dict[str, Attack] = {
    "slices of no Service": slices(""),
    "Services of another class with many source ranges": services(
        126, loadBalancerClass="example.com/other", loadBalancerSourceRanges=_ranges(55_000)
    ),
    "ClusterIP Services with large annotations": lambda: many(
        400,
        lambda at: post(
            SERVICES,
            {
                "metadata": {"name": f"heavy-{at}", "annotations": {"a": "v" * 250_000}},
                "spec": {"ports": [{"port": 80}]},
            },
        ),
    ),
}
"""Those that ended agents (issue 29)."""

SISTERS: dict[str, Attack] = {
    "slices of a Service of ours": slices("heavy"),
    "slices of IPv6 of a Service of ours": slices("heavy", endpoints=_six(1000, 40), addressType="IPv6"),
    "slices with thousands of ports": slices(
        "heavy", endpoints=_addresses(10, 1), ports=[{"name": f"p{at}", "port": 1 + at} for at in range(20_000)]
    ),
    "slices with names": slices(
        "heavy",
        endpoints=[{"addresses": [f"{'a' * 60}.{'b' * 60}.{at}-{n}.example" for n in range(9)]} for at in range(1000)],
        addressType="FQDN",
    ),
    "slices whose endpoints say all that they can": slices(
        "heavy",
        endpoints=[
            {
                **each,
                "nodeName": f"{LONG[:200]}{at}",
                "hostname": f"h{at}",
                "zone": "z" * 200,
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
            for at, each in enumerate(_addresses(1000, 40))
        ],
    ),
    "Services of ours with many source ranges": services(62, loadBalancerSourceRanges=_ranges(55_000)),
    "Services of ours with many source ranges of IPv6": services(
        62,
        loadBalancerSourceRanges=_ranges(
            25_000, lambda at: f"2001:db8:1111:2222:3333:4444:{at // 65536:x}:{at % 65536:x}/128"
        ),
    ),
    "Services of ours with a large annotation of ranges": services(
        360, {"service.beta.kubernetes.io/load-balancer-source-ranges": ",".join(_ranges(16_000))}
    ),
    "Services of ours with large annotations of ours": annotated(SERVICES, 360, spec=service("")["spec"]),
    "Services of ours with many labels": labelled(62),
    "Services of ours with many owners": finalized(62),
    "Services of ours with many ports": services(
        62, ports=[{"name": f"p{at}", "port": 1 + at} for at in range(15_000)]
    ),
    "Services of ours with many selectors": services(
        62, selector={f"{'p' * 60}.{at}.example/{'n' * 60}": "v" * 63 for at in range(4500)}
    ),
    "Services of ours with many conditions": conditions,
    "Services without a class with many source ranges": services(
        62, loadBalancerClass=None, loadBalancerSourceRanges=_ranges(55_000)
    ),
    "a slice of ours written again and again": churn("slice"),
    "a Service of ours written again and again": churn("service"),
    "a Service that is ours in turn": becoming_ours,
    "many small Services of ours": services(3000),
    "many small slices of a Service of ours": many_small(
        6000, lambda at: iter([post(SLICES, endpoint_slice(f"s{at}", "heavy", _addresses(1, 1)))])
    ),
    "many slices with the longest names": many_small(
        3000, lambda at: iter([post(SLICES, endpoint_slice(f"{at:0>200}", f"{at:0>62}x", _addresses(1, 1)))])
    ),
    "many Services of ours with all endpoints they may have": many_small(160, _served_by_many),
    "nodes with large annotations of ours": annotated(NODES, 200),
    "namespaces with large annotations": annotated(NAMESPACES, 200),
    "Leases of agents with large annotations": annotated(LEASES, 200, spec={"holderIdentity": "x" * 1000}),
    "Secrets beside the key": annotated(SECRETS, 200),
    "Events": lambda: many(
        300,
        lambda at: post(
            EVENTS,
            {
                "metadata": {"name": f"heavy-{at}", "annotations": {"a": "v" * 200_000}},
                "involvedObject": {"namespace": TENANT},
                "reason": "R",
                "message": "m" * 1000,
            },
        ),
    ),
}


def drawn(seed: int) -> Attack:
    """Three of them at once, one object of each in turn; and of some each object is written a second time."""
    source = random.Random(seed)
    names = source.sample(sorted({*SEEN, *SISTERS}), 3)
    return lambda: _in_turn([({**SEEN, **SISTERS})[name]() for name in names])


def _in_turn(attacks: list[Iterator[Request]]) -> Iterator[Request]:
    left = list(attacks)
    while left:
        for each in tuple(left):
            if (request := next(each, None)) is None:
                left.remove(each)
            else:
                yield request
