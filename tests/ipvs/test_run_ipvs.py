"""``speaker run`` with IPVS, from YAML to an answer, and the field reports this project grew from."""

import signal
import socket
import sys
import threading
from contextlib import suppress

import pytest

pytestmark = pytest.mark.ipvs

SITE = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec:
  addresses: [192.0.2.200, "2001:db8:1::200"]
  # Each family's pool points at an EIP that the speaker itself binds: the kernel's own answer would be lo.
  interface: can_reach:192.0.2.200
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-4, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.0.1.2]}]
"""


@pytest.fixture
def lan(new_namespace, wire, sh):
    """(node, client, backend): client and node on one segment, the backend behind the node."""
    node, client, backend = map(new_namespace, ("node", "client", "backend"))
    wire(node, "eth0", client, "eth0")
    wire(node, "b1", backend, "eth0")
    for namespace, link, addresses in (
        (node, "eth0", "192.0.2.1/24 2001:db8:1::1/64"),
        (node, "b1", "10.0.1.1/24"),
        (client, "eth0", "192.0.2.10/24 2001:db8:1::10/64"),
        (backend, "eth0", "10.0.1.2/24"),
    ):
        for address in addresses.split():
            sh(namespace, f"ip addr add {address} dev {link} {'nodad' if ':' in address else ''}")
    node.sysctl("net.ipv4.ip_forward", 1)
    node.sysctl("net.ipv6.conf.all.forwarding", 1)
    return node, client, backend


def mac(sh, node) -> str:
    return sh(node, "ip -br link show eth0").split()[2]


def answers(sh, client, flags="-c 2 -w 3") -> str:
    return sh(client, f"arping {flags} -i eth0 192.0.2.200", check=False)


def all_answered_once(sh, client, node) -> bool:
    """Two requests, by the node alone; a busy machine lets one grow too old to be answered at all."""
    for _ in range(20):
        if (found := answers(sh, client).count(mac(sh, node))) >= 2:
            return found == 2
    return False


def ask(client, backend) -> bytes:
    """What a listener in the backend says to a client of the EIP."""
    with backend.entered():
        listener = socket.create_server(("10.0.1.2", 8080))
    listener.settimeout(60)

    def answer() -> None:
        with suppress(TimeoutError):  # nobody came
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"from the backend")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with client.entered(), socket.create_connection(("192.0.2.200", 80), timeout=60) as connection:
            return connection.recv(100)
    finally:
        thread.join()
        listener.close()


def test_only_the_speaker_answers_for_an_eip_that_is_bound_and_the_link_survives_its_restart(lan, write, start, sh):
    node, client, backend = lan
    write("site.yaml", SITE)
    speaker = start(node, "--forwarder", "ipvs")
    speaker.until("ready")
    assert "192.0.2.200/32" in sh(node, "ip -br addr show dev eip-speaker0")
    assert {eip["link"] for eip in speaker.status()["eips"]} == {"eth0"}
    assert "local 192.0.2.200 dev lo" in sh(node, "ip route get 192.0.2.200"), "the trap is set"
    assert all_answered_once(sh, client, node)
    assert ask(client, backend) == b"from the backend"
    assert all_answered_once(sh, client, node)

    # Its process gone, the EIP stays bound, connections go on, and the kernel stays silent.
    speaker.stop(signal.SIGKILL)
    assert "192.0.2.200/32" in sh(node, "ip -br addr show dev eip-speaker0")
    assert "0 packets received" in answers(sh, client)
    assert ask(client, backend) == b"from the backend", "the client's neighbour entry outlives the speaker"

    again = start(node, "--forwarder", "ipvs")
    again.until("ready")
    assert {(eip["address"], eip["link"]) for eip in again.status()["eips"]} == {
        ("192.0.2.200", "eth0"),
        ("2001:db8:1::200", "eth0"),
    }
    assert not any(entry["event"] == "forwarding" for entry in again.log), "what stood is adopted, not built anew"
    assert all_answered_once(sh, client, node)


def test_cleanup_leaves_the_node_as_it_was(lan, write, start, sh, tmp_path):
    node, *_ = lan

    def state() -> tuple[str, str, str, str]:
        strictness = "sysctl net.ipv4.conf.eth0.arp_ignore net.ipv4.conf.eth0.arp_announce net.ipv4.vs.conntrack"
        guard = sh(node, "nft list ruleset")
        return sh(node, "ip -4 -o addr"), sh(node, strictness), sh(node, "ipvsadm -Sn"), guard

    sh(node, "ipvsadm -Sn")  # loads ip_vs, and with it its settings
    before = state()
    write("site.yaml", SITE)
    speaker = start(node, "--forwarder", "ipvs")
    speaker.until("ready")
    assert speaker.stop() == 0
    during = state()
    assert all(one != other for one, other in zip(before, during, strict=True)), (
        "forwarding is left to the next speaker"
    )
    removed = sh(node, f"{sys.executable} -m speaker cleanup --runtime-dir {tmp_path}/run")
    assert "192.0.2.200" in removed
    assert state() == before
    assert "does not exist" in sh(node, "ip link show eip-speaker0", check=False)
