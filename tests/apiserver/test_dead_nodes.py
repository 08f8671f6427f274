"""Pods of a dead node are marked with the shipped rights, beside kube-controller-manager where it is."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from asking import Asking
from real_api import BUILT, MANIFESTS, RealApi, missing, until
from test_controller_command import Replica

from speaker.api.records import MISSES

pytestmark = pytest.mark.apiserver

RIGHTS = MANIFESTS.parent / "components" / "mark-pods-not-ready" / "pod-rights.yaml"
MANAGER = BUILT / "kube-controller-manager"
PODS = "/api/v1/namespaces/default/pods"
KUBELETS, SESSIONS = (
    f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    for namespace in ("kube-node-lease", "eip-speaker-agents")
)
NODES = ("n1", "n2", "n3", "n4")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ready(kind: str = "Ready", status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": now()}


class Site:
    """Nodes whose kubelets and agents are played: they renew their Leases, more often than real ones, until they
    die. Agents miss whom ``missed`` names."""

    def __init__(self, api: RealApi) -> None:
        self.api, self.ask = api, Asking(api)
        self.dead: set[str] = set()
        self.frozen: set[str] = set()
        """Whose kubelets are."""
        self.missed: dict[str, str] = {}
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="renewing")
        for number, node in enumerate(NODES):
            self.made("/api/v1/nodes", {"metadata": {"name": node}})
            self.done("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [ready()]}})
            lease = {"metadata": {"name": node}, "spec": {"leaseDurationSeconds": 40, "renewTime": micro_now()}}
            self.made(KUBELETS, lease)
            self.made(SESSIONS, lease)
            spec = {"nodeName": node, "containers": [{"name": "web", "image": "web"}]}
            self.made(PODS, {"metadata": {"name": f"on-{node}", "labels": {"app": "web"}}, "spec": spec})
            address = f"10.1.0.{number + 1}"
            status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
            conditions = [ready("ContainersReady"), ready()]
            self.done("PATCH", f"{PODS}/on-{node}/status", {"status": {**status, "conditions": conditions}})
        self._renewing.start()

    def close(self) -> None:
        self._over.set()
        self._renewing.join()
        for node in NODES:
            for path in (f"{PODS}/on-{node}?gracePeriodSeconds=0", f"{KUBELETS}/{node}", f"{SESSIONS}/{node}"):
                self.done("DELETE", path)
            self.done("DELETE", f"/api/v1/nodes/{node}")

    def _renew(self) -> None:
        while not self._over.wait(0.5):
            renewed = {"spec": {"renewTime": micro_now()}}
            for node in set(NODES) - self.dead:
                missed = self.missed.get(node)
                said = {"labels": {MISSES: "true" if missed else None}, "annotations": {MISSES: missed}}
                self.done("PATCH", f"{SESSIONS}/{node}", {**renewed, "metadata": said})
                if node not in self.frozen:
                    self.done("PATCH", f"{KUBELETS}/{node}", renewed)

    def done(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        code, answer = self.ask(method, path, body)
        assert code < 300, (method, path, answer)
        return answer

    def made(self, path: str, body: object) -> None:
        self.done("POST", path, body)

    def pod(self, node: str) -> dict[str, Any]:
        return self.done("GET", f"{PODS}/on-{node}")

    def readiness(self, found: dict[str, Any]) -> dict[str, Any]:
        return next(each for each in found["status"]["conditions"] if each["type"] == "Ready")

    def node(self, name: str) -> dict[str, Any]:
        return self.done("GET", f"/api/v1/nodes/{name}")

    def dies(self, node: str) -> None:
        self.dead.add(node)
        self.missed = {other: node for other in NODES if other != node}

    def endpoints(self) -> dict[str, bool]:
        """Node → whether its endpoint is ready."""
        slices = self.done("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices")["items"]
        found = [each for some in slices for each in some.get("endpoints") or ()]
        return {each["nodeName"]: each["conditions"]["ready"] for each in found if "nodeName" in each}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    """Its own: kube-controller-manager would see to what other tests make."""
    if reason := missing():
        pytest.skip(reason)
    with RealApi(tmp_path_factory.mktemp("dead-nodes")) as made:
        made.install()
        made.kubectl("apply", "--filename", str(RIGHTS))
        yield made


@pytest.fixture
def site(api: RealApi) -> Iterator[Site]:
    made = Site(api)
    yield made
    made.close()


@pytest.fixture
def manager(api: RealApi, site: Site, tmp_path: Path) -> Iterator[None]:
    """kube-controller-manager, as far as nodes and endpoints go: it knows all endpoints."""
    if not MANAGER.is_file():
        pytest.skip(f"needs {MANAGER} (`make cluster` builds it)")
    controllers = "node-lifecycle-controller,taint-eviction-controller,endpointslice-controller"
    flags = (f"--kubeconfig={api.kubeconfig()}", f"--controllers={controllers}", "--leader-elect=false")
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    site.made("/api/v1/namespaces/default/services", {"metadata": {"name": "web"}, "spec": spec})
    with (tmp_path / "manager.log").open("wb") as out:
        process = subprocess.Popen([MANAGER, *flags, "--secure-port=0"], stdout=out, stderr=out)
    try:
        until(lambda: site.endpoints() == dict.fromkeys(NODES, True))
        yield
    finally:
        process.kill()
        process.wait()
        site.done("DELETE", "/api/v1/namespaces/default/services/web")


@pytest.fixture
def controller(api: RealApi, tmp_path: Path) -> Iterator[Callable[[], Replica]]:
    made: list[Replica] = []

    def start() -> Replica:
        token = api.kubectl("create", "token", "eip-speaker-controller", "--namespace=eip-speaker")
        kubeconfig = api.kubeconfig_with("controller", token)
        made.append(found := Replica(kubeconfig, tmp_path / "controller.log", "--mark-pods-not-ready"))
        until(found.leads)
        return found

    yield start
    for found in made:
        found.process.kill()
        found.process.wait()


def test_the_pods_of_a_node_that_most_agents_miss_are_marked_and_nothing_else_is_written(site, controller):
    running = controller()
    before = {node: site.pod(node) for node in NODES}
    site.dies("n4")
    until(lambda: site.readiness(site.pod("n4"))["status"] == "False")
    after = {node: site.pod(node) for node in NODES}
    marked = site.readiness(after["n4"])
    assert marked["reason"] == "NodeSilent"
    assert "n1, n2, n3 do not hear n4" in marked["message"]
    assert {node: after[node] for node in NODES[:3]} == {node: before[node] for node in NODES[:3]}
    others = [each for each in after["n4"]["status"].pop("conditions") if each["type"] != "Ready"]
    assert others == [each for each in before["n4"]["status"].pop("conditions") if each["type"] != "Ready"]
    assert after["n4"]["status"] == before["n4"]["status"]
    assert site.readiness(site.node("n4"))["status"] == "True"
    assert running.refused() == []
    assert [line["node"] for line in running.said() if line["event"] == "pods marked not ready"] == ["n4"]


def test_the_endpoints_of_a_dead_node_are_out_before_the_control_plane_calls_it_not_ready(site, manager, controller):
    controller()
    site.dies("n4")
    until(lambda: not site.endpoints()["n4"])
    assert site.readiness(site.node("n4"))["status"] == "True"
    assert site.endpoints() == {"n1": True, "n2": True, "n3": True, "n4": False}


def test_a_node_whose_condition_another_wrote_keeps_its_endpoints(site, manager):
    """Why it is the pods that are marked: kube-controller-manager taints such a node and leaves its pods ready."""
    site.dies("n4")
    conditions = [{**ready(status="Unknown"), "reason": "NodeSilent"}]
    site.done("PATCH", "/api/v1/nodes/n4/status", {"status": {"conditions": conditions}})
    until(lambda: "NoExecute" in {each["effect"] for each in site.node("n4")["spec"].get("taints", ())})
    assert site.endpoints()["n4"]


# ── Rights ──

ATTEMPTS = 2000
"""Against a hang: a policy is in force a moment after it was written."""


@pytest.fixture
def as_controller(api: RealApi) -> Asking:
    return Asking(api, api.kubectl("create", "token", "eip-speaker-controller", "--namespace=eip-speaker").strip())


def test_the_controller_may_write_that_a_pod_is_not_ready_and_nothing_else_of_it(site, as_controller):
    path = f"{PODS}/on-n1/status?dryRun=All"

    def write(status: object, **metadata: object) -> int:
        return as_controller("PATCH", path, {"metadata": metadata, "status": status})[0]

    conditions = site.pod("n1")["status"]["conditions"]
    other, own = (each for each in conditions)
    assert own["type"] == "Ready"
    marked = {"conditions": [other, {**own, "status": "False", "reason": "NodeSilent"}]}
    container = {"name": "web", "image": "", "imageID": "", "ready": True, "restartCount": 1}
    assert any(write({"conditions": [own]}) == 422 for _ in range(ATTEMPTS))
    assert write(marked) == 200
    for refused in (
        {"conditions": [other, own]},
        {"conditions": [other]},
        {"conditions": [other, {**marked["conditions"][1], "reason": "Other"}]},
        {"conditions": [other, {**marked["conditions"][1], "message": "x" * 5000}]},
        {"conditions": [{**other, "status": "False"}, *marked["conditions"][1:]]},
        {"conditions": [*marked["conditions"], ready("Another")]},
        {**marked, "podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]},
        {**marked, "phase": "Failed"},
        {**marked, "containerStatuses": [container]},
        {**marked, "observedGeneration": 7},
        {**marked, "extendedResourceClaimStatus": {"resourceClaimName": "anothers", "requestMappings": []}},
        {**marked, "phase": None},
    ):
        assert write(refused) == 422, refused
    assert write(marked, labels={"app": "another"}) == 422
    assert write(marked, annotations={"a": "b"}) == 422
    assert as_controller("PATCH", f"{PODS}/on-n1?dryRun=All", {"metadata": {"labels": {"a": "b"}}})[0] == 403
    assert as_controller("PATCH", "/api/v1/nodes/n1/status?dryRun=All", {"status": {}})[0] == 403
