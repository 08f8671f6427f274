"""The chart against a real API server: what users set is valid, and it can be changed, rolled back and removed."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from chart_mixtures import DIGEST, ENV, MIXTURES, OTHERS, TOLERATIONS, objects, values_of
from real_api import RealApi
from render import write_chart

pytestmark = pytest.mark.apiserver

IMAGE = "registry.example.com:5000/lb/eip-speaker:1.2.3"
MONITORING = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
Helm = Callable[..., str]


def definition(kind: str) -> dict[str, Any]:
    """As the Prometheus operator brings it, but that it takes any spec."""
    plural = f"{kind.lower()}s"
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    """Its own: nothing is installed there yet."""
    with RealApi(tmp_path_factory.mktemp("chart-api")) as found:
        for kind in MONITORING:
            found.kubectl("apply", "--filename=-", stdin=json.dumps(definition(kind)))
        for namespace in OTHERS:
            found.kubectl("create", "namespace", namespace)
        yield found


@pytest.fixture(scope="module")
def helm(api: RealApi, helm_program: str, kubectl: str, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """``helm("install", **values)`` of the release ``lb``, of the chart; its output. AssertionError if it fails."""
    directory = tmp_path_factory.mktemp("chart")
    write_chart(kubectl, IMAGE, directory)

    def run(command: str, *words: str, **values: Any) -> str:
        file = directory / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        chart = (directory / "eip-speaker", f"--values={file}") if command in ("install", "upgrade", "template") else ()
        done = subprocess.run(
            [helm_program, f"--kubeconfig={api.kubeconfig()}", command, "lb", *words, *map(str, chart)],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(directory), "PATH": ""},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def installed(api: RealApi, helm: Helm) -> None:
    helm("install")
    names = [f"crd/{each}" for each in (*("eips.eip-speaker.io", "announcements.eip-speaker.io"),
             *(f"{kind.lower()}s.monitoring.coreos.com" for kind in MONITORING))]  # fmt: skip
    api.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)


@pytest.mark.parametrize("mixture", MIXTURES, ids=range(len(MIXTURES)))
def test_the_api_server_finds_no_fault_with_what_a_user_sets(api, helm, installed, mixture):
    """What it does not know is an error, and so is what it would warn of."""
    strictly = ("--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename=-", "--output=name")
    text = helm("template", **values_of(mixture))
    applied = api.kubectl("apply", "--server-side", "--force-conflicts", *strictly, stdin=text)
    assert len(applied.split()) == len(objects(text))


def there(api: RealApi) -> dict[tuple[str, str], Any]:
    """What the release has made, without what the API server adds."""
    kinds = (
        "daemonsets,deployments,networkpolicies,roles,podmonitors,prometheusrules,configmaps,customresourcedefinitions"
    )
    listed = json.loads(api.kubectl("get", kinds, "--all-namespaces", "--output=json"))["items"]
    ours = [each for each in listed if each["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "Helm"]
    found = {}
    for each in ours:
        metadata = each.pop("metadata")
        each["labels"], each["annotations"] = metadata["labels"], metadata.get("annotations", {})
        each["annotations"].pop("deprecated.daemonset.template.generation", "")  # counts every change
        each.pop("status", None)
        found[each["kind"], metadata["name"]] = each
    return found


CHANGED: dict[str, Any] = {
    "forwarder": "nftables",
    "image": {"digest": DIGEST},
    "podMonitor": {"enabled": True, "interval": "15s"},
    "prometheusRule": {"enabled": True, "alerts": {"EipFlapping": {"threshold": 9}}},
    "dashboard": {"enabled": True},
    "networkPolicy": {"enabled": False},
    "key": {"existingSecret": "sealed"},
    "agent": {"hello": 50, "tolerations": TOLERATIONS, "env": ENV, "podLabels": {"team": "net"}},
    "controller": {"replicas": 3, "affinity": None, "resources": {"requests": {"cpu": "2"}}},
}


def spec(found: dict[tuple[str, str], Any], kind: str) -> Any:
    (only,) = (each["spec"]["template"]["spec"] for (one, _), each in found.items() if one == kind)
    return only


def test_it_is_changed_and_rolled_back_and_goes_but_for_the_pools(api, helm, installed):
    before = there(api)
    helm("upgrade", **CHANGED)
    changed = there(api)
    (agent,), pod = spec(changed, "DaemonSet")["containers"], spec(changed, "DaemonSet")
    assert agent["image"] == f"{IMAGE}@{DIGEST}"
    assert {"--forwarder=nftables", "--hello=50", "--metrics=$(HOST_IP):9900"} <= set(agent["args"])
    assert (pod["tolerations"], agent["env"][-2]) == (TOLERATIONS, ENV[0])
    assert pod["volumes"][0]["secret"]["secretName"] == "sealed"
    assert changed["Deployment", "eip-speaker-controller"]["spec"]["replicas"] == 3
    assert "affinity" not in spec(changed, "Deployment")
    rules = changed["PrometheusRule", "eip-speaker"]["spec"]["groups"][0]["rules"]
    assert [each["expr"][-3:] for each in rules if each["alert"] == "EipFlapping"] == ["> 9"]
    assert changed.keys() ^ before.keys() == {
        *(("PodMonitor", f"eip-speaker-{who}") for who in ("agent", "controller")),
        *(("PrometheusRule", "eip-speaker"), ("ConfigMap", "eip-speaker-dashboard")),
        *(("NetworkPolicy", "eip-speaker-controller"), ("Role", "eip-speaker-controller-key")),
    }

    helm("rollback", "1")
    assert there(api) == before
    assert changed != before

    body = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "lan"}}
    api.kubectl("apply", "--filename=-", stdin=json.dumps({**body, "spec": {"addresses": ["192.0.2.0/28"]}}))
    helm("uninstall")
    assert {kind for kind, _ in there(api)} == {"CustomResourceDefinition"}
    assert api.kubectl("get", "eips", "--output=name").split() == ["eip.eip-speaker.io/lan"]
