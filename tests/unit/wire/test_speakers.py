"""Who speaks on a link, and what is remembered of it."""

from dataclasses import replace
from ipaddress import ip_address
from types import SimpleNamespace

import pytest

from speaker.model import Mac, Speaker
from speaker.ownership.hello import Digest, Hello, Incarnation
from speaker.ownership.hellos.hellos import MAX_SENDERS
from speaker.ownership.inquirer import PAUSE
from speaker.ownership.machine.peers import PeerState
from speaker.wire.hello_links import OVERDUE, HelloLinks, Speakers

HIS, HERS = Mac(b"\x02\0\0\0\0\x01"), Mac(b"\x02\0\0\0\0\x02")
ADDRESSES = (ip_address("192.0.2.2"),)
HE, SHE = Hello("he", Incarnation(1), 1, 1, addresses=ADDRESSES), Hello("she", Incarnation(1), 1, 1)
EIP, OTHER = ip_address("192.0.2.10"), ip_address("192.0.2.11")


@pytest.fixture
def speakers():
    return Speakers(0.0)


def test_of_a_speaker_only_what_is_new_is_news(speakers):
    said = [(HE, HIS), (HE, HIS), (HE._replace(addresses=()), HIS), (HE, HERS), (SHE, HERS)]
    his, moved, hers = Speaker(HIS, ADDRESSES), Speaker(HERS, ADDRESSES), Speaker(HERS, ())
    assert [speakers.meet(hello, mac) for hello, mac in said] == [his, None, None, moved, hers]
    assert list(speakers.items()) == [("he", moved), ("she", hers)]
    assert list(speakers.nodes(HERS)) == ["he", "she"]
    assert list(speakers.nodes(HIS)) == []
    assert speakers.macs == {HERS}
    assert (speakers.get("he"), speakers.get("it")) == (moved, None)


def test_of_too_many_speakers_the_first_is_forgotten(speakers):
    for number in range(MAX_SENDERS + 1):
        speakers.meet(HE._replace(node=f"n{number}"), HIS)
        speakers.heard(HE._replace(node=f"n{number}"), 0.0, 0.1)
    assert len(list(speakers.items())) == MAX_SENDERS
    assert speakers.get("n0") is None
    assert speakers.is_unheard("n0", 0.0, 1.0)
    assert not speakers.is_unheard("n1", 0.0, 1.0)
    assert len(speakers._known) == MAX_SENDERS


@pytest.mark.parametrize(
    ("hello", "informed"),
    [
        (SHE, False),
        (SHE._replace(digest=Digest(1, 1)), True),
        (SHE._replace(digest=Digest(1, 1), recalled=True), False),
    ],
    ids=["holds nothing", "holds", "holds what it recalls"],
)
def test_who_holds_by_what_it_reads_is_informed(speakers, hello, informed):
    knows = SHE._replace(digest=Digest(1, 1))
    assert speakers.inform(hello) is informed
    assert speakers.is_informed("she") is informed
    assert speakers.inform(knows) is not informed
    assert speakers.inform(hello) is not informed
    assert speakers.is_informed("she") is informed


def test_who_is_not_heard_for_so_long_is_unheard(speakers):
    assert speakers.is_unheard("he", 0.0, 1.0)
    speakers.heard(HE, 0.0, 0.1)
    assert [speakers.is_unheard("he", now, 1.0) for now in (0.9, 1.0)] == [False, True]


@pytest.mark.parametrize(("interval", "due"), [(0, OVERDUE * 0.1), (400, OVERDUE * 0.4), (50, OVERDUE * 0.1)])
def test_a_hello_is_overdue_some_time_after_its_interval(speakers, interval, due):
    assert not speakers.miss(9.0)
    speakers.heard(HE._replace(interval=interval), 1.0, 0.1)
    assert not speakers.miss(1.0 + 0.99 * due)
    assert speakers.miss(1.0 + 1.01 * due)
    assert not speakers.miss(9.0)


def test_the_same_answer_counts_once_in_a_while(speakers):
    assert speakers.answer(EIP, "he", 0.0, probed=False)
    assert not speakers.answer(EIP, "he", 0.9 * PAUSE, probed=False)
    others = [(OTHER, "he", False), (EIP, None, False), (EIP, "he", True)]
    assert all(speakers.answer(eip, node, 0.9 * PAUSE, probed=probed) for eip, node, probed in others)
    assert speakers.answer(EIP, "he", PAUSE, probed=False)
    assert not speakers.answer(EIP, "he", 1.5 * PAUSE, probed=False)


ALIVE = PeerState("she", Incarnation(1), alive=True, heard=True, hears_us=True, draining=False, claims=0)


@pytest.mark.parametrize(
    ("hello", "state", "manned"),
    [
        (SHE, ALIVE, {2}),
        (SHE._replace(headless=True), ALIVE, set()),
        (SHE, replace(ALIVE, alive=False), set()),
        (SHE, replace(ALIVE, draining=True), set()),
        (SHE, replace(ALIVE, hears_us=False), set()),
        (HE, ALIVE, {2}),
    ],
    ids=["works", "headless", "dead", "leaves", "does not hear us", "an earlier release, which does not say so"],
)
def test_a_link_is_manned_where_a_living_peer_has_a_main_process_that_works(speakers, hello, state, manned):
    links = HelloLinks(None, None, None, 0.2, None, None, None)
    links._open[2] = SimpleNamespace(speakers=speakers)
    speakers.heard(hello, 0.0, 0.1)
    assert links.manned({2: [state], 3: [ALIVE]}) == manned


def test_who_works_again_is_headless_no_longer(speakers):
    speakers.heard(SHE._replace(headless=True), 0.0, 0.1)
    assert speakers.is_headless("she")
    speakers.heard(SHE, 0.1, 0.1)
    assert not speakers.is_headless("she")
