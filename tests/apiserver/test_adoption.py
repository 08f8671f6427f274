"""Coming from another balancer, with its own objects: Services keep the addresses that they have, in a real API.

For each peer: its Services stand with addresses in their statuses. ``speaker convert --adopt`` reads them as kubectl
prints them, together with the peer's pools. Our pools are applied, a controller starts, the converted Services follow.
"""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_api import RealApi, until

from speaker.cli import main
from speaker.tools.validate import validate

pytestmark = pytest.mark.apiserver


def ip_pool(name: str, *addresses: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "metallb-system"}
    made = {"addresses": list(addresses), **spec}
    return {"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": meta, "spec": made}


OPENELB = {"lb.kubesphere.io/v1alpha1": "openelb", "eip.openelb.kubesphere.io/v1alpha2": "hall"}
METALLB = {"metallb.io/ip-allocated-from-pool": "lan"}
PEERS: dict[str, dict[str, Any]] = {
    "openelb": {
        "pools": [
            {
                "apiVersion": "network.kubesphere.io/v1alpha2",
                "kind": "Eip",
                "metadata": {"name": "hall", "annotations": {"eip.openelb.kubesphere.io/is-default-eip": "true"}},
                "spec": {"address": "192.0.2.32/28", "protocol": "layer2", "interface": "eth0"},
            }
        ],
        "services": {
            "web": ("192.0.2.41", 80, OPENELB),
            "mail": ("192.0.2.41", 25, OPENELB),
            "dns": ("192.0.2.32", 53, OPENELB),
        },
    },
    "metallb": {
        "pools": [
            ip_pool("lan", "192.0.2.32/28"),
            ip_pool("closed", "192.0.2.64/28", autoAssign=False),
            {
                "apiVersion": "metallb.io/v1beta1",
                "kind": "L2Advertisement",
                "metadata": {"name": "all", "namespace": "metallb-system"},
            },
        ],
        "services": {
            "web": ("192.0.2.47", 80, {**METALLB, "metallb.io/allow-shared-ip": "one"}),
            "mail": ("192.0.2.47", 25, {**METALLB, "metallb.io/allow-shared-ip": "one"}),
            "dns": ("192.0.2.70", 53, {"metallb.io/loadBalancerIPs": "192.0.2.70"}),
        },
    },
    "kube-vip": {
        "pools": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "kubevip", "namespace": "kube-system"},
                "data": {"cidr-global": "192.0.2.32/28"},
            }
        ],
        "services": {
            "web": ("192.0.2.41", 80, {"kube-vip.io/loadbalancerIPs": "192.0.2.41", "kube-vip.io/vipHost": "node-a"}),
            "mail": ("198.51.100.7", 25, {"kube-vip.io/loadbalancerIPs": "198.51.100.7"}),
        },
    },
    "purelb": {
        "pools": [
            {
                "apiVersion": "purelb.io/v2",
                "kind": "ServiceGroup",
                "metadata": {"name": "default", "namespace": "purelb-system"},
                "spec": {"local": {"v4pools": [{"subnet": "192.0.2.0/24", "pool": "192.0.2.32-192.0.2.47"}]}},
            }
        ],
        "services": {
            "web": ("192.0.2.44", 80, {"purelb.io/allocated-by": "PureLB", "purelb.io/service-group": "default"}),
            "mail": ("192.0.2.45", 25, {"purelb.io/allocated-by": "PureLB", "purelb.io/pool-type": "local"}),
        },
    },
    "cilium": {
        "pools": [
            {
                "apiVersion": "cilium.io/v2",
                "kind": "CiliumLoadBalancerIPPool",
                "metadata": {"name": "blue"},
                "spec": {"blocks": [{"cidr": "192.0.2.32/28"}]},
            },
            {
                "apiVersion": "cilium.io/v2alpha1",
                "kind": "CiliumL2AnnouncementPolicy",
                "metadata": {"name": "all"},
                "spec": {"loadBalancerIPs": True},
            },
        ],
        "services": {"web": ("192.0.2.32", 80, {"lbipam.cilium.io/ips": "192.0.2.32"}), "mail": ("192.0.2.41", 25, {})},
    },
}


def a_service(name: str, port: int, annotations: dict[str, str], cls: str | None = None) -> str:
    spec = {"type": "LoadBalancer", "ports": [{"port": port}], **({"loadBalancerClass": cls} if cls else {})}
    meta = {"name": name, "annotations": annotations, "labels": {"story": "adoption"}}
    return json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})


@pytest.fixture
def controller(api_server: RealApi, admin: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., None]]:
    made: list[subprocess.Popen[bytes]] = []
    token = admin("create", "token", "eip-speaker-controller", "--namespace=eip-speaker")
    kubeconfig = api_server.kubeconfig_with("adopter", token)

    def start(*flags: str) -> None:
        command = [sys.executable, "-m", "speaker", "controller", f"--kubeconfig={kubeconfig}", "--metrics=off", *flags]
        with (tmp_path / "controller.log").open("wb") as log:
            made.append(subprocess.Popen(command, stderr=log))

    yield start
    for process in made:
        process.terminate()  # gives its Lease back, so that the next one need not wait
        process.wait()


class Story:
    """One peer's cluster at the moment of the change."""

    def __init__(self, admin: Callable[..., str], directory: Path, peer: str, cls: str | None) -> None:
        self.kubectl, self.input, self.output = admin, directory / "in", directory / "out"
        self.services = {name: address for name, (address, _, _) in PEERS[peer]["services"].items()}
        for name, (address, port, annotations) in PEERS[peer]["services"].items():
            admin("apply", "-f", "-", stdin=a_service(name, port, annotations, cls))
            status = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}})
            admin("patch", "service", name, "--subresource=status", "--type=merge", "-p", status)
        self.input.mkdir()
        (self.input / "pools.yaml").write_text(yaml.safe_dump_all(PEERS[peer]["pools"]))
        (self.input / "services.yaml").write_text(admin("get", "service", "-l", "story=adoption", "-o", "yaml"))

    def convert(self, *flags: str) -> None:
        assert main(["convert", str(self.input), "--adopt", *flags, "-o", str(self.output)]) == 0
        assert validate(self.output, io.StringIO(), as_json=False) == 0

    def addresses(self) -> dict[str, str]:
        path = "jsonpath={range .items[*]}{.metadata.name}={.status.loadBalancer.ingress[*].ip} {end}"
        told = self.kubectl("get", "service", "-l", "story=adoption", "-o", path)
        return dict(each.partition("=")[::2] for each in told.split())

    def assigned(self) -> set[str]:
        """Those that our controller speaks for."""
        condition = "{.status.conditions[?(@.type=='eip-speaker.io/Assigned')].status}"
        path = f"jsonpath={{range .items[*]}}{{.metadata.name}}={condition} {{end}}"
        told = self.kubectl("get", "service", "-l", "story=adoption", "-o", path)
        return {each.removesuffix("=True") for each in told.split() if each.endswith("=True")}

    def newcomer_gets_another(self) -> None:
        ours = "eip-speaker.io/speaker"
        self.kubectl("apply", "-f", "-", stdin=a_service("new", 443, {}, ours))
        until(lambda: self.addresses().get("new"))
        assert self.addresses()["new"] not in self.services.values()


@pytest.mark.parametrize("peer", PEERS)
def test_our_controller_adopts_the_addresses_of_services_without_a_class(peer, admin, controller, tmp_path):
    story = Story(admin, tmp_path, peer, None)
    story.convert("--default-class")
    # In this order: Services that share an address say so before a controller of ours reads them.
    admin("apply", "-f", str(story.output))
    controller("--default-class")
    until(lambda: story.assigned() == story.services.keys() or story.addresses() != story.services)
    assert story.addresses() == story.services
    story.newcomer_gets_another()
    assert {**story.addresses(), "new": ""} == {**story.services, "new": ""}
    wishes = admin("get", "service", "-l", "story=adoption", "-o", "jsonpath={.items[*].metadata.annotations}")
    for name in ("metallb.io/", "kube-vip.io/", "purelb.io/", "cilium.io/", "kubesphere.io/"):
        assert f'"{name}' not in wishes.replace("kubectl.kubernetes.io/", "")


@pytest.mark.parametrize(
    ("peer", "cls"),
    [("cilium", "io.cilium/l2-announcer"), ("kube-vip", "kube-vip.io/kube-vip-class"), ("metallb", None)],
)
def test_services_that_are_made_anew_with_our_class_keep_their_addresses(peer, cls, admin, controller, tmp_path):
    story = Story(admin, tmp_path, peer, cls)
    story.convert()
    admin("apply", "-f", str(story.output / "pools.yaml"))
    controller()
    admin("replace", "--force", "-f", str(story.output / "services.yaml"))
    until(lambda: story.assigned() == story.services.keys())
    assert story.addresses() == story.services
    story.newcomer_gets_another()
