"""Others that answer ARP and NDP, for benchmarks/arp.py: Debian's farpd, and MetalLB's speaker built from its module.

Each is a block in which it answers in a namespace for some addresses, and which yields the process to watch.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / name) for name in ("apiserver", "cluster", "moving")]

from peer_programs import programs_of  # noqa: E402
from real_api import RealApi, bound_to_us, missing  # noqa: E402

from speaker.lab.namespaces import Namespace  # noqa: E402
from speaker.model import IPAddress  # noqa: E402

NODE = "node"
ADVERTISED = "--advertise-address=192.0.2.1"
"""Where there is no default route, kube-apiserver finds none by itself."""


def why_no_farpd() -> str:
    return "" if shutil.which("farpd") else "farpd is not installed"


def why_no_metallb() -> str:
    """Builds its programs, if they are not there; '' if there they are."""
    if lacking := missing():
        return lacking
    try:
        programs_of("metallb")
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return f"MetalLB's programs cannot be built: {str(error).splitlines()[-1]}"
    return ""


@contextmanager
def alone_on(core: int) -> Iterator[None]:
    """What is started in the block runs on that processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def farpd(node: Namespace, eips: Sequence[IPAddress], core: int) -> Iterator[int]:
    """As a daemon, which does not log every packet, and with a /run of its own for its PID file."""
    net = f"{eips[0]}-{eips[-1]}" if len(eips) > 1 else f"{eips[0]}"
    command = f"mount -t tmpfs tmpfs /run && exec farpd -i eth0 {net}"
    with node.entered(), alone_on(core):
        quiet = subprocess.DEVNULL  # a daemon keeps what it has open
        subprocess.run(["unshare", "--mount", "sh", "-c", command], check=True, stdin=quiet, stdout=quiet, stderr=quiet)
    (pid,) = _inside(node, "farpd")
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _inside(node: Namespace, name: str) -> list[int]:
    """Processes of that name in the namespace."""
    place = Path(node.path).stat().st_ino
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "comm").read_text().strip() == name and (process / "ns" / "net").stat().st_ino == place:
                found.append(int(process.name))
    return found


@contextmanager
def metallb(node: Namespace, eips: Sequence[IPAddress], core: int) -> Iterator[int]:
    """Its speaker and a real API server, on which one Service has all EIPs: its answers look through as many
    advertisements as if each had a Service of its own."""
    programs = programs_of("metallb")
    with tempfile.TemporaryDirectory(prefix="metallb-") as name, RealApi(Path(name), ADVERTISED, place=node) as api:
        api.kubectl("create", "-f", str(programs / "crds"))
        api.kubectl("wait", "--for=condition=Established", "--timeout=180s", "-f", str(programs / "crds"))
        for body in objects(eips):
            api.kubectl("create", "-f", "-", stdin=json.dumps(body))
        (said := Path(name, "status.json")).write_text(json.dumps(status(eips)))
        api.kubectl("patch", "service", "all", "--subresource=status", "--type=merge", f"--patch-file={said}")
        flags = ("--namespace=metallb-system", "--pod-name=speaker", f"--node-name={NODE}", "--log-level=warn")
        environment = {"KUBECONFIG": str(api.kubeconfig()), "METALLB_BGP_TYPE": "native"}
        if eips[0].version == 6:  # it listens by the link-local address
            with node.entered():
                subprocess.run(["ip", "address", "add", "fe80::1/64", "dev", "eth0", "nodad"], check=True)
        with node.entered(), alone_on(core), Path(name, "speaker.log").open("wb") as log:
            speaker = subprocess.Popen(
                [str(programs / "speaker"), *flags, "--port=0", "--health-probe-port=0"],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=bound_to_us(),
            )
        try:
            yield speaker.pid
        finally:
            speaker.kill()
            speaker.wait()


def objects(eips: Sequence[IPAddress]) -> Iterator[dict[str, Any]]:
    lan = {"name": "lan", "namespace": "metallb-system"}
    family = f"IPv{eips[0].version}"
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metallb-system"}}
    yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    pod = {"containers": [{"name": "speaker", "image": "metallb"}]}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": {**lan, "name": "speaker"}, "spec": pod}
    yield {
        "apiVersion": "metallb.io/v1beta1",
        "kind": "IPAddressPool",
        "metadata": lan,
        "spec": {"addresses": [f"{eips[0]}-{eips[-1]}"]},
    }
    yield {"apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement", "metadata": lan, "spec": {}}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "all"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "ipFamilies": [family]},
    }
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "all", "labels": {"kubernetes.io/service-name": "all"}},
        "addressType": family,
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": ["10.244.0.7" if family == "IPv4" else "fd00:244::7"], "nodeName": NODE}],
    }


def status(eips: Sequence[IPAddress]) -> dict[str, Any]:
    return {"status": {"loadBalancer": {"ingress": [{"ip": str(eip)} for eip in eips]}}}


def cpu_of(pid: int) -> float:
    """Seconds, of all threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
