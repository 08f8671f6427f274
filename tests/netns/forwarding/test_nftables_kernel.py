"""What the nftables forwarder does to the kernel's tables: all or nothing, once, its own only, and readable again."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding import conntrack
from speaker.forwarding.changes import RealChange, diff
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.forwarder import LOOK_SECONDS, NftablesForwarder, open_guard, open_nftables
from speaker.forwarding.nftables.listing import read_plan
from speaker.forwarding.nftables.ruleset import expressible
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer
from speaker.forwarding.sysctl import forwarding_off
from speaker.model import Family, Protocol

pytestmark = pytest.mark.netns


@pytest.fixture
def node(new_namespace):
    return new_namespace("node")


@pytest.fixture
def apply(node, inside) -> Callable[[Plan], tuple[object, ...]]:
    return lambda plan: inside(node, NftablesForwarder().apply, plan)


@pytest.fixture
def listing(node, inside) -> Callable[[], list[object] | None]:
    return lambda: inside(node, nft.list_table, "eip-speaker")


def server(text: str = "192.0.2.10", port: int = 80, **settings: object) -> VirtualServer:
    real = tuple(RealServer(ip_address(f"10.0.0.{last}"), 8080) for last in (3, 4))
    return VirtualServer(ip_address(text), Protocol.TCP, port, **{"real_servers": real, **settings})


def plan_of(*servers: VirtualServer) -> Plan:
    return Plan(frozenset(each.address for each in servers), {each.key: each for each in servers})


def contents(listing: list[dict[str, dict[str, Any]]]) -> list[str]:
    """A listing without what depends on how it came about: handles, and the order of things and elements."""
    things = []
    for item in listing:
        for kind, thing in item.items():
            elements = sorted(thing.get("elem", ()), key=json.dumps)
            things.append(json.dumps({kind: {**thing, "handle": 0, "elem": elements}}, sort_keys=True))
    return sorted(things)


# ── Applied, read back, applied again ─────────────────────────────────────────────────────────────────────────

versions = st.sampled_from([4, 6])
SPACE = {4: "10.1.0.", 6: "2001:db8::"}


@st.composite
def networks(draw: st.DrawFn) -> object:
    bits = draw(st.sampled_from([0, 1, 8, 24, 31, 32, 33, 64, 127, 128]))
    if draw(versions) == 4:
        return ip_network((draw(st.integers(0, 2**32 - 1)), min(bits, 32)), strict=False)
    return ip_network((draw(st.integers(0, 2**128 - 1)), bits), strict=False)


@st.composite
def virtual_servers(draw: st.DrawFn) -> VirtualServer:
    version = draw(versions)
    places = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(8080, 8082)), max_size=5, unique=True))
    real = (
        RealServer(ip_address(f"{SPACE[version]}{last}"), port, draw(st.integers(0, 4)), draw(st.booleans()))
        for last, port in places
    )
    return VirtualServer(
        ip_address(f"{SPACE[version]}{draw(st.integers(10, 12))}"),
        draw(st.sampled_from(Protocol)),
        draw(st.integers(80, 81)),
        draw(st.sampled_from(["rr", "wrr", "lc", "sh", "dh", "mh", "mh-port"])),
        draw(st.none() | st.integers(0, 86400)),
        tuple(draw(st.lists(networks(), max_size=4))),
        draw(st.booleans()),
        tuple(sorted(real)),
    )


plans = st.lists(virtual_servers(), max_size=6).map(lambda servers: plan_of(*servers))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(first=plans, second=plans)
def test_whatever_was_there_the_kernel_ends_up_with_the_plan(apply, listing, first, second):
    apply(first)
    assert apply(second) == diff(expressible(first), expressible(second))
    step_by_step = listing()
    assert read_plan(step_by_step) == expressible(second)
    assert apply(second) == ()
    apply(EMPTY)
    apply(second)
    assert contents(listing()) == contents(step_by_step)


def test_a_change_of_one_endpoint_rewrites_one_chain(apply, listing):
    before, other = server(), server(port=81)
    apply(plan_of(before, other))
    handles = {item["rule"]["handle"] for item in listing() if "rule" in item}
    new = RealServer(ip_address("10.0.0.9"), 8080)
    changed = server(real_servers=(*before.real_servers, new))
    assert apply(plan_of(changed, other)) == (RealChange(before.key, None, new),)
    replaced = [item["rule"]["chain"] for item in listing() if "rule" in item and item["rule"]["handle"] not in handles]
    assert replaced == ["tcp/192.0.2.10/80"]


def test_what_is_pending_is_what_apply_would_do_and_nothing_is_done(node, apply, inside, sh):
    pending = NftablesForwarder().pending
    assert inside(node, pending, plan_of(server())) == diff(EMPTY, plan_of(server()))
    assert sh(node, "nft list ruleset") == ""
    apply(plan_of(server()))
    assert inside(node, pending, plan_of(server())) == ()


def test_a_plan_the_kernel_refuses_leaves_the_old_rules(apply, listing):
    apply(plan_of(server()))
    before = listing()
    refused = server(port=82, real_servers=(RealServer(ip_address("10.0.0.3"), 2**16),))
    with pytest.raises(EdgeError):
        apply(plan_of(server(port=81), refused))
    assert listing() == before


def test_connections_that_cannot_be_forgotten_keep_no_plan_from_the_kernel(node, inside, listing, monkeypatch):
    before, after = server(), server(scheduler="sh")
    broken, asked = True, []

    async def forgets(keys, plan, keeps):
        asked.append(set(keys))
        if broken:
            raise EdgeError("conntrack: no such subsystem")
        return 0

    async def story():
        nonlocal broken
        forwarder = NftablesForwarder()
        await forwarder.apply(plan_of(before))
        assert await forwarder.apply(plan_of(after)) == diff(plan_of(before), plan_of(after))
        assert any("no such subsystem" in problem.what for problem in await forwarder.problems())
        broken = False
        assert await forwarder.tend() == ()
        assert not any("no such subsystem" in problem.what for problem in await forwarder.problems())

    monkeypatch.setattr(conntrack, "forget", forgets)
    inside(node, story)
    assert read_plan(listing()) == expressible(plan_of(after))
    assert asked == [{after.key}, {after.key}]


def test_a_speaker_killed_on_the_spot_leaves_what_the_next_one_finds_in_order(node, apply):
    program = """
import asyncio, os, signal, sys
from ipaddress import ip_address
from speaker.forwarding.nftables.forwarder import NftablesForwarder
from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.model import Protocol
real = (RealServer(ip_address("10.0.0.3"), 8080), RealServer(ip_address("10.0.0.4"), 8080))
server = VirtualServer(ip_address("192.0.2.10"), Protocol.TCP, 80, real_servers=real)
asyncio.run(NftablesForwarder().apply(Plan(frozenset({server.address}), {server.key: server})))
os.kill(os.getpid(), signal.SIGKILL)
"""
    with node.entered():
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert apply(plan_of(server())) == ()


# ── Other hands ───────────────────────────────────────────────────────────────────────────────────────────────

TAMPERED = {
    "a virtual server's rule is gone": "flush chain inet eip-speaker tcp/192.0.2.10/80",
    "a virtual server has another rule": "add rule inet eip-speaker tcp/192.0.2.10/80 accept",
    "the guard has another rule": "insert rule inet eip-speaker guard_prerouting accept",
    "the guard is gone": "flush chain inet eip-speaker guard_prerouting",
    "a rule without our comment": "add rule inet eip-speaker postrouting masquerade",
    "a policy": "add chain inet eip-speaker guard_output { policy drop ; }",
    "an EIP is gone": "delete element inet eip-speaker eips4 { 192.0.2.10 }",
    "a stranger's EIP": "add element inet eip-speaker eips4 { 192.0.2.99 }",
    "another real server": (
        "replace rule inet eip-speaker tcp/192.0.2.10/80 handle HANDLE"
        ' meta l4proto tcp dnat ip to numgen inc mod 2 map { 0 : 10.6.6.6 . 80, 1 : 10.0.0.4 . 8080 } comment "rr"'
    ),
    "another choice": (
        "replace rule inet eip-speaker tcp/192.0.2.10/80 handle HANDLE"
        ' meta l4proto tcp dnat ip to numgen inc mod 1 map { 0 : 10.0.0.3 . 8080, 1 : 10.0.0.4 . 8080 } comment "rr"'
    ),
    "by hash where it should be in turn": (
        "replace rule inet eip-speaker tcp/192.0.2.10/80 handle HANDLE meta l4proto tcp dnat ip to"
        ' jhash ip saddr mod 2 seed 0xe190 map { 0 : 10.0.0.3 . 8080, 1 : 10.0.0.4 . 8080 } comment "rr"'
    ),
    "a turn that nobody takes": (
        "replace rule inet eip-speaker tcp/192.0.2.10/80 handle HANDLE meta l4proto tcp dnat ip to"
        ' numgen inc mod 3 map { 0 : 10.0.0.3 . 8080, 1 : 10.0.0.4 . 8080 } comment "rr"'
    ),
    "no comment": (
        "replace rule inet eip-speaker tcp/192.0.2.10/80 handle HANDLE"
        " meta l4proto tcp dnat ip to numgen inc mod 2 map { 0 : 10.0.0.3 . 8080, 1 : 10.0.0.4 . 8080 }"
    ),
    "a port is gone": "delete element inet eip-speaker services4 { 192.0.2.10 . tcp . 80 }",
    "a port nobody named": "add element inet eip-speaker services4 { 192.0.2.10 . tcp . 22 : accept }",
    "a protocol we do not serve": "add element inet eip-speaker services4 { 192.0.2.10 . dccp . 80 : goto refuse }",
    "a port sent elsewhere": "add element inet eip-speaker services4 { 192.0.2.9 . tcp . 22 : goto tcp/192.0.2.10/80 }",
    "no masquerade": "flush set inet eip-speaker masquerade4",
    "a source range": "add element inet eip-speaker sources4 { 192.0.2.10 . tcp . 80 . 10.0.0.0-10.0.0.6 }",
    "a chain": "add chain inet eip-speaker another",
    "a chain with a rule": "add chain inet eip-speaker another\nadd rule inet eip-speaker another accept",
    "a set": "add set inet eip-speaker another { type ipv4_addr ; }",
    "a counter": "add counter inet eip-speaker another",
    "the table is gone": "delete table inet eip-speaker",
    "another release's table": "delete chain inet eip-speaker MARK",
}


@pytest.mark.parametrize("line", TAMPERED.values(), ids=TAMPERED.keys())
def test_what_others_did_to_our_table_is_repaired(node, apply, listing, inside, line):
    want = plan_of(server())
    apply(want)
    before = contents(listing())
    chains = [item["chain"]["name"] for item in listing() if "chain" in item]
    rule = next(item["rule"] for item in listing() if "rule" in item and item["rule"]["chain"].startswith("tcp/"))
    line = line.replace("HANDLE", str(rule["handle"]))
    line = line.replace("MARK", next(name for name in chains if name.startswith("made_of")))
    inside(node, nft.run, line + "\n")
    assert apply(want) != ()
    assert contents(listing()) == before
    assert apply(want) == ()


def test_a_firewall_that_is_reloaded_and_flushes_everything_costs_until_the_next_tending(node, listing, inside):
    forwarder = NftablesForwarder(lambda: 0.0)
    assert inside(node, forwarder.tend) == ()  # nothing was asked for yet
    inside(node, forwarder.apply, plan_of(server()))
    before = contents(listing())
    inside(node, nft.run, "flush ruleset\n")
    assert inside(node, forwarder.tend) == diff(EMPTY, plan_of(server()))
    assert contents(listing()) == before
    inside(node, forwarder.cleanup)
    assert inside(node, forwarder.tend) == ()


# ── Remembered ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def nft_calls(tmp_path, monkeypatch) -> Callable[[], list[str]]:
    """``list`` or ``-f`` for each time that the program nft was asked for that since the call before."""
    log, real = tmp_path / "calls", shutil.which("nft")
    program = tmp_path / "bin" / "nft"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{log}\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    log.touch()

    def calls() -> list[str]:
        lines = log.read_text().splitlines()
        log.write_text("")
        return [found[0] for line in lines if (found := re.search(r"list|-f", line))]

    return calls


def test_as_long_as_nobody_changes_nftables_nothing_is_listed(node, inside, nft_calls):
    now = 0.0
    forwarder = NftablesForwarder(lambda: now)
    inside(node, forwarder.apply, plan_of(server()))
    assert nft_calls() == ["list", "-f"]
    now += 10 * LOOK_SECONDS
    inside(node, forwarder.apply, plan_of(server(), server(port=81)))
    assert nft_calls() == ["-f"]
    assert inside(node, forwarder.tend) == ()
    assert inside(node, forwarder.apply, plan_of(server(), server(port=81))) == ()
    assert nft_calls() == []


def test_while_others_change_theirs_ours_is_listed_once_in_a_while(node, inside, sh, nft_calls):
    now = 0.0
    forwarder = NftablesForwarder(lambda: now)
    inside(node, forwarder.apply, plan_of(server()))
    sh(node, "nft add table ip kube-proxy")
    nft_calls()
    inside(node, forwarder.apply, plan_of(server(port=81)))
    assert nft_calls() == ["-f"]
    sh(node, "nft add chain ip kube-proxy another")
    nft_calls()
    assert inside(node, forwarder.tend) == ()
    assert nft_calls() == []
    now += LOOK_SECONDS
    assert inside(node, forwarder.tend) == ()
    assert nft_calls() == ["list"]
    assert inside(node, forwarder.tend) == ()
    assert nft_calls() == []


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("flush chain inet eip-speaker tcp/192.0.2.10/80", LOOK_SECONDS),
        ("delete element inet eip-speaker eips4 { 192.0.2.10 }", LOOK_SECONDS),
        ("add chain inet eip-speaker another", 0.0),
        ("delete table inet eip-speaker; add table inet eip-speaker", 0.0),
    ],
)
def test_what_others_do_to_our_table_is_repaired_by_who_made_it(node, inside, listing, line, waits):
    now = 0.0
    forwarder = NftablesForwarder(lambda: now)
    inside(node, forwarder.apply, plan_of(server()))
    before = contents(listing())
    inside(node, nft.run, line + "\n")
    if waits:
        assert inside(node, forwarder.tend) == ()
        now += waits
    assert inside(node, forwarder.tend) != ()
    assert contents(listing()) == before


def test_a_change_of_what_others_have_changed_comes_out_right_all_the_same(node, inside, apply, listing):
    """Such a script may fail; then all is made anew."""
    forwarder = NftablesForwarder(lambda: 0.0)
    inside(node, forwarder.apply, plan_of(server(), server(port=81)))
    inside(node, nft.run, "delete element inet eip-speaker services4 { 192.0.2.10 . tcp . 80 }\n")
    inside(node, forwarder.apply, plan_of(server(port=81)))
    left = contents(listing())
    assert apply(plan_of(server(port=81))) == ()
    assert contents(listing()) == left


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(several=st.lists(plans, min_size=2, max_size=4))
def test_from_memory_the_kernel_ends_up_as_it_does_from_a_listing(node, apply, inside, listing, several):
    forwarder = NftablesForwarder()
    for plan in several:
        inside(node, forwarder.apply, plan)
    from_memory = listing()
    assert read_plan(from_memory) == expressible(several[-1])
    inside(node, forwarder.cleanup)
    apply(several[-1])
    assert contents(listing()) == contents(from_memory)


def test_other_programs_tables_are_not_touched(node, apply, inside, sh):
    for line in ("add table ip nat", "add chain ip nat PREROUTING { type nat hook prerouting priority -100 ; }"):
        sh(node, f"nft {line}")
    before = sh(node, "nft list ruleset")
    apply(plan_of(server()))
    apply(plan_of(server(port=81)))
    assert inside(node, NftablesForwarder().cleanup) == ("nftables table inet eip-speaker",)
    assert sh(node, "nft list ruleset") == before
    assert inside(node, NftablesForwarder().cleanup) == ()


# ── What else keeps traffic from flowing ──────────────────────────────────────────────────────────────────────


def test_a_node_that_does_not_forward_is_named_with_the_remedy(node, inside):
    async def named(*families: Family) -> list[str]:
        return [each.what.split()[0] for each in forwarding_off(families)]

    both = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"]
    assert inside(node, lambda: named(*Family)) == both
    assert inside(node, lambda: named(Family.IPV4)) == both[:1]
    for name in both:
        node.sysctl(name, 1)
    assert inside(node, lambda: named(*Family)) == []


def test_a_firewall_that_drops_by_default_is_named(node, inside, sh):
    node.sysctl("net.ipv4.ip_forward", 1)
    node.sysctl("net.ipv6.conf.all.forwarding", 1)
    sh(node, "nft add table ip filter")
    sh(node, "nft add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }")
    sh(node, "nft add chain ip filter harmless { type filter hook forward priority 1 ; policy accept ; }")
    sh(node, "nft add chain ip filter INPUT { type filter hook input priority 0 ; policy drop ; }")
    (problem,) = inside(node, NftablesForwarder().problems)
    assert problem.what.startswith("chain ip filter FORWARD drops forwarded traffic")


@pytest.mark.parametrize("open_it", [open_nftables, open_guard])
def test_this_kernel_has_all_it_takes_and_asking_changes_nothing(node, inside, sh, open_it):
    assert inside(node, open_it).name == "nftables"
    assert sh(node, "nft list ruleset") == ""


@pytest.mark.parametrize("open_it", [open_nftables, open_guard])
def test_a_machine_without_the_program_is_unsupported(node, inside, monkeypatch, tmp_path, open_it):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="nft is not installed"):
        inside(node, open_it)
