"""An EIP moves to another node: which established connections survive, and what becomes of the others.

IPVS in the guest, nftables on the kernel that is here; benchmarks/moves.py counts more of them, with every scheduler.
"""

import pytest
from moves import Mode, Move, Seen, survivors

from speaker.forwarding.ipvs.settings import NEEDED
from speaker.model import Forwarding

COUNT = 30
KINDS = [
    pytest.param(Forwarding.IPVS, marks=pytest.mark.ipvs),
    pytest.param(Forwarding.NFTABLES, marks=pytest.mark.netns),
]
SLOPPY = {"net.ipv4.vs.sloppy_tcp": 1}
"""Without it IPVS makes a connection of a SYN only (net/netfilter/ipvs/ip_vs_proto_tcp.c, tcp_conn_schedule)."""


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def sloppy(kind):
    return SLOPPY if kind is Forwarding.IPVS else {}


@pytest.mark.parametrize("move", [Move.PLANNED, Move.CRASH])
@pytest.mark.parametrize("seen", [Seen.NODE, Seen.LOCAL])
def test_what_a_service_can_ask_for_survives_no_move_and_every_client_is_told_at_once(kind, seen, move):
    assert survivors(Mode(kind, "mh", seen), move, COUNT) == {"reset": COUNT}


@pytest.mark.parametrize("seen", [Seen.NODE, Seen.LOCAL])
def test_what_the_old_holder_is_handed_survives_a_planned_move(kind, seen):
    assert survivors(Mode(kind, "mh", seen, hands_over=True), Move.PLANNED, COUNT) == {"alive": COUNT}


def test_sloppy_tcp_would_not_help_a_masqueraded_connection(kind):
    """The backend hears another address of an established connection, and resets it: so the speaker leaves it off."""
    assert survivors(Mode(kind, "mh", Seen.NODE, sloppy(kind)), Move.PLANNED, COUNT) == {"reset": COUNT}
    assert "sloppy_tcp" not in NEEDED


@pytest.mark.parametrize("move", [Move.PLANNED, Move.CRASH])
def test_mh_and_the_clients_address_and_a_way_back_that_moves_too_would_save_all(kind, move):
    assert survivors(Mode(kind, "mh", Seen.CLIENT, sloppy(kind)), move, COUNT) == {"alive": COUNT}


def test_without_a_hash_the_other_node_chooses_another_backend_for_most(kind):
    counts = survivors(Mode(kind, "rr", Seen.CLIENT, sloppy(kind)), Move.CRASH, COUNT)
    assert counts["reset"] > counts["alive"]


def test_a_client_that_waits_for_an_answer_that_a_crash_has_swallowed_is_not_told(kind):
    for seen in (Seen.NODE, Seen.CLIENT):
        assert survivors(Mode(kind, "mh", seen, sloppy(kind)), Move.CRASH_IN_ANSWER, COUNT, 3) == {"silent": COUNT}
