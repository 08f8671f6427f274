"""What the manifests promise that no API server checks."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from speaker.ownership.parameters import Parameters
from speaker.settings import DEFAULT_KEY, DEFAULT_RUNTIME_DIR, Bind

BASE = Path(__file__).resolve().parents[2] / "manifests" / "base"


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


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_the_probes_ask_where_it_listens(name):
    (metrics,) = (each.partition("=")[2] for each in container(name)["args"] if each.startswith("--metrics="))
    bind = Bind.parse(metrics.replace("$(POD_IP)", "192.0.2.1"))
    assert bind is not None
    (port,) = container(name)["ports"]
    assert (port["name"], port["containerPort"]) == ("metrics", bind.port)
    for probe in ("readinessProbe", "livenessProbe"):
        asked = container(name)[probe]["httpGet"]
        assert asked["port"] == "metrics"
        assert asked.get("host", "192.0.2.1") == bind.host
