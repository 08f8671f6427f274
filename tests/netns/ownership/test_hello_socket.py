"""Hellos on a real link: what is heard, and what a stranger on the LAN sends in vain."""

import select
import socket
import time
from collections import Counter
from contextlib import ExitStack
from ipaddress import ip_address

import pytest

from speaker.errors import EdgeError
from speaker.model import Link, Mac
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.frames import Rejected
from speaker.ownership.hellos.hellos import FRAMES_A_TURN, Hellos, Replayed
from speaker.ownership.hellos.keys import Key, Keys

pytestmark = pytest.mark.netns

KEYS = Keys(Key(b"k" * 32))
OTHER_KEYS = Keys(Key(b"o" * 32))
PATIENCE = 30.0
"""Seconds until a test gives up."""
LIFE, LATER_LIFE = Incarnation(1 << 40), Incarnation(2 << 40)


def link_in(namespace, mtu=1500):
    with namespace.entered():
        index = socket.if_nametoindex("eth0")
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.bind(("eth0", 0))
        mac = Mac(sock.getsockname()[4])
        sock.close()
    return Link(index, "eth0", mac, mtu=mtu)


class Ears:
    """Our end, with what it heard and counted; its clock stands until a test moves it."""

    def __init__(self, hellos: Hellos, counted: Counter) -> None:
        self.hellos, self.counted, self.now = hellos, counted, 100.0
        self.macs: set[tuple[str, Mac]] = set()
        """Who was heard from where."""

    def hear(self, frames_sent: int) -> list[Hello]:
        """Everything there is, once so many frames were looked at."""
        heard: list[Hello] = []
        end = time.monotonic() + PATIENCE
        before = self.counted.total()
        while self.counted.total() < before + frames_sent:
            assert time.monotonic() < end, self.counted
            select.select([self.hellos], [], [], 1)
            received = self.hellos.receive()
            heard += [one.hello for one in received]
            self.macs |= {(one.hello.node, one.mac) for one in received}
        return heard


@pytest.fixture
def lan(new_namespace, wire):
    ours, theirs = new_namespace("ours"), new_namespace("theirs")
    wire(ours, "eth0", theirs, "eth0")
    return ours, theirs


@pytest.fixture
def ears(lan):
    ours, _ = lan
    counted: Counter = Counter()
    with ExitStack() as stack:
        ears = Ears(None, counted)
        with ours.entered():
            ears.hellos = stack.enter_context(
                Hellos(
                    link_in(ours),
                    lambda: KEYS,
                    frames.ETHERTYPE,
                    lambda: ears.now,
                    lambda why, frames_counted: counted.update({why: frames_counted}),
                )
            )
        yield ears


@pytest.fixture
def stranger(lan):
    """``stranger(frame)`` puts raw bytes on the wire at the other end."""
    _, theirs = lan
    with theirs.entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind(("eth0", 0))
    with sock:
        yield sock.send


def hello(sequence=1, incarnation=LIFE, node="b"):
    return Hello(node, incarnation, sequence, 0)


def frame(said, keys=KEYS, mac=b"\2\0\0\0\0\2"):
    (only,) = frames.encode(said, keys, Mac(mac))
    return only


def test_what_one_says_the_other_hears_and_knows_whose_mac_it_came_from(lan, ears):
    _, theirs = lan
    with theirs.entered(), Hellos(link_in(theirs), lambda: KEYS, frames.ETHERTYPE, time.monotonic, print) as other:
        assert other.send(hello())
        assert ears.hear(1) == [hello()]
        assert ears.macs == {("b", other.link.mac)}


CHEATS = [
    ("another cluster's", frame(hello(2), keys=OTHER_KEYS), Rejected.WRONG_KEY),
    ("a bit changed", frame(hello(2))[:40] + b"\xff" + frame(hello(2))[41:], Rejected.FORGED),
    ("another sender", frame(hello(2))[:6] + b"\2\0\0\0\0\3" + frame(hello(2))[12:], Rejected.FORGED),
    ("cut off", frame(hello(2))[:-9], Rejected.TRUNCATED),
    ("followed by something", frame(hello(2)) + b"\0" * 9, Rejected.OVERSIZED),
    ("another protocol", frame(hello(2))[:14] + b"LLDP" * 20, Rejected.FOREIGN),
    ("repeated", frame(hello(1)), Replayed.REPLAYED),
    ("from before", frame(hello(0)), Replayed.REPLAYED),
]


@pytest.mark.parametrize(("cheat", "reason"), [row[1:] for row in CHEATS], ids=[row[0] for row in CHEATS])
def test_a_strangers_frame_is_counted_by_its_reason_and_nothing_else(ears, stranger, cheat, reason):
    stranger(frame(hello(1)))
    assert ears.hear(1) == [hello(1)]
    macs = set(ears.macs)
    stranger(cheat)
    assert ears.hear(1) == []
    assert ears.counted == {None: 1, reason: 1}
    assert ears.macs == macs
    stranger(frame(hello(2)))
    assert ears.hear(1) == [hello(2)], "and what is true is heard as before"


def test_one_that_another_overtook_is_read_and_once_only(ears, stranger):
    for sequence in (5, 8, 6, 7, 6, 7, 8, 4):
        stranger(frame(hello(sequence)))
    assert [heard.sequence for heard in ears.hear(8)] == [5, 8, 6, 7]
    for sequence in (9, 10, 5):
        stranger(frame(hello(sequence)))
    assert [heard.sequence for heard in ears.hear(3)] == [9, 10], "of the newest four alone it is known"
    stranger(frame(hello(1, LATER_LIFE)))
    stranger(frame(hello(0, LATER_LIFE)))
    assert len(ears.hear(2)) == 1, "and of this life alone"


def test_recordings_of_an_earlier_life_are_read_once_in_a_while_only(ears, stranger):
    stranger(frame(hello(1, LATER_LIFE)))
    assert ears.hear(1)
    for sequence in range(50):
        stranger(frame(hello(sequence)))
    assert ears.hear(50) == [hello(0)], "one, because its node's clock may have gone back and it must be told"
    ears.now += 1
    stranger(frame(hello(7)))
    assert ears.hear(1) == [hello(7)]
    assert ears.counted[Replayed.REPLAYED] == 49


def readable(hellos: Hellos, patience: float = 0.05) -> bool:
    return bool(select.select([hellos], [], [], patience)[0])


def wait_for_stamps(ears, stranger) -> int:
    """How many hellos it took until the kernel stamps what arrives: it begins a little after the first socket of the
    host that asks for it (``net_enable_timestamp`` leaves it to a worker), and until then stamps what is read."""
    for sequence in range(1, 200):
        stranger(frame(hello(sequence)._replace(routine=True)))
        assert not readable(ears.hellos)
        ears.now += 5.0
        (received,) = ears.hellos.receive()
        if received.age >= 0.05:
            return sequence
    raise AssertionError("the kernel stamps nothing")


def test_a_routine_hello_wakes_nobody_and_is_read_with_its_age_before_what_came_later(ears, stranger):
    sequence = wait_for_stamps(ears, stranger)
    stranger(frame(hello(sequence + 1)._replace(routine=True)))
    assert not readable(ears.hellos)
    stranger(frame(hello(sequence + 2)))
    assert readable(ears.hellos, PATIENCE)
    ears.now += 1000.0
    first, second = ears.hellos.receive()
    assert (first.hello, second.hello) == (hello(sequence + 1)._replace(routine=True), hello(sequence + 2))
    assert 0.05 <= first.age < 1000.0
    assert 0.0 <= second.age < first.age


def test_no_hello_is_new_that_lay_unread_while_this_process_stood_still(ears, stranger):
    """Its sender may have died since."""
    sequence = wait_for_stamps(ears, stranger)
    stranger(frame(hello(sequence + 1)))
    assert readable(ears.hellos, PATIENCE)
    select.select([], [], [], 0.05)
    ears.now += 1000.0
    (one,) = ears.hellos.receive()
    assert 0.05 <= one.age < 1000.0


def test_no_routine_hello_is_older_than_since_none_waited(ears, stranger):
    """Whatever became of the host's time of day."""
    sequence = wait_for_stamps(ears, stranger)
    stranger(frame(hello(sequence + 1)._replace(routine=True)))
    select.select([], [], [], 0.05)
    ears.now += 0.01
    assert [one.age for one in ears.hellos.receive()] == [pytest.approx(0.01)]


def test_what_a_crowded_turn_left_unread_is_as_old_as_before_it(ears, stranger):
    sequence = wait_for_stamps(ears, stranger)
    for number in range(FRAMES_A_TURN + 1):
        stranger(frame(hello(sequence + 1 + number)))
    select.select([], [], [], 0.05)
    ears.now += 1000.0
    assert len(ears.hellos.receive()) == FRAMES_A_TURN
    assert ears.hellos.crowded
    (one,) = ears.hellos.receive()
    assert 0.05 <= one.age < 1000.0
    assert not ears.hellos.crowded


def test_whoever_cannot_sign_wakes_nobody_either_and_is_told_of_when_there_is_more(ears, stranger):
    for number in range(FRAMES_A_TURN + 1):
        stranger(frame(hello(number)._replace(routine=True), OTHER_KEYS))
    assert not readable(ears.hellos)
    assert ears.hellos.receive() == []
    assert ears.hellos.crowded
    assert ears.hellos.receive() == []
    assert not ears.hellos.crowded
    assert ears.counted == {Rejected.WRONG_KEY: FRAMES_A_TURN + 1}


def test_a_frame_too_short_to_say_what_it_is_counts(ears, stranger):
    stranger(frame(hello())[: frames.FLAGS_AT])
    assert ears.hear(1) == []
    assert ears.counted == {Rejected.TRUNCATED: 1}


def test_two_hosts_of_one_name_are_both_read(ears, stranger):
    """Whatever their lives: none of them makes recordings of the other's hellos."""
    for sequence in range(5):
        stranger(frame(hello(sequence, LATER_LIFE)))
        stranger(frame(hello(sequence), mac=b"\2\0\0\0\0\5"))
    assert len(ears.hear(10)) == 10


def test_what_was_queued_while_we_were_away_is_gone_unread(ears, stranger):
    for sequence in range(1, 300):
        stranger(frame(hello(sequence)))
    ears.hellos.drop_queued()
    stranger(frame(hello(300)))
    assert ears.hear(1) == [hello(300)]
    assert ears.counted == {None: 1}


def test_a_hello_of_a_link_with_jumbo_frames_is_heard_by_one_without(lan, ears, sh):
    _, theirs = lan
    sh(theirs, "ip link set eth0 mtu 9000")
    claims = {ip_address("10.0.0.0") + 2 * number: 1 for number in range(1024)}
    jumbo = link_in(theirs, mtu=9000)
    with theirs.entered(), Hellos(jumbo, lambda: KEYS, frames.ETHERTYPE, time.monotonic, print) as other:
        assert other.send(hello()._replace(claims=claims))
        heard = ears.hear(3)
    assert {eip for part in heard for eip in part.claims} == claims.keys()


def test_a_link_too_narrow_for_a_hello_is_refused(lan):
    ours, _ = lan
    narrow = link_in(ours, mtu=500)
    with pytest.raises(EdgeError, match="an MTU of 500: hellos need at least"):
        Hellos(narrow, lambda: KEYS, frames.ETHERTYPE, time.monotonic, print)


def test_a_link_that_went_down_says_so(lan, ears, sh):
    ours, _ = lan
    sh(ours, "ip link set eth0 down")
    with pytest.raises(EdgeError, match="eth0"):
        ears.hellos.send(hello())
