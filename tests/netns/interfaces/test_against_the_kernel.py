"""Our lookup against the kernel's own, over generated rules and routes: no difference is allowed.

Every other set is asked about once more with some of the targets bound on ``lo`` and the kernel's rule for the local
table taken away, so that it answers for those as well; and `can_reach` must not notice that they are bound.

SPEAKER_RESOLVER_SETS sets how many sets there are, SPEAKER_RESOLVER_SEED where they start; a failure prints its own.
"""

import os
import random
import subprocess
from collections import Counter
from contextlib import closing
from errno import EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH
from ipaddress import ip_network

import pytest

from speaker.interfaces.resolve import resolve
from speaker.interfaces.routing import Found, Refused, lookup
from speaker.interfaces.snapshot import RuleAction
from speaker.model import CanReach

pytestmark = pytest.mark.netns

SETS = int(os.environ.get("SPEAKER_RESOLVER_SETS", "800"))
SEED = int(os.environ.get("SPEAKER_RESOLVER_SEED", "1"))
DESTINATIONS = 6
"""Asked about in each set."""

LINKS = ("v0", "v1", "v2", "v3")
NO_CABLE = "v3"
"""Its peer is down, and its routes are dead because `ignore_routes_with_linkdown` is set on it."""
TABLES = ("main", "100", "101", "102", "5000")
V4, V6 = ip_network("198.18.0.0/22"), ip_network("2001:db8:0:0:100::/72")
LENGTHS = {4: (0, 8, 15, 22, 23, 24, 24, 28, 32, 32), 6: (0, 16, 32, 72, 80, 96, 112, 120, 128, 128)}


OBJECTS = (1, 2, 3, 4)
"""Nexthop objects: on v0, on v1, a group of both, a blackhole. IPv4 only: IPv6 routes of one object share a cached
route (``rt6_get_pcpu_route``), so that Linux 6.18 names the wrong route and suppresses by the wrong prefix length."""


class Set:
    """One generated set of rules and routes, as `ip` commands, and the destinations to ask about."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        # Few different addresses, so that prefixes nest and hit.
        self._near = {network.version: [self._address(network) for _ in range(4)] for network in (V4, V6)}
        self.commands: list[str] = []
        for version in (4, 6):
            for _ in range(self._random.randint(2, 12)):
                self._add_route(version)
            for _ in range(self._random.randint(0, 6)):
                self._add_rule(version)
        bound = [f"-{v} addr add {a} dev lo" for v in (4, 6) for a in sorted(set(self._near[v]))[:2]]
        self.binding = [*bound, "-4 rule del pref 0", "-6 rule del pref 0"]
        self.destinations = [self._destination(version) for version in (4, 6) for _ in range(DESTINATIONS // 2)]

    def __str__(self) -> str:
        return "\n".join((f"set {self.seed}:", *self.commands))

    def _address(self, network):
        return network[self._random.getrandbits(32) % network.num_addresses]

    def _destination(self, version):
        chosen = self._random.choice(self._near[version])
        return chosen if self._random.random() < 0.8 else chosen + self._random.choice((-1, 1, 2, 200))

    def _prefix(self, version):
        length = self._random.choice(LENGTHS[version])
        return ip_network((self._random.choice(self._near[version]), length), strict=False)

    def _add_route(self, version) -> None:
        one = self._random
        prefix = self._prefix(version)
        # `append` under /0 in IPv4 makes several defaults of one metric: the kernel then picks by their neighbours.
        verb = "append" if one.random() < 0.15 and prefix.prefixlen else "add"
        weights = (12, 4, 1, 1, 1, 2, 2 if version == 4 else 0)
        kinds = ("unicast", "multipath", "unreachable", "blackhole", "prohibit", "throw", "object")
        kind = one.choices(kinds, weights)[0]
        path = "" if kind in ("unicast", "multipath", "object") else kind
        tail = f"table {one.choice(TABLES)}"
        if one.random() < 0.5:
            tail += f" metric {one.choice((1, 10, 20, 1024, 5000))}"
        if version == 4 and one.random() < 0.1:
            tail += " tos 0x10"
        if kind == "unicast":
            tail += f" {self._hop(version)}"
            if version == 6 and one.random() < 0.2:
                tail += f" pref {one.choice(('high', 'medium', 'low'))}"
        if kind == "object":
            tail += f" nhid {one.choice(OBJECTS)}"
        if kind == "multipath":
            hops = one.sample(LINKS, one.randint(2, 3))
            tail += "".join(f" nexthop {self._hop(version, link)} weight {one.randint(1, 3)}" for link in hops)
        self.commands.append(f"-{version} route {verb} {path} {prefix} {tail}")

    def _hop(self, version, link=None) -> str:
        link = link or self._random.choice(LINKS)
        gateway = f"203.0.113.{self._random.randint(1, 9)}" if version == 4 else f"fe80::{self._random.randint(1, 9)}"
        return f"via {gateway} dev {link} onlink"

    def _add_rule(self, version) -> None:
        one = self._random
        priority = one.choice((5, 10, 20, 30, 40, 50, 60, 70))
        parts = [f"-{version} rule add pref {priority}"]
        if one.random() < 0.15:
            parts.append("not")
        if one.random() < 0.4:
            parts.append(f"to {self._prefix(version)}")
        if one.random() < 0.4:
            parts.append(
                one.choice(
                    (
                        "from 192.0.2.0/24" if version == 4 else "from 2001:db8:9::/48",
                        "from 0.0.0.0/8" if version == 4 else "from ::/8",
                        *("iif lo", "iif v0", "iif absent", "oif v1", "fwmark 1", "fwmark 0/1", "tos 0x10"),
                        *("uidrange 0-0", "uidrange 1-99", "ipproto tcp", "dport 80"),
                    )
                )
            )
        if one.random() < 0.7:
            parts.append(f"lookup {one.choice(TABLES)}")
            if one.random() < 0.25:
                parts.append(f"suppress_prefixlength {one.choice((0, 16, 24, 32))}")
            if version == 4 and one.random() < 0.1:  # IPv6 looks at the next hop it picked, IPv4 at the first
                parts.append(f"suppress_ifgroup {one.choice((0, 7))}")
        else:
            parts.append(
                one.choice(
                    (f"goto {priority + one.choice((10, 20, 7))}", "nop", "blackhole", "unreachable", "prohibit")
                )
            )
        self.commands.append(" ".join(parts))


class Ip:
    """Two `ip` processes, one a family, that take commands for as long as the test lasts."""

    def __init__(self, namespace) -> None:
        with namespace.entered():
            self._processes = {family: self._start(family) for family in ("-4", "-6")}

    def _start(self, family):
        command = ["ip", family, "-force", "-batch", "-"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __call__(self, commands) -> None:
        """Runs them all. What the kernel refuses (duplicates, mostly) is simply not there."""
        for family, process in self._processes.items():
            lines = [line.removeprefix(family).strip() for line in commands if line.startswith(family)]
            process.stdin.write("\n".join((*lines, "finished", "")))
            process.stdin.flush()
        for process in self._processes.values():
            # Complaining about a word that it does not know is how `ip` says that it has come so far.
            while line := process.stderr.readline():
                if line.startswith('Object "finished" is unknown'):
                    break

    def close(self) -> None:
        for process in self._processes.values():
            process.stdin.close()
            process.wait()
            process.stderr.close()


# `ip` leaves the rule for the local table and the kernel's own routes alone. A kernel that never had a rule of its own
# takes a shortcut (fib_lookup in include/net/ip_fib.h), hence the "nop".
CLEAN = [
    f"{family} {what}"
    for what in (
        "route flush table all proto boot",
        "rule flush",
        "rule add pref 32766 lookup main",
        "rule add pref 32000 nop",
    )
    for family in ("-4", "-6")
]
UNBIND = [
    "-4 addr flush dev lo",
    "-6 addr flush dev lo",
    "-4 rule add pref 0 lookup local",
    "-6 rule add pref 0 lookup local",
]


@pytest.fixture
async def node(new_namespace, sh, settled):
    """Four veths, one without a cable, one in group 7."""
    node, peer = new_namespace("node"), new_namespace("peer")
    for number, name in enumerate(LINKS):
        sh(node, f"ip link add {name} type veth peer name {name} netns {peer.path}")
        node.sysctl(f"net.ipv6.conf.{name}.accept_dad", 0)
        sh(node, f"ip link set {name} up")
        sh(node, f"ip addr add 192.0.2.{number * 4 + 1}/30 dev {name}")
        if name != NO_CABLE:
            sh(peer, f"ip link set {name} up")
    sh(node, "ip link set v2 group 7")
    for line in ("1 via 203.0.113.1 dev v0 onlink", "2 via 203.0.113.1 dev v1 onlink", "3 group 1/2", "4 blackhole"):
        sh(node, f"ip nexthop add id {line}")
    for family in ("ipv4", "ipv6"):
        node.sysctl(f"net.{family}.conf.{NO_CABLE}.ignore_routes_with_linkdown", 1)
    await settled(node, *(name for name in LINKS if name != NO_CABLE))
    return node


@pytest.fixture
def ip(node):
    with closing(Ip(node)) as processes:
        yield processes


ERRORS = {
    RuleAction.BLACKHOLE: (EINVAL,),
    RuleAction.PROHIBIT: (EACCES,),
    RuleAction.UNREACHABLE: (EHOSTUNREACH, ENETUNREACH),
}


def agree(kernel, ours) -> bool:
    match ours:
        case None:
            return kernel.error == ENETUNREACH
        case Refused(how, _):
            return kernel.error in ERRORS[how]
        case Found(_, hops):
            links = {hop.link for hop in hops}
            # Without the compatibility mode the kernel's answer names the nexthop object instead of its links.
            return not kernel.error and kernel.link in links and kernel.live in (links, frozenset())


def difference(generated, snapshot, kernel) -> list[str]:
    found = []
    for destination in generated.destinations:
        says, ours = kernel.route(destination), lookup(destination, snapshot)
        if not says.local_table_decides and not agree(says, ours):
            found.append(f"set {generated.seed}, {destination}: the kernel says {says}, we say {ours}")
    return found


async def test_our_lookup_decides_as_the_kernel_does(node, ip, kernel_of, snapshot_of):
    kernel, asked, unbind = kernel_of(node), Counter(), []
    for generated in map(Set, range(SEED, SEED + SETS)):
        node.sysctl("net.ipv4.nexthop_compat_mode", generated.seed // 2 % 2)
        ip([*unbind, *CLEAN, *generated.commands])
        snapshot = await snapshot_of(node)
        asked.update(type(lookup(each, snapshot)).__name__ for each in generated.destinations)
        assert difference(generated, snapshot, kernel) == [], str(generated)
        unbind = UNBIND if generated.seed % 2 else []
        if unbind:
            ip(generated.binding)
            bound = await snapshot_of(node)
            assert difference(generated, bound, kernel) == [], str(generated)
            for target in generated.destinations:
                towards = CanReach(target)
                assert resolve(towards, target, snapshot) == resolve(towards, target, bound), str(generated)
    # The generator is worth something only while it brings all of them about.
    assert all(asked[kind] > SETS * DESTINATIONS / 20 for kind in ("Found", "Refused", "NoneType")), asked
