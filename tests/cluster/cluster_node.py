"""The first process of a node: its mounts, then containerd, kubelet and kube-proxy, each started again when it ends.

    cluster_node.py SPEC        SPEC is the JSON that `RealCluster` writes

It stands in the node's own network, mount, process and host name namespaces; when it dies the kernel ends the node.
"""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TUNABLES = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1}
"""What a kubelet insists on, and changes for the whole machine. It finds these files in their place."""
CLOCK = "cpu MHz"
"""Without such a line no kubelet starts: User-Mode Linux has none."""
STATIC_PODS = "/etc/kubernetes/manifests"
SOCKET = Path("/run/containerd/containerd.sock")


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def bind(source: Path, target: str | Path) -> None:
    source.mkdir(parents=True, exist_ok=True)
    Path(target).mkdir(parents=True, exist_ok=True)
    mount("--bind", source, target)


def keep_apart(target: str) -> None:
    """What is made there is seen in here only, and gone with the node."""
    apart = Path("/run/apart", target.replace("/", "_"))
    for part in ("new", "work"):
        (apart / part).mkdir(parents=True)
    way = f"lowerdir={target},upperdir={apart}/new,workdir={apart}/work"
    mount("-t", "overlay", "overlay", "-o", way, target)


def furnish(directory: Path, name: str) -> None:
    mount("--make-rprivate", "/")
    mount("-t", "proc", "proc", "/proc")
    groups = directory / "groups"
    groups.mkdir(exist_ok=True)
    mount("--rbind", "/sys/fs/cgroup", groups)
    mount("-t", "sysfs", "sysfs", "/sys")  # of this network namespace
    mount("--rbind", groups, "/sys/fs/cgroup")
    subprocess.run(["umount", "--lazy", str(groups)], check=True)
    for path, value in TUNABLES.items():
        stand_in = directory / path.replace("/", ".")
        stand_in.write_text(f"{value}\n")
        mount("--bind", stand_in, Path("/proc/sys", path))
    told = Path("/proc/cpuinfo").read_text()
    if CLOCK not in told and platform.machine() == "x86_64":
        stand_in = directory / "cpuinfo"
        stand_in.write_text(re.sub("(?m)^(processor.*)$", rf"\1\n{CLOCK}\t\t: 1000.000", told))
        mount("--bind", stand_in, "/proc/cpuinfo")
    mount("-t", "tmpfs", "tmpfs", "/run")
    Path("/run/lock").mkdir()
    keep_apart("/etc")
    Path(STATIC_PODS).mkdir(parents=True, exist_ok=True)
    keep_apart("/var/lib")
    bind(directory / "kubelet", "/var/lib/kubelet")
    bind(directory / "cni", "/var/lib/cni")
    bind(directory / "var-log", "/var/log")
    mount("--make-rshared", "/")
    subprocess.run(["hostname", name], check=True)


def main(spec: dict[str, Any]) -> None:
    directory = Path(spec["directory"])
    furnish(directory, spec["name"])
    running: dict[int, str] = {}

    def start(name: str) -> None:
        with (directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(spec["programs"][name], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        running[process.pid] = name

    start("containerd")
    while not SOCKET.exists():
        time.sleep(0.05)
    for image in spec["images"]:
        with (directory / "import.log").open("ab") as log:
            subprocess.run(["ctr", "--namespace=k8s.io", "images", "import", image], stdout=log, stderr=log, check=True)
    for name in spec["programs"]:
        if name != "containerd":
            start(name)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        ended, _ = os.waitpid(-1, 0)  # orphans of the node too
        if ended in running:
            time.sleep(0.5)
            start(running.pop(ended))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(json.loads(Path(sys.argv[1]).read_text()))
