"""``speaker controller`` and a real API server: the one that leads tells of EIPs and pools by what agents recorded."""

import json
import socket
import subprocess
import sys

import pytest
from mqtt_broker import Here
from mqtt_schemas import mistakes

pytestmark = pytest.mark.apiserver

EIP = "192.0.2.70"
V1 = "site/cluster/v1"
GROUP = "eip-speaker.io/v1alpha1"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def apply(api_server, request):
    """Puts an object there; all are gone afterwards."""
    api_server.install()

    def put(kind: str, version: str, name: str, **body: object) -> None:
        told = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **body}
        api_server.kubectl("apply", "-f", "-", stdin=json.dumps(told))
        request.addfinalizer(lambda: api_server.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false"))
        if kind == "Eip":
            unbound = ("patch", "eip", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            request.addfinalizer(lambda: api_server.kubectl(*unbound))

    return put


@pytest.fixture
def controller(api_server, tmp_path):
    made = []

    def start(port):
        log = (tmp_path / f"log{len(made)}").open("wb")
        flags = (f"--kubeconfig={api_server.kubeconfig()}", "--metrics=off", "--log-format=json")
        told = ("--mqtt", f"mqtt://127.0.0.1:{port}/site/cluster")
        with log:
            made.append(subprocess.Popen([sys.executable, "-m", "speaker", "controller", *flags, *told], stderr=log))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.wait()


def test_the_controller_that_leads_tells_and_what_it_told_is_put_right_by_the_next(
    apply, controller, new_broker, api_server
):
    port = free_port()
    broker = new_broker(Here(), f"listener {port} 127.0.0.1", "allow_anonymous true", port=port)
    broker.start()
    broker.publish(f"{V1}/eips/192.0.2.99", '{"left": "behind"}', "-r")
    watcher = broker.watch("site/cluster/#")
    apply("Eip", GROUP, "mqtt-lan", spec={"addresses": [EIP]})
    first = controller(port)
    watcher.until(lambda states: states.get(f"{V1}/controller", {}).get("state") == "up")
    watcher.until(lambda states: f"{V1}/eips/192.0.2.99" not in states)
    spec = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ports": [{"port": 80}]}
    apply("Service", "v1", "told", spec=spec)
    assigned = watcher.event("assigned", service="default/told")
    assert assigned["addresses"] == [EIP]
    watcher.until(lambda states: states.get(f"{V1}/eips/{EIP}", {}).get("services") == ["default/told"])
    assert watcher.states[f"{V1}/eips/{EIP}"]["holder"] is None
    apply("Service", "v1", "too-many", spec=spec)
    assert watcher.event("refused", service="default/too-many")["reason"] == "pool_full"

    held = {"holder": "n7", "incarnation": 1, "term": 3, "link": "eth0", "mac": "02:00:00:00:00:07"}
    apply("Announcement", GROUP, EIP, status={**held, "since": "2026-01-02T00:00:00Z"})
    watcher.until(lambda states: states[f"{V1}/eips/{EIP}"]["holder"] == "n7")
    assert watcher.states[f"{V1}/eips/{EIP}"]["term"] == 3
    assert watcher.states[f"{V1}/pools/mqtt-lan"]["families"]["IPv4"]["used"] == 1

    first.kill()
    watcher.until(lambda states: states[f"{V1}/controller"]["state"] == "lost")
    api_server.kubectl("delete", "service", "told", "too-many")
    controller(port)
    watcher.until(lambda states: states[f"{V1}/controller"]["state"] == "up")
    watcher.until(lambda states: f"{V1}/eips/{EIP}" not in states)
    found = [
        mistake
        for message in watcher.heard
        if message["payload"] and "behind" not in message["payload"]
        for mistake in mistakes(message["topic"], message["payload"], "site/cluster")
    ]
    assert found == []
