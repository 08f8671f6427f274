"""Tools that apply objects again and again beside a running controller: nobody fights for a field, and they see whether
a pool is well."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from asking import Asking
from lupa import lua51
from real_api import RealApi, until

from speaker.controller.wanted import FINALIZER

pytestmark = pytest.mark.apiserver

EIPS, SERVICES = "/apis/eip-speaker.io/v1alpha1/eips", "/api/v1/namespaces/default/services"
POOL, SERVICE = f"{EIPS}/gitops", f"{SERVICES}/gitops"
ROUNDS = 20


@pytest.fixture
def ask(api_server: RealApi, admin: Any, tmp_path: Any) -> Iterator[Asking]:
    """With a controller that runs under its own rights."""
    token = admin("create", "token", "eip-speaker-controller", "--namespace=eip-speaker")
    kubeconfig = api_server.kubeconfig_with("controller-gitops", token)
    flags = (f"--kubeconfig={kubeconfig}", "--metrics=off", "--log-format=json")
    with (tmp_path / "log").open("wb") as log:
        controller = subprocess.Popen([sys.executable, "-m", "speaker", "controller", *flags], stderr=log)
    try:
        yield Asking(api_server)
    finally:
        controller.kill()
        controller.wait()


def pool(number: int = 0, **spec: Any) -> dict[str, Any]:
    spec = {"addresses": ["192.0.2.128/28", f"192.0.2.{200 + number}"], **spec}
    return {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "gitops"}, "spec": spec}


def service(**metadata: Any) -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gitops", **metadata}, "spec": spec}


def apply(ask: Asking, path: str, manager: str, body: dict[str, Any]) -> dict[str, Any]:
    """A conflict is 409: nothing is forced."""
    code, answer = ask("APPLY", f"{path}?fieldManager={manager}&fieldValidation=Strict", body)
    assert code in (200, 201), answer
    return answer


def of_others(manager: str, number: int) -> dict[str, Any]:
    """What each of three tools has of the pool, which changes each time."""
    only: dict[str, Any] = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "gitops"}}
    if manager == "argocd-controller":
        return pool(number)
    if manager == "kustomize-controller":
        return {**only, "metadata": {**only["metadata"], "labels": {"round": str(number)}}}
    return {**only, "spec": {"priority": number, "perNamespace": {"max": 5 + number}}}


MANAGERS = ("argocd-controller", "kustomize-controller", "kubectl")


def owners(found: dict[str, Any]) -> dict[str, set[str]]:
    """Manager → the fields that it has, as text."""
    owned: dict[str, set[str]] = {}
    for each in found["metadata"]["managedFields"]:
        owned.setdefault(each["manager"], set()).update(leaves(each["fieldsV1"]))
    return owned


def leaves(fields: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, below in fields.items():
        yield from leaves(below, f"{path}/{name}") if below and name != "." else [f"{path}/{name}"]


def is_settled(ask: Asking, path: str) -> bool:
    """Of pools: what was observed is what there is; of Services: there is an EIP."""
    found = ask("GET", path)[1]
    if found["kind"] == "Service":
        return bool(found["status"]["loadBalancer"])
    return found["status"].get("observedGeneration") == found["metadata"]["generation"]


def test_three_tools_and_the_controller_share_a_pool_and_a_service_without_a_conflict(ask):
    for number in range(ROUNDS):
        for manager in MANAGERS:
            apply(ask, POOL, manager, of_others(manager, number))
            note = {"annotations": {f"{manager}.example.com/round": str(number)}}
            apply(ask, SERVICE, manager, service(**note))
    until(lambda: is_settled(ask, POOL) and is_settled(ask, SERVICE))
    until(lambda: FINALIZER in ask("GET", POOL)[1]["metadata"].get("finalizers", ()))

    for path in (POOL, SERVICE):
        owned = owners(ask("GET", path)[1])
        (ours,) = (fields for manager, fields in owned.items() if manager not in MANAGERS)
        assert any(field.startswith("/f:status") for field in ours)
        assert all(ours.isdisjoint(owned[manager]) for manager in MANAGERS)
        assert not any(field.startswith("/f:spec") for field in ours)


def test_what_is_applied_again_as_it_was_changes_nothing(ask):
    def apply_all() -> list[str]:
        versions = []
        for manager in MANAGERS:
            versions.append(apply(ask, POOL, manager, of_others(manager, 1))["metadata"]["resourceVersion"])
            versions.append(apply(ask, SERVICE, manager, service())["metadata"]["resourceVersion"])
        return versions

    def at_rest() -> bool:
        """Counts may be written later than the rest."""
        return is_settled(ask, POOL) and is_settled(ask, SERVICE) and apply_all() == apply_all()

    apply_all()
    until(at_rest)
    before = apply_all()
    assert [apply_all() for _ in range(ROUNDS)] == [before] * ROUNDS


# ── What they see ──


def kstatus(found: dict[str, Any]) -> str:
    """As cli-utils' kstatus judges a kind that it does not know (pkg/kstatus/status/generic.go)."""
    status, conditions = found.get("status", {}), found.get("status", {}).get("conditions", [])
    by_type = {each["type"]: each["status"] for each in conditions}
    if status.get("observedGeneration", found["metadata"]["generation"]) != found["metadata"]["generation"]:
        return "InProgress"
    if by_type.get("Reconciling") == "True":
        return "InProgress"
    if by_type.get("Stalled") == "True":
        return "Failed"
    return "Current" if by_type.get("Ready", "True") == "True" else "InProgress"


PAGE = "docs/ecosystem.md"


@pytest.fixture
def argo(request: Any) -> Any:
    """``argo(object)``: the health that the script in the docs gives."""
    (config,) = (each for each in documents(request) if each["metadata"]["name"] == "argocd-cm")

    def judge(found: dict[str, Any]) -> str:
        lua = lua51.LuaRuntime(register_eval=False)
        lua.globals().obj = lua.table_from(found, recursive=True)
        script = config["data"][f"resource.customizations.health.eip-speaker.io_{found['kind']}"]
        health: str = lua.execute(script).status
        return health

    return judge


def documents(request: Any) -> list[dict[str, Any]]:
    """The manifests in the page."""
    text = (request.config.rootpath / PAGE).read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    found = [each for block in blocks for each in yaml.safe_load_all(block)]
    return [each for each in found if "kind" in each]


def test_a_pool_is_seen_well_only_once_a_controller_has_looked_and_found_no_mistake(api_server, admin, argo, request):
    """Without a controller first."""
    alone = Asking(api_server)
    apply(alone, POOL, "argocd-controller", pool())
    found = alone("GET", POOL)[1]
    assert (kstatus(found), argo(found)) == ("InProgress", "Progressing")
    ask = request.getfixturevalue("ask")
    seen = []
    for spec in ({}, {"exclude": ["198.51.100.1"]}, {"disabled": True}, {}):
        apply(ask, POOL, "argocd-controller", pool(**spec))
        until(lambda: is_settled(ask, POOL))
        found = ask("GET", POOL)[1]
        seen.append((kstatus(found), argo(found)))
    assert seen == [("Current", "Healthy"), ("Failed", "Degraded"), ("InProgress", "Suspended"), ("Current", "Healthy")]
    assert argo({**found, "metadata": {**found["metadata"], "generation": 99}}) == "Progressing"


@pytest.mark.parametrize(
    ("status", "health"),
    [
        ({"holder": "n1", "term": 3}, "Healthy"),
        ({"holder": "n1", "term": 3, "conflict": "02:00:00:00:00:01 on eth0"}, "Degraded"),
        ({"holder": "", "term": 3, "reason": "drained"}, "Degraded"),
        (None, "Progressing"),
    ],
)
def test_an_announcement_is_well_while_one_node_holds_it(argo, status, health):
    found = {"kind": "Announcement", "metadata": {"name": "192.0.2.1"}, **({"status": status} if status else {})}
    assert argo(found) == health


# ── The examples ──


def definition(kind: str, group: str, version: str) -> dict[str, Any]:
    """Of a kind that others bring, which takes any spec."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    plural = f"{kind.lower()}s".replace("classs", "classes")
    names = {"kind": kind, "plural": plural}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": versions}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    note = {"api-approved.kubernetes.io": "unapproved, of a test"}
    return {**head, "metadata": {"name": f"{plural}.{group}", "annotations": note}, "spec": spec}


def test_the_api_server_takes_every_example(api_server, admin, request):
    found = documents(request)
    foreign = {(each["kind"], *each["apiVersion"].split("/")) for each in found if "." in each["apiVersion"]}
    foreign = {each for each in foreign if not each[1].endswith((".k8s.io", "eip-speaker.io"))
               or each[1] == "gateway.networking.k8s.io"}  # fmt: skip
    made = [definition(*each) for each in sorted(foreign)]
    try:
        for each in made:
            api_server.kubectl("apply", "--filename=-", stdin=json.dumps(each))
            api_server.kubectl("wait", "--for=condition=Established", f"crd/{each['metadata']['name']}")
        text = yaml.safe_dump_all(
            [{**each, "metadata": {**each["metadata"], "namespace": "default"}} for each in found]
        )
        strictly = ("--dry-run=server", "--validate=strict", "--warnings-as-errors", "--output=name")
        applied = api_server.kubectl("apply", "--server-side", *strictly, "--filename=-", stdin=text)
        assert len(applied.split()) == len(found) == 4
    finally:
        for each in made:
            api_server.kubectl("delete", f"crd/{each['metadata']['name']}", "--ignore-not-found")
