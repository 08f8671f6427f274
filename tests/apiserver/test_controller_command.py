"""``speaker controller`` as it is deployed: two processes under the shipped ServiceAccount; one is killed."""

import json
import re
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real_api import MANIFESTS, PATIENCE, RealApi, until

from speaker.cli import main
from speaker.controller.leader import ENTRY, SECRET

pytestmark = pytest.mark.apiserver

POOL = "command-lan"


class Replica:
    def __init__(self, kubeconfig: Path, log: Path, *more: str) -> None:
        self._log = log
        with log.open("wb") as out:
            flags = (f"--kubeconfig={kubeconfig}", "--metrics=off", "--log-format=json", *more)
            self.process = subprocess.Popen([sys.executable, "-m", "speaker", "controller", *flags], stderr=out)

    def said(self) -> list[dict[str, Any]]:
        """Lines that are whole: it may be writing another."""
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def refused(self) -> list[dict[str, Any]]:
        """Requests that were wrong. That a server is not ready yet (429: a CRD's storage is initializing) or answers
        too late on a busy machine is no mistake, and is made good."""
        failed = [line for line in self.said() if line["event"] == "api failed"]
        return [line for line in failed if re.match("the API answered 4(?!29)", line["error"])]

    def leads(self) -> bool:
        return any(line["event"] == "leads" for line in self.said())


def service(name: str) -> str:
    spec = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ports": [{"port": 80}]}
    return json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})


@pytest.fixture
def replica(api_server: RealApi, admin: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    made: list[Replica] = []
    token = admin("create", "token", "eip-speaker-controller", "--namespace=eip-speaker")
    kubeconfig = api_server.kubeconfig_with("controller", token)

    def start(name: str, *flags: str) -> Replica:
        made.append(found := Replica(kubeconfig, tmp_path / f"{name}.log", *flags))
        return found

    yield start
    for found in made:
        found.process.kill()
        found.process.wait()


def test_a_killed_leader_is_followed_and_nobodys_address_changes(admin, replica):
    pool = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": POOL}}
    admin("apply", "-f", "-", stdin=json.dumps({**pool, "spec": {"addresses": ["192.0.2.10-192.0.2.20"]}}))

    def address(name: str) -> str:
        return admin("get", "service", name, "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")

    def told() -> set[str]:
        events = ("get", "events", "-o", "jsonpath={range .items[*]}{.involvedObject.name}={.reason} {end}")
        return set(admin(*events).split())

    first = replica("first")
    until(first.leads)
    for name in ("first", "second"):
        admin("apply", "-f", "-", stdin=service(name))
        until(lambda name=name: address(name))
    # An Event waits a moment for who announces the address: whoever is killed meanwhile takes it along.
    until(lambda: {"first=Assigned", "second=Assigned"} <= told())
    second = replica("second")
    until(lambda: any(line["event"] == "started" for line in second.said()))
    first.process.kill()
    admin("apply", "-f", "-", stdin=service("third"))
    until(lambda: address("third"))
    assert second.leads()
    assert [address(name) for name in ("first", "second", "third")] == ["192.0.2.10", "192.0.2.11", "192.0.2.12"]
    until(lambda: admin("get", "eip", POOL, "-o", "jsonpath={.status.ipv4.used}") == "3")
    assert admin("get", "eip", POOL, "--no-headers").split()[1] == "192.0.2.10-192.0.2.20"

    # Events come when nothing else is left to say.
    until(lambda: {"first=Assigned", "second=Assigned", "third=Assigned"} <= told())
    assert first.refused() + second.refused() == []

    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(PATIENCE) == 0
    lease = ("get", "lease", "eip-speaker-controller", "--namespace=eip-speaker", "-o")
    assert admin(*lease, "jsonpath={.spec.holderIdentity}") == ""


@pytest.mark.parametrize("flags", [(), ("--default-class",)], ids=["class", "no class"])
def test_a_service_that_stops_being_ours_is_released_and_then_its_pool_can_go(admin, replica, flags):
    pool = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": POOL}}
    admin("apply", "-f", "-", stdin=json.dumps({**pool, "spec": {"addresses": ["192.0.2.10"]}}))
    asked = json.loads(service("web"))
    if flags:
        del asked["spec"]["loadBalancerClass"]
    admin("apply", "-f", "-", stdin=json.dumps(asked))
    running = replica("first", *flags)

    def found() -> dict[str, Any]:
        return json.loads(admin("get", "service", "web", "-o", "json"))

    until(lambda: found()["status"]["loadBalancer"].get("ingress"))
    assert found()["metadata"]["annotations"]["eip-speaker.io/record"] == "192.0.2.10"
    until(lambda: "eip-speaker.io/in-use" in admin("get", "eip", POOL, "-o", "jsonpath={.metadata.finalizers}"))
    admin("patch", "service", "web", "-p", '{"spec":{"type":"ClusterIP","loadBalancerClass":null}}')
    until(lambda: found()["status"] == {"loadBalancer": {}})
    assert "eip-speaker.io/record" not in found()["metadata"].get("annotations", {})
    admin("delete", "eip", POOL, "--timeout=180s")
    assert running.refused() == []


def test_what_plan_says_of_the_live_cluster_then_happens_and_saying_it_changes_nothing(
    admin, replica, api_server, tmp_path, capsys
):
    def written(name, *addresses):
        pool = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": POOL}}
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "pool.json").write_text(json.dumps({**pool, "spec": {"addresses": [*addresses]}}))
        return tmp_path / name

    def condition(name):
        found = json.loads(admin("get", "service", name, "-o", "json"))["status"].get("conditions", [])
        return {each["type"]: each["reason"] for each in found}.get("eip-speaker.io/Assigned")

    def plan(*arguments):
        code = main(["plan", "--cluster", f"--kubeconfig={api_server.kubeconfig()}", "--json", *map(str, arguments)])
        return code, json.loads(capsys.readouterr().out)["services"]

    until(replica("first").leads)
    admin("apply", "-f", str(written("now", "192.0.2.10-192.0.2.11")))
    for name in ("first", "second"):
        admin("apply", "-f", "-", stdin=service(name))
        until(lambda name=name: condition(name) == "Assigned")
    then = written("then", "192.0.2.10")
    (then / "third.json").write_text(service("third"))
    until(lambda: admin("get", "eip", POOL, "-o", "jsonpath={.status.ipv4.used}") == "2")
    before = admin("get", "services,eips", "-o", "json")
    assert plan() == (0, {})
    assert plan(written("now", "192.0.2.10-192.0.2.11")) == (0, {})
    code, planned = plan(then)
    assert admin("get", "services,eips", "-o", "json") == before
    assert code == 1
    assert planned.keys() == {"default/second", "default/third"}
    assert planned["default/second"]["after"]["flagged"] == ["192.0.2.11"]
    assert planned["default/third"]["after"]["refused"] == "pool_full"
    admin("apply", "-f", str(then))
    until(lambda: (condition("second"), condition("third")) == ("Flagged", "PoolFull"))
    assert (condition("first"), plan(then)) == ("Assigned", (0, {}))


def test_with_the_rights_of_its_component_it_makes_the_key_and_logs_nothing_of_it(admin, replica, request):
    rights = str(MANIFESTS.parent / "components" / "make-key" / "key-rights.yaml")
    secret = ("secret", SECRET, "--namespace=eip-speaker-agents")
    request.addfinalizer(lambda: admin("delete", *secret, "--ignore-not-found"))
    request.addfinalizer(lambda: admin("delete", "--filename", rights, "--ignore-not-found"))
    first = replica("first", "--make-key")
    until(lambda: any("secrets" in line.get("what", "") for line in first.said()))
    admin("apply", "--filename", rights)
    until(lambda: any(line["event"] == "key made" for line in first.said()))
    before = admin("get", *secret, "--output=json")
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(PATIENCE) == 0
    second = replica("second", "--make-key")
    until(second.leads)
    admin("apply", "-f", "-", stdin=json.dumps(
        {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": POOL},
         "spec": {"addresses": ["192.0.2.10"]}}
    ))  # fmt: skip
    until(lambda: admin("get", "eip", POOL, "-o", "jsonpath={.status.ipv4.size}") == "1")
    assert admin("get", *secret, "--output=json") == before
    content = json.loads(before)["data"][ENTRY]
    for told in (str(first.said()), str(second.said())):
        assert content not in told
        assert b64decode(content).decode().strip() not in told
