"""What a node consists of: the configurations of its programs, its container images, and how it is booted."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster_node import STATIC_PODS
from cluster_parts import CACHE, POD, PROGRAMS, alone, helm, images, kept, programs, say
from cluster_world import World, told_ready

CNI = Path("/usr/lib/cni")
PODS = ("10.244.0.0/16", "fd00:244::/48")
FIRST = Path(__file__).with_name("cluster_node.py")
DEPTH = 2
"""Generations from the process that ``boot`` returns to the first one of the node: nsenter, unshare."""


@dataclass
class Node:
    name: str
    number: int
    directory: Path
    first: int = 0
    """Process id of its first process; 0 while it is down."""
    addresses: tuple[str, str] = field(init=False)
    pods: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = f"192.0.2.{10 + self.number}", f"2001:db8:1::{10 + self.number}"
        self.pods = f"10.244.{self.number}.0/24", f"fd00:244:0:{self.number}::/64"


def furnish(node: Node, images: Path, keys: Path, group: str, mode: str) -> None:
    """What is on its disk when it boots; its images once. ``mode`` is kube-proxy's; '' for none."""
    kubelet = [
        PROGRAMS / "kubelet", "--config", node.directory / "kubelet.yaml", "--root-dir=/var/lib/kubelet",
        "--kubeconfig", keys / f"{node.name}.kubeconfig", f"--hostname-override={node.name}",
        f"--node-ip={','.join(node.addresses)}", "--v=1",
    ]  # fmt: skip
    proxy = [PROGRAMS / "kube-proxy", "--config", node.directory / "kube-proxy.yaml", "--v=2"]
    _write(
        node,
        {"kubelet.yaml": _kubelet(keys, group), "kube-proxy.yaml": kube_proxy(keys, node.name, mode)},
        {"kubelet": kubelet, **({"kube-proxy": proxy} if mode else {})},
    )
    if not (node.directory / "containerd").exists():
        _copy_store(images, node.directory / "containerd")


def _write(node: Node, files: dict[str, Any], programs: dict[str, list[Any]], archives: Sequence[Path] = ()) -> None:
    directory = node.directory
    (directory / "cni.d").mkdir(parents=True, exist_ok=True)
    for name, content in {**files, "cni.d/10-pods.conflist": _network(node)}.items():
        (directory / name).write_text(json.dumps(content, indent=1))
    (directory / "containerd.toml").write_text(_CONTAINERD.format(directory=directory, pod=POD, cni=CNI))
    programs = {"containerd": ["containerd", "--config", directory / "containerd.toml"], **programs}
    spec = {
        "name": node.name,
        "directory": str(directory),
        "images": [str(archive) for archive in archives],
        "programs": {name: [str(word) for word in words] for name, words in programs.items()},
    }
    (directory / "spec.json").write_text(json.dumps(spec))


def boot(world: World, node: Node) -> "subprocess.Popen[str]":
    """It says on its output when all its programs run."""
    apart = ("unshare", "--kill-child", "--fork", "--mount", "--uts", "--ipc", "--pid")
    first = (sys.executable, "-I", "-S", str(FIRST), str(node.directory / "spec.json"))
    with (node.directory / "node.log").open("ab") as log:
        process = subprocess.Popen(
            [*world.inside(node.name), *apart, *first],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    world.adopt(process)
    return process


# ── Images ──


def store() -> Path:
    """containerd's own directory with every image unpacked, as nodes start with it. Builds what is missing."""
    with alone():
        programs()
        helm()
        archives = images()
        key = " ".join(archive.with_name(f"{archive.name}.of").read_text() for archive in archives)
        return kept(CACHE / "images" / "store", key, lambda target: _unpack(archives, target))


def _unpack(archives: Sequence[Path], target: Path) -> None:
    say("unpacking the images")
    name = f"eip-unpacking-{time.time_ns() // 1_000_000 % 10**9:x}"
    with World(name, CACHE / "running" / name) as world:
        node = Node("node", 1, world.directory / "node")
        world.add_place(node.name)
        _write(node, {}, {}, archives)
        process = boot(world, node)
        os.kill(told_ready(process, DEPTH), signal.SIGKILL)
        process.wait()
        _copy_store(node.directory / "containerd", target)


def _copy_store(source: Path, target: Path) -> None:
    """Hard links: layers and blobs are never written to. Its databases are."""
    subprocess.run(["cp", "--archive", "--link", str(source), str(target)], check=True)
    for database in target.rglob("*.db"):
        if "snapshots" not in database.parts:
            copied = database.with_suffix(".copied")
            shutil.copy2(database, copied)
            copied.rename(database)


# ── Configurations ──

_CONTAINERD = """
version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pod}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{directory}/cni.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def _network(node: Node) -> dict[str, Any]:
    """Each pod has a link of its own to the node and all is routed: kube-proxy would miss a bridge's traffic."""
    ranges = [[{"subnet": subnet}] for subnet in node.pods]
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    link = {"type": "ptp", "mtu": 1500, "ipam": {"type": "host-local", "ranges": ranges, "routes": routes}}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [link, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def _kubelet(keys: Path, group: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available", "nodefs.inodesFree"), "0%")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": ["none"],
        "evictionHard": nothing,  # the disk is the machine's
        "imageGCHighThresholdPercent": 100,
        "clusterDomain": "cluster.local",
        "resolvConf": "/dev/null",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "shutdownGracePeriod": "0s",
        "staticPodPath": STATIC_PODS,
    }


def kube_proxy(keys: Path, node: str, mode: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "ipvs": {"strictARP": True},  # or every node answers ARP for every EIP
        "clusterCIDR": ",".join(PODS),
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": str(keys / "kube-proxy.kubeconfig")},
        # These are the whole machine's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
