"""Who may do what, asked of a real API server with the tokens of the controller and of an agent: a table for the docs.

.venv/bin/python tests/apiserver/rights.py      writes it into docs/permissions.md; a test fails where they differ
"""

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from asking import Asking
from real_api import PATIENCE, RealApi

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "permissions.md"
BEGIN, END = "<!-- rights: made by tests/apiserver/rights.py -->\n", "<!-- end of rights -->\n"

Body = dict[str, Any]

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
CONTROLLER = "system:serviceaccount:eip-speaker:eip-speaker-controller"
AGENT = "system:serviceaccount:eip-speaker-agents:eip-speaker-agent"

#: Group, resource with a subresource or a name, namespace.
ASKED = (
    *(("", kind, "") for kind in ("namespaces", "nodes", "nodes/status")),
    *(("", kind, "default") for kind in ("services", "services/status", "events", "pods", "pods/status")),
    *(("", kind, "default") for kind in ("configmaps", "secrets")),
    *(("", "secrets", namespace) for namespace in ("eip-speaker", "eip-speaker-agents")),
    ("", "pods/exec", "eip-speaker-agents"),
    ("", "serviceaccounts/token", "eip-speaker-agents"),
    ("apps", "daemonsets", "eip-speaker-agents"),
    ("apps", "deployments", "eip-speaker"),
    ("discovery.k8s.io", "endpointslices", "default"),
    *(("eip-speaker.io", kind, "") for kind in ("eips", "eips/status", "announcements")),
    ("coordination.k8s.io", "leases", "eip-speaker"),
    ("coordination.k8s.io", "leases:eip-speaker-controller", "eip-speaker"),
    *(("coordination.k8s.io", "leases", each) for each in ("eip-speaker-agents", "kube-node-lease", "default")),
    ("rbac.authorization.k8s.io", "clusterroles", ""),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
)

SPACE = "rights"
POOLS = "/apis/eip-speaker.io/v1alpha1/eips"
RECORDS = "/apis/eip-speaker.io/v1alpha1/announcements"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
SERVICES = f"/api/v1/namespaces/{SPACE}/services"
AGENTS = "eip-speaker-agents"
DEPLOYMENT = "/apis/apps/v1/namespaces/eip-speaker/deployments/eip-speaker-controller"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "00000000-0000-0000-0000-000000000001"}
AT = "2026-11-27T03:00:00Z"


class Write(NamedTuple):
    """``what`` is a row's name. The same request is sent with either token, and changes nothing."""

    kind: str
    what: str
    method: str
    path: str
    body: Body | None
    """A deletion has none: what it said would count in place of the query."""


def metadata(**fields: Any) -> Body:
    return {"metadata": fields}


def condition(kind: str = "eip-speaker.io/Assigned", **fields: Any) -> Body:
    said = {"status": "True", "reason": "Assigned", "message": "from pool lan", "lastTransitionTime": AT}
    return {"type": kind, **said, **fields}


def given(*ingress: Body, conditions: Iterable[Body] = (condition(),), **fields: Any) -> Body:
    """What the controller writes with an address."""
    kept = {"annotations": {"eip-speaker.io/record": "192.0.2.1"}}
    address = {"ip": "192.0.2.1", "ipMode": "VIP"}
    status = {"loadBalancer": {"ingress": [*ingress] or [address]}, "conditions": [*conditions]}
    return {"metadata": kept | fields, "status": status}


def addresses(number: int) -> list[Body]:
    return [{"ip": f"192.0.2.{n}", "ipMode": "VIP"} for n in range(1, number + 1)]


def kept(number: int) -> Body:
    return {
        "annotations": {"eip-speaker.io/record": ",".join([*(each["ip"] for each in addresses(number)), "released"])}
    }


def from_pools(pools: str) -> Body:
    return condition("eip-speaker.io/AssignedFrom", message=f"IPv4 from {pools}")


def both(number: int) -> tuple[Body, Body]:
    """The longest names that pools have."""
    return condition(), from_pools(" and ".join(["?", *["a" * 253] * (number - 1)]) + ", IPv6 from lan")


TAKEN = {
    "metadata": {"annotations": {"eip-speaker.io/record": None}},
    "status": {"loadBalancer": {"ingress": None}, "conditions": None},
}


def of_a_service(name: str, kind: str, rows: Mapping[str, Body]) -> Iterator[Write]:
    path = f"{SERVICES}/{name}/status"
    return (Write(kind, what, "PATCH", path, body) for what, body in rows.items())


def crowded(version: str) -> list[Body]:
    """``managedFields`` that name what there is not."""
    names = {f"f:call-me-at-once-{number}": {} for number in range(700)}
    entry = {"manager": "mine", "operation": "Update", "apiVersion": version, "time": AT, "fieldsType": "FieldsV1"}
    return [{**entry, "fieldsV1": {"f:metadata": {"f:annotations": names}}}]


def services() -> Iterator[Write]:
    ours = {
        "addresses, our two conditions, `eip-speaker.io/record`": given(
            *addresses(32), conditions=both(32), **kept(32)
        ),
        "a host name for an address": given({"hostname": "example.com"}),
        "ports of an address": given({"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP"}]}),
        "33 addresses": given(*addresses(33)),
        "a record without end": metadata(**kept(200)),
        "free text in `eip-speaker.io/AssignedFrom`": given(conditions=(condition(), from_pools("lan, call me"))),
        "another condition": given(conditions=(condition(), condition("example.com/Mine"))),
        "another annotation": metadata(annotations={"example.com/mine": "x"}),
        "free text in `eip-speaker.io/record`": metadata(annotations={"eip-speaker.io/record": "call me"}),
        "labels": metadata(labels={"mine": "x"}),
        "finalizers": metadata(finalizers=["example.com/mine"]),
        "owners": metadata(ownerReferences=[OWNER]),
    }
    yield from of_a_service("ours", "Service of our class", ours)
    yield Write("Service of our class", "spec", "PATCH", f"{SERVICES}/ours", {"spec": {"type": "ClusterIP"}})
    yield Write("Service of our class", "delete", "DELETE", f"{SERVICES}/ours", None)
    said = {"metadata": TAKEN["metadata"], "status": {"conditions": None}}
    took = {"remove our conditions and annotation": said, "remove its address": TAKEN, "another address": given()}
    yield from of_a_service("left", "Service of another class that was ours", took)
    yield from of_a_service("closed", "`ClusterIP` that was ours", {"remove what we wrote": TAKEN} | took)
    others = {"an address": given(), "labels": metadata(labels={"mine": "x"})}
    yield from of_a_service("another", "Service of another class", others)
    yield from of_a_service("inner", "`ClusterIP`", others)
    path = "/api/v1/namespaces/default/services/kubernetes/status"
    yield Write("`default/kubernetes`", "labels", "PATCH", path, metadata(labels={"mine": "x"}))


def pools() -> Iterator[Write]:
    kind, path = "`Eip`", f"{POOLS}/{SPACE}"
    size = {"ipv4": {"size": 1, "used": 1}, "observedGeneration": 1}
    ready = [condition("Ready", reason="Accepted")]
    yield Write(kind, "status", "PATCH", f"{path}/status", {"status": size | {"conditions": ready}})
    finalizers = {"our": ["eip-speaker.io/in-use"], "another": ["example.com/mine"]}
    for whose, found in finalizers.items():
        yield Write(kind, f"{whose} finalizer", "PATCH", path, metadata(finalizers=found))
    yield Write(kind, "spec", "PATCH", path, {"spec": {"namespaces": None}})
    yield Write(kind, "labels", "PATCH", path, metadata(labels={"mine": "x"}))
    yield Write(kind, "annotations", "PATCH", path, metadata(annotations={"mine": "x"}))
    yield Write(kind, "owners", "PATCH", path, metadata(ownerReferences=[OWNER]))
    junk = crowded("eip-speaker.io/v1alpha1")
    yield Write(kind, "20 kB of `managedFields`", "PATCH", path, metadata(managedFields=junk))
    made = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "mine"}}
    yield Write(kind, "create", "POST", POOLS, made | {"spec": {"addresses": ["192.0.2.9"]}})
    yield Write(kind, "delete", "DELETE", path, None)


def event(namespace: str = SPACE, about: Body | None = None, **fields: Any) -> Body:
    involved = {"apiVersion": "v1", "kind": "Service", "name": "ours", "namespace": namespace, "uid": "u"}
    said = {"type": "Normal", "reason": "Assigned", "message": "192.0.2.1 from pool lan", "count": 1}
    name = {"metadata": {"name": "ours.1", "namespace": namespace}}
    source = {"source": {"component": "eip-speaker-controller"}, "firstTimestamp": AT, "lastTimestamp": AT}
    return {**name, "involvedObject": about or involved, **said, **source, **fields}


def events() -> Iterator[Write]:
    pool = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "name": "lan", "uid": "u"}
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": SPACE}
    rows = {
        "about a Service, in its namespace": event(),
        "about an `Eip`, in `default`": event("default", pool),
        "about another kind": event(about=pod),
        "in the name of another component": event(source={"component": "kubelet"}),
        "a reason that is not one word": event(reason="Call me at once"),
        "a message of 2000 characters": event(message="x" * 2000),
        "labels, annotations, finalizers, owners": event(metadata={"name": "ours.1", "labels": {"mine": "x"}}),
        "20 kB of `managedFields`": event(metadata={"name": "ours.1", "managedFields": crowded("v1")}),
    }
    for what, body in rows.items():
        namespace = body["involvedObject"].get("namespace", "default")
        yield Write("Event", what, "POST", f"/api/v1/namespaces/{namespace}/events", body)


def lease(holder: str, seconds: int = 15, **fields: Any) -> Body:
    return {"metadata": fields, "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}}


def controller_lease() -> Iterator[Write]:
    kind, leases = "Lease of the controllers", LEASES.format("eip-speaker")
    path = f"{leases}/eip-speaker-controller"
    named = {"name": "eip-speaker-controller"}
    rows = {
        "renew": lease("pod_1", **named),
        "for a year": lease("pod_1", 31_536_000, **named),
        "free text as holder": lease("call me at once", **named),
        "labels, annotations, finalizers, owners": lease("pod_1", labels={"mine": "x"}, **named),
        "20 kB of `managedFields`": lease("pod_1", managedFields=crowded("coordination.k8s.io/v1"), **named),
    }
    for what, body in rows.items():
        yield Write(kind, what, "PUT", path, body)
    yield Write(kind, "another one", "POST", leases, lease("pod_1", name="mine"))


def session_leases() -> Iterator[Write]:
    kind, leases = "Lease of the own node", LEASES.format(AGENTS)
    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "00000000-0000-0000-0000-000000000002"}
    words = {"annotations": {"eip-speaker.io/misses": "n2"}, "labels": {"eip-speaker.io/misses": "true"}}
    groups = "eip-speaker.io/other-groups"
    rows = {
        "renew, with its Node as owner": lease("n1_7", 40, ownerReferences=[node]),
        "the nodes that it misses, its forwarder": lease("n1_7", 40, **words),
        "the addresses of other groups": lease("n1_7", annotations={groups: "192.0.2.1,2001:db8::1"}),
        "an unknown forwarder": lease("n1_7", labels={"eip-speaker.io/forwarder": "mine"}),
        "free text for the nodes that it misses": lease("n1_7", annotations={"eip-speaker.io/misses": "call me"}),
        "free text for the addresses of other groups": lease("n1_7", annotations={groups: "call me"}),
        "another's name in it": lease("n2_7"),
        "for a year": lease("n1_7", 31_536_000),
        "another label": lease("n1_7", labels={"mine": "x"}),
        "another annotation": lease("n1_7", annotations={"mine": "x" * 1000}),
        "another owner": lease("n1_7", ownerReferences=[OWNER]),
        "finalizers": lease("n1_7", finalizers=["example.com/mine"]),
        "20 kB of `managedFields`": lease("n1_7", managedFields=crowded("coordination.k8s.io/v1")),
    }
    for what, body in rows.items():
        yield Write(kind, what, "PATCH", f"{leases}/n1", body)
    yield Write("Lease of another node", "renew", "PATCH", f"{leases}/n2", lease("n2_7"))


def records() -> Iterator[Write]:
    held, others, free = (f"{RECORDS}/203.0.113.{n}" for n in (1, 2, 3))
    claim = {"holder": "n1", "incarnation": 7, "term": 6, "link": "eth0", "mac": "02:00:5e:00:53:01", "since": AT}
    told = {"services": ["shop/web"], "servicesText": "shop/web", "conflict": "02:00:5e:00:53:09 on eth0"}
    let_go = {"holder": "", "reason": "no_local_endpoint", "link": None, "mac": None}
    took = {"takenFrom": "n2", "unansweredMilliseconds": 231}
    rows: dict[str, tuple[str, Body]] = {
        "renew its own": (held, claim | told),
        "give its own up": (held, let_go),
        "take over another's": (others, claim | took),
        "claim what is free": (free, claim),
        "name another node as holder": (free, claim | {"holder": "n2"}),
        "write into another's": (others, {"link": "eth1"}),
        "remove another's holder": (others, {"holder": ""}),
        "write into what is free": (free, {"reason": "drained"}),
        "a term of 2^30": (held, claim | {"term": 2**30}),
        "a lower term": (held, claim | {"term": 4}),
        "a sentence in `conflict`": (held, {"conflict": "call me at once"}),
        "a sentence in `reason`": (held, let_go | {"reason": "n1: call me at once"}),
        "a sentence in `takenFrom`": (held, {"takenFrom": "call me at once"}),
        "a sentence in `link`": (held, {"link": "call me"}),
        "a sentence in `services`": (held, {"services": ["call me at once"]}),
        "a sentence in `servicesText`": (held, {"servicesText": "call me at once"}),
        "a sentence in `since`": (held, {"since": "call me at once"}),
        "a field of its own": (held, {"mine": "x"}),
    }
    kind = "`Announcement`"
    for what, (path, status) in rows.items():
        yield Write(kind, what, "PATCH", f"{path}?fieldValidation=Strict", {"status": status})
    for what, given_ in {
        "labels": {"labels": {"mine": "x"}},
        "annotations": {"annotations": {"mine": "x" * 1000}},
        "owners": {"ownerReferences": [OWNER]},
        "finalizers": {"finalizers": ["example.com/mine"]},
        "20 kB of `managedFields`": {"managedFields": crowded("eip-speaker.io/v1alpha1")},
    }.items():
        yield Write(kind, what, "PATCH", held, metadata(**given_))
    made = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": kind.strip("`"), "metadata": {"name": "203.0.113.4"}}
    yield Write(kind, "create one, and hold it", "POST", RECORDS, made | {"status": claim})
    yield Write(kind, "create one for another node", "POST", RECORDS, made | {"status": claim | {"holder": "n2"}})
    yield Write(kind, "create one at a term of 2^30", "POST", RECORDS, made | {"status": claim | {"term": 2**30}})
    yield Write(kind, "delete", "DELETE", held, None)


def writes() -> Iterator[Write]:
    yield from services()
    yield from pools()
    yield from events()
    yield from records()
    yield from session_leases()
    yield from controller_lease()


# ── What the API server says ──


def may(admin: Asking, user: str, verb: str, group: str, resource: str, namespace: str) -> bool:
    resource, _, name = resource.partition(":")
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    attributes |= {"namespace": namespace, "name": name}
    spec = {"user": user, "groups": ["system:serviceaccounts", "system:authenticated"]}
    body = {"kind": "SubjectAccessReview", "spec": {**spec, "resourceAttributes": attributes}}
    body["apiVersion"] = "authorization.k8s.io/v1"
    code, answer = admin("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    assert code == 201, answer
    allowed: bool = answer["status"]["allowed"]
    return allowed


def verdict(ask: Asking, write: Write) -> str:
    """``may``, or what keeps it from being done."""
    path = f"{write.path}{'&' if '?' in write.path else '?'}dryRun=All"
    # Who has no right is told before much of a body is read, and then the connection ends.
    if ask(write.method, path, write.body and {})[0] == 403:
        return "right"
    code, answer = ask(write.method, path, write.body)
    message = answer.get("message", "")
    if code in (200, 201):
        return "may"
    if code == 422:
        return "policy" if "ValidatingAdmissionPolicy" in message else "schema"
    if code == 400 and "strict decoding error" in message:
        return "schema"
    raise AssertionError(f"{write.kind}, {write.what}: {code} {message}")


class Rights:
    """``controller`` and ``agent`` ask with the tokens of the shipped ServiceAccounts, the agent as one on node n1."""

    def __init__(self, api: RealApi) -> None:
        self.api, self.admin = api, Asking(api)
        self.controller = self._as("eip-speaker-controller", "eip-speaker")
        self._made("/api/v1/nodes", {"metadata": {"name": "n1"}})
        spec = {"serviceAccountName": "eip-speaker-agent", "nodeName": "n1"}
        pod = {"metadata": {"name": "agent-n1"}, "spec": spec | {"containers": [{"name": "agent", "image": "a"}]}}
        self._made(f"/api/v1/namespaces/{AGENTS}/pods", pod)
        bound = ("--bound-object-kind=Pod", "--bound-object-name=agent-n1")
        self.agent = self._as("eip-speaker-agent", AGENTS, *bound)

    def _as(self, account: str, namespace: str, *flags: str) -> Asking:
        token = self.api.kubectl("create", "token", account, f"--namespace={namespace}", *flags)
        return Asking(self.api, token.strip())

    def _made(self, path: str, body: Body) -> None:
        code, answer = self.admin("POST", path, body)
        assert code in (201, 409), answer

    def _patched(self, path: str, body: Body) -> None:
        code, answer = self.admin("PATCH", path, body)
        assert code == 200, answer

    @contextmanager
    def objects(self) -> Iterator[None]:
        """What is written to. Gone when the block ends."""
        self._made("/api/v1/namespaces", {"metadata": {"name": SPACE}})
        ours = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker"}
        other = ours | {"loadBalancerClass": "example.com/other"}
        specs = {"ours": ours, "another": other, "left": ours, "closed": ours}
        specs |= {"inner": {"type": "ClusterIP"}, "plain": {"type": "LoadBalancer"}}
        for name, spec in specs.items():
            ports = {"ports": [{"port": 80}], "allocateLoadBalancerNodePorts": False}
            if name == "inner":
                del ports["allocateLoadBalancerNodePorts"]
            self._made(SERVICES, {"metadata": {"name": name}, "spec": spec | ports})
        for name in ("left", "closed"):
            self._patched(f"{SERVICES}/{name}/status", given({"ip": "192.0.2.2", "ipMode": "VIP"}))
            self._patched(f"{SERVICES}/{name}", {"spec": {"type": "ClusterIP", "loadBalancerClass": None}})
        self._patched(f"{SERVICES}/left", {"spec": other})
        self._patched(f"{SERVICES}/left/status", {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}]}}})
        about = {"apiVersion": "eip-speaker.io/v1alpha1"}
        pool = {"addresses": ["192.0.2.1"], "namespaces": ["shop"]}
        self._made(POOLS, {**about, "kind": "Eip", "metadata": {"name": SPACE}, "spec": pool})
        for number, holder in (1, "n1"), (2, "n2"), (3, ""):
            name = {"metadata": {"name": f"203.0.113.{number}"}}
            status = {"status": {"holder": holder, "term": 5}}
            self._made(RECORDS, {**about, "kind": "Announcement", **name, **status})
        for namespace, name in (AGENTS, "n1"), (AGENTS, "n2"), ("eip-speaker", "eip-speaker-controller"):
            self._made(LEASES.format(namespace), {"metadata": {"name": name}})
        try:
            yield
        finally:
            for path in (
                *(f"{SERVICES}/{name}" for name in specs),
                f"{POOLS}/{SPACE}",
                *(f"{RECORDS}/203.0.113.{number}" for number in (1, 2, 3)),
                *(f"{LEASES.format(AGENTS)}/{node}" for node in ("n1", "n2")),
                f"{LEASES.format('eip-speaker')}/eip-speaker-controller",
            ):
                self.admin("DELETE", path)

    def in_force(self) -> None:
        """Waits for each policy: it is, a moment after it was written."""
        for ask, kind, what in (
            (self.controller, "Service of our class", "labels"),
            (self.controller, "`Eip`", "spec"),
            (self.controller, "Event", "about another kind"),
            (self.controller, "Lease of the controllers", "another one"),
            (self.agent, "`Announcement`", "finalizers"),
            (self.agent, "Lease of another node", "renew"),
        ):
            (write,) = (each for each in writes() if (each.kind, each.what) == (kind, what))
            self.becomes(ask, write, "policy")

    def writes(self) -> Iterator[Write]:
        """A Lease is only replaced at the version that it has."""
        found = self.admin("GET", f"{LEASES.format('eip-speaker')}/eip-speaker-controller")[1]["metadata"]
        for write in writes():
            if write.method == "PUT" and write.body is not None:
                write.body["metadata"]["resourceVersion"] = found["resourceVersion"]
            yield write

    def becomes(self, ask: Asking, write: Write, said: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while (found := verdict(ask, write)) != said and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def default_class(self) -> Iterator[tuple[Write, str, str]]:
        """Of a Service without a class, by what the Deployment of the controllers says."""
        (container,) = self.admin("GET", DEPLOYMENT)[1]["spec"]["template"]["spec"]["containers"]

        def runs(replicas: int, *flags: str) -> None:
            containers = [{**container, "args": [*container["args"], *flags]}]
            self._patched(DEPLOYMENT, {"spec": {"template": {"spec": {"containers": containers}}}})
            self._patched(f"{DEPLOYMENT}/status", {"status": {"replicas": replicas}})

        for expected, flags in (("policy", ()), ("may", ("--default-class",))):
            kind = f"Service without a class, controllers {'with' if flags else 'without'} `--default-class`"
            write = Write(kind, "an address", "PATCH", f"{SERVICES}/plain/status", given())
            runs(2, *flags)
            yield write, self.becomes(self.controller, write, expected), verdict(self.agent, write)
        runs(0)

    # ── Tables ──

    def verbs(self) -> Iterator[str]:
        rows: list[tuple[str, str, str, str]] = []
        for group, resource, namespace in ASKED:
            kind, _, name = resource.partition(":")
            told = f"`{kind}`" + (f" named `{name}`" if name else "")
            where = {"": "the cluster", "default": "any namespace"}.get(namespace, f"`{namespace}`")
            rows.append((where, told, *(self._cell(user, group, resource, namespace) for user in (CONTROLLER, AGENT))))
        yield from _table(("where", "kind"), rows)

    def _cell(self, user: str, *place: str) -> str:
        return ", ".join(verb for verb in VERBS if may(self.admin, user, verb, *place)) or "-"

    def fields(self) -> Iterator[str]:
        asked = self.controller, self.agent
        rows = [_row(write, *(verdict(each, write) for each in asked)) for write in self.writes()]
        rows.extend(_row(*found) for found in self.default_class())
        yield from _table(("of", "what"), rows)

    def table(self) -> str:
        with self.objects():
            self.in_force()
            return "\n".join(("", *self.verbs(), "", *self.fields(), "", ""))


def _row(write: Write, *verdicts: str) -> tuple[str, str, str, str]:
    controller, agent = (each if each == "may" else f"no: {each}" for each in verdicts)
    return write.kind, write.what, controller, agent


def _table(heads: tuple[str, str], rows: Iterable[tuple[str, str, str, str]]) -> Iterator[str]:
    """What differs in its second cell alone shares a row."""
    yield f"| {' | '.join(heads)} | controller | agent |"
    yield "|---|---|---|---|"
    shared: dict[tuple[str, str, str], list[str]] = {}
    for first, second, *verdicts in rows:
        shared.setdefault((first, *verdicts), []).append(second)
    for (first, *verdicts), seconds in shared.items():
        yield f"| {first} | {'; '.join(seconds)} | {' | '.join(verdicts)} |"


def documented() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    with tempfile.TemporaryDirectory() as made, RealApi(Path(made)) as api:
        api.kubectl("apply", "-k", str(ROOT / "manifests" / "overlays" / "default"))
        api.kubectl("wait", "--for=condition=Established", "--timeout=180s", "crd", "--all")
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + Rights(api).table() + END + rest.partition(END)[2])
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
