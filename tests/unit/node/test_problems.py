"""What is wrong now: one list for people, in one order, with a bound on everything that others can lengthen."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.checks import said
from speaker.model import Link, Mac
from speaker.node.problems import (
    EIPS_NAMED,
    HOLDER_SECONDS,
    RIVAL_SECONDS,
    SHOWN,
    UNHEARD_SECONDS,
    Area,
    Change,
    Problems,
    first,
    named,
    new,
)
from speaker.wire.messages import PeerSeen

ETH0, ETH1 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01")), Link(3, "eth1", Mac(b"\x02\0\0\0\0\x02"))
STRANGER = Mac(b"\x02\0\0\0\0\x99")
EIP, OTHER = ip_address("192.0.2.10"), ip_address("2001:db8::10")
RIVAL = (
    "192.0.2.10: 02:00:00:00:00:99 on eth0 uses it too, but no hello claims it from there: this node keeps "
    "answering for it, and defends it"
)


def sentences(problems, now, **more):
    return [each.what for each in problems.all(now, **more)]


def test_they_are_listed_in_one_order_whatever_came_first():
    problems = Problems()
    problems.peers_address(EIP, "n9")
    problems.name_clash(ETH0, STRANGER, silent=False)
    problems.filtered(ETH0, "n8", STRANGER, [EIP], 0.0)
    problems.rival(ETH0, EIP, STRANGER, True, 0.0)
    problems.failing("netlink", "no buffer space")
    for area in reversed(Area):
        problems.found(area, said("edge_fails", [f"of {area.value}"], ""))
    told = sentences(problems, 1.0, internal=["internal error in publish"])
    assert told[:10] == [
        *("of manifests", "of API objects", "of set aside", "of environment", "of limits", "of links"),
        *("of health checks", "of kube-proxy"),
        *("no buffer space", "internal error in publish"),
    ]
    assert [sentence.split()[0] for sentence in told[10:]] == ["192.0.2.10:", "n8", "another", "192.0.2.10:"]


def test_nothing_is_wrong_at_first():
    assert sentences(Problems(), 0.0) == []


def those(sentences):
    return said("edge_fails", sentences, "a mend")


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ("", "a", Change(those("a"), (), any=True)),
        ("a", "a", Change((), (), any=False)),
        ("a", "bac", Change(those("bc"), (), any=True)),
        ("ab", "b", Change((), those("a"), any=True)),
        ("a", "b", Change(those("b"), those("a"), any=True)),
        ("ab", "ba", Change((), (), any=True)),
        ("a", "", Change((), those("a"), any=True)),
    ],
)
def test_what_was_found_is_held_against_what_was_there(before, now, change):
    problems = Problems()
    problems.found(Area.LIMITS, those(before))
    problems.found(Area.ENVIRONMENT, those(["of another area"]))
    assert problems.found(Area.LIMITS, those(now)) == change
    assert problems.known(Area.LIMITS) == tuple(now)
    assert sentences(problems, 0.0) == ["of another area", *now]


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_what_appeared_and_what_is_over_make_of_one_list_the_other(before, now):
    problems = Problems()
    problems.found(Area.LIMITS, tuple(before))
    change = problems.found(Area.LIMITS, tuple(now))
    assert (set(before) - set(change.over)) | set(change.appeared) == set(now)
    assert change.appeared == new(now, before)


@pytest.mark.parametrize(
    ("number", "listed", "last"),
    [(0, 0, None), (1, 1, "s0"), (SHOWN, SHOWN, f"s{SHOWN - 1}"), (SHOWN + 1, 51, "1 more")],
)
def test_of_many_the_first_are_listed_and_the_rest_is_counted(number, listed, last):
    told = first([f"s{each}" for each in range(number)], "{} more")
    assert len(told) == listed
    assert told[-1:] == ((last,) if last else ())


# ── Edges ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edge_that_fails_is_a_problem_with_its_last_words_until_it_works():
    problems = Problems()
    assert problems.failing("netlink", "no buffer space")
    assert not problems.failing("netlink", "no buffer space")
    assert problems.failing("netlink", "no permission")
    assert sentences(problems, 0.0) == ["no permission"]
    assert problems.works("netlink")
    assert not problems.works("netlink")
    assert sentences(problems, 0.0) == []


@pytest.mark.parametrize(
    ("asked", "fails"), [(("forwarding",), True), (("netlink", "forwarding"), True), (("netlink",), False), ((), False)]
)
def test_whether_one_of_some_edges_fails(asked, fails):
    problems = Problems()
    problems.failing("forwarding", "no nft")
    assert problems.fails(asked) is fails


# ── Others on the LAN ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("after", "there"), [(0.0, True), (RIVAL_SECONDS - 0.1, True), (RIVAL_SECONDS, False), (1e6, False)]
)
def test_a_rival_is_a_problem_until_it_was_not_heard_for_a_while(after, there):
    problems = Problems()
    assert problems.rival(ETH0, EIP, STRANGER, True, 100.0) == RIVAL
    assert problems.rivals(100.0 + after) == ({"192.0.2.10": RIVAL} if there else {})
    assert sentences(problems, 100.0 + after) == ([RIVAL] if there else [])


def test_a_rival_that_stays_stays_a_problem():
    problems = Problems()
    for now in range(0, 200, 10):
        problems.rival(ETH0, EIP, STRANGER, True, float(now))
        assert sentences(problems, now + 9.9) == [RIVAL]


def test_a_rival_for_an_eip_that_was_let_go_is_nobodys_problem_and_others_stay():
    problems = Problems()
    problems.rival(ETH0, EIP, STRANGER, True, 0.0)
    problems.rival(ETH1, OTHER, STRANGER, False, 0.0)
    problems.let_go(EIP)
    problems.let_go(ip_address("192.0.2.99"))
    assert problems.rivals(0.0) == {
        "2001:db8::10": "2001:db8::10: 02:00:00:00:00:99 on eth1 uses it too, but no hello claims it from there: this "
        "node does not answer for it until that stops"
    }


def test_a_node_whose_hellos_do_not_arrive_is_news_once_and_a_problem_for_as_long_as_it_answers():
    problems = Problems()
    (told,) = filter(None, [problems.filtered(ETH0, "n2", STRANGER, [EIP], now) for now in (0.0, 20.0, 40.0)])
    assert told.startswith("n2 (02:00:00:00:00:99) on eth0 answers for 192.0.2.10, but none of its hellos arrives here")
    assert sentences(problems, 40.0 + RIVAL_SECONDS - 1) == [told]
    assert sentences(problems, 40.0 + RIVAL_SECONDS) == []
    assert problems.filtered(ETH0, "n2", STRANGER, [EIP], 100.0) == told, "it is back"


def test_a_node_whose_hellos_arrive_again_is_no_problem_any_more():
    problems = Problems()
    problems.filtered(ETH0, "n2", STRANGER, [EIP], 0.0)
    problems.filtered(ETH1, "n2", STRANGER, [EIP], 0.0)
    problems.links(
        [PeerSeen("n2", "eth0", True, False, heard=True), PeerSeen("n2", "eth1", True, False, heard=False)], 0.0
    )
    (left,) = sentences(problems, 1.0)
    assert left.startswith("n2 (02:00:00:00:00:99) on eth1")


@pytest.mark.parametrize(
    ("edge", "kind"), [("session", "api_silent"), ("/api/v1", "api_silent"), ("netlink", "edge_fails")]
)
def test_an_edge_of_the_api_is_told_from_others(edge, kind):
    problems = Problems()
    problems.failing(edge, "no answer")
    assert [each.kind for each in problems.all(0.0)] == [kind]


def test_the_same_node_on_another_link_is_news_of_its_own():
    problems = Problems()
    assert problems.filtered(ETH0, "n2", STRANGER, [EIP], 0.0)
    assert problems.filtered(ETH1, "n2", STRANGER, [EIP], 0.0)
    assert len(sentences(problems, 0.0)) == 2


def test_of_many_eips_some_are_named_in_order():
    eips = {ip_address(f"192.0.2.{number}") for number in range(200)}
    assert named(eips | {OTHER}) == [f"192.0.2.{number}" for number in range(EIPS_NAMED)]
    assert named({OTHER, EIP}) == ["192.0.2.10", "2001:db8::10"]


def test_a_peers_own_address_is_a_problem_until_it_is_no_more():
    problems = Problems()
    told = problems.peers_address(EIP, "n2")
    assert told == (
        "192.0.2.10: node n2 says that this is its own address, so it is not claimed here. Exclude it from its pool"
    )
    assert sentences(problems, 0.0) == [told]
    problems.no_peers_address(EIP)
    problems.no_peers_address(EIP)
    assert sentences(problems, 0.0) == []


@pytest.mark.parametrize(
    ("link", "mac", "silent", "where", "fate"),
    [
        (
            ETH0,
            STRANGER,
            True,
            "02:00:00:00:00:99 on eth0",
            "it keeps the name, and nothing is held here until it stops",
        ),
        (ETH0, STRANGER, False, "02:00:00:00:00:99 on eth0", "this node keeps the name"),
        (None, None, True, "it renews our Lease", "it keeps the name, and nothing is held here until it stops"),
        (ETH0, None, False, "it renews our Lease", "this node keeps the name"),
    ],
)
def test_another_host_with_our_name_is_a_problem_until_the_name_is_free(link, mac, silent, where, fate):
    problems = Problems()
    told = problems.name_clash(link, mac, silent)
    assert told == f"another host has this node's name ({where}); {fate}. Give each host a --node of its own"
    assert sentences(problems, 0.0) == [told]
    problems.name_free()
    assert sentences(problems, 0.0) == []


SICK = PeerSeen("n2", "eth0", True, False, loss=9, loses=48, sick=True)


def test_a_sick_link_is_told_in_one_sentence_for_as_long_as_it_is():
    problems = Problems()
    (found,) = problems.links([SICK, SICK._replace(node="n3", loses=34), SICK._replace(node="n4", loss=50)], 0.0)
    assert found.what.startswith("link eth0 is sick: 48 % of hellos between this node and most peers are lost")
    assert problems.links([SICK._replace(loses=60)], 0.0) == (found,)
    assert problems.links([SICK._replace(sick=False, loses=9)], 0.0) == ()
    assert problems.links([SICK._replace(loses=60)], 0.0) != (found,)


N2 = PeerSeen("n2", "eth0", True, False)


def kinds(problems, now, *peers):
    return [each.kind for each in problems.links(peers, now)]


@pytest.mark.parametrize(
    ("peers", "kind"),
    [
        ([N2._replace(alive=False, heard=False)], "no_peers"),
        ([], "no_peers"),
        ([N2._replace(hears_us=False), N2._replace(node="n3", hears_us=False)], "mute"),
        ([N2._replace(hears_us=False), N2._replace(node="n3")], "deaf_peer"),
        ([N2._replace(hears_us=False)], "deaf_peer"),
        ([N2._replace(deaf=True), N2._replace(node="n3", deaf=True)], "no_broadcasts"),
        ([N2._replace(loss=48)], "hellos_lost"),
        ([N2._replace(loses=48)], "hellos_lost"),
        ([N2._replace(patience_ms=900)], "late_hellos"),
    ],
    ids=[
        "deaf",
        "alone",
        "mute",
        "one of two is deaf",
        "one of one is deaf",
        "deaf but for unicast",
        "its limit",
        "our limit",
        "bursts",
    ],
)
def test_nobody_who_is_deaf_mute_limited_or_late_is_unnamed(peers, kind):
    problems = Problems()
    problems.links(peers, 0.0)
    assert kinds(problems, UNHEARD_SECONDS, *peers) == [kind]
    assert kinds(problems, UNHEARD_SECONDS, N2) == [], "it ends with its cause"


def test_in_a_cluster_of_one_node_nobody_is_missed():
    problems = Problems()
    problems.others = 0
    assert kinds(problems, 0.0) == []
    assert kinds(problems, 0.0, N2._replace(alive=False, heard=False)) == []
    problems.others = 1
    assert kinds(problems, 0.0) == ["no_peers"]


def test_where_all_fall_silent_at_once_the_node_says_that_it_may_be_deaf_and_on_which_link():
    gone = N2._replace(alive=False, heard=False)
    (found,) = Problems().links([gone, gone._replace(node="n3")], 0.0)
    assert found.what.startswith("all 2 peers on eth0 fell silent: this node is deaf and gives up its EIPs")
    assert found.mend.startswith("ip -s link show dev eth0")
    (alone,) = Problems().links([gone], 0.0)
    assert alone.what.startswith("this node hears no other node")


def test_who_does_not_hear_us_yet_is_not_named_at_once():
    problems = Problems()
    assert kinds(problems, 0.0, N2._replace(hears_us=False)) == []
    assert kinds(problems, 1.0, N2) == []
    assert kinds(problems, UNHEARD_SECONDS, N2._replace(hears_us=False)) == []


def test_lost_hellos_are_told_in_one_sentence_until_hardly_any_is_lost():
    problems = Problems()
    (found,) = problems.links([N2._replace(loss=48)], 0.0)
    assert problems.links([N2._replace(loss=12)], 0.0) == (found,)
    assert problems.links([N2._replace(loss=3)], 0.0) == ()
    assert problems.links([N2._replace(loss=12)], 0.0) == ()


def test_a_rival_is_gone_when_nobody_answers_twice_and_stays_as_long_as_it_answers():
    problems = Problems()
    problems.rival(ETH0, EIP, STRANGER, True, 0.0)
    assert problems.rivals_places(0.0) == [(EIP, 2)]
    assert not problems.asked(EIP, answered=False, now=2.0)
    assert not problems.asked(EIP, answered=True, now=29.0)
    assert sentences(problems, RIVAL_SECONDS + 28) == [RIVAL]
    assert not problems.asked(EIP, answered=False, now=31.0)
    assert problems.asked(EIP, answered=False, now=33.0)
    assert sentences(problems, 33.0) == []
    assert not problems.asked(EIP, answered=False, now=35.0)


def test_a_node_that_fell_silent_is_not_filtered():
    problems = Problems()
    problems.filtered(ETH0, "n2", STRANGER, [EIP], 0.0)
    problems.links([N2._replace(alive=False, heard=False)], 1.0)
    assert sentences(problems, 1.0) == []


@pytest.mark.parametrize(("after", "there"), [(HOLDER_SECONDS - 0.1, True), (HOLDER_SECONDS + 0.1, False)])
def test_for_whom_this_node_waits_is_no_problem_and_news_once(after, there):
    problems = Problems()
    sentence = "waits until 02:00:00:00:00:99 on eth0, which still answers for it, falls silent"
    assert problems.holder(ETH0, EIP, STRANGER, 0.0) == sentence
    assert problems.holder(ETH0, EIP, STRANGER, 10.0) is None
    assert problems.holders(10.0 + after) == ({str(EIP): sentence} if there else {})
    assert sentences(problems, 10.0) == []
    assert problems.rivals(10.0) == {}


def test_for_what_was_let_go_this_node_waits_no_more():
    problems = Problems()
    problems.holder(ETH0, EIP, STRANGER, 0.0)
    problems.let_go(EIP)
    assert problems.holders(0.0) == {}
