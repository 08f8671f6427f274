"""What is logged when something changes: each thing once, and nothing where nothing changed."""

from ipaddress import ip_address

import pytest

from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.allocator.settle import Settlement
from speaker.checks import said
from speaker.forwarding.plan import EMPTY
from speaker.kubeproxy.judge import Judgement, KubeProxy, Mode
from speaker.model import Assignment, Gratuitous, Link, Mac, Placement, ServiceKey
from speaker.model.events import Conflict, EipClaimed, EipYielded, Event, HellosFiltered, LinkLost, PeerChanged
from speaker.node import transitions
from speaker.node.decide import Decision, MayHold, MayNotHold
from speaker.node.problems import Change
from speaker.node.transitions import MISTAKES, Transitions
from speaker.ownership.hellos.frames import Rejected
from speaker.telemetry.lines import LASTING, Line, Transition, as_line

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
STRANGER = Mac(b"\x02\0\0\0\0\x99")
EIP, OTHER = ip_address("192.0.2.10"), ip_address("2001:db8::10")
BOTH = ["192.0.2.10", "2001:db8::10"]
MINE = {"link": "eth0", "mac": "02:00:00:00:00:01"}
THEIRS = {"link": "eth0", "mac": "02:00:00:00:00:99", "message": "a sentence"}
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")


def given(key, *addresses, flagged=()):
    return Assignment(key, addresses, ("lan",) * len(addresses), frozenset(flagged))


def settled(*assignments, refused=()):
    return Settlement({each.service: each for each in assignments}, {each.service: each for each in refused})


def briefly(happened):
    """Event and name of the line that each comes to."""
    lines = [as_line(transitions.told(one) if isinstance(one, Event) else one) for one in happened]
    return [(line.event, next(iter(line.fields.values()))) for line in lines]


# ── One thing that happened ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("event", "message", "expected"),
    [
        (
            EipClaimed(EIP, Placement(ETH0, Gratuitous()), 7, "n2"),
            "",
            ("info", "claimed", "eip", "192.0.2.10", "eth0", MINE | {"term": 7, "before": "n2"}),
        ),
        (
            EipClaimed(EIP, Placement(ETH0, Gratuitous()), 7, "n2", 0.231),
            "",
            (
                *("info", "claimed", "eip", "192.0.2.10", "eth0"),
                MINE | {"term": 7, "before": "n2", "why": "silent", "unanswered": 0.231},
            ),
        ),
        (
            EipClaimed(EIP, Placement(ETH0, Gratuitous()), 1, None),
            "",
            ("info", "claimed", "eip", "192.0.2.10", "eth0", MINE | {"term": 1, "before": None, "why": "first"}),
        ),
        (
            EipYielded(EIP, "drained", "n2"),
            "",
            ("info", "withdrawn", "eip", "192.0.2.10", "drained", {"reason": "drained", "holder": "n2"}),
        ),
        (
            Conflict(ETH0, EIP, STRANGER, True),
            "a sentence",
            ("error", "conflict", "eip", "192.0.2.10", ("eth0", True), THEIRS | {"held": True}),
        ),
        (
            HellosFiltered(ETH0, "n2", STRANGER, frozenset({OTHER, EIP})),
            "a sentence",
            ("error", "hellos filtered", "peer", "n2", "eth0", THEIRS | {"eips": BOTH, "reason": "hellos_filtered"}),
        ),
        (PeerChanged("n2", ETH0, True), "", ("info", "peer heard", "peer", "n2", "eth0", {"link": "eth0"})),
        (PeerChanged("n2", ETH0, False), "", ("warning", "peer silent", "peer", "n2", "eth0", {"link": "eth0"})),
        (LinkLost(ETH0, "gone"), "", ("warning", "link lost", "error", "gone", "eth0", {"link": "eth0"})),
    ],
)
def test_what_happened_with_its_cause_and_its_facts(event, message, expected):
    assert transitions.told(event, message) == Transition(*expected)


@pytest.mark.parametrize(
    ("still_serving", "in_force"),
    [(True, "the last good ones stay in force"), (False, "nothing is served until they are corrected")],
)
def test_mistakes_in_manifests_get_a_line_each_up_to_a_bound_and_say_what_is_in_force(still_serving, in_force):
    few = list(transitions.bad_manifests(["a", "b"], still_serving=still_serving))
    assert few == [Line("error", "bad manifest", {"problem": one, "in_force": in_force}) for one in "ab"]
    assert len(list(transitions.bad_manifests(map(str, range(MISTAKES)), still_serving=still_serving))) == MISTAKES
    (one,) = transitions.bad_manifests(map(str, range(MISTAKES + 1)), still_serving=still_serving)
    assert one.fields["count"] == MISTAKES + 1


def test_a_problem_and_its_end_are_a_line_each():
    assert list(transitions.problems(Change(said("edge_fails", "a", ""), said("edge_fails", "b", ""), any=True))) == [
        Line("warning", "problem", {"message": "a"}),
        Line("info", "problem over", {"message": "b"}),
    ]
    assert list(transitions.problems(Change((), (), any=True))) == []


def seen(mode=Mode.IPTABLES, problems=(), notes=()):
    return Judgement(KubeProxy(mode, ("port 10249",)), problems, notes)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, seen(), True),
        (seen(), seen(), False),
        (seen(), seen(Mode.NFTABLES), True),
        (seen(), seen(notes=("a note",)), True),
        (seen(), seen(problems=("a problem, told elsewhere",)), False),
    ],
)
def test_who_implements_services_is_said_at_first_and_when_it_is_another(before, now, said):
    line = transitions.kube_proxy(before, now)
    fields = {"mode": now.kube_proxy.mode.value, "evidence": ["port 10249"], "notes": list(now.notes)}
    assert line == (Line("info", "kube-proxy", fields) if said else None)


# ── Who has which EIP ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([], [given(WEB, EIP)], [("assigned", "default/web")]),
        ([given(WEB, EIP)], [given(WEB, EIP)], []),
        ([given(WEB, EIP)], [given(WEB, OTHER)], [("assigned", "default/web")]),
        ([given(WEB, EIP)], [], [("released", "default/web")]),
        ([given(WEB, EIP)], [given(DNS, EIP)], [("assigned", "default/dns"), ("released", "default/web")]),
        ([given(WEB, EIP)], [given(WEB, EIP, flagged=[EIP])], [("flagged", "default/web 192.0.2.10")]),
        ([given(WEB, EIP, flagged=[EIP])], [given(WEB, EIP, flagged=[EIP])], []),
        ([given(WEB, EIP, flagged=[EIP])], [given(WEB, EIP)], []),
        (
            [given(WEB, EIP, OTHER, flagged=[OTHER])],
            [given(WEB, EIP, OTHER, flagged=[OTHER, EIP])],
            [("flagged", "default/web 192.0.2.10")],
        ),
    ],
)
def test_who_was_given_what_is_held_against_what_was_said_last(before, now, said):
    told = Transitions()
    told.settled(settled(*before))
    assert briefly(told.settled(settled(*now))) == said
    assert told.settled(settled(*now)) == [], "once"


def test_where_it_is_known_which_services_changed_no_other_is_looked_at():
    told = Transitions()
    told.settled(settled(given(WEB, EIP)))
    assert briefly(told.settled(settled(given(WEB, OTHER), given(DNS, EIP)), {DNS})) == [("assigned", "default/dns")]
    assert briefly(told.settled(settled(given(DNS, EIP)), {WEB})) == [("released", "default/web")]
    assert told.settled(settled(given(DNS, EIP)), {WEB}) == [], "it had nothing by then"


def test_a_refusal_is_said_once_and_again_when_it_is_another_or_was_over():
    told = Transitions()
    full = Refusal(WEB, RefusalReason.POOL_FULL, "no free address: lan")
    none = Refusal(WEB, RefusalReason.NO_SUCH_POOL, "no such pool")
    said = [
        briefly(told.settled(settled(refused=refused)))
        for refused in ([full], [full], [none], [none], [], [none], [full])
    ]
    once = [("refused", "default/web")]
    assert said == [once, [], once, [], [], once, once]
    other_words = Refusal(WEB, RefusalReason.POOL_FULL, "no free address: lan, dmz")
    (refused,) = told.settled(settled(refused=[other_words]))
    assert as_line(transitions.told(refused)) == Line(
        "warning", "refused", {"service": "default/web", "reason": "pool_full", "message": "no free address: lan, dmz"}
    )


# ── What may be held here ─────────────────────────────────────────────────────────────────────────────────────


def may(eip=EIP):
    return MayHold(eip, "lan", (WEB,), ETH0, Gratuitous())


def may_not(reason, eip=EIP, message="a sentence"):
    return MayNotHold(eip, "lan", (WEB,), reason, message)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([], [may_not("link_down")], ["link_down"]),
        ([may()], [may_not("link_down")], ["link_down"]),
        ([may_not("link_down")], [may_not("link_down")], []),
        ([may_not("link_down")], [may_not("link_down", message="in other words")], []),
        ([may_not("link_down")], [may_not("no_subnet")], ["no_subnet"]),
        ([may_not("link_down")], [may()], []),
        ([may_not("link_down")], [], []),
    ],
)
def test_an_eip_that_this_node_must_not_answer_for_is_said_with_its_reason_when_that_is_another(before, now, said):
    told = Transitions()
    for each in (before, now):
        found = told.decided(Decision({eip.address: eip for eip in each}, EMPTY))
    assert [one.reason for one in found] == said
    assert [event for event, _ in briefly(found)] == ["not claimed"] * len(said)


def test_where_it_is_known_which_eips_changed_no_other_is_looked_at():
    told = Transitions()
    both = {EIP: may_not("link_down"), OTHER: may_not("link_down", OTHER)}
    assert briefly(told.decided(Decision(both, EMPTY), {OTHER})) == [("not claimed", "2001:db8::10")]
    assert told.decided(Decision(both, EMPTY), {EIP, OTHER}) == [], "what was decided is known, said or not"


def test_a_conflict_begins_once_and_ends_once_however_often_it_is_told_of():
    told = Transitions()
    rival = {"192.0.2.10": "192.0.2.10: a stranger uses it"}
    said = [briefly(told.conflicts(each)) for each in ({}, rival, rival, {"192.0.2.10": "otherwise"}, {}, {})]
    begun, ended = ("conflict begun", "192.0.2.10"), ("conflict ended", "192.0.2.10")
    assert said == [[], [begun], [], [], [ended], []]


def test_what_the_forwarder_does_otherwise_and_notices_about_manifests_are_said_once_for_as_long_as_they_last():
    told = Transitions()
    said = [list(told.approximations(each)) for each in (("a",), ("a",), ("b", "a"), ("b",), ("a",))]
    assert [[line.fields["message"] for line in lines] for lines in said] == [["a"], [], ["b"], [], ["a"]]
    assert said[0] == [Line("warning", "approximation", {"message": "a"})]
    said = [list(told.notices(each)) for each in (["b", "a"], ["a", "b"], ["a"], ["a", "b"])]
    assert [[line.fields["message"] for line in lines] for lines in said] == [["a", "b"], [], [], ["b"]]
    assert said[3] == [Line("info", "notice", {"message": "b"})]


# ── Edges and the API ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_edge_that_fails_is_said_once_for_each_of_its_words_and_so_is_its_end():
    told = Transitions()
    assert transitions.told(told.edge_failed("netlink", "no buffer space", 0.0)) == Transition(
        "warning", "edge failed", "error", "no buffer space", "netlink", {"edge": "netlink"}
    )
    assert told.edge_failed("netlink", "no buffer space", 1.0) is None
    assert told.edge_failed("netlink", "no permission", 2.0) is not None
    assert told.edge_failed("records", "no permission", 2.0) is not None, "another edge"
    recovered = Transition("info", "edge recovered", "edge", "netlink", None, {})
    assert transitions.told(told.edge_recovered("netlink")) == recovered
    assert told.edge_recovered("netlink") is None
    assert told.edge_failed("netlink", "no buffer space", 3.0) is not None, "it is back"


def test_an_edge_that_fails_for_less_than_the_patience_with_it_is_never_said():
    told = Transitions()
    assert told.edge_failed("session", "late", 0.0, patience=LASTING) is None
    assert told.edge_failed("session", "late", LASTING - 0.1, patience=LASTING) is None
    assert told.edge_recovered("session") is None
    assert told.edge_failed("session", "late", LASTING, patience=LASTING) is None, "a spell of its own"
    assert told.edge_failed("session", "late", 2 * LASTING, patience=LASTING) is not None


API_UP, API_DOWN = "api answers", "api does not answer"


@pytest.mark.parametrize(
    ("story", "said"),
    [
        ([(True, 0)], [API_UP]),
        ([(False, 0), (False, 5), (True, 9)], [None, None, None]),
        ([(False, 0), (False, LASTING), (False, 20), (True, 21)], [None, API_DOWN, None, API_UP]),
        ([(True, 0), (False, 1), (True, 2), (False, 3), (False, 12.9), (False, 13)], [API_UP, *[None] * 4, API_DOWN]),
    ],
)
def test_an_api_that_is_away_for_a_moment_is_never_said_and_one_that_stays_away_is(story, said):
    told = Transitions()
    happened = [told.api(up, float(now)) for up, now in story]
    assert [one and transitions.told(one).event for one in happened] == said


# ── Packets and hellos of others ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("story", "said"),
    [
        ([(5, 7)], []),
        ([(5, 7), (5, 7)], []),
        ([(5, 7), (8, 7)], [("martian source", 3)]),
        ([(5, 7), (5, 9)], [("reverse path", 2)]),
        ([(5, 7), (8, 9), (8, 9)], [("martian source", 3), ("reverse path", 2)]),
        ([(5, 7), (0, 0), (1, 0)], [("martian source", 1)]),
    ],
)
def test_packets_dropped_since_the_last_look_are_counted_and_what_was_there_at_first_is_not(story, said):
    told = Transitions()
    assert briefly([line for counts in story for line in told.dropped(*counts)]) == said


@pytest.mark.parametrize(
    ("rejected", "said"),
    [(Rejected.WRONG_KEY, True), (Rejected.VERSION, True), (Rejected.FORGED, False), (None, False)],
)
def test_hellos_of_another_cluster_are_said_once_for_each_link(rejected, said):
    told = Transitions()
    lines = [told.foreign_hellos(link, rejected) for link in ("eth0", "eth0", "eth1")]
    assert [line and line.fields["link"] for line in lines] == (["eth0", None, "eth1"] if said else [None] * 3)
    assert all(line is None or line.fields["reason"] == rejected.value for line in lines)
