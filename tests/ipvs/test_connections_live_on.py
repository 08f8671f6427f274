"""500 established connections through an EIP, and everything that a speaker does on one node: none breaks.

IPVS in the guest, nftables on the kernel that is here. They talk all the time.
"""

import re
import signal
from contextlib import ExitStack

import pytest
from live_connections import echoing, talking

COUNT = 500
ALL = {"alive": COUNT}
EIP = "192.0.2.200"
OLD, NEW = ("10.0.1.2", "10.0.2.2", "10.0.3.2"), ("10.0.4.2", "10.0.5.2", "10.0.6.2")

SITE = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [192.0.2.200], interface: eth0}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: LoadBalancer, ports: [%s]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-4, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
"""
PORT, ANOTHER_PORT = "{name: http, port: 80}", "{name: https, port: 443}"
READY, LEAVING = "ready: true", "ready: false, serving: true, terminating: true"


def site(endpoints: dict[str, str], *ports: str) -> str:
    lines = (f"- {{addresses: [{address}], conditions: {{{state}}}}}\n" for address, state in endpoints.items())
    return SITE % ", ".join(ports or [PORT]) + "".join(lines)


@pytest.fixture(
    params=[pytest.param("ipvs", marks=pytest.mark.ipvs), pytest.param("nftables", marks=pytest.mark.netns)]
)
def kind(request):
    return request.param


@pytest.fixture
def lan(new_namespace, wire, sh, kind):
    """(node, client): six backends behind the node, which know no way to the client."""
    node, client = new_namespace("node"), new_namespace("client")
    wire(node, "eth0", client, "eth0")
    sh(node, "ip addr add 192.0.2.1/24 dev eth0")
    sh(client, "ip addr add 192.0.2.10/24 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 1)
    with ExitStack() as stack:
        for address in (*OLD, *NEW):
            backend = new_namespace(address)
            number = address.split(".")[2]
            wire(node, f"b{number}", backend, "eth0")
            sh(node, f"ip addr add 10.0.{number}.1/24 dev b{number}")
            sh(backend, f"ip addr add {address}/24 dev eth0")
            stack.enter_context(echoing(backend))
        yield node, client


@pytest.fixture
def speaker(lan, write, start, kind):
    node, _ = lan
    write("site.yaml", site(dict.fromkeys(OLD, READY)))
    speaker = start(node, "--forwarder", kind)
    speaker.until("ready")
    return speaker


@pytest.fixture
def client(lan, speaker):
    """Who has the connections."""
    with talking(lan[1], EIP, 80, COUNT) as client:
        assert client.check() == ALL
        yield client


def test_a_speaker_is_killed_and_started_again(lan, speaker, client, start, kind):
    speaker.stop(signal.SIGKILL)
    assert client.check() == ALL
    again = start(lan[0], "--forwarder", kind)
    again.until("ready")
    assert client.check() == ALL
    assert not any(entry["event"] == "forwarding" for entry in again.log), "what stood is adopted"


def test_a_speaker_is_upgraded_to_one_with_other_rules(lan, speaker, client, start, kind, sh):
    node, _ = lan
    assert speaker.stop(signal.SIGTERM) == 0
    assert client.check() == ALL
    before = rules(sh, node, kind)
    from_another_version(sh, node, kind)
    assert rules(sh, node, kind) != before
    start(node, "--forwarder", kind).until("ready")
    assert rules(sh, node, kind) == before
    assert client.check() == ALL


def table(kind) -> str:
    """What it keeps its rules in: of IPVS, its guard."""
    return "eip-speaker" if kind == "nftables" else "eip-speaker-guard"


def rules(sh, node, kind) -> list[str]:
    return sorted(sh(node, f"nft -s list table inet {table(kind)}").split())


def from_another_version(sh, node, kind) -> None:
    """The rules are no longer what a speaker of this version makes, so it makes all of them anew."""
    (mark,) = re.findall(r"chain (made_of_\w+)", sh(node, f"nft list table inet {table(kind)}"))
    sh(node, f"nft delete chain inet {table(kind)} {mark}")


def test_endpoints_are_rolled_one_by_one(speaker, client, write):
    """As a Deployment does it: a new pod is ready, and an old one terminates, which goes on with what it has."""
    endpoints = dict.fromkeys(OLD, READY)
    for old, new in zip(OLD, NEW, strict=True):
        endpoints |= {old: LEAVING, new: READY}
        write("site.yaml", site(endpoints))
        speaker.until("forwarding")
        assert client.check() == ALL
        del endpoints[old]
        write("site.yaml", site(endpoints))
    write("site.yaml", site(endpoints, PORT, ANOTHER_PORT))
    while not any(":443" in change for change in speaker.until("forwarding")["changes"]):
        pass
    assert client.check() == ALL
