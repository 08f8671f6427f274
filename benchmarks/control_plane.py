"""What fifty clients see of a control plane's address while its nodes fail: the speaker and kube-vip in one run.

    python benchmarks/control_plane.py [--only TRIAL,…] [--contenders speaker,kube-vip] [--json]

Three control-plane nodes on one LAN of the lab, each a network namespace with a real etcd and a real kube-apiserver,
bootstrapped in the order of ``kubeadm init`` and ``join`` (tests/control_plane). 25 clients connect anew for every
request, 10 keep their connections, 15 hold watches. Of each trial a row tells how many requests failed of how many, and
for how many seconds they were lost: failed, or answered only after their SYN was sent again. Of the watches how many
ended, and the longest time without an event for any of them.

kube-vip 1.0.0 is built from its Go module. It runs as its documentation has the static pod for a control plane with ARP
and leader election: a lease of 5 s, renewed within 3 s, retried every second. Needs root, etcd and kube-apiserver.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [
    str(_TESTS / name) for name in ("control_plane", "apiserver", "agents", "faults", "cluster", "moving", "")
]

from api_trials import CRASHES, FAULTS, HEAD, PLANNED, Contender, Ground, Ours, Row  # noqa: E402
from peer_programs import programs_of  # noqa: E402
from real_api import missing  # noqa: E402
from three_servers import TOKEN, ControlPlaneNode, Site, until  # noqa: E402

from speaker.lab.namespaces import leave_host_network  # noqa: E402

TRIALS = {trial.__name__: trial for trial in (*PLANNED, *CRASHES, *FAULTS)}


class KubeVip:
    """What ``kube-vip manifest pod --controlplane --arp --leaderElection`` prints, on every node."""

    name = "kube-vip"

    def __init__(self, site: Site, program: Path) -> None:
        self._site, self._program = site, program

    def start(self, node: ControlPlaneNode, first: bool = False) -> None:
        self.boot(node)

    def boot(self, node: ControlPlaneNode) -> None:
        config = node.root / ".kube" / "config"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(self._kubeconfig()))
        environment = {
            "HOME": str(node.root),
            "vip_arp": "true",
            "port": "6443",
            "vip_nodename": node.name,
            "vip_interface": "eth0",
            "vip_subnet": "32",
            "dns_mode": "first",
            "cp_enable": "true",
            "cp_namespace": "kube-system",
            "vip_leaderelection": "true",
            "vip_leasename": "plndr-cp-lock",
            "vip_leaseduration": "5",
            "vip_renewdeadline": "3",
            "vip_retryperiod": "1",
            "address": self._site.address,
            "prometheus_server": ":2112",
        }
        # It panics when it loses its lease; a kubelet waits longer and longer before it starts it again.
        again = f"while :; do {self._program / 'kube-vip'} manager; sleep 1; done"
        node.start("kube-vip", "sh", "-c", again, environment=environment)

    def _kubeconfig(self) -> dict[str, object]:
        """It asks the API server of its own node, as a static pod does by its hosts file."""
        cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(self._site.authority.ca)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubernetes", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "admin", "context": {"cluster": "kubernetes", "user": "admin"}}],
            "current-context": "admin",
        }

    def holder(self) -> ControlPlaneNode | None:
        found = [node for node in self._site.nodes if self._has(node)]
        return found[0] if len(found) == 1 else None

    def _has(self, node: ControlPlaneNode) -> bool:
        with node.place.entered():
            shown = subprocess.run(["ip", "-br", "addr", "show", "eth0"], capture_output=True, text=True, check=True)
        return f"{self._site.address}/32" in shown.stdout.split()

    def evacuate(self, node: ControlPlaneNode) -> None:
        """Its manifest is taken away: there is no other way."""
        self._stop(node)
        until(self.holder, "another holder")

    def _stop(self, node: ControlPlaneNode) -> None:
        group = node.processes["kube-vip"].pid
        os.killpg(group, signal.SIGTERM)
        node.end_gently("kube-vip")

        def gone() -> bool:
            return not Path(f"/proc/{group}").exists() and not self._has(node)

        until(gone, "an end of kube-vip")

    def return_to(self, node: ControlPlaneNode) -> None:
        self.boot(node)

    def upgrade(self, node: ControlPlaneNode) -> None:
        self._stop(node)
        self.boot(node)


def contender(name: str, site: Site) -> Contender:
    return Ours(site) if name == "speaker" else KubeVip(site, programs_of("kube-vip"))


def compete(name: str, trials: list[str]) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="control-plane.") as directory, Site(Path(directory)) as site:
        one = contender(name, site)
        site.bootstrap(one.start)
        ground = Ground(site, one, Path(directory))
        for trial in trials:
            rows.append(ground.play(TRIALS[trial]))
            print(rows[-1], dict(rows[-1].words), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default=",".join(TRIALS), help="trials (default %(default)s)")
    arguments.add_argument("--contenders", default="speaker,kube-vip", help="(default %(default)s)")
    arguments.add_argument("--json", action="store_true", help="every row, one JSON object on stdout")
    options = arguments.parse_args()
    if lacking := missing():
        print(lacking)
        return
    if "kube-vip" in options.contenders:
        programs_of("kube-vip")  # which may need the network
    leave_host_network()
    trials = options.only.split(",")
    rows = [row for name in options.contenders.split(",") for row in compete(name, trials)]
    if options.json:
        print(json.dumps([[row.trial, row.contender, row.new, row.held, row.broken, row.silent] for row in rows]))
        return
    print(HEAD)
    for trial in trials:
        print("\n".join(str(row) for row in rows if row.trial == trial.replace("_", " ")))


if __name__ == "__main__":
    main()
