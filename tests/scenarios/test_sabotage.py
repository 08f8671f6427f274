"""Every rule taken away breaks a promise within a bounded number of schedules: the simulation is not blind.

A sabotage overrides one judgement of ``Rules``, or one thing that a part of the machine does. The families tried are
those whose faults the rule is there for. Where another rule makes up for the one taken away, both are, and either of
them alone is seen to keep the promise.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from simulation import wrong_machines, wrong_rules
from simulation.families import FAMILIES
from simulation.schedule import Fault, Kind, Limits, Schedule
from simulation.shrink import broken
from simulation.wrong_machines import made_of, right

BOUND = 500
"""Schedules of each family, from the row's first on."""
DOCS = Path(__file__).parents[2] / "docs" / "ownership.md"


def key_lost(seed: int) -> Schedule:
    """A node reads no key but its own from 1.8 on, then another dies. No family: of two that do not read each other's
    hellos both may take what a third held, in one moment. Where there is time for an answer, rule 15 keeps the second
    from it."""
    random = Random(f"key lost {seed}")
    lost, dead = random.sample(range(3), 2)
    faults = (Fault(1.8, Kind.WRONG_KEY, (lost,)), Fault(round(random.uniform(3.0, 3.5), 4), Kind.CRASH, (dead,)))
    limits = Limits(wire_answer=0.12, unanswered=2.5, causeless=False)
    return Schedule(seed, nodes=3, eips=3, faults=faults, end=7.0, limits=limits)


def overtaken(seed: int) -> Schedule:
    """As ``rebalance``, on a LAN so slow that a claim is often overtaken by the word of who lets go for it."""
    schedule = FAMILIES["rebalance"][0](seed)
    limits = replace(schedule.limits, one_answer=None, fewest=True, level=False, causeless=True)
    return replace(schedule, nodes=5, loss=0.0, delay=0.05, limits=limits)


def slow(seed: int) -> Schedule:
    """A LAN on which every answer takes longer than a hello interval: nothing moves."""
    random = Random(f"slow {seed}")
    fault = Fault(1.5, Kind.BURST, hold=round(random.uniform(0.08, 0.12), 4))
    limits = Limits(one_answer=0.5, quiet_after=1.5, causeless=False)
    return Schedule(seed, nodes=random.randint(3, 5), eips=4, faults=(fault,), end=14.0, limits=limits)


PLAYED = {
    **{name: make for name, (make, _) in FAMILIES.items()},
    **{make.__name__: make for make in (key_lost, overtaken, slow)},
}


class Row(NamedTuple):
    """``families``: where it is noticed; ``first``: the seed to begin with, so that few schedules are played."""

    name: str
    rules: tuple[int, ...]
    wrong: type | tuple[type, ...]
    families: tuple[str, ...]
    first: int = 0


SABOTAGES = [
    Row("no stagger", (13,), wrong_rules.NoStagger, ("crash", "equal"), 11),
    Row(">= on terms", (8,), wrong_rules.EqualTermsBeat, ("windows",), 40),
    Row("no self-lease", (27,), wrong_rules.NoSelfLease, ("freeze",)),
    Row("no age limit on requests", (28,), wrong_machines.NoAgeLimit, ("freeze",), 15),
    Row(
        "no re-announcement against a worse claim",
        (20,),
        (wrong_machines.SilentToRivals, wrong_machines.SilentOnMutualHearing),
        ("mixed", "equal"),
    ),
    Row("no re-announcement on mutual hearing", (22,), wrong_machines.SilentOnMutualHearing, ("mixed",), 17),
    Row(
        "no re-announcement on yielded",
        (21,),
        (wrong_machines.SilentOnYielded, wrong_machines.SilentOnMutualHearing),
        ("mixed",),
    ),
    Row("hard drain", (26,), wrong_rules.HardDrain, ("drain",)),
    Row("ranks over all nodes", (13,), wrong_rules.RanksOverAll, ("ineligible_many",)),
    Row("claim only at the beat", (2,), wrong_machines.ClaimsAtTheBeat, ("crash", "drain")),
    Row("no boot listen", (9,), wrong_rules.NoListening, ("deaf", "started_apart")),
    Row("no release in the record", (25,), wrong_rules.NoRelease, ("release",)),
    Row("replayed frames count", (5,), wrong_machines.BelievesRecordings, ("replay",), 3),
    Row("frames of other links count", (5,), wrong_machines.BelievesOtherLinks, ("stranger",)),
    Row("a lost link is not told on the others", (1,), wrong_machines.SilentAboutOtherLinks, ("one_cable",)),
    Row("blind to deleted records", (24,), wrong_machines.BlindToDeletion, ("meddled",)),
    Row("blind to revisions", (13,), wrong_rules.BlindToRevisions, ("upgrade",), 188),
    Row("nobody vouches", (7,), wrong_machines.TrustsItsOwnEarsAlone, ("partial",)),
    Row("hearsay vouches", (7,), wrong_machines.BelievesHearsay, ("crash",)),
    Row("one hello interval for all", (7,), wrong_machines.TakesItsTimeForEverybodys, ("mixed_intervals",), 485),
    Row("no need of touch", (12,), wrong_rules.NeedsNoTouch, ("deaf", "blip")),
    Row("in touch for ever", (12,), wrong_rules.TouchedOnce, ("flap_ports",)),
    Row("no touch but hellos", (12,), wrong_rules.NeverInTouchAlone, ("minority", "crash")),
    Row("taken unheard", (12,), wrong_rules.TakesUnheard, ("oneway",), 96),
    Row("taken at the first sign", (12,), wrong_rules.TakesAtTheFirstSign, ("mixed_intervals",), 420),
    Row("the demoted last, all or not", (13,), wrong_rules.DemotedIsLast, ("all_demoted",)),
    Row("no damping", (14,), wrong_machines.Undamped, ("flap_ports",)),
    Row("the wire is not asked", (15,), wrong_machines.AsksNobody, ("filtered",)),
    Row("answers on the wire do not count", (15,), wrong_machines.HeedsNoAnswer, ("filtered",)),
    Row("deaf and up", (17,), wrong_rules.DeafIsUp, ("deaf",)),
    Row("no weak claims", (18,), wrong_rules.AllClaimsAreStrong, ("minority",)),
    Row("weak claims beat", (29,), wrong_rules.StandsForNothing, ("minority",)),
    Row("no giving in to who does not hear", (29,), wrong_machines.StandsAlways, ("oneway",), 12),
    Row("who was away stands", (29,), wrong_rules.StandsWhateverItMissed, ("mixed",), 86),
    Row("no first probe", (18,), wrong_machines.ProbesNothing, ("lease_blind",)),
    Row("no record", (24,), wrong_machines.WritesNothing, ("crash",), 11),
    Row("records are overtaken at once", (23,), wrong_rules.OvertakesRecords, ("split",)),
    Row(
        "nothing tells of letting go",
        (1, 3, 19),
        (wrong_machines.NothingTellsOfLettingGo, wrong_machines.YieldsAreAll),
        ("freeze",),
    ),
    Row("nobody is told all", (4,), wrong_machines.TellsNobodyAll, ("windows",), 2),
    Row("no climbing", (5,), wrong_machines.ClimbsNot, ("clock_back",)),
    Row(
        "no probing",
        (6, 36),
        (wrong_machines.ProbesNobody, wrong_machines.HeedsNoAnswer, wrong_machines.SendsNoCopies),
        ("steady",),
        120,
    ),
    Row("old lives go on", (7,), wrong_machines.OldLivesGoOn, ("clock_back",)),
    Row("held where it may not be", (10,), wrong_machines.HoldsWhatItMayNot, ("release",)),
    Row("claims of the deaf bind", (11, 17), wrong_rules.DeafHoldOnAndBind, ("deaf",)),
    Row("claims of who drains bind", (11,), wrong_rules.DrainingBind, ("drain",), 9),
    Row("no record binds", (12,), wrong_rules.BoundByNoRecord, ("started_apart",)),
    Row("who does not hear us holds nothing", (12,), wrong_rules.DeafToThoseWhoDoNotHear, ("mute_start",)),
    Row("who went is missed", (12,), wrong_machines.MissesWhoWent, ("silent_drain",)),
    Row("what another serves is taken", (15,), wrong_machines.TakesWhatIsServed, ("key_lost",)),
    Row("no API, no claim", (16, 30), wrong_rules.WaitsForTheApi, ("crash",)),
    Row("all claims are weak", (18,), wrong_rules.EveryClaimIsWeak, ("minority",), 34),
    Row("held in name, and written", (18, 24), wrong_machines.HoldsInName, ("split_faults",)),
    Row("no yielding", (19,), wrong_rules.NeverYields, ("equal",)),
    Row("no successor is expected", (19,), wrong_rules.ExpectsNoSuccessor, ("overtaken",)),
    Row("records are obeyed", (23,), wrong_machines.ObeysRecords, ("split",)),
    Row("records stay wrong", (30,), wrong_machines.MendsNoRecord, ("api_frozen",)),
    Row("no patience", (38,), wrong_machines.LearnsNoPatience, ("bursts",)),
    Row("nothing is kept through a standstill", (39,), wrong_rules.KeepsNothing, ("stutter",)),
    Row("unicast is evidence of touch", (36,), wrong_rules.TakesUnicastForTouch, ("nobroadcast",)),
    Row("no hello by unicast", (36,), wrong_machines.SendsNoCopies, ("nobroadcast",)),
    Row("the mute keep what they hold", (37,), wrong_rules.LeavesTheMuteAlone, ("mute",)),
    Row("one accuser is enough", (37,), wrong_rules.BelievesOneAccuser, ("throttled",)),
    Row("accused unproven", (37,), wrong_machines.AccusesUnproven, ("throttled",)),
    Row("any answer will do", (37,), wrong_machines.TakesAnyAnswer, ("unasked",), 15),
    Row("accused at the first answer by MAC", (37,), wrong_machines.AccusesAtOnce, ("steady",)),
    Row("who is late as all are is accused", (37,), wrong_machines.AccusesTheLate, ("slow",)),
    Row("taken over for ever", (37,), wrong_rules.TakesOverForEver, ("mute_all",)),
    Row("blind to loss", (40,), wrong_rules.BlindToLoss, ("sick",)),
    Row("blind to preference", (41,), wrong_rules.BlindToPreference, ("preferred",)),
    Row("comes back at once", (42,), wrong_rules.ComesBackAtOnce, ("preferred",)),
    Row("never comes back", (42,), wrong_rules.NeverComesBack, ("preferred",)),
    Row("nothing is taken on request", (31,), wrong_machines.TakesNothingOnRequest, ("rebalance",)),
]

UNPLAYED: Mapping[int, str] = {
    32: "no two hosts of a schedule have one name: tests/scenarios/test_namesakes.py plays them",
    33: "hosts of a schedule have no addresses of their own: tests/unit/ownership/machine/test_machine.py",
    34: "schedules meet no bugs of ours: tests/scenarios/test_internal_errors.py",
    35: "hosts of a schedule have no sockets to answer by: tests/netns/layer2/test_life.py, tests/faults",
}
"""Rules of which no family knows, and who does."""


def halves(wrong: type | tuple[type, ...]) -> list[tuple[type, ...]]:
    """What is wrong; each of its classes alone, or what one adds to its base; and nothing, the rules as they are."""
    if isinstance(wrong, tuple):
        return [wrong, *((each,) for each in wrong), ()]
    return [*((base,) for base in wrong.__mro__[:-2]), ()]


@pytest.mark.parametrize("row", SABOTAGES, ids=lambda row: row.name)
def test_a_rule_taken_away_breaks_a_promise(row: Row) -> None:
    # The rules as they are, and half of a pair, must keep what it breaks.
    wrong, *bases = (made_of(*half) for half in halves(row.wrong))
    for seed in range(row.first, row.first + BOUND):
        for schedule in (PLAYED[name](seed) for name in row.families):
            if broken(schedule, wrong) is not None and not any(broken(schedule, base) for base in bases):
                return
    pytest.fail(f"{len(row.families) * BOUND} schedules of {row.families} kept every promise")


def test_every_rule_is_taken_away_or_tested_elsewhere() -> None:
    rules = {int(number) for number in re.findall(r"^(\d+)\. ", DOCS.read_text(), flags=re.MULTILINE)}
    taken = {number for row in SABOTAGES for number in row.rules}
    assert taken | UNPLAYED.keys() == rules
    assert not taken & UNPLAYED.keys()


def test_every_sabotage_is_real() -> None:
    """A renamed method would turn a sabotage into the rules as they are, one that is called otherwise into a bug."""
    for row in SABOTAGES:
        for base in {each for half in halves(row.wrong) for each in half}:
            own = [name for name in vars(base) if name == "__init__" or not name.startswith("__")]
            assert own, row.name
            for name in own:
                found = arguments(getattr(base, name))
                assert name == "__init__" or found == arguments(getattr(right(base), name)), row.name


def arguments(work: Callable[..., object]) -> list[str]:
    return list(signature(work).parameters)
