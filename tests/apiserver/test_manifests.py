"""The manifests against a real API server: they apply, and what they forbid is refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from asking import Asking
from real_api import RealApi
from render import MANIFESTS, OVERLAYS, rendered
from rights import AGENT, CONTROLLER, VERBS, may

from speaker.controller.leader import SECRET
from speaker.controller.wanted import Removal

pytestmark = pytest.mark.apiserver

#: (group, resource, namespace) → verbs. All there is: whatever is not here is refused.
MAY: dict[str, dict[tuple[str, str, str], set[str]]] = {
    CONTROLLER: {
        ("", "namespaces", ""): {"list", "watch"},
        ("", "nodes", ""): {"list", "watch"},
        ("", "services", "default"): {"list", "watch"},
        ("", "services/status", "default"): {"patch"},
        ("", "events", "default"): {"create"},
        ("eip-speaker.io", "eips", ""): {"list", "watch", "patch"},
        ("eip-speaker.io", "eips/status", ""): {"patch"},
        ("eip-speaker.io", "announcements", ""): {"list", "watch", "delete"},
        ("coordination.k8s.io", "leases", "eip-speaker"): {"create"},
        ("coordination.k8s.io", "leases", "eip-speaker-agents"): {"list"},
        ("coordination.k8s.io", "leases:eip-speaker-controller", "eip-speaker"): {"create", "get", "update"},
    },
    AGENT: {
        ("", "nodes", ""): {"list", "watch"},
        ("", "services", "default"): {"list", "watch"},
        ("discovery.k8s.io", "endpointslices", "default"): {"list", "watch"},
        ("eip-speaker.io", "eips", ""): {"list", "watch"},
        ("eip-speaker.io", "announcements", ""): {"get", "list", "watch", "create", "patch"},
        ("coordination.k8s.io", "leases", "eip-speaker-agents"): {"list", "create", "patch"},
    },
}

ASKED = sorted(
    {place for allowed in MAY.values() for place in allowed}
    | {
        ("", "secrets", "eip-speaker"),
        ("", "secrets", "eip-speaker-agents"),
        ("", "secrets", "default"),
        ("", "configmaps", "default"),
        ("", "pods", "default"),
        ("", "pods/exec", "eip-speaker-agents"),
        ("", "nodes/status", ""),
        ("", "serviceaccounts/token", "eip-speaker-agents"),
        ("apps", "daemonsets", "eip-speaker-agents"),
        ("coordination.k8s.io", "leases", "default"),
        ("coordination.k8s.io", "leases", "kube-node-lease"),
        ("eip-speaker.io", "announcements/status", ""),
        ("rbac.authorization.k8s.io", "clusterroles", ""),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    }
)

ANNOUNCEMENTS = "/apis/eip-speaker.io/v1alpha1/announcements"
ATTEMPTS = 2000
"""Against a hang: a policy is in force a moment after it was written."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/eip-speaker-agents/leases"


def overlay(request, name):
    return str(request.config.rootpath / "manifests" / "overlays" / name)


@pytest.fixture(scope="session")
def installed(api_server, request) -> Asking:
    """``kubectl apply -k`` of the default overlay is done; asks as the administrator."""
    api_server.kubectl("apply", "-k", overlay(request, "default"))
    names = ("crd/eips.eip-speaker.io", "crd/announcements.eip-speaker.io")
    api_server.kubectl("wait", "--for=condition=Established", "--timeout=180s", *names)
    return Asking(api_server)


def manifests(api_server, request, name) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(api_server.kubectl("kustomize", overlay(request, name))))


def versions(api_server, request):
    listed = json.loads(api_server.kubectl("get", "-k", overlay(request, "default"), "-o", "json"))
    return {(each["kind"], each["metadata"]["name"]): each["metadata"]["resourceVersion"] for each in listed["items"]}


def test_a_second_apply_changes_nothing(api_server, installed, request):
    api_server.kubectl("apply", "-k", overlay(request, "default"))
    before = versions(api_server, request)
    api_server.kubectl("apply", "-k", overlay(request, "default"))
    assert versions(api_server, request) == before
    assert len(before) == len(manifests(api_server, request, "default"))


@pytest.mark.parametrize("name", ["default", "ipvs"])
def test_the_api_server_finds_no_fault_with_an_overlay(api_server, installed, request, name):
    strictly = ("--dry-run=server", "--validate=strict", "--warnings-as-errors")
    api_server.kubectl("apply", "-k", overlay(request, name), *strictly)


def test_the_ipvs_overlay_tells_both_and_gives_agents_the_right(api_server, installed, request):
    found = [each for each in manifests(api_server, request, "ipvs") if each["kind"] in ("Deployment", "DaemonSet")]
    containers = [each["spec"]["template"]["spec"]["containers"][0] for each in found]
    assert ["--forwarder=ipvs" in each["args"] for each in containers] == [True, True]
    added = {each["name"]: each["securityContext"]["capabilities"].get("add") for each in containers}
    assert added == {"agent": ["NET_RAW", "NET_ADMIN", "BPF"], "controller": None}


# ── Pod Security ──


def a_pod(api_server, request, name, namespace):
    (found,) = (each for each in manifests(api_server, request, "default") if each["metadata"]["name"] == name
                and each["kind"] in ("Deployment", "DaemonSet"))  # fmt: skip
    template = found["spec"]["template"]
    # The server of the tests has no controller that would make priority classes.
    spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
    metadata = {**template["metadata"], "name": "a-pod", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("name", "namespace", "code"),
    [
        ("eip-speaker-controller", "eip-speaker", 201),
        ("eip-speaker-agent", "eip-speaker-agents", 201),
        ("eip-speaker-agent", "eip-speaker", 403),
    ],
)
def test_pods_are_let_in_where_they_belong(api_server, installed, request, name, namespace, code):
    body = a_pod(api_server, request, name, namespace)
    found, answer = installed("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    assert found == code, answer


# ── RBAC ──


@pytest.mark.parametrize("user", [CONTROLLER, AGENT], ids=["controller", "agent"])
def test_each_may_do_exactly_this(installed, user):
    found = {place: {verb for verb in VERBS if may(installed, user, verb, *place)} for place in ASKED}
    assert {place: verbs for place, verbs in found.items() if verbs} == MAY[user]


@pytest.fixture
def a_service(installed):
    body = {"metadata": {"name": "rbac"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
    installed("POST", "/api/v1/namespaces/default/services", body)
    yield "/api/v1/namespaces/default/services/rbac"
    installed("DELETE", "/api/v1/namespaces/default/services/rbac")


@pytest.fixture(scope="session")
def controller(api_server, installed) -> Asking:
    token = api_server.kubectl("create", "token", "eip-speaker-controller", "--namespace=eip-speaker")
    return Asking(api_server, token.strip())


def test_the_controller_writes_an_address_and_its_record_with_the_status_alone(controller, a_service):
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}
    kept = {"annotations": {"eip-speaker.io/record": "192.0.2.1"}}
    code, answer = controller("PATCH", f"{a_service}/status", {"metadata": kept, "status": status})
    assert code == 200, answer
    assert answer["status"]["loadBalancer"] == status["loadBalancer"]
    assert answer["metadata"]["annotations"] == kept["annotations"]
    assert controller("PATCH", a_service, {"spec": {"type": "ClusterIP"}})[0] == 403


def test_the_controller_puts_a_finalizer_on_a_pool(installed, controller):
    pools = "/apis/eip-speaker.io/v1alpha1/eips"
    body = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "rbac"}}
    assert installed("POST", pools, {**body, "spec": {"addresses": ["192.0.2.1"]}})[0] == 201
    code, answer = controller("PATCH", f"{pools}/rbac", {"metadata": {"finalizers": ["eip-speaker.io/in-use"]}})
    assert code == 200, answer
    status = {"ipv4": {"size": 1, "used": 1}, "observedGeneration": 1}
    condition = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    status["conditions"] = [{**condition, "lastTransitionTime": "2026-11-21T16:00:00Z"}]
    code, answer = controller("PATCH", f"{pools}/rbac/status", {"status": status})
    assert (code, answer["status"]) == (200, status)
    assert controller("PATCH", f"{pools}/rbac", {"metadata": {"finalizers": None}})[0] == 200
    assert installed("DELETE", f"{pools}/rbac")[0] == 200


# ── A rendered file ──


def test_one_rendered_file_is_all_that_an_empty_cluster_takes(kubectl, tmp_path_factory):
    directory = tmp_path_factory.mktemp("empty")
    with RealApi(directory) as api:
        for overlay in OVERLAYS:
            file = directory / f"{overlay}.yaml"
            file.write_text(rendered(kubectl, overlay, ["make-key"], "registry.example.com/eip-speaker:1.2.3"))
            api.kubectl("apply", "--validate=strict", "--filename", str(file))
            there = json.loads(api.kubectl("get", "--filename", str(file), "--output=json"))["items"]
            assert len(there) == len(list(yaml.safe_load_all(file.read_text())))


# ── The key that the controller makes ──

SECRETS = "/api/v1/namespaces/eip-speaker-agents/secrets"


@pytest.fixture
def key_rights(api_server, installed, controller) -> Iterator[None]:
    """The component's, in force, until the test ends."""
    file = str(MANIFESTS / "components" / "make-key" / "key-rights.yaml")
    api_server.kubectl("apply", "--filename", file)
    # RBAC first, then the policy, whose binding is written last.
    assert any(make(controller, "another")[0] == 422 for _ in range(ATTEMPTS))
    yield
    api_server.kubectl("delete", "--filename", file)
    assert any(make(controller, "another")[0] == 403 for _ in range(ATTEMPTS))


def make(ask, name, kind="Opaque", **metadata):
    body = {"metadata": {"name": name, **metadata}, "type": kind, "stringData": {"key": "secret"}}
    return ask("POST", f"{SECRETS}?dryRun=All", body)


def test_without_the_component_the_controller_makes_no_secret(controller):
    assert make(controller, SECRET)[0] == 403


def test_with_it_the_controller_makes_that_secret_and_no_other_and_reads_none(installed, controller, key_rights):
    assert make(controller, SECRET)[0] == 201
    account = {"annotations": {"kubernetes.io/service-account.name": "eip-speaker-agent"}}
    for name, kind, metadata in (
        ("another", "Opaque", {}),
        ("", "Opaque", {"generateName": SECRET}),
        (SECRET, "kubernetes.io/service-account-token", account),
    ):
        code, answer = make(controller, name, kind, **metadata)
        assert (code, "of type Opaque, and no other" in answer["message"]) == (422, True), answer
    for field in ({"labels": {"mine": "x"}}, {"annotations": {"mine": "x"}}, {"finalizers": ["example.com/mine"]}):
        code, answer = make(controller, SECRET, **field)
        assert (code, "the key, and nothing else" in answer["message"]) == (422, True), answer
    found = {
        place: {verb for verb in VERBS if may(installed, CONTROLLER, verb, *place)}
        for place in (("", each, space) for each in ("secrets", f"secrets:{SECRET}")
                      for space in ("eip-speaker-agents", "eip-speaker", "default"))
    }  # fmt: skip
    assert {place for place, verbs in found.items() if verbs} == {
        ("", "secrets", "eip-speaker-agents"), ("", f"secrets:{SECRET}", "eip-speaker-agents"),
    }  # fmt: skip
    assert found["", f"secrets:{SECRET}", "eip-speaker-agents"] == {"create"}


def test_nobody_else_is_bound_to_that_secret(installed, key_rights):
    assert make(installed, "another")[0] == 201


# ── An agent speaks for its own node ──


@pytest.fixture(scope="session")
def no_node(api_server, installed) -> Asking:
    """An agent whose token names no node, once the policies are in force: theirs is the last binding written."""
    ask = Asking(
        api_server, api_server.kubectl("create", "token", "eip-speaker-agent", "--namespace=eip-speaker-agents").strip()
    )
    lease = {"metadata": {"name": "nobody"}}
    assert any(ask("POST", f"{LEASES}?dryRun=All", lease)[0] == 422 for _ in range(ATTEMPTS))
    return ask


@pytest.fixture(scope="session")
def agent(api_server, installed, no_node):
    """``agent("n1")`` asks as the agent on that node: its token is bound to a pod there."""

    def on(node: str) -> Asking:
        namespace = "eip-speaker-agents"
        installed("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        spec = {
            "serviceAccountName": "eip-speaker-agent",
            "nodeName": node,
            "containers": [{"name": "agent", "image": "eip-speaker"}],
        }
        pod = {"metadata": {"name": f"agent-{node}"}, "spec": spec}
        installed("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        bound = ("--bound-object-kind=Pod", f"--bound-object-name=agent-{node}")
        token = api_server.kubectl("create", "token", "eip-speaker-agent", f"--namespace={namespace}", *bound)
        return Asking(api_server, token.strip())

    return on


@pytest.fixture
def held(installed):
    """``held(holder)`` is the path of an Announcement whose record names that holder at term 5."""
    path = f"{ANNOUNCEMENTS}/203.0.113.1"

    def by(holder: str) -> str:
        body = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Announcement", "metadata": {"name": "203.0.113.1"}}
        assert installed("POST", ANNOUNCEMENTS, body)[0] == 201
        code, answer = installed("PATCH", path, {"status": {"holder": holder, "term": 5}})
        assert code == 200, answer
        return path

    yield by
    installed("DELETE", path)


@pytest.mark.parametrize(
    ("before", "status", "code"),
    [
        pytest.param("n1", {"holder": "n1", "mac": "02:00:5e:00:53:01"}, 200, id="mends its own record"),
        pytest.param("", {"holder": "n1", "term": 6}, 200, id="claims what is vacant"),
        pytest.param("n2", {"holder": "n1", "term": 6}, 200, id="takes over with a higher term"),
        pytest.param("n1", {"holder": ""}, 200, id="gives up what it held"),
        pytest.param("n1", {"holder": "n2", "term": 6}, 422, id="names another"),
        pytest.param("", {"holder": "n2"}, 422, id="names another for what is vacant"),
        pytest.param("n2", {"mac": "02:00:5e:00:53:01"}, 422, id="writes into another's record"),
        pytest.param("n2", {"holder": ""}, 422, id="takes it away from another"),
        pytest.param("n2", {"holder": None}, 422, id="removes another's name"),
    ],
)
def test_an_agent_names_only_its_own_node(agent, held, before, status, code):
    found, answer = agent("n1")("PATCH", held(before), {"status": status})
    assert found == code, answer
    if code == 422:
        assert "the agent of n1 may not" in answer["message"]


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        pytest.param({"status": {"holder": "n1", "term": 1}}, 201, id="as its own"),
        pytest.param({}, 201, id="without a holder"),
        pytest.param({"status": {"holder": "n2", "term": 1}}, 422, id="as another's"),
        pytest.param(
            {"status": {"holder": "n1"}, "metadata": {"finalizers": ["example.com/mine"]}}, 422, id="for good"
        ),
    ],
)
def test_an_agent_makes_a_record_for_its_own_node_only(installed, agent, extra, code):
    body = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Announcement", "metadata": {"name": "203.0.113.2"}}
    whole = body | extra | {"metadata": body["metadata"] | extra.get("metadata", {})}
    found, answer = agent("n1")("POST", ANNOUNCEMENTS, whole)
    assert found == code, answer
    if code == 201:
        installed("DELETE", f"{ANNOUNCEMENTS}/203.0.113.2")


def test_an_agent_keeps_no_record_from_being_deleted(agent, held):
    code, answer = agent("n1")("PATCH", held("n1"), {"metadata": {"finalizers": ["example.com/mine"]}})
    assert (code, "may not keep" in answer["message"]) == (422, True)


@pytest.mark.parametrize("holder", ["n1", "", "n2"])
def test_an_agent_deletes_no_record(agent, held, holder):
    code, answer = agent("n1")("DELETE", held(holder))
    assert (code, answer["reason"]) == (403, "Forbidden")


def test_the_controller_deletes_a_record_as_it_was_seen(installed, controller, held):
    path = held("n1")
    seen = installed("GET", path)[1]["metadata"]
    assert installed("PATCH", path, {"status": {"holder": "n2", "term": 6}})[0] == 200
    late = Removal(path, seen["uid"], seen["resourceVersion"])
    assert controller("DELETE", path, late.body())[0] == 409
    again = Removal(path, seen["uid"], installed("GET", path)[1]["metadata"]["resourceVersion"])
    assert controller("DELETE", path, again.body())[0] == 200


def test_a_token_that_names_no_node_writes_nothing(no_node, held):
    code, answer = no_node("PATCH", held(""), {"status": {"term": 6}})
    assert code == 422
    assert "does not say which node" in answer["message"]


def test_nobody_else_is_bound_by_that(installed, held):
    assert installed("PATCH", held("n1"), {"status": {"holder": "n2", "term": 6}})[0] == 200


def test_an_agent_writes_only_its_own_lease(installed, agent):
    lease = {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 6}}
    n1, n2 = agent("n1"), agent("n2")
    code, answer = n2("POST", LEASES, lease)
    assert (code, "may not write the Lease of n1" in answer["message"]) == (422, True)
    assert n1("POST", LEASES, lease)[0] == 201
    renewed = {"spec": {"renewTime": "2026-11-21T16:00:00.000000Z"}}
    assert n2("PATCH", f"{LEASES}/n1", renewed)[0] == 422
    assert n1("PATCH", f"{LEASES}/n1", renewed)[0] == 200
    assert installed("DELETE", f"{LEASES}/n1")[0] == 200
