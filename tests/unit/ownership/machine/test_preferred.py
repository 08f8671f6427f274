"""Which node an EIP prefers: whose turn it is (rule 41), and when it comes back (rule 42)."""

from ipaddress import IPv4Address

import pytest
from stepping import EIP, LINK, Claims, beside, hello, of_kind, said, timed

from speaker.model import Preference
from speaker.ownership.events import Claim, Drain, EligibilityChanged, LinkChanged
from speaker.ownership.hello import Incarnation
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.peers import MAX_WEIGHTS
from speaker.ownership.preference import Preferred
from speaker.ownership.score import score

NUMBER = 7
FIRST = next(EIP + n for n in range(9) if score(EIP + n, "me") > score(EIP + n, "peer"))
"""By the score ours."""
THEIRS = next(EIP + n for n in range(9) if score(EIP + n, "me") < score(EIP + n, "peer"))


def preferring(eip: IPv4Address, weight: int, failback: float | None = None) -> Ownership:
    """One node that is preferred so much for ``eip``."""
    machine = Ownership("me", lambda above: Incarnation(((above >> 31) + 5) << 31), 0.0)
    machine.step(0.0, LinkChanged(LINK, up=True))
    machine.step(0.0, EligibilityChanged(eip, LINK, preference=Preference(NUMBER, weight, failback)))
    return machine


def claims(machine: Ownership, end: float, holdings: dict[str, Claims], **more: object) -> list[float]:
    """When it claims while these hold those, from the start to ``end``."""
    return [round(at, 3) for at, _ in of_kind(beside(machine, 0.1, end, holdings, **more), Claim)]


def left(machine: Ownership, eip: IPv4Address, **more: object) -> float:
    """When it claims what the holder says at 2 s that it gives up, while the peer goes on as before."""
    gone = machine.step(2.0, hello(machine, 9000, {}, "holder", draining=True, yielded={eip: 3}, **more))
    orders = [(2.0, order) for order in gone] + beside(machine, 2.001, 3.0, {"peer": {}}, **more)
    return of_kind(orders, Claim)[0][0]


# ── Whose turn ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("eip", "ours", "theirs", "slots"),
    [
        (THEIRS, 80, {}, 0),
        (FIRST, 0, {NUMBER: 80}, 1),
        (FIRST, 30, {NUMBER: 80}, 1),
        (FIRST, 80, {NUMBER: 80}, 0),
        (THEIRS, 80, {NUMBER: 80}, 1),
        (FIRST, 0, {NUMBER + 1: 80}, 0),
    ],
    ids=["ours alone", "theirs alone", "theirs is more", "equal, our score", "equal, their score", "of another one"],
)
def test_of_what_falls_vacant_it_is_the_turn_of_who_is_preferred(
    eip: IPv4Address, ours: int, theirs: dict[int, int], slots: int
) -> None:
    machine = preferring(eip, ours)
    beside(machine, 0.1, 2.0, {"peer": {}, "holder": {eip: 3}}, weights=theirs)
    assert round((left(machine, eip, weights=theirs) - 2.0) / machine.times.slot) == slots


def test_where_one_does_not_heed_preferences_the_score_alone_orders_all() -> None:
    machine = preferring(THEIRS, 80)
    beside(machine, 0.1, 2.0, {"peer": {}, "holder": {THEIRS: 3}}, weighs=False)
    assert round((left(machine, THEIRS, weighs=False) - 2.0) / machine.times.slot) == 1


def test_hellos_say_how_much_a_node_is_preferred_and_not_that_it_is_not() -> None:
    machine = preferring(EIP, 80)
    machine.step(0.0, EligibilityChanged(EIP + 1, LINK, preference=Preference(NUMBER + 1, 0)))
    machine.step(0.0, EligibilityChanged(EIP + 2, LINK))
    assert said(timed(machine, 0.0, 0.2))[-1][1].weights == {NUMBER: 80}
    machine.step(0.2, EligibilityChanged(EIP, None))
    assert said(timed(machine, 0.2, 0.4))[-1][1].weights == {}


def test_of_too_many_preferences_hellos_say_those_with_the_lowest_numbers_and_no_other_is_heeded() -> None:
    machine = preferring(EIP, 80)
    for n in range(MAX_WEIGHTS + 9):
        machine.step(0.0, EligibilityChanged(EIP + n, LINK, preference=Preference(n, 50)))
    assert said(timed(machine, 0.0, 0.2))[-1][1].weights == dict.fromkeys(range(MAX_WEIGHTS), 50)
    known, rules = machine.known, machine._rules
    assert rules.own_weight(known, known.eip(EIP + MAX_WEIGHTS)) == 0
    machine.step(0.2, hello(machine, 1, {}, weights=dict.fromkeys(range(3 * MAX_WEIGHTS), 9)))
    assert len(known.segments[LINK].peers.by_node["peer"].weights) == MAX_WEIGHTS


# ── Back to the preferred node ────────────────────────────────────────────────────────────────────────────────


def test_what_prefers_this_node_comes_back_once_it_has_been_there_for_the_stated_time() -> None:
    (at,) = claims(preferring(EIP, 80, 5.0), 9.0, {"peer": {EIP: 3}})
    assert 5.1 <= at <= 5.3


@pytest.mark.parametrize(
    ("failback", "said"),
    [
        (None, {}),
        (5.0, {"weights": {NUMBER: 80}}),
        (5.0, {"weights": {NUMBER: 90}}),
        (5.0, {"weighs": False}),
        (5.0, {"revision": 1}),
        (5.0, {"heard": {}}),
    ],
    ids=["never", "equal", "preferred more", "the release before", "to be drained ourselves soon", "does not hear us"],
)
def test_it_stays_where_it_is(failback: float | None, said: dict[str, object]) -> None:
    machine = preferring(EIP, 80, failback)
    beside(machine, 0.0, 0.3, {"peer": {EIP: 3}}, **{**said, "heard": {"me": hello(machine, 0).hello.heard["me"]}})
    assert of_kind(beside(machine, 0.3, 12.0, {"peer": {EIP: 3}}, **said), Claim) == []


@pytest.mark.parametrize(
    "happened",
    [
        Drain(),
        EligibilityChanged(EIP, None),
        EligibilityChanged(EIP, LINK, demoted=True, preference=Preference(NUMBER, 80, 5.0)),
        LinkChanged(LINK, up=False),
    ],
    ids=["drained", "not eligible", "demoted", "cable"],
)
def test_the_time_begins_anew_when_something_happened_to_the_node(happened: object) -> None:
    machine = preferring(EIP, 80, 5.0)
    beside(machine, 0.1, 4.0, {"peer": {EIP: 3}})
    machine.step(4.0, happened)  # type: ignore[arg-type]
    beside(machine, 4.0, 4.5, {"peer": {EIP: 3}})
    machine.step(4.5, Drain(on=False))
    machine.step(4.5, LinkChanged(LINK, up=True))
    machine.step(4.5, EligibilityChanged(EIP, LINK, preference=Preference(NUMBER, 80, 5.0)))
    claimed = of_kind(beside(machine, 4.6, 13.0, {"peer": {EIP: 3}}), Claim)
    assert [round(at) for at, _ in claimed] in ([10], [9])
    assert claimed[0][0] >= 9.5


def test_a_node_without_a_main_process_takes_nothing_and_begins_anew_once_it_has_one() -> None:
    machine = preferring(EIP, 80, 5.0)
    machine.headless = True
    assert claims(machine, 9.0, {"peer": {EIP: 3}}) == []
    machine.headless = False
    (at,) = [at for at, _ in of_kind(beside(machine, 9.0, 16.0, {"peer": {EIP: 3}}), Claim)]
    assert 14.0 <= at < 14.6


def test_it_moves_once_in_the_stated_time_however_often_it_is_taken_away() -> None:
    machine = preferring(EIP, 80, 5.0)
    (first,) = claims(machine, 5.5, {"peer": {EIP: 3}})
    # Somebody takes it at once, at a term above.
    (second,) = [at for at, _ in of_kind(beside(machine, 5.5, 12.0, {"peer": {EIP: 9}}), Claim)]
    assert second - first >= 5.0


def test_a_node_that_is_preferred_more_goes_first_and_if_it_does_not_go_the_next_one_does() -> None:
    machine = preferring(EIP, 30, 5.0)

    def beat(at: float, sequence: int) -> list[object]:
        better = hello(machine, sequence, {}, "better", weights={NUMBER: 80})
        return [*machine.step(at, better), *machine.step(at, hello(machine, sequence, {EIP: 3}))]

    orders: list[tuple[float, object]] = []
    for n in range(1, 120):
        orders += [(n / 10, order) for order in beat(n / 10, n)] + timed(machine, n / 10, n / 10 + 0.09)
    (at,) = [at for at, order in orders if isinstance(order, Claim)]
    assert 5.1 + 2 * machine.times.move_patience <= at <= 5.4 + 2 * machine.times.move_patience


def test_many_come_back_a_few_at_a_time() -> None:
    machine = preferring(EIP, 80, 5.0)
    for n in range(40):
        machine.step(0.0, EligibilityChanged(EIP + n, LINK, preference=Preference(NUMBER, 80, 5.0)))
    held = {EIP + n: 3 for n in range(40)}
    times = [at for at, _ in of_kind(beside(machine, 0.1, 8.0, {"peer": held}), Claim)]
    assert len(times) == 40
    most = machine.times.moves_a_hello
    assert all(late - early > 0.9 * machine.times.hello for early, late in zip(times, times[most:], strict=False))


# ── On request ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("weight", "taken"), [(90, True), (80, True), (30, False)])
def test_nothing_is_taken_on_request_from_who_is_preferred(weight: int, taken: bool) -> None:
    machine = preferring(EIP, weight)
    beside(machine, 0.1, 2.0, {"peer": {EIP: 3}}, weights={NUMBER: 80})
    orders = machine.step(2.0, hello(machine, 9000, {EIP: 3}, weights={NUMBER: 80}, moves={EIP: "me"}))
    assert any(isinstance(order, Claim) for order in orders) is taken


# ── Told ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_is_told_which_node_is_preferred_and_when_the_eip_moves() -> None:
    machine = preferring(EIP, 80, 5.0)
    beside(machine, 0.1, 3.0, {"peer": {EIP: 3}}, weights={NUMBER: 30})
    (node, weight, holders, back, moves_in) = machine.preferred(EIP, 3.0) or ()
    assert (node, weight, holders) == ("me", 80, 30)
    assert 2.8 < back < 3.0
    assert 2.0 < moves_in < 2.3
    beside(machine, 3.0, 6.0, {"peer": {EIP: 3}}, weights={NUMBER: 30})
    beside(machine, 6.0, 7.0, {"peer": {}}, weights={NUMBER: 30})
    assert machine.preferred(EIP, 7.0) == Preferred("me", 80, 80)


def test_the_holder_tells_when_the_eip_leaves_it() -> None:
    machine = preferring(EIP, 30, 5.0)
    beside(machine, 0.1, 3.0, {"other": {}})
    beside(machine, 3.0, 4.0, {"other": {}, "peer": {}}, weights={NUMBER: 80})
    (node, weight, holders, back, moves_in) = machine.preferred(EIP, 4.0) or ()
    assert (node, weight, holders) in [("peer", 80, 30), ("other", 80, 30)]
    assert 0.8 < back < 4.0
    assert 1.0 < moves_in < 4.2


@pytest.mark.parametrize(
    ("failback", "said", "told"),
    [
        (None, {"weights": {NUMBER: 80}}, Preferred("peer", 80, 80)),
        (5.0, {"weighs": False}, Preferred(None)),
        (5.0, {"claims": None}, None),
    ],
    ids=["where it is", "the release before", "nobody's"],
)
def test_what_else_is_told(failback: float | None, said: dict[str, object], told: Preferred | None) -> None:
    machine = preferring(EIP, 30, failback)
    held = {} if "claims" in said else {EIP: 3}
    beside(machine, 0.1, 0.35, {"peer": held}, **{key: value for key, value in said.items() if key != "claims"})
    assert machine.preferred(EIP, 0.35) == told


@pytest.mark.parametrize(
    ("preferred", "words"),
    [
        (Preferred("n2", 80, 80), "the most preferred of the nodes that are here (weight 80)"),
        (
            Preferred("n3", 80, 30, 20.4, 280.2),
            "n3 is preferred (weight 80, n2 has 30), but has been there for only 20 s: the EIP moves in 280 s",
        ),
        (
            Preferred("n3", 80, 0, 20.4, None),
            "n3 is preferred (weight 80, n2 has 0), but the EIP stays where it is (failback): "
            "`speaker rebalance` moves it",
        ),
        (
            Preferred("n3", 80, 0, 400.0, -3.0),
            "n3 is preferred (weight 80, n2 has 0), and the EIP should move to it now: look there if it does not",
        ),
        (Preferred(None), "prefers some nodes, but a speaker here runs a release that does not heed preferences"),
    ],
)
def test_it_is_told_in_words(preferred: Preferred, words: str) -> None:
    assert preferred.words("n2") == words
