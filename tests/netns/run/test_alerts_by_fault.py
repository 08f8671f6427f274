"""The alerts on real speakers, one fault after the other: each is told once, alone, as long as it is there, and no more
when the next one is. Those that ``test_alerts.py`` breaks at once are not broken here again.

What the speakers do seldom they do often here, as constants planted into them say; what it comes to is the same.
``RECORD=1`` keeps what they told for ``tests/alerts``.
"""

import os
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from alert_lan import eventually, fires, key, nft, pool, samples, service, switched, until
from fault_plan import Switches
from playing import BY_FAULT, BY_FAULT_STEPS, FLAPS, GROWING, Recorder, save
from pyroute2 import NFCTSocket
from site_yaml import endpoint
from standing_still import told, watches

pytestmark = [pytest.mark.netns, pytest.mark.long(part="alerts")]

BUG = "speaker.interfaces.martians:martian_sources"
OFTEN = {
    "speaker.wire.sender:COUNT_SECONDS": 0.1,
    "speaker.node.host:ENVIRONMENT_SECONDS": 0.5,
    "speaker.kubeproxy.judge:GRACE": 0.3,
    "speaker.kubeproxy.watch:FIRST_SECONDS": 0.3,
    "speaker.kubeproxy.watch:LOOK_SECONDS": 0.5,
    "speaker.kubeproxy.watch:AGAIN_SECONDS": 0.4,
    "speaker.node.report:WRITE_AGAIN": 0.2,
    "speaker.ownership.machine.naming:SILENCE": 1.0,
    "speaker.wire.shared:FILTERED": 2.0,
    "speaker.wire.hello_links:FILTERED_SECONDS": 0.2,
}
HELLOS = ("--hello", "150")
"""Milliseconds: a busy machine keeps a speaker from running now and then, and longer than most where it is not root."""
CALM, LASTS = 0.3, 0.9
"""Seconds that hellos need until none is said out of turn, and between two scrapes."""

LAN = pool("198.51.100.10-198.51.100.19")
ROOMY = pool("198.51.100.10-198.51.100.99")
"""The same pool, with another range."""
SECOND = pool("203.0.113.10-203.0.113.29", "second", "eth1") + service(20, net="203.0.113")
NODES = ("n1", "n2", "n3")
LOCAL = (
    service(number, ", externalTrafficPolicy: Local")
    + endpoint(f"s{number}", f"addresses: [10.0.0.1], nodeName: {node}")
    for number, node in enumerate(NODES, 12)
)
SITE = SECOND + service(10) + service(11) + "".join(each.replace("---\n---", "---") + "---\n" for each in LOCAL)
"""Each node has an EIP that no other may hold."""
GROWTH = [service(number) for number in range(15, 16 + GROWING)]

KUBE_PROXY = """
table ip kube-proxy {
  comment "rules for kube-proxy"
  map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
  map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
  chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
}
table ip6 kube-proxy {
  map service-ips { type ipv6_addr . inet_proto . inet_service : verdict; }
  map no-endpoint-services { type ipv6_addr . inet_proto . inet_service : verdict; }
}
"""
HAS_RULES = "".join(
    f"add element ip kube-proxy service-ips {{ {net}.{number} . tcp . 80 : accept }}\n"
    for net, numbers in (("198.51.100", range(10, 20)), ("203.0.113", [20]))
    for number in numbers
)


class Lan:
    """Three nodes that share their EIPs on two links; ``n3`` leaves forwarding to kube-proxy."""

    def __init__(self, nodes, switch, start, write, sh, home):
        self.n1, self.n2, self.n3 = nodes
        self.switch, self.start, self.sh, self.home = switch, start, sh, home
        self.planted = Switches(home / "planted", (BUG,), OFTEN)
        self._put = write
        self.key = key(home)
        self.write()
        self.speakers = {}
        self.recorder = Recorder(
            lambda: {"speaker": {name: speaker.get("/metrics") for name, speaker in self.speakers.items()}},
            time.monotonic,
        )

    def write(self, pool=LAN, more=()):
        self._put("site.yaml", text := "".join((pool, SITE, *more)))
        self.eips = text.count("kind: Service\n")

    def begin(self, name, node, *flags, home=None):
        return self.start(node, "--with-peers", "--key", self.key, *HELLOS, *flags, name=name, home=home)

    def until(self, name, wanted):
        until(self.speakers.values(), f"eip_speaker_{name}", wanted)

    def told(self):
        return [speaker.status() for speaker in self.speakers.values()]

    def record(self, name):
        time.sleep(CALM)
        self.recorder.begin(name)
        time.sleep(LASTS)
        self.recorder.end()

    def well(self):
        """Everybody hears everybody, and all EIPs are held."""
        self.until("peers{", lambda found: found == [2.0] * 2 * len(NODES))
        self.until("held_since_timestamp_seconds{", lambda found: len(found) == self.eips)
        self.until('services{outcome="assigned"}', lambda found: found == [self.eips] * len(NODES))


@pytest.fixture
def lan(new_namespace, wire, sh, start, write, tmp_path):
    if shutil.which("nft") is None:
        pytest.skip("no nft: apt-get install nftables")
    switch, (*nodes, other) = switched(new_namespace, wire, sh, *NODES, "other")
    sh(switch, "ip link add br1 type bridge")
    sh(switch, "ip link set br1 up")
    for number, node in enumerate(nodes, 1):
        wire(node, "eth1", switch, f"q{number}")
        sh(switch, f"ip link set q{number} master br1")
        sh(node, f"ip addr add 203.0.113.{number}/24 dev eth1")
    nft(nodes[0], "table inet tracks { chain new { type filter hook input priority 0; ct state new counter; }; }")
    nft(nodes[2], KUBE_PROXY + HAS_RULES)
    sh(switch, "ip link set p4 down")
    lan = Lan(nodes, switch, start, write, sh, tmp_path)
    lan.clone = lan.begin("n1", other, home="clone")  # where it is not heard yet
    with pytest.MonkeyPatch.context() as patch:
        for name, value in lan.planted.environment.items():
            patch.setenv(name, value)
        for name, node, forwarder in zip(NODES, nodes, ("nftables", "nftables", "none"), strict=True):
            lan.speakers[name] = lan.begin(name, node, "--forwarder", forwarder)
        for speaker in lan.speakers.values():
            speaker.until("ready")
        yield lan


@pytest.fixture
def standing():
    with watches() as found:
        yield found


# ── The faults: inside of the block they are there, and told ──


@contextmanager
def a_bug(lan):
    """In all speakers, as they are of one release."""
    with lan.planted.always(BUG):
        lan.until("internal_errors_total{", lambda found: len(found) == len(NODES))
        yield


@contextmanager
def a_disk_that_takes_nothing(lan):
    over = str(lan.home / "n2" / "run")
    mounted = subprocess.run(["mount", "--bind", over, over], check=False)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount (root, or `unshare -Urnm`)")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", over], check=True)
        lan.write(more=[service(18)])
        lan.until("edge_errors_total{", lambda found: max(found, default=0) > 1)
        yield
    finally:
        subprocess.run(["umount", over], check=True)
    lan.write()


@contextmanager
def a_kube_proxy_without_rules(lan):
    nft(lan.n3, "flush map ip kube-proxy service-ips")
    lan.until("eips_without_rules", lambda found: any(number > 0 for number in found))
    yield
    nft(lan.n3, HAS_RULES)
    lan.until("eips_without_rules", lambda found: 0.0 in found)


@contextmanager
def a_crowd(lan):
    """More connections than four fifths of what the kernel tracks: datagrams of this node to itself."""
    with lan.n1.entered(), ExitStack() as stack:
        most = int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text())
        Path("/proc/sys/net/netfilter/nf_conntrack_udp_timeout").write_text("600")
        table = stack.enter_context(NFCTSocket())
        here, there = (stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
        there.bind(("0.0.0.0", 9))
        for number in range(round(most * 0.83)):
            if number % 4096 == 0:
                time.sleep(0.01)  # lest others do not run
            here.sendto(b"", (f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}", 9))
        lan.until("conntrack_entries", lambda found: max(found) > most * 0.8)
        yield
        table.flush()
        lan.until("conntrack_entries", lambda found: max(found) < most * 0.5)


@contextmanager
def a_clone(lan):
    lan.sh(lan.switch, "ip link set p4 up")
    lan.speakers["clone"] = lan.clone
    lan.until("name_taken", lambda found: sum(found) == 2)
    yield
    lan.speakers.pop("clone").close()


@contextmanager
def hellos_that_are_filtered(lan):
    """Those of n3 and those to it, on their way through the switch."""
    nft(
        lan.switch,
        """table bridge filters { chain hellos { type filter hook forward priority 0;
           iifname p3 ether type 0x88b5 drop; oifname p3 ether type 0x88b5 drop; }; }""",
    )
    lan.until("hellos_filtered_total{", lambda found: len(found) == len(NODES))
    yield
    nft(lan.switch, "delete table bridge filters")


@contextmanager
def a_pool_that_fills(lan):
    for number in range(1, len(GROWTH) + 1):
        lan.write(more=GROWTH[:number])
        lan.well()
        if number <= GROWING:
            lan.record(f"PoolFullSoon {number}")
    yield
    lan.write(ROOMY, GROWTH)
    lan.until('pool_addresses{family="IPv4",pool="lan"}', lambda found: min(found) == 90)


@contextmanager
def a_link_that_flaps(lan):
    """The cable of whoever holds the EIP of the second link is pulled, and plugged again."""
    for number in range(1, FLAPS + 2):
        before = holder(lan)
        lan.sh(lan.switch, f"ip link set q{before[1:]} down")
        lan.until("peers_silent{", any)
        eventually(lambda: holder(lan) not in (None, before), lambda: lan.told())  # noqa: B023 -- called at once
        lan.sh(lan.switch, f"ip link set q{before[1:]} up")
        lan.well()
        if number <= FLAPS:
            lan.recorder.moment(f"EipFlapping {number}")
    yield


def holder(lan):
    return next(
        (
            name
            for name, speaker in lan.speakers.items()
            if samples(speaker.get("/metrics"), 'eip_speaker_held_since_timestamp_seconds{eip="203.0.113.20"}')
        ),
        None,
    )


FAULTS = {
    "InternalErrors": a_bug,
    "EdgeFails": a_disk_that_takes_nothing,
    "KubeProxyHasNoRules": a_kube_proxy_without_rules,
    "ConntrackNearlyFull": a_crowd,
    "NameClash": a_clone,
    "HellosFiltered": hellos_that_are_filtered,
    "PoolFullSoon": a_pool_that_fills,
    "EipFlapping": a_link_that_flaps,
}


def test_each_fault_is_told_once_as_long_as_it_is_there_and_nothing_else_is(lan, tmp_path, standing):
    lan.well()
    lan.record("healthy")
    for alert, fault in FAULTS.items():
        with fault(lan):
            lan.record(alert)
        lan.well()
    lan.record("mended")
    fires(lan.recorder.phases, BY_FAULT_STEPS, BY_FAULT, tmp_path, lambda: told(standing))
    if os.environ.get("RECORD"):
        save("by-fault", lan.recorder.phases)
