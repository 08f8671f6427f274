"""What is plain is answered in the kernel with the bytes of our sockets; nothing else is, and nothing too late."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from speaker.layer2.answer import Claims, answer_arp, answer_ndp
from speaker.layer2.kernel import KernelResponder
from speaker.layer2.kernel_program import HelloFrames
from speaker.model import Family, Mac
from speaker.model.events import SocketsAnswer
from speaker.packets import PACKET_BROADCAST, PACKET_HOST, PACKET_OTHERHOST, arp, ndp

pytestmark = pytest.mark.netns

ARP, IPV6, HELLO = 0x0806, 0x86DD, 0x88B5
EIP4, EIP6, WATCHED4, WATCHED6 = "192.0.2.10", "2001:db8::10", "192.0.2.11", "2001:db8::11"
ASKER = Mac(b"\x02\0\0\0\0\x09")
HELLOS = HelloFrames(HELLO, 20, 0x10)


def boottime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def ask4(eip=EIP4, mac=ASKER, sender="192.0.2.2"):
    return arp.request(mac, IPv4Address(sender), IPv4Address(eip)).pack()


def ask6(eip=EIP6, mac=ASKER, sender="2001:db8::2"):
    return ndp.solicitation(mac, IPv6Address(sender), IPv6Address(eip)).pack()


@contextmanager
def answering(lan, link, hellos=None, *, tcx=True):
    """For one EIP of each family, and watching one; with ``Claims`` that say the same."""
    eth0 = link(lan.node, "eth0")
    claims = Claims(eth0.mac)
    with lan.node.entered(), KernelResponder(eth0, hellos, tcx=tcx) as kernel:
        claims.mirror = kernel
        claims.extend(boottime() + 3600)
        for eip in (EIP4, EIP6):
            claims.add(ip_address(eip).packed)
        for eip in (WATCHED4, WATCHED6):
            claims.watch(ip_address(eip).packed)
        yield kernel, claims


def ours(frame, claims):
    """What the sockets would say to it."""
    kind = PACKET_BROADCAST if frame[0] & 1 else PACKET_HOST if frame[:6] == claims.mac else PACKET_OTHERHOST
    answer = answer_arp if frame[12:14] == b"\x08\x06" else answer_ndp
    return answer(frame, kind, claims, boottime())


@pytest.mark.parametrize("padding", [b"", bytes(18), b"what the asker had in its memory" * 40], ids=len)
@pytest.mark.parametrize(("family", "request_"), [(Family.IPV4, ask4()), (Family.IPV6, ask6())], ids=["arp", "ndp"])
def test_a_plain_request_gets_the_reply_of_our_sockets_without_its_padding(lan, link, family, request_, padding):
    with answering(lan, link) as (kernel, claims):
        assert kernel.reply(request_ + padding, family) == ours(request_, claims)


NOT_PLAIN = {
    "for another address": ask4("192.0.2.99"),
    "for what is only watched": ask4(WATCHED4),
    "from a host that uses an EIP": ask4(sender=EIP4),
    "from a host that uses what is watched": ask4(sender=WATCHED4),
    "by a group": ask4(mac=Mac(b"\x01\0\0\0\0\x09")),
    "by nobody": ask4(mac=Mac(bytes(6))),
    "a reply": ask4()[:20] + arp.REPLY + ask4()[22:],
    "of another hardware": ask4()[:14] + b"\0\x06" + ask4()[16:],
    "too short": ask4()[:41],
    "to another host": b"\x02\0\0\0\0\x77" + ask4()[6:],
    "by NDP for another": ask6("2001:db8::99"),
    "by NDP for what is watched": ask6(WATCHED6),
    "by NDP from a host that uses an EIP": ask6(sender=EIP6),
    "without an address": ask6(sender="::"),
    "past a router": ask6()[:21] + b"\x40" + ask6()[22:],
    "with a wrong checksum": ask6()[:56] + b"\0\0" + ask6()[58:],
    "by a group's address": ask6(sender="ff02::5"),
    "by NDP by a group": ask6(mac=Mac(b"\x33\x33\0\0\0\x09")),
    "with another option": ask6()[:78] + b"\x0e" + ask6()[79:],
    "of IPv5": ask6()[:14] + b"\x50" + ask6()[15:],
    "cut off": ask6()[:85],
}


@pytest.mark.parametrize("request_", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_is_not_plain_is_left_to_the_sockets(lan, link, request_):
    with answering(lan, link) as (kernel, _):
        assert kernel.reply(request_, Family.IPV4) is None


def test_our_own_request_that_comes_back_is_left_to_the_sockets(lan, link):
    with answering(lan, link) as (kernel, claims):
        assert kernel.reply(ask4(mac=claims.mac), Family.IPV4) is None
        assert kernel.reply(ask6(mac=claims.mac), Family.IPV6) is None


frames = st.sampled_from([ask4(), ask6(), *NOT_PLAIN.values()])
changes = st.lists(st.tuples(st.integers(0, 85), st.integers(0, 255)), max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
@example(data=None)
def test_no_frame_gets_a_reply_that_our_sockets_would_not_give(lan, link, data):
    if data is None:
        return
    with answering(lan, link) as (kernel, claims):
        for _ in range(30):
            frame = bytearray(data.draw(frames)) + bytes(data.draw(st.integers(0, 20)))
            for at, value in data.draw(changes):
                if at < len(frame):
                    frame[at] = value
            reply = kernel.reply(bytes(frame), Family.IPV4)
            assert reply in (None, ours(bytes(frame), claims)), frame.hex()


def test_past_the_deadline_and_without_one_nothing_is_answered(lan, link):
    with answering(lan, link) as (kernel, _):
        for deadline in (boottime() - 0.001, float("-inf"), 0.0):
            kernel.extend(deadline)
            assert kernel.reply(ask4(), Family.IPV4) is None
        kernel.extend(boottime() + 3600)
        assert kernel.reply(ask4(), Family.IPV4) is not None


def test_what_is_let_go_and_what_is_only_watched_is_not_answered_from_that_call_on(lan, link):
    with answering(lan, link) as (kernel, claims):
        claims.watch(IPv4Address(EIP4).packed)
        claims.discard(IPv6Address(EIP6).packed)
        claims.discard(IPv6Address("2001:db8::77").packed)
        assert kernel.reply(ask4(), Family.IPV4) is None
        assert kernel.reply(ask6(), Family.IPV6) is None


def hello(flags):
    return b"\xff" * 6 + ASKER + HELLO.to_bytes(2) + bytes(6) + bytes((flags,)) + bytes(40)


def test_until_an_urgent_hello_is_heard_requests_are_left_to_the_sockets(lan, link, ear):
    """Rule 28: it may say that another node has the EIP."""
    client = ear(lan.client, HELLO)
    with answering(lan, link, HELLOS) as (kernel, _):
        client.send(hello(HELLOS.routine))
        assert kernel.arrived == 0
        assert kernel.reply(ask4(), Family.IPV4) is not None
        client.send(hello(0))
        assert kernel.arrived == 1
        assert kernel.reply(ask4(), Family.IPV4) is None
        kernel.heard(1)
        assert kernel.reply(ask4(), Family.IPV4) is not None
        client.send(hello(0)[:16])  # short ones count: their flags cannot be seen
        assert kernel.arrived == 2


def test_an_urgent_hello_of_another_group_keeps_nobody_waiting(lan, link, ear):
    client = ear(lan.client, HELLO)
    with answering(lan, link, HELLOS._replace(magic=b"EIPh")) as (kernel, _):
        client.send(hello(0))
        assert kernel.arrived == 0
        client.send(hello(0)[:14] + b"EIPh" + hello(0)[18:])
        assert kernel.arrived == 1


def test_closed_it_answers_nothing_and_whatever_it_is_told_reaches_nobody_else(lan, link):
    with answering(lan, link) as (kernel, _):
        kernel.close()
        with answering(lan, link) as (other, _):  # takes the numbers of the files that were closed
            kernel.discard(IPv4Address(EIP4).packed)
            kernel.watch(IPv6Address(EIP6).packed)
            assert kernel.reply(ask4(), Family.IPV4) is None
            assert other.reply(ask4(), Family.IPV4) is not None
            assert other.reply(ask6(), Family.IPV6) is not None


SERVE = """
import sys, time
from speaker.layer2.kernel import KernelResponder
from speaker.model import Link, Mac
index, mac, seconds, eip, tcx = sys.argv[1:]
with KernelResponder(Link(int(index), "eth0", Mac(bytes.fromhex(mac))), None, tcx=tcx == "True") as kernel:
    kernel.answer(bytes.fromhex(eip))
    kernel.extend(time.clock_gettime(time.CLOCK_BOOTTIME) + float(seconds))
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def process(lan, link):
    """``process(seconds, tcx)``: a process that answers for EIP4 in the kernel for that long."""
    started = []

    def start(seconds, tcx=True):
        eth0 = link(lan.node, "eth0")
        words = [str(eth0.index), eth0.mac.hex(), str(seconds), IPv4Address(EIP4).packed.hex(), str(tcx)]
        with lan.node.entered():
            command = [sys.executable, "-c", SERVE, *words]
            one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(one)
        assert one.stdout.readline() == b"ready\n"
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


@pytest.mark.parametrize(("tcx", "number"), [(True, signal.SIGSTOP), (False, signal.SIGSTOP), (False, signal.SIGKILL)])
def test_a_process_that_is_stopped_is_silent_from_its_deadline_on_and_so_is_one_that_leaves_its_filter(
    lan, process, ear, tcx, number
):
    client = ear(lan.client, ARP)
    one = process(0.5, tcx)
    os.kill(one.pid, number)
    until = boottime() + 0.5  # no earlier than the deadline
    client.send(ask4(mac=client.mac))
    while boottime() < until:
        client.never(lambda _: False, 0.01)
    client.send(ask4(mac=client.mac))
    assert client.never(client.to_us, 0.1)


def test_a_process_that_is_killed_leaves_nothing_that_answers(lan, process, ear):
    client = ear(lan.client, ARP)
    one = process(3600)
    client.send(ask4(mac=client.mac))
    client.until(client.to_us)
    one.kill()
    one.wait()
    end = time.monotonic() + 30
    while True:  # the kernel lets go a moment after the process has ended
        client.send(ask4(mac=client.mac))
        if client.never(client.to_us, 0.05):
            break
        assert time.monotonic() < end
    client.send(ask4(mac=client.mac))
    assert client.never(client.to_us, 0.05)


def filters(sh, node):
    """What tc has at the link, in either direction."""
    return [sh(node, f"tc filter show dev eth0 {way}") for way in ("ingress", "egress")], sh(
        node, "tc qdisc show dev eth0"
    )


@pytest.fixture
def tc():
    if shutil.which("tc") is None:
        pytest.skip("no tc")


def test_without_tcx_it_answers_as_a_filter_of_tc_and_leaves_nothing(lan, link, ear, sh, tc):
    client, before = ear(lan.client, ARP), filters(sh, lan.node)
    with answering(lan, link, tcx=False) as (_, claims):
        client.send(ask4(mac=client.mac))
        assert client.until(client.to_us) == ours(ask4(mac=client.mac), claims)
        assert "eip_speaker" in filters(sh, lan.node)[0][0]
    assert filters(sh, lan.node) == before
    client.send(ask4(mac=client.mac))
    assert client.never(client.to_us, 0.05)


def test_the_filters_of_others_and_their_clsact_stay_when_ours_goes(lan, link, sh, tc):
    sh(lan.node, "tc qdisc add dev eth0 clsact")
    sh(lan.node, "tc filter add dev eth0 egress prio 7 u32 match u32 0 0 classid 1:1")
    before = filters(sh, lan.node)
    with answering(lan, link, tcx=False):
        pass
    assert filters(sh, lan.node) == before


def test_cleanup_removes_what_a_killed_process_left(lan, process, sh, tc, tmp_path):
    before = filters(sh, lan.node)
    one = process(0.0, tcx=False)
    one.kill()
    one.wait()
    assert "eip_speaker" in filters(sh, lan.node)[0][0]
    cleanup = f"{sys.executable} -m speaker cleanup --forwarder none --runtime-dir {tmp_path}"
    assert [sh(lan.node, cleanup).splitlines() for _ in range(2)] == [
        ["answers in the kernel on link eth0"],
        ["there was nothing to remove"],
    ]
    assert filters(sh, lan.node) == before


def test_two_groups_have_a_filter_each_and_the_one_that_comes_later_replaces_its_own_groups(lan, link, ear, sh, tc):
    client, eth0 = ear(lan.client, ARP), link(lan.node, "eth0")
    other = HELLOS._replace(magic=b"EIPg")
    with answering(lan, link, other, tcx=False):
        with lan.node.entered():
            before = KernelResponder(eth0, HELLOS, tcx=False).__enter__()  # as of a process that was killed
        with answering(lan, link, HELLOS, tcx=False):
            assert filters(sh, lan.node)[0][0].count("direct-action") == 2
            with lan.node.entered():
                before.close()  # as of a link whose MAC has changed
            assert filters(sh, lan.node)[0][0].count("direct-action") == 2
        assert filters(sh, lan.node)[0][0].count("direct-action") == 1
        client.send(ask4(mac=client.mac))
        assert client.until(client.to_us)


def test_where_the_kernel_refuses_the_sockets_answer_and_it_is_said(lan, link, ear, layer2_with):
    def refused(link):
        return KernelResponder(replace(link, index=link.index + 1000), None)

    client, running, eth0 = ear(lan.client, ARP), layer2_with(refused), link(lan.node, "eth0")
    running.hold(eth0, IPv4Address(EIP4))
    client.send(ask4(mac=client.mac))
    assert arp.parse(client.until(client.to_us)).sender_mac == eth0.mac
    (told,) = [event for event in running.counts.told if isinstance(event, SocketsAnswer)]
    assert (told.link, "eth0" in told.error) == (eth0, True)


def test_a_program_that_answers_otherwise_than_we_would_is_taken_away_and_the_sockets_answer(
    lan, link, ear, layer2_with
):
    def other(link):
        return KernelResponder(replace(link, mac=ASKER), None)

    client, running, eth0 = ear(lan.client, ARP), layer2_with(other), link(lan.node, "eth0")
    running.hold(eth0, IPv4Address(EIP4))
    running.do(running.layer2.answers_on, eth0.index)
    client.drain()
    client.send(ask4(mac=client.mac))
    assert arp.parse(client.until(client.to_us)).sender_mac == eth0.mac
    assert running.do(running.layer2.answers_on, eth0.index)


def test_told_to_answer_in_the_kernel_it_does_not_start_where_that_is_refused(lan, tmp_path):
    start = f"{sys.executable} -m speaker run {tmp_path} --responder kernel --runtime-dir {tmp_path}/run"
    without = "setpriv --bounding-set=-bpf,-sys_admin --inh-caps=-all"
    with lan.node.entered():
        done = subprocess.run(f"{without} {start}".split(), capture_output=True, text=True, check=False)
    why = "answers in the kernel: Operation not permitted: needs CAP_BPF and CAP_NET_ADMIN"
    assert (done.returncode, done.stderr) == (1, f"speaker: --responder kernel: {why}\n")
