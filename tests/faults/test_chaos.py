"""No error in any function silences an EIP for longer than a failover, and each is told of: twenty of them.
``make chaos`` has more, and longer ones."""

import asyncio
from collections.abc import Iterator
from itertools import islice

import pytest
from chaos_lab import ChaosLab
from chaos_plan import Fault, Phase, drawn, read
from fault_lab import HELLO_MS

SEED, COUNT = 28, 20
SECONDS = 2.0
"""For which a fault lasts that does: twice as long as an EIP may be out."""
KNOWN = (
    "wire speaker.layer2.answer:answer_arp CancelledError once STEADY",
    "wire speaker.layer2.answer:answer_ndp Exception lasting STEADY",
    "wire speaker.layer2.answer:Claims.expired Exception lasting STEADY",
    "wire speaker.wire.sender:EventSender.count MemoryError lasting STEADY",
    "main speaker.standalone.manifests:load StopIteration once EDIT",
    "main speaker.forwarding.plan:Planner.plan CancelledError once EDIT",
    "main speaker.telemetry.logs:Bounded.__call__ OSError lasting EDIT",
    "wire speaker.ownership.hellos.hellos:Hellos.receive EdgeError once STEADY",
    "wire speaker.ownership.machine.segment:Segment.pause CancelledError once STOP",
    "wire speaker.ownership.machine.segment:Segment.pause StopIteration lasting STOP",
    "main speaker.interfaces.gateway:_Gateway.__init__ CancelledError once START",
    "wire speaker.ownership.machine.moving:Moves.hear OSError lasting STEADY",
)
"""Some that once broke the promise, and are always among them."""


@pytest.fixture(scope="module", params=["socket", "auto"])
def lab(request, namespaces, tmp_path_factory, pytestconfig) -> Iterator[ChaosLab]:
    lab = ChaosLab(tmp_path_factory.mktemp("chaos"), SECONDS, HELLO_MS)
    lab.responder = request.param
    with lab:
        yield lab
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *lab.struck, sep="\n")  # noqa: T201


@pytest.fixture(scope="module")
def faults(lab: ChaosLab) -> Iterator[Fault]:
    """Those by chance."""
    return drawn(asyncio.run(lab.record()), SEED)


@pytest.mark.netns
@pytest.mark.long(part="chaos")
@pytest.mark.parametrize("words", KNOWN)
async def test_what_once_silenced_an_eip_or_went_untold_does_not(lab, words):
    struck = await lab.strikes(read(words))
    assert struck.raised, "it was never passed: nothing was shown"
    assert list(lab.broken(struck)) == [], struck


@pytest.mark.netns
@pytest.mark.long(part="chaos")
@pytest.mark.parametrize("number", range(COUNT - len(KNOWN)))
async def test_an_error_in_any_function_silences_no_eip_for_longer_than_a_failover_and_is_told(lab, faults, number):
    for fault in faults:
        struck = await lab.strikes(fault)
        if struck.raised:  # what ran while functions were recorded need not run again
            assert list(lab.broken(struck)) == [], struck
            return
    pytest.fail("no function is left")


def test_the_same_seed_draws_the_same_of_a_function_whatever_else_ran():
    ran = {"main": {f"m:{name}": [*Phase] for name in "abcdef"}, "wire": {"w:a": [Phase.STEADY]}}
    fewer = {"main": {"m:c": [*Phase]}, "wire": {}}
    assert [fault for fault in drawn(ran, 5) if fault.place == "m:c"] == [*drawn(fewer, 5)]
    assert [*islice(drawn(ran, 5), 7)] != [*islice(drawn(ran, 6), 7)]


def test_a_fault_can_be_written_down_and_played_again():
    for fault in drawn({"main": {f"m:{name}": [*Phase] for name in "abcdef"}}, 5):
        assert read(str(fault)) == fault
    with pytest.raises(ValueError, match="sometimes"):
        read("main m:a OSError sometimes STEADY")
