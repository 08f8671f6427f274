"""IPVS beside kube-proxy in ipvs mode: a stand-in that says what kube-proxy says, and has its link."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ipvs

EIP = "192.0.2.200"
SITE = f"""
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {{name: lan}}
spec: {{addresses: [192.0.2.200-192.0.2.203], interface: eth0}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: default}}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: 30001
  ports: [{{port: 80}}]
  loadBalancerIP: {EIP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-4, namespace: default, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints: [{{addresses: [10.0.1.2], nodeName: n1}}]
"""


@pytest.fixture
def lan(new_namespace, wire, sh):
    """(node, client) on one segment."""
    node, client = new_namespace("node"), new_namespace("client")
    wire(node, "eth0", client, "eth0")
    sh(node, "ip addr add 192.0.2.1/24 dev eth0")
    sh(client, "ip addr add 192.0.2.10/24 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 1)
    return node, client


@pytest.fixture
def in_ipvs_mode(lan, sh, tmp_path):
    """Somebody says on port 10249 that he is kube-proxy in ipvs mode, with nothing excluded; and has the link."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "proxyMode").write_text("ipvs")
    (pages / "configz").write_text(json.dumps({"kubeproxy.config.k8s.io": {"ipvs": {"excludeCIDRs": ["10.0.0.0/8"]}}}))
    node, _ = lan
    sh(node, "ip link add kube-ipvs0 type dummy")
    command = [sys.executable, "-m", "http.server", "10249", "--bind", "127.0.0.1", "--directory", str(pages)]
    with node.entered():
        listener = subprocess.Popen([*command, "--protocol", "HTTP/1.1"], stderr=subprocess.DEVNULL)
    while "refused" in sh(node, "curl -sS http://127.0.0.1:10249/proxyMode", check=False):
        assert listener.poll() is None
    yield
    listener.kill()
    listener.wait()


def problem(speaker, words: str) -> None:
    """Waits for one with these words; others may come before."""
    while words not in speaker.until("problem")["message"]:
        pass


def test_a_kube_proxy_that_would_delete_our_virtual_servers_is_a_problem(lan, in_ipvs_mode, write, start):
    node, _ = lan
    write("site.yaml", SITE)
    speaker = start(node, "--forwarder", "ipvs")
    problem(speaker, "excludeCIDRs lacks 192.0.2.200-192.0.2.203")
    problem(speaker, "nodePortAddresses: [primary]")


def test_every_node_that_binds_an_eip_answers_for_it_unless_arp_is_strict(lan, in_ipvs_mode, write, start, sh):
    node, client = lan
    sh(node, f"ip addr add {EIP}/32 dev kube-ipvs0")
    write("site.yaml", SITE)
    speaker = start(node, "--forwarder", "none", name="n2")  # has no endpoint, so must not answer
    problem(speaker, "strictARP: true")
    assert "1 packets received" in sh(client, f"arping -C 1 -c 60 -w 60 -i eth0 {EIP}", check=False)
    node.sysctl("net.ipv4.conf.all.arp_ignore", 1)
    assert "0 packets received" in sh(client, f"arping -c 1 -w 1 -i eth0 {EIP}", check=False)


def test_health_checks_are_on_the_nodes_addresses_and_not_on_a_bound_eip(lan, write, start, sh):
    node, client = lan
    write("site.yaml", SITE)
    speaker = start(node, "--forwarder", "ipvs")
    speaker.until("health check", port=30001)
    status = "curl -sS -o /dev/null -w %{http_code} --max-time 60"
    assert EIP in sh(node, "ip -br addr show dev eip-speaker0")
    assert sh(client, f"{status} http://192.0.2.1:30001/") == "200"
    sh(client, f"ip neigh replace {EIP} lladdr {sh(node, 'ip -br link show eth0').split()[2]} dev eth0 nud permanent")
    assert sh(client, f"{status} http://{EIP}:30001/", check=False).startswith("000curl: (7)")  # refused
