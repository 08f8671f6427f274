"""A real cluster to look at, in namespaces of this machine (docs/cluster.md).

    cluster_command.py up [--proxy iptables|nftables|ipvs] [--nodes N] [--plain-ca] [--no-story]
                                    ipvs, where this kernel has none: on a machine of its own, while a shell there lasts
    cluster_command.py down
    cluster_command.py build        only what is missing in the cache

The cluster belongs to a process in the background, its keeper. `down` asks that to end; if something else ends it, the
cluster is gone all the same.
"""

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "manifests"))

from cluster_nodes import store
from cluster_parts import CACHE, say
from cluster_story import install, step, tell
from cluster_world import groups_left, sweep
from real_cluster import MODES, RealCluster, has_ipvs, missing

KERNEL = str(Path(__file__).with_name("cluster_kernel.py"))
NAME = "eip-cluster"
STATE = CACHE / "keeper.json"
DOORS = CACHE / "doors"
RUNNING = CACHE / "running" / NAME
GRACE = 90.0


def up(arguments: argparse.Namespace) -> int:
    if _state() is not None:
        say("there is a cluster already: `make cluster-down` removes it")
        return 1
    begun = time.monotonic()
    store()
    if arguments.proxy == "ipvs" and not has_ipvs():
        say("this machine's kernel has no ip_vs: one of our own has")
        stay = [sys.executable, KERNEL, "bash", "-c", _STAY, sys.executable, __file__, *sys.argv[1:]]
        return subprocess.run(stay, check=False).returncode
    if why := missing(arguments.proxy):
        say(why)
        return 1
    say(f"built, or found in {CACHE}: {time.monotonic() - begun:.0f} s")
    keeper = subprocess.Popen(
        [sys.executable, __file__, "keep", *sys.argv[2:]],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert keeper.stdout is not None
    for line in keeper.stdout:
        if line == "ready\n":
            say(f"\nIt stays until `make cluster-down`; this took {time.monotonic() - begun:.0f} s.\n{_HELP}")
            return 0
        say(line.rstrip("\n"))
    return 1


def keep(arguments: argparse.Namespace) -> int:
    """The keeper's life."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    STATE.write_text(json.dumps({"keeper": os.getpid()}))
    sweep(NAME, RUNNING)
    cluster = RealCluster(store(), nodes=arguments.nodes, proxy=arguments.proxy, plain_ca=arguments.plain_ca, name=NAME)
    with ExitStack() as stack:
        with step(f"{arguments.nodes} nodes, kube-proxy in {arguments.proxy} mode"):
            stack.enter_context(cluster)
        _write_doors(cluster)
        with step("the speaker with the one file that `make rendered` makes, a pool, pods, Services"):
            say(f"   from the first `kubectl apply -f` to the first EIP that answers: {install(cluster):.1f} s")
        if arguments.story:
            tell(cluster)
            _write_doors(cluster)  # a node that booted again has another
        say("ready")
        while True:
            signal.pause()


def _write_doors(cluster: RealCluster) -> None:
    """Commands that lead into the cluster."""
    shutil.rmtree(DOORS, ignore_errors=True)
    DOORS.mkdir()
    doors = {
        "kubectl": [*cluster.world.inside("api"), *cluster.words_in_api("kubectl")],
        "client": cluster.world.inside("client"),
    }
    doors |= {name: cluster.inside_node(name) for name in cluster.nodes}
    for name, words in doors.items():
        (DOORS / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (DOORS / name).chmod(0o755)


_HELP = f"""
    {DOORS}/kubectl get service,eip,announcements
    {DOORS}/client curl http://192.0.2.65/
    {DOORS}/client arping -c1 -i eth0 192.0.2.65
    {DOORS}/kubectl -n eip-speaker-agents exec ds/eip-speaker-agent -- speaker status
    {DOORS}/node1 nft list ruleset
"""


_STAY = f"""
"$0" "$@" || exit
echo "That holds for this shell. The cluster is gone when you leave it."
PATH="{DOORS}:$PATH" bash --norc
"""


def build(_: argparse.Namespace) -> int:
    say(str(store()))
    return 0


def down(_: argparse.Namespace) -> int:
    state = _state()
    if state is not None:
        keeper = os.pidfd_open(state["keeper"])
        signal.pidfd_send_signal(keeper, signal.SIGTERM)
        select.select([keeper], [], [], GRACE)
    _forget()
    sweep(NAME, RUNNING)  # of a keeper that died together with its sweeper
    left = groups_left(NAME)
    say("the cluster is gone" if not left else f"left behind: {len(left)} control groups, the deepest {left[0]}")
    return int(bool(left))


def _state() -> dict[str, Any] | None:
    """Of a cluster whose keeper lives."""
    try:
        state: dict[str, Any] = json.loads(STATE.read_text())
        command = Path(f"/proc/{state['keeper']}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return state if "cluster_command" in command else None


def _forget() -> None:
    STATE.unlink(missing_ok=True)
    shutil.rmtree(DOORS, ignore_errors=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, does in (("up", up), ("keep", keep)):
        make = commands.add_parser(name)
        make.set_defaults(do=does)
        make.add_argument("--proxy", choices=MODES, default="iptables")
        make.add_argument("--nodes", type=int, default=3, choices=range(1, 10))
        make.add_argument("--plain-ca", action="store_true", help="a CA that does not say what its key is for")
        make.add_argument("--no-story", dest="story", action="store_false")
    commands.add_parser("down").set_defaults(do=down)
    commands.add_parser("build").set_defaults(do=build)
    arguments = parser.parse_args(words)
    do: Any = arguments.do
    return int(do(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
