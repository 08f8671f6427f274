"""One bad thing stays one bad thing: at each place of a running speaker an exception that nobody foresaw."""

import importlib
import os
from collections.abc import Iterator
from functools import reduce

import pytest
from fault_lab import HEAD, LASTS, PROMISED_MS, UNNOTICED_MS, FaultLab, Seen
from places import CONSTANTS, LASTING, MORE, MORE_LASTING, PLACES, Notice, Place

AT_LEAST = 40
EVERYWHERE = bool(os.environ.get("SPEAKER_FAULTS_EVERYWHERE"))
TRIED = (*PLACES, *(MORE if EVERYWHERE else ()))
NAMES = [place.at for place in TRIED]
LAST = (*LASTING, *(MORE_LASTING if EVERYWHERE else ()))
EVERY = 6
LONG = pytest.mark.long(part="faults")
"""All but each sixth, as every place takes seconds."""


@pytest.fixture(scope="module", params=["socket", pytest.param("auto", marks=LONG)])
def lab(request, namespaces, tmp_path_factory, pytestconfig) -> Iterator[FaultLab]:
    """One for all places: a speaker that is not well again is seen by the next of them."""
    lab = FaultLab(tmp_path_factory.mktemp("faults"), list(dict.fromkeys((*NAMES, *LAST))), CONSTANTS)
    lab.responder = request.param
    with lab:
        yield lab
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", HEAD, *lab.table, sep="\n")  # noqa: T201


def broken(place: Place, seen: Seen, victim: str) -> Iterator[str]:
    """What was promised and not kept, in sentences."""
    about = place.at.partition("@")[2]
    if not seen.raised:
        yield "it was never passed: nothing was shown"
    if seen.ended:
        yield "the speaker ended"
    if seen.replaced:
        yield "the main process ended"
    for eip in seen.never_back:
        yield f"{eip} is out to this moment"
    for eip, out in seen.out.items():
        mine = seen.before[eip] == victim
        may_move = mine and (place.notice is Notice.FAILOVER or (place.notice is Notice.ONE and concerns(about, eip)))
        if out > (PROMISED_MS if may_move else UNNOTICED_MS):
            yield f"{eip}, {'' if mine else 'not '}the victim's, was out for {out:.0f} ms"
        if eip in seen.moved and not may_move:
            yield f"{eip} left {seen.moved[eip]}"
    if not seen.logged:
        yield "no line of the log names it"
    if not seen.counted:
        yield "the metric did not count it"
    if not seen.told:
        yield "status did not tell of it"
    if seen.healed_ms is None:
        yield f"not healed: {seen.left}"


def concerns(about: str, eip: object) -> bool:
    return str(eip) == about or str(eip).replace(".", "-") in about


@pytest.mark.netns
@pytest.mark.parametrize(
    "place", [pytest.param(place, id=place.at, marks=[LONG] * bool(n % EVERY)) for n, place in enumerate(TRIED)]
)
async def test_what_is_raised_there_is_told_costs_at_most_a_failover_and_heals(lab, place):
    seen = await lab.suffers(place.at)
    assert list(broken(place, seen, lab.victim)) == []


@pytest.mark.netns
@pytest.mark.parametrize("at", [pytest.param(at, marks=[LONG] * bool(n % EVERY)) for n, at in enumerate(LAST)])
async def test_what_lasts_costs_a_failover_as_well(lab, at):
    seen = await lab.suffers(at, LASTS)
    seen.logged |= at in NAMES  # in full when it was met first
    assert list(broken(Place(at, Notice.FAILOVER), seen, lab.victim)) == []


def test_there_are_enough_places_and_each_is_one():
    assert len(PLACES) >= AT_LEAST
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            name.partition("@")[0].partition("!")[0]
            for name in (*NAMES, *(place.at for place in MORE), *LASTING, *MORE_LASTING, *CONSTANTS)
        }
    ),
)
def test_each_place_is_there(name):
    module, _, path = name.partition(":")
    assert reduce(getattr, path.split("."), importlib.import_module(module)) is not None
