"""``speaker run`` checks its endpoints: clients' requests leave one that is unwell, and come back.

``RECORD=1`` keeps what it tells for ``tests/alerts``.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import pytest
from alert_lan import eventually, samples
from playing import OF_HEALTH, OF_HEALTH_STEPS, Recorder, firing, save
from site_yaml import POOL

from speaker.errors import EdgeError
from speaker.health.judge import Result
from speaker.health.prober import connecting, failed
from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

EIP = "198.51.100.10"
CHECK = "http:/healthz interval=100ms timeout=10s rise=2 fall=3"


def site(check=CHECK, extra="", nodes=("n1", "n1")):
    endpoints = ", ".join(f"{{addresses: [10.1.{at}.2], nodeName: {node}}}" for at, node in enumerate(nodes, 1))
    return f"""\
{POOL}
---
apiVersion: v1
kind: Service
metadata: {{name: web, annotations: {{eip-speaker.io/addresses: {EIP}, eip-speaker.io/health-check: "{check}"}}}}
spec:
  type: LoadBalancer
  ports: [{{port: 80}}]
  {extra}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints: [{endpoints}]
"""


class Backend:
    """Says its name to clients; to checks that it is well, or not."""

    def __init__(self, namespace, name, stack):
        self.name, self.well, self.asked = name, True, 0
        with namespace.entered():
            self._listening = stack.enter_context(socket.create_server(("0.0.0.0", 8080)))
        stack.callback(self._end)
        threading.Thread(target=self._serve, daemon=True).start()

    def _end(self):
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)

    def _serve(self):
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._listening.accept()[0],), daemon=True).start()

    def _answer(self, connection):
        with suppress(OSError), connection:
            while question := connection.recv(4096):
                if question.startswith(b"GET /healthz"):
                    self.asked += 1
                    status = "200 OK" if self.well else "503 Unavailable"
                    connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
                else:
                    connection.sendall(self.name.encode())


@pytest.fixture
def backends(lan, new_namespace, wire, sh):
    node, client = lan
    sh(client, f"ip route add {EIP} dev eth0")
    with ExitStack() as stack:
        found = []
        for at in (1, 2):
            behind = new_namespace(f"b{at}")
            wire(node, f"b{at}", behind, "eth0")
            sh(node, f"ip addr add 10.1.{at}.1/24 dev b{at}")
            sh(behind, f"ip addr add 10.1.{at}.2/24 dev eth0")
            sh(behind, f"ip route add default via 10.1.{at}.1")
            found.append(Backend(behind, f"b{at}", stack))
        yield found


def connected(client):
    with client.entered():
        return socket.create_connection((EIP, 80), timeout=10)


def who(connection):
    connection.sendall(b"who?")
    return connection.recv(100).decode()


def answering(client, times=12):
    """Who answers new connections."""
    found = set()
    for _ in range(times):
        with connected(client) as connection:
            found.add(who(connection))
    return found


def ask(speaker, *command):
    argv = [sys.executable, "-m", "speaker", *command, "--runtime-dir", str(speaker.directory / "run")]
    with speaker.node.entered():
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=180).stdout


def explained(speaker):
    """On one line."""
    return " ".join(ask(speaker, "explain", EIP).split())


def test_requests_leave_an_endpoint_that_is_unwell_and_come_back(lan, backends, write, start):
    node, client = lan
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("ready")
    assert answering(client) == {"b1", "b2"}

    with ExitStack() as stack:
        held = [stack.enter_context(connected(client)) for _ in range(12)]
        assert {who(each) for each in held} == {"b1", "b2"}
        backends[0].well = False
        told = speaker.until("endpoint unwell")
        assert told["endpoint"] == "10.1.1.2:8080"
        assert (told["reason"], told["services"]) == ("status", ["default/web"])
        assert told["message"] == "it answers with status 503"
        speaker.until("forwarding")
        assert answering(client) == {"b2"}
        assert {who(each) for each in held} == {"b1", "b2"}  # what was established goes on

    counted = 'eip_speaker_endpoints_checked{state="unwell"} 1.0'
    eventually(lambda: counted in speaker.get("/metrics"), lambda: speaker.get("/metrics"))
    assert 'eip_speaker_endpoint_checks_total{result="status"}' in speaker.get("/metrics")
    sentence = (
        f"default/web: 1 of 2 endpoints are unwell by {CHECK.split()[0]}: 10.1.1.2:8080 (it answers with status 503): "
        "they get no new connections"
    )
    assert sentence in json.loads(ask(speaker, "status", "--json"))["problems"]
    assert "TCP 10.1.1.2 port 8080 on n1: unwell: it answers with status 503" in explained(speaker)

    backends[0].well = True
    assert speaker.until("endpoint well")["endpoint"] == "10.1.1.2:8080"
    speaker.until("forwarding")
    assert answering(client) == {"b1", "b2"}


def test_where_none_is_well_all_are_served_and_it_is_told(lan, backends, write, start):
    node, client = lan
    write("site.yaml", site())
    for each in backends:
        each.well = False
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("ready")
    assert answering(client) == {"b1", "b2"}
    assert "unwell: it answers with status 503; used all the same, as no other is well" in explained(speaker)
    [problem] = [each for each in json.loads(ask(speaker, "status", "--json"))["findings"] if "unwell" in each["name"]]
    assert (problem["name"], problem["severity"]) == ("all_unwell", "error")
    backends[1].well = True
    speaker.until("endpoint well")
    speaker.until("forwarding")
    assert answering(client) == {"b2"}


def test_endpoints_that_are_unwell_are_alerted_by_whether_all_of_them_are(lan, backends, write, start, tmp_path):
    node, _ = lan
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("ready")
    recorder = Recorder(lambda: {"speaker": {"n1": speaker.get("/metrics")}}, time.monotonic)
    recorder.moment("healthy")
    for name, well in (("some", (False, True)), ("all", (False, False)), ("mended", (True, True))):
        for backend, now in zip(backends, well, strict=True):
            backend.well = now
        unhealthy = {"some": [1.0], "all": [2.0], "mended": []}[name]
        eventually(
            lambda: samples(speaker.get("/metrics"), "eip_speaker_endpoints_unhealthy{") == unhealthy,  # noqa: B023
            lambda: speaker.get("/metrics"),
        )
        recorder.moment(name)
    assert firing(recorder.phases, OF_HEALTH_STEPS, OF_HEALTH, tmp_path) == ""
    if os.environ.get("RECORD"):
        save("health", recorder.phases)


def test_an_endpoint_that_never_was_well_gets_nothing_from_the_first_moment(lan, backends, write, start):
    node, client = lan
    backends[0].well = False
    write("site.yaml", site())
    start(node, "--forwarder", "nftables").until("claimed", eip=EIP)
    assert answering(client) == {"b2"}


def test_a_service_that_goes_is_checked_no_longer(lan, backends, write, start):
    node, _ = lan
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("ready")
    write("site.yaml", POOL + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n")
    speaker.until("withdrawn", eip=EIP)
    asked = [each.asked for each in backends]
    write("site.yaml", site(check="tcp"))
    speaker.until("claimed", eip=EIP)
    assert [each.asked for each in backends] == asked


def test_a_mistake_in_a_check_keeps_what_is_in_force(lan, backends, write, start):
    node, client = lan
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("ready")
    write("site.yaml", site(check="exec:/bin/true"))
    problem = speaker.until("bad manifest")["problem"]
    assert "site.yaml:9: Service/web: metadata.annotations[eip-speaker.io/health-check]" in problem
    assert "'exec:/bin/true': must begin with tcp, http:/PATH or https:/PATH: the speaker runs no commands" in problem
    assert answering(client) == {"b1", "b2"}


def test_a_host_without_ipv6_has_no_way_there_and_one_whose_ports_are_used_up_says_nothing_of_the_endpoint(
    new_namespace, sh
):
    host = new_namespace("n1")
    sh(host, "ip link set lo up")
    host.sysctl("net.ipv6.conf.all.disable_ipv6", 1)
    host.sysctl("net.ipv4.ip_local_port_range", "40000 40000")
    with host.entered(), ExitStack() as stack:
        with pytest.raises(OSError, match="Cannot assign requested address") as no_address:
            connecting(socket.AF_INET6, ("2001:db8::1", 80))
        place = stack.enter_context(socket.create_server(("127.0.0.1", 8080))).getsockname()
        stack.enter_context(socket.create_connection(place))
        with pytest.raises(EdgeError, match="no connection can be made from this host: Cannot assign"):
            connecting(socket.AF_INET, place)
    assert failed(no_address.value).result is Result.UNREACHABLE


@pytest.fixture
def segment(new_namespace, wire, sh):
    """Two nodes and a client on one switch, and an endpoint behind each node that both reach."""
    switch, client = new_namespace("switch"), new_namespace("client")
    sh(switch, "ip link add br0 type bridge")
    sh(switch, "ip link set br0 up")
    nodes = [new_namespace(f"n{at}") for at in (1, 2)]
    for at, host in enumerate((*nodes, client), 1):
        wire(host, "eth0", switch, f"p{at}")
        sh(switch, f"ip link set p{at} master br0")
        sh(host, f"ip addr add 198.51.100.{at}/24 dev eth0")
    with ExitStack() as stack:
        found = []
        for at, node in enumerate(nodes, 1):
            behind = new_namespace(f"b{at}")
            wire(node, "pods", behind, "eth0")
            sh(node, f"ip addr add 10.1.{at}.1/24 dev pods")
            sh(behind, f"ip addr add 10.1.{at}.2/24 dev eth0")
            sh(behind, f"ip route add default via 10.1.{at}.1")
            sh(node, f"ip route add 10.1.{3 - at}.0/24 via 198.51.100.{3 - at}")
            node.sysctl("net.ipv4.ip_forward", 1)
            found.append(Backend(behind, f"b{at}", stack))
        yield nodes, client, found


def holder(speakers):
    """The one that all agree on."""
    found = {json.loads(ask(each, "status", "--json"))["eips"][0]["holder"] for each in speakers}
    return found.pop() if len(found) == 1 else None


def test_with_local_the_eip_goes_where_the_endpoint_is_well(segment, write, start, tmp_path):
    nodes, client, backends = segment
    key = tmp_path / "key"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    write("site.yaml", site(extra="externalTrafficPolicy: Local", nodes=("n1", "n2")))
    flags = ("--with-peers", "--key", str(key), "--forwarder", "nftables")
    speakers = [start(node, *flags, name=f"n{at}") for at, node in enumerate(nodes, 1)]
    for each in speakers:
        each.until("ready")
    eventually(lambda: holder(speakers) in ("n1", "n2"), lambda: ask(speakers[0], "status"))
    at = int(holder(speakers)[1]) - 1
    assert answering(client) == {backends[at].name}

    backends[at].well = False
    yielded = speakers[at].until("withdrawn", eip=EIP)
    assert (yielded["reason"], speakers[1 - at].until("claimed", eip=EIP)["before"]) == ("ineligible", f"n{at + 1}")
    assert answering(client) == {backends[1 - at].name}
    assert "is unwell: it answers with status 503" in explained(speakers[at])

    backends[1 - at].well = False  # of none that is well each may answer, and who does goes on
    speakers[1 - at].until("endpoint unwell", endpoint=f"10.1.{2 - at}.2:8080")
    speakers[at].until("endpoint unwell", endpoint=f"10.1.{2 - at}.2:8080")
    assert answering(client) == {backends[1 - at].name}

    backends[at].well = True
    speakers[1 - at].until("withdrawn", eip=EIP)
    speakers[at].until("claimed", eip=EIP)
    assert answering(client) == {backends[at].name}
