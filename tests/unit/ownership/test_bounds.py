"""What a holder of the key may make up has an end: terms, lives, nodes and EIPs. The wire goes on with what it had."""

from ipaddress import IPv4Address

import pytest
from stepping import EIP, LINK, advance, alone, hello, timed

from speaker.model import MAX_TERM, Mac
from speaker.ownership.events import ApiUp, Record, RecordRead, SendHello, WriteRecord
from speaker.ownership.hello import MAX_INCARNATION, Accused, Heard, Incarnation, next_term
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.hellos import MAX_SENDERS, Hellos
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.machine import hearing, peers
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.hearing import MAX_EIPS
from speaker.ownership.machine.loss import SAID
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.peers import MAX_LEFT, MAX_NODES, Worth

KEYS = Keys(Key(bytes(32)))


def sent(orders):
    return [order.hello for _, order in orders if isinstance(order, SendHello)]


def test_the_highest_term_is_followed_by_itself():
    assert next_term(MAX_TERM - 1) == next_term(MAX_TERM) == MAX_TERM


@pytest.mark.parametrize("told", ["claims", "yielded"])
def test_after_the_highest_term_there_is_still_a_holder_whose_hellos_every_peer_reads(told):
    machine = alone()
    timed(machine, 0.0, 0.3)
    machine.step(0.3, hello(machine, 0, **{told: {EIP: MAX_TERM}}))
    orders = timed(machine, 0.3, 5.0, hears=True)  # the peer says nothing more, and is dead
    assert machine.held() == {EIP: MAX_TERM}
    for each in sent(orders):
        for frame in frames.encode(each, KEYS, Mac(bytes(6))):
            assert frames.decode(frame, KEYS) is not frames.Rejected.MALFORMED


def test_a_record_at_the_highest_term_is_followed_by_one_that_the_api_takes():
    machine = alone(api=True)
    machine.step(0.0, RecordRead(EIP, Record(None, Incarnation(1), MAX_TERM, 7)))
    machine.step(0.0, ApiUp())
    orders = advance(machine, 0.0, 5.0)
    assert {order.term for order in orders if isinstance(order, WriteRecord)} == {MAX_TERM}


def test_a_life_of_ours_that_none_can_be_above_is_no_reason_to_begin_another():
    machine = alone()
    timed(machine, 0.0, 1.0)
    life = machine.incarnation
    told = {"me": Heard(Incarnation(MAX_INCARNATION), 10, LINK)}
    for sequence in range(20):
        machine.step(1.0, hello(machine, sequence, heard=told))
    assert machine.incarnation == life
    machine.step(1.0, hello(machine, 21, heard={"me": Heard(Incarnation(life + 1), 10, LINK)}))
    assert machine.incarnation > life + 1


def test_names_without_end_are_not_remembered_and_whom_we_know_is_still_heard():
    machine = alone()
    timed(machine, 0.0, 0.1)
    machine.step(0.1, hello(machine, 0))
    for number in range(MAX_NODES + 500):
        machine.step(
            0.1,
            hello(
                machine, 0, node=f"n{number}", heard={} if number % 2 else {"me": Heard(machine.incarnation, 1, LINK)}
            ),
        )
    segment = machine.known.segments[LINK]
    assert len(segment.peers.by_node) + len(segment.peers.strangers) == MAX_NODES
    assert segment.hearings[Worth.CROWDED] == 501
    machine.step(0.1, hello(machine, 1))
    assert segment.hearings[Worth.NEWS] == 1


def test_room_is_made_by_strangers_that_fell_silent():
    machine = alone()
    timed(machine, 0.0, 0.1)
    for number in range(MAX_NODES + 1):
        machine.step(0.1, hello(machine, 0, node=f"n{number}", heard={}))
    timed(machine, 0.1, 3.0)
    machine.step(3.0, hello(machine, 0, node="newcomer"))
    assert set(machine.known.segments[LINK].peers.by_node) == {"newcomer"}


def test_eips_without_end_are_not_remembered_and_those_we_know_are_still_claimed():
    machine = alone()
    timed(machine, 0.0, 1.0)
    first = IPv4Address("11.0.0.0")
    machine.known.eips.update({first + i: Eip(first + i) for i in range(MAX_EIPS)})
    before = len(machine.known.eips)
    machine.step(1.0, hello(machine, 0, {EIP: 9, first - 1: 1}, covers=None, yielded={first - 3: 1}))
    assert len(machine.known.eips) == before
    assert not machine.holding(EIP)


def names_us(machine, sequence, node, **more):
    return hello(machine, sequence, node=node, covers=None, **more)


def test_names_that_die_and_make_room_for_others_are_forgotten_in_the_end(monkeypatch):
    for module in (peers, hearing):
        monkeypatch.setattr(module, "MAX_NODES", 20)
    machine = alone()
    timed(machine, 0.0, 0.1)
    now = 0.1
    for generation in range(4):
        for number in range(20):
            machine.step(now, names_us(machine, 0, f"g{generation}n{number}", own=frozenset({EIP + 1000 + number})))
        now += 1.0
        timed(machine, now, now + 0.1)
    assert set(machine.known.segments[LINK].peers.by_node) == {f"g3n{number}" for number in range(20)}
    assert all({node[:2] for _, node in places} == {"g3"} for places in machine.known.owners.values())


@pytest.mark.parametrize("told", ["claims", "yielded", "own"])
def test_what_many_say_of_ever_more_eips_has_an_end_and_the_first_is_still_heard(told, monkeypatch):
    monkeypatch.setattr(hearing, "MAX_SAID", 2000)
    machine = alone()
    timed(machine, 0.0, 0.1)
    now, first = 0.1, IPv4Address("11.0.0.0")
    for number in range(20):
        said = [first + at for at in range(300)]
        machine.step(now, hello(machine, number, {EIP + 7: 3}))
        if told == "own":
            machine.step(now, names_us(machine, 0, f"n{number}", own=frozenset(said)))
        else:
            machine.step(now, names_us(machine, 1, f"n{number}", claims=dict.fromkeys(said, 1)))
        if told == "yielded":
            machine.step(now, names_us(machine, 2, f"n{number}", yielded=dict.fromkeys(said, 1)))
        timed(machine, now, now + 0.05)
        now += 0.05
    timed(machine, now, now + 0.15)
    found = machine.known.segments[LINK].peers.by_node
    assert 300 < sum(len(peer.claims) + len(peer.ended) + len(peer.own) for peer in found.values()) <= 2000
    assert found["peer"].claims == {EIP + 7: 3}
    assert not any(
        node not in found for x in machine.known.eips.values() for nodes in x.rivals.values() for node in nodes
    )


def test_what_a_peer_said_is_its_own_address_is_an_eip_again_an_hour_after_it_fell_silent():
    machine = alone()
    timed(machine, 0.0, 0.1)
    machine.step(0.1, hello(machine, 0, own=frozenset({EIP})))
    timed(machine, 0.2, 0.3 + 5.0, hears=True)
    assert not machine.holding(EIP)
    timed(machine, 3590.0, 3595.0, hears=True)
    assert not machine.holding(EIP)
    timed(machine, 3601.0, 3606.0, hears=True)
    assert machine.holding(EIP)


def test_of_what_a_peer_let_go_on_another_link_the_latest_is_remembered():
    machine = alone()
    timed(machine, 0.0, 0.1)
    machine.step(0.1, hello(machine, 0))
    peer = machine.known.segments[LINK].peers.by_node["peer"]
    for number in range(MAX_LEFT + 100):
        peer.leave({EIP + number: 1}, peer.stamp, 0.0)
    assert len(peer.left) == MAX_LEFT
    assert EIP + MAX_LEFT + 99 in peer.left


def test_accusations_and_losses_without_end_are_not_remembered():
    machine = alone()
    timed(machine, 0.0, 0.1)
    machine.step(0.1, hello(machine, 0))
    names = [f"n{number}" for number in range(200)]
    for name in names:
        machine.step(0.1, names_us(machine, 0, name))
    accused = frozenset(Accused(name, 4) for name in names)
    machine.step(0.1, hello(machine, 1, unanswered=accused, lost=dict.fromkeys(names, 99)))
    peer = machine.known.segments[LINK].peers.by_node["peer"]
    assert len(peer.accuses) <= SAID
    assert len(peer.lost) <= SAID


def test_a_new_name_where_there_is_no_room_costs_no_look_at_all_the_others():
    machine = alone()
    timed(machine, 0.0, 0.1)
    for number in range(MAX_NODES):
        machine.step(0.1, names_us(machine, 0, f"n{number}"))
    known = machine.known.segments[LINK].peers
    looks = 0

    def living(_):
        nonlocal looks
        looks += 1
        return [None] * MAX_NODES

    known.living = living
    for number in range(1000):
        known.hear(names_us(machine, 0, f"more{number}").hello, machine.incarnation, 0.1)
    assert looks == 1


class Link:
    mtu, name, mac, index = 1500, "lan", Mac(bytes(6)), 2


def test_senders_without_end_are_not_remembered():
    hellos = Hellos(Link, lambda: KEYS, frames.ETHERTYPE, lambda: 0.0, lambda *_: None)
    machine = Ownership("me", lambda above: Incarnation(1 << 31), 0.0)
    for number in range(MAX_SENDERS + 100):
        said = hello(machine, 0, node=f"n{number}", addresses=(IPv4Address("192.0.2.1"),)).hello
        (frame,) = frames.encode(said, KEYS, Mac(bytes(6)))
        assert hellos._read(frame).node == f"n{number}"
    assert len(hellos._last) == MAX_SENDERS
