"""What the manifests promise, without an API server."""

import re
from collections.abc import Callable
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from render import CLEANUP, COMPONENTS, MANIFESTS, OVERLAYS, kustomized

from speaker.cli import main
from speaker.forwarding.ipvs.settings import FOLDERS
from speaker.ownership.parameters import Parameters
from speaker.settings import DEFAULT_KEY, DEFAULT_RUNTIME_DIR, Bind
from speaker.wire.progress import LONGEST

BASE = MANIFESTS / "base"
OLDEST = "1.32"
"""The first Kubernetes that manifests/README.md promises anything for."""


def workload(name: str) -> dict[str, Any]:
    for each in yaml.safe_load_all((BASE / f"{name}.yaml").read_text()):
        if each["kind"] in ("Deployment", "DaemonSet"):
            return each["spec"]
    raise AssertionError(name)


def pod(name):
    return workload(name)["template"]["spec"]


def container(name):
    (found,) = pod(name)["containers"]
    return found


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_neither_can_gain_privileges_or_be_throttled(name):
    found = container(name)
    context = found["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"]["drop"] == ["ALL"]
    assert pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "cpu" in found["resources"]["requests"]
    assert "cpu" not in found["resources"]["limits"]


def test_an_agent_may_open_raw_sockets_and_nothing_else():
    assert container("agent")["securityContext"]["capabilities"]["add"] == ["NET_RAW"]


def test_an_agent_has_time_to_hand_over():
    assert pod("agent")["terminationGracePeriodSeconds"] > Parameters().drain + Parameters().linger
    assert workload("agent")["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}


def test_the_key_is_where_the_agent_looks_and_for_its_owner_alone():
    (volume,) = (each["secret"] for each in pod("agent")["volumes"] if each["name"] == "key")
    assert volume["defaultMode"] & 0o077 == 0
    mounts = {each["name"]: each["mountPath"] for each in container("agent")["volumeMounts"]}
    assert f"{mounts['key']}/{volume['items'][0]['path']}" == str(DEFAULT_KEY)
    assert mounts["runtime"] == str(DEFAULT_RUNTIME_DIR)


PROBES = ("readinessProbe", "livenessProbe")


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_the_probes_ask_where_it_listens(name):
    (metrics,) = (each.partition("=")[2] for each in container(name)["args"] if each.startswith("--metrics="))
    bind = Bind.parse(metrics.replace("$(POD_IP)", "192.0.2.1"))
    assert bind is not None
    (port,) = container(name)["ports"]
    assert (port["name"], port["containerPort"]) == ("metrics", bind.port)
    for probe in ("startupProbe", *PROBES) if name == "agent" else PROBES:
        asked = container(name)[probe]["httpGet"]
        assert asked["port"] == "metrics"
        assert asked.get("host", "192.0.2.1") == bind.host


def test_an_agent_may_take_as_long_to_start_as_its_first_process_gives_it():
    probe = container("agent")["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= LONGEST


# ── Arguments ──


def arguments(name: str) -> dict[str, str]:
    _, *flags = container(name)["args"]
    return {flag: value for flag, _, value in (each.partition("=") for each in flags)}


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_every_argument_is_one_of_the_command(capsys, name):
    command, *_ = container(name)["args"]
    assert command == name
    with pytest.raises(SystemExit):
        main(["--help"])
    if not re.search(rf"^    {name}\b", capsys.readouterr().out, re.MULTILINE):
        pytest.skip(f"`speaker {name}` is still to be written")
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert arguments(name).keys() <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def test_an_agent_knows_its_node_and_its_revision():
    where = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container("agent")["env"]}
    given = arguments("agent")
    assert where[given["--node"].strip("$()")] == "spec.nodeName"
    # pkg/controller/daemon/util/daemonset_util.go: CreatePodTemplate() puts the label on every pod it makes.
    assert where[given["--revision"].strip("$()")] == "metadata.labels['pod-template-generation']"


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_both_get_the_token_that_names_their_node(name):
    assert pod(name).get("automountServiceAccountToken", True) is True
    accounts = [each for each in documents(BASE / f"{name}-rbac.yaml") if each["kind"] == "ServiceAccount"]
    assert [each.get("automountServiceAccountToken", True) for each in accounts] == [True]


# ── Schemas ──


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def find_fault(each: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(each, version, strict=True)


FILES = [
    file
    for file in sorted(
        [*BASE.rglob("*.yaml"), *(MANIFESTS / "examples").glob("*.yaml"), MANIFESTS / CLEANUP / "cleanup.yaml"]
    )
    if file.name != "kustomization.yaml"
]
VERSIONS = [OLDEST, kubernetes_validate.latest_version()]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_validator_finds_no_fault(file, version):
    for each in documents(file):
        if not each["apiVersion"].startswith("eip-speaker.io/"):
            find_fault(each, version)


def test_the_validator_would_find_one():
    (daemon_set,) = documents(BASE / "agent.yaml")
    daemon_set["spec"]["template"]["spec"]["hostNetwrok"] = True
    with pytest.raises(kubernetes_validate.ValidationError, match="hostNetwrok"):
        find_fault(daemon_set, OLDEST)


def test_what_cleans_up_has_the_agents_rights_and_their_files_and_for_no_longer_than_it_takes(rendered):
    """Beside a speaker that runs `speaker cleanup` refuses: it sees its lock in the runtime directory."""
    (daemon_set,) = rendered(CLEANUP)
    (agents,) = (each for each in rendered("ipvs") if each["kind"] == "DaemonSet")
    found, theirs = (each["spec"]["template"]["spec"] for each in (daemon_set, agents))
    (cleaning,), (idle,) = found["initContainers"], found["containers"]
    assert found["hostNetwork"] is theirs["hostNetwork"] is True
    assert found["automountServiceAccountToken"] is False
    assert sorted(cleaning["securityContext"]["capabilities"]["add"]) == ["NET_ADMIN", "NET_RAW"]
    assert "add" not in idle["securityContext"]["capabilities"]
    for each in (cleaning, idle):
        assert (
            each["securityContext"].items()
            >= {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}.items()
        )
        assert each["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert each["image"] == theirs["containers"][0]["image"]
    volumes = {each["name"]: each for each in theirs["volumes"] if "hostPath" in each}
    assert {each["name"]: each for each in found["volumes"]} == volumes
    mounts = {each["name"]: each for each in theirs["containers"][0]["volumeMounts"]}
    assert {each["name"]: each for each in cleaning["volumeMounts"]} == {name: mounts[name] for name in volumes}
    with pytest.raises(SystemExit, match=r"^0$"):
        main([*cleaning["args"], "--help"])


# ── Overlays and components ──


_kustomized = cache(kustomized)
"""Once for a session, as each takes a process."""


@pytest.fixture
def rendered(kubectl) -> Callable[..., list[dict[str, Any]]]:
    """``rendered("ipvs", "metrics")`` are the objects of that overlay with those components."""

    def parsed(overlay: str, *components: str) -> list[dict[str, Any]]:
        return list(yaml.load_all(_kustomized(kubectl, overlay, components), Loader=yaml.CSafeLoader))

    return parsed


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_of_the_hosts_settings_agents_with_ipvs_may_write_those_of_ipv4_where_they_look_for_them_and_no_others(
    rendered, overlay
):
    """net.ipv4.vs is not there before the module is."""
    theirs, own = map(str, FOLDERS)
    (spec,) = (each["spec"]["template"]["spec"] for each in rendered(overlay) if each["kind"] == "DaemonSet")
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    mounts = {each["mountPath"]: paths.get(each["name"], "") for each in spec["containers"][0]["volumeMounts"]}
    found = {place: path for place, path in mounts.items() if path.startswith(("/proc", "/sys"))}
    assert found == ({theirs: own} if overlay == "ipvs" else {})


def only_container(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (container,) = next(each for each in found if each["kind"] == kind)["spec"]["template"]["spec"]["containers"]
    return container


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_validator_finds_no_fault_with_an_overlay_and_every_component(rendered, overlay, version):
    for each in rendered(overlay, *COMPONENTS):
        # Prometheus' operator knows its own; of the alerts promtool reads what is in them.
        if not each["apiVersion"].startswith("monitoring.coreos.com/"):
            find_fault(each, version)


def test_metrics_are_told_where_the_kubelet_asks(rendered):
    agent = only_container(rendered("default", "metrics"), "DaemonSet")
    (metrics,) = (each.partition("=")[2] for each in agent["args"] if each.startswith("--metrics="))
    assert metrics == "$(HOST_IP):9900"
    (host,) = (each for each in agent["env"] if each["name"] == "HOST_IP")
    assert host["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP"
    assert all("host" not in agent[probe]["httpGet"] for probe in ("startupProbe", *PROBES))
    assert Bind.parse(metrics.replace("$(HOST_IP)", "2001:db8::1")) == Bind("2001:db8::1", 9900)


def test_the_page_is_for_who_may_forward_a_port_to_the_pod():
    bind = Bind.parse(arguments("controller")["--page"], "--page")
    assert bind is not None
    assert ip_address(bind.host).is_loopback
    assert "--page" not in arguments("agent")


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment"])
def test_a_broker_is_told_as_a_secret_says(rendered, kind):
    found = rendered("default", "mqtt")
    speaker = only_container(found, kind)
    flags = dict(each.split("=", 1) for each in speaker["args"] if each.startswith("--mqtt"))
    (url,) = (each for each in speaker["env"] if each["name"] == flags["--mqtt"].strip("$()"))
    (mount,) = (each for each in speaker["volumeMounts"] if each["name"] == "mqtt")
    files = {Path(flags[flag]).relative_to(mount["mountPath"]).name for flag in ("--mqtt-ca", "--mqtt-login")}
    assert {url["valueFrom"]["secretKeyRef"]["key"], *files} == {"url", "ca.crt", "login"}
    pods = next(each for each in found if each["kind"] == kind)["spec"]["template"]["spec"]
    (volume,) = (each["secret"] for each in pods["volumes"] if each["name"] == "mqtt")
    assert volume["secretName"] == url["valueFrom"]["secretKeyRef"]["name"]
    assert volume["defaultMode"] & 0o007 == 0
    group = pods["securityContext"].get("fsGroup")
    assert pods["securityContext"]["runAsUser"] == 0 or (group == 65532 and volume["defaultMode"] & 0o040)


def test_the_controller_may_reach_a_broker_by_its_name_where_there_is_one_and_nothing_but_the_api_elsewhere(rendered):
    def let_out(*components: str) -> set[tuple[int, str]]:
        (policy,) = (each["spec"] for each in rendered("default", *components) if each["kind"] == "NetworkPolicy")
        return {(port["port"], port["protocol"]) for rule in policy["egress"] for port in rule["ports"]}

    others = [each for each in COMPONENTS if each != "mqtt"]
    assert let_out(*others) == {(443, "TCP"), (6443, "TCP")}
    assert let_out("mqtt") - let_out() == {(8883, "TCP"), (53, "UDP"), (53, "TCP")}


def test_components_add_what_they_say_and_nothing_else(rendered):
    def capabilities(*components: str) -> list[str]:
        return only_container(rendered("default", *components), "DaemonSet")["securityContext"]["capabilities"]["add"]

    assert capabilities() == ["NET_RAW"]
    assert capabilities("metrics") == ["NET_RAW"]
    assert capabilities("realtime") == ["NET_RAW", "SYS_NICE"]
    requests = only_container(rendered("default", "realtime"), "DaemonSet")["resources"]["requests"]
    assert requests == {**container("agent")["resources"]["requests"], "cpu": "200m"}
    assert capabilities("make-key") == ["NET_RAW"]


def test_who_makes_no_key_has_no_right_to_a_secret_and_who_does_has_one(rendered):
    def rights(*components: str) -> list[Any]:
        rules = [(each["kind"], each["metadata"].get("namespace"), rule) for each in rendered("ipvs", *components)
                 for rule in each.get("rules", ())]  # fmt: skip
        return [each for each in rules if {"secrets", "*"} & set(each[2]["resources"])]

    others = [each for each in COMPONENTS if each != "make-key"]
    assert rights(*others) == []
    assert "--make-key" not in only_container(rendered("ipvs", *others), "Deployment")["args"]
    right = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
    assert rights("make-key") == [("Role", "eip-speaker-agents", right)]
    assert "--make-key" in only_container(rendered("default", "make-key"), "Deployment")["args"]


def test_only_who_marks_pods_may_read_them_and_write_their_status(rendered):
    def rights(*components: str) -> dict[tuple[str, str | None, str], list[str]]:
        rules = [(each["kind"], each["metadata"].get("namespace"), rule) for each in rendered("default", *components)
                 for rule in each.get("rules", ())]  # fmt: skip
        return {(kind, place, resource): rule["verbs"] for kind, place, rule in rules for resource in rule["resources"]}

    def args(*components: str) -> list[str]:
        found: list[str] = only_container(rendered("default", *components), "Deployment")["args"]
        return found

    others, marking = [each for each in COMPONENTS if each != "mark-pods-not-ready"], "mark-pods-not-ready"
    assert not [place for place in rights(*others) if "pods" in place[2] or place[1] == "kube-node-lease"]
    assert "--mark-pods-not-ready" not in args(*others)
    assert "--mark-pods-not-ready" in args(marking)
    found = rights(marking)
    assert found["ClusterRole", None, "pods"] == ["list"]
    assert found["ClusterRole", None, "pods/status"] == ["patch"]
    assert found["Role", "kube-node-lease", "leases"] == ["get"]
    assert "nodes/status" not in {resource for _, _, resource in found}
