"""``speaker run --with-peers``, which hands over: what becomes of established connections when their EIP moves.

::

              ┌─ n1 ─┐
    client ───┼─ n2 ─┼─── pods
              └─ n3 ─┘

Real speakers, which forward with nftables and masquerade, and a hundred connections that talk all the time.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest
from alert_lan import eventually
from live_connections import echoing, talking

from speaker.node import control
from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

EIP = {4: "198.51.100.10", 6: "2001:db8:e::10"}
LAN = {4: "198.51.100.{}/24", 6: "2001:db8:e::{}/64"}
PODS = {4: "10.0.0.{}/24", 6: "2001:db8:a::{}/64"}
ANY = {4: "0.0.0.0", 6: "::"}
COUNT = 100
DROP = {"drop": None}


PREFERRING = "nodePreference: [{weight: 80, matchLabels: {kubernetes.io/hostname: n2}}], failback: preferred-after 5s"
OPENING = """
import json, socket, sys, threading, time
done, opened, failed = threading.Event(), 0, []
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
while not done.wait(0.01):
    try:
        with socket.create_connection((sys.argv[1], 80), timeout=2) as each:
            each.sendall(bytes(8))
            assert each.recv(8) == bytes(8)
        opened += 1
    except (OSError, AssertionError) as error:
        failed.append(f"{time.monotonic():.3f} {error!r}")
print(json.dumps([opened, failed]))
"""


def site(version, more=""):
    pod = [PODS[version].format(last).partition("/")[0] for last in (11, 12)]
    return f"""
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {{name: lan}}
spec: {{addresses: ["{EIP[version]}"], interface: eth0, {more}}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: default, annotations: {{eip-speaker.io/addresses: "{EIP[version]}"}}}}
spec: {{type: LoadBalancer, ipFamilies: [IPv{version}], ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, namespace: default, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv{version}
ports: [{{port: 8080}}]
endpoints: [{{addresses: ["{pod[0]}"]}}, {{addresses: ["{pod[1]}"]}}]
"""


class Scene:
    def __init__(self, namespaces, speakers, eip, sh):
        self.namespaces, self.speakers, self.eip, self.sh = namespaces, speakers, eip, sh

    def holder(self, *others):
        """Once it has one: by the word of ``others``, all speakers where none are named."""
        while True:
            for speaker in others or self.speakers.values():
                if eip_in(speaker)["claimed"]:
                    return speaker

    def others(self, speaker):
        return [other for other in self.speakers.values() if other is not speaker]

    def cut(self, name):
        for bridge in ("lan", "pods"):
            self.sh(self.namespaces["switch"], f"ip link set {name}-{bridge} down")

    def strays(self, speaker):
        """What its kernel does with those of the EIP: DROP, a ``goto``, or None where it has nothing to say."""
        listed = json.loads(self.sh(speaker.node, "nft -j list ruleset"))["nftables"]
        tables = [entry["map"] for entry in listed if entry.get("map", {}).get("table") == "eip-speaker-strays"]
        return {eip: verdict for found in tables for eip, verdict in found["elem"]}.get(self.eip)

    def reached(self):
        """Whom the client sends to."""
        (mac,) = (
            entry["lladdr"]
            for entry in json.loads(self.sh(self.namespaces["client"], f"ip -j neigh show {self.eip}"))
            if "lladdr" in entry
        )
        (found,) = (
            each for each in self.speakers.values() if mac in self.sh(each.node, "ip -br link show eth0").split()
        )
        return found


def eip_in(speaker):
    (found,) = json.loads(ask(speaker, "status", "--json"))["eips"]
    return found


def ask(speaker, *command, codes=(0,)):
    argv = [sys.executable, "-m", "speaker", *command, "--runtime-dir", str(speaker.directory / "run")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode in codes, done
    return done.stdout


@pytest.fixture
def flags(tmp_path):
    key = tmp_path / "key"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    return ("--with-peers", "--key", str(key), "--forwarder", "nftables")


@pytest.fixture
def serve(new_namespace, wire, sh, write, start, flags):
    """``serve(version, *flags)``: the scene, once one of three nodes holds the EIP and all three are ready."""

    def begin(version, *more, pool=""):
        switch = new_namespace("switch")
        for bridge in ("lan", "pods"):
            sh(switch, f"ip link add {bridge} type bridge")
            sh(switch, f"ip link set {bridge} up")
        namespaces = {"switch": switch}

        def join(name, bridge, link, *addresses):
            namespace = namespaces.get(name) or new_namespace(name)
            namespaces[name] = namespace
            namespace.sysctl("net.ipv6.conf.default.accept_dad", 0)
            wire(switch, f"{name}-{bridge}", namespace, link)
            sh(switch, f"ip link set {name}-{bridge} master {bridge}")
            for address in addresses:
                sh(namespace, f"ip addr add {address} dev {link}")

        join("client", "lan", "eth0", LAN[version].format(100))
        join("pod", "pods", "eth0", *(PODS[version].format(last) for last in (11, 12)))
        for number in (1, 2, 3):
            join(f"n{number}", "lan", "eth0", LAN[version].format(number))
            join(f"n{number}", "pods", "eth1", PODS[version].format(number))
            namespaces[f"n{number}"].sysctl("net.ipv4.ip_forward", 1)
            namespaces[f"n{number}"].sysctl("net.ipv6.conf.all.forwarding", 1)
        write("site.yaml", site(version, pool))
        speakers = {name: start(namespaces[name], *flags, *more, name=name) for name in ("n1", "n2", "n3")}
        for speaker in speakers.values():
            speaker.until("ready")
        return Scene(namespaces, speakers, EIP[version], sh)

    return begin


@pytest.fixture
def connected(serve):
    """``connected(version, *flags)``: the scene, its holder, and the client with its connections through that one."""
    with ExitStack() as stack:

        def begin(version, *more, pool="", at=None):
            scene = serve(version, *more, pool=pool)
            stack.enter_context(echoing(scene.namespaces["pod"], address=ANY[version]))
            if at is not None:
                moved(scene, at)
            holder = scene.holder()
            client = stack.enter_context(
                talking(scene.namespaces["client"], scene.eip, 80, COUNT, sources=(ANY[version],))
            )
            assert client.check() == {"alive": COUNT}
            return scene, holder, client

        yield begin


def new_connections_go_through(scene, holder):
    with talking(scene.namespaces["client"], scene.eip, 80, 10, sources=(ANY[6 if ":" in scene.eip else 4],)) as client:
        assert client.check() == {"alive": 10}
    return scene.reached() is holder


@pytest.mark.parametrize("version", [4, 6])
def test_who_is_stopped_keeps_its_connections_and_gets_no_new_ones(connected, version):
    scene, old, client = connected(version)
    assert old.stop(signal.SIGTERM) == 0
    new = scene.holder(*scene.others(old))
    assert client.check() == {"alive": COUNT}
    assert new_connections_go_through(scene, new)
    assert client.check() == {"alive": COUNT}


@pytest.mark.parametrize("version", [4, 6])
def test_who_is_killed_keeps_its_connections(connected, version):
    scene, old, client = connected(version, "--hand-over")
    old.stop(signal.SIGKILL)
    new = scene.holder(*scene.others(old))
    assert client.check() == {"alive": COUNT}
    assert new_connections_go_through(scene, new)
    assert client.check() == {"alive": COUNT}
    assert scene.strays(new) not in (None, DROP), "still"


def test_who_is_killed_and_started_again_keeps_its_connections(connected, start, flags):
    scene, old, client = connected(4, "--hand-over")
    old.stop(signal.SIGKILL)
    new = scene.holder(*scene.others(old))
    assert client.check() == {"alive": COUNT}
    again = scene.speakers[old.name] = start(old.node, *flags, "--hand-over", name=old.name)
    again.until("ready")
    assert scene.holder() is new
    assert client.check() == {"alive": COUNT}
    assert new_connections_go_through(scene, new)
    assert client.check() == {"alive": COUNT}


@contextmanager
def opening(scene):
    """Opens one connection after the other, and yields a function that ends that: how many, and which failed."""
    with scene.namespaces["client"].entered():
        argv = [sys.executable, "-I", "-S", "-c", OPENING, scene.eip]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end():
        return json.loads(process.communicate(timeout=180)[0])

    try:
        yield end
    finally:
        process.kill()
        process.wait()


def known(speaker, eip):
    """What it knows of the EIP, in its own words: a command would take its time to start."""
    return str(list(control.ask(speaker.directory / "run", "facts", about=eip)))


def moved(scene, name):
    """Until that one holds the EIP, by its own word."""
    eventually(lambda: eip_in(scene.speakers[name])["claimed"], lambda: ask(scene.speakers[name], "status"))


@pytest.mark.parametrize("version", [4, 6])
def test_the_preferred_node_is_killed_and_when_it_is_back_the_eip_moves_to_it_and_no_connection_fails(
    connected, start, flags, version
):
    scene, _, client = connected(version, "--hand-over", pool=PREFERRING, at="n2")
    killed = scene.speakers["n2"]
    killed.stop(signal.SIGKILL)
    assert scene.holder(*scene.others(killed)).name in ("n1", "n3")
    assert client.check() == {"alive": COUNT}
    back = scene.speakers["n2"] = start(killed.node, *flags, "--hand-over", name="n2")
    back.until("ready")
    told = known(back, scene.eip)
    with opening(scene) as end:
        moved(scene, "n2")
        assert client.check() == {"alive": COUNT}
        assert new_connections_go_through(scene, scene.speakers["n2"])
        opened, failed = end()
    assert failed == []
    assert opened >= 10
    assert "n2 is preferred (weight 80, n" in told
    assert "has been there for only" in told
    assert "the most preferred of the nodes that are here (weight 80)" in ask(
        scene.speakers["n2"], "explain", scene.eip, codes=(0, 1, 2)
    )


def test_who_is_drained_keeps_its_connections_and_when_it_is_back_has_those_of_the_other_handed_over(connected):
    scene, old, client = connected(4, "--hand-over")
    ask(old, "drain")
    new = scene.holder(*scene.others(old))
    assert client.check() == {"alive": COUNT}
    assert new_connections_go_through(scene, new)
    assert client.check() == {"alive": COUNT}
    (other,) = [each for each in scene.others(old) if each is not new]
    ask(old, "undrain")
    assert other.stop(signal.SIGTERM) == 0  # it would rank before or behind: only two are left
    with talking(scene.namespaces["client"], scene.eip, 80, COUNT) as later:
        assert later.check() == {"alive": COUNT}
        assert new.stop(signal.SIGTERM) == 0
        assert scene.holder(old) is old
        assert client.check() == {"alive": COUNT}, "it knows its own"
        assert later.check() == {"alive": COUNT}, "and hands those of the other over"


def test_of_a_node_that_is_lost_connections_are_reset(connected):
    scene, old, client = connected(4, "--hand-over")
    client.hush()
    scene.cut(old.name)
    new = scene.holder(*scene.others(old))
    new.until("previous holder silent", eips=1)
    (third,) = [each for each in scene.others(old) if each is not new]
    assert client.check() == {"reset": COUNT}
    assert scene.strays(new) is None
    assert scene.strays(third) == DROP
    assert new_connections_go_through(scene, new)


def test_without_it_connections_are_reset_by_a_move(connected):
    scene, old, client = connected(4, "--no-hand-over")
    assert old.stop(signal.SIGTERM) == 0
    new = scene.holder(*scene.others(old))
    assert client.check() == {"reset": COUNT}
    assert "strays" not in scene.sh(new.node, "nft list tables")


def test_a_start_without_it_leaves_unknown_flows_to_the_kernel(new_namespace, write, start, flags, sh):
    """Whatever an earlier speaker did with them."""
    node = new_namespace("n1")
    sh(node, "nft add table ip eip-speaker-strays")
    write("site.yaml", site(4))
    start(node, *flags, "--no-hand-over").until("connections are no longer handed over")
    assert "strays" not in sh(node, "nft list tables")


def test_what_is_handed_over_is_told(connected):
    scene, old, client = connected(4, "--hand-over")
    assert old.stop(signal.SIGTERM) == 0
    new = scene.holder(*scene.others(old))
    assert client.check() == {"alive": COUNT}
    assert new.until("claimed", eip=scene.eip)["before"] == old.name
    address = LAN[4].format(old.name[1]).partition("/")[0]
    told = " ".join(ask(new, "status").split())
    assert f"packets of unknown flows of 1 EIPs go to {address} on eth0, which held them before" in told
    assert 'eip_speaker_strays{fate="handed_over"} 1.0' in new.get("/metrics")
    assert scene.strays(new) not in (None, DROP)
