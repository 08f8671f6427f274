"""The wire process as the main process sees it: what it refuses, what it hands over, how far a rebalancing is."""

import asyncio
from ipaddress import ip_address

import pytest

from speaker.errors import WireError
from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import EipClaimed, EipYielded
from speaker.ownership.balance import Rebalancing
from speaker.wire.messages import Commands
from speaker.wire.remote import Wire

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
CHANGES = {"withdraw", "offer"}
HERE = Placement(ETH0, Gratuitous())
A, B, C = (ip_address(f"192.0.2.{10 + number}") for number in range(3))


class Deaf:
    """A listener that does not listen."""

    def __getattr__(self, name):
        return lambda *_: None


class Answering(Wire):
    """Its wire process gives these answers, the last one again and again."""

    def __init__(self, *answers):
        super().__init__(None, None, Deaf())
        self.answers = [*answers]

    async def _ask(self, *_):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def test_what_is_refused_is_not_offered_until_it_was_taken():
    wire = Answering((A,))
    await wire.offer({A: HERE, B: HERE}, [ETH0], frozenset())
    assert (wire.offered(A), wire.offered(B)) == (None, HERE)
    wire.answers = [()]
    await wire.offer({A: HERE, B: HERE}, [ETH0], frozenset())
    assert (wire.offered(A), wire.offered(B)) == (HERE, HERE)


async def test_what_met_a_bug_over_there_is_offered_again_and_can_be_withdrawn():
    asked = []

    class Buggy(Wire):
        bug = True

        async def _ask(self, command, *arguments):
            asked.append((command.__name__, *arguments))
            if self.bug and command is Commands.offer:
                raise WireError("the wire process: Offer: ZeroDivisionError")
            return ()

    wire = Buggy(None, None, Deaf())
    with pytest.raises(WireError):
        await wire.offer({A: HERE, B: HERE}, [ETH0], frozenset())
    wire.bug = False
    asked.clear()
    await wire.offer({A: HERE}, [ETH0], frozenset())
    assert [each for each in asked if each[0] in CHANGES] == [("withdraw", [B]), ("offer", {A: HERE})]
    asked.clear()
    await wire.offer({A: HERE}, [ETH0], frozenset())
    assert not any(each[0] in CHANGES for each in asked)


@pytest.mark.parametrize(
    ("held", "yielded", "told"),
    [
        ([], [], []),
        ([A, B], [(A, "n2"), (B, None)], [(A, "n2"), (B, None)]),
        ([A], [(C, "n2"), (A, "n3")], [(A, "n3")]),
        ([A, B], [(A, "n2"), (A, "n3"), (B, "n2")], [(A, "n2"), (B, "n2")]),
    ],
    ids=["nothing held", "all", "another's is passed over", "once each"],
)
def test_a_drain_names_what_was_held_as_it_goes_and_ends_with_the_last(in_virtual_time, held, yielded, told):
    async def story():
        wire = Answering(None)
        for address in held:
            wire._hear(EipClaimed(address, HERE, 1, None))
        for number, (address, holder) in enumerate(yielded):
            asyncio.get_running_loop().call_later(number + 1, wire._hear, EipYielded(address, "drained", holder))
        assert [moved async for moved in wire.drain()] == told
        assert wire.draining
        assert wire.held == frozenset()

    in_virtual_time(story())


@pytest.mark.parametrize(
    "states",
    [
        [None],
        [Rebalancing(0, finished=True)],
        [Rebalancing(2), Rebalancing(2, 1), Rebalancing(2, 2, finished=True)],
        [Rebalancing(2), None],
    ],
    ids=["not possible", "level", "two moves", "given up"],
)
def test_a_rebalancing_is_followed_until_it_is_finished(in_virtual_time, states):
    async def story():
        told = [state async for state in Answering(*states).rebalance()]
        assert told == [state for state in states if state is not None]

    in_virtual_time(story())


async def test_each_hears_of_every_event_whatever_bug_another_met():
    met, heard = [], []

    class Supervisor:
        def internal_error(self, task, error):
            met.append((task, type(error)))

    class Buggy:
        def hear(self, event):
            raise KeyError(event)

    class Noting:
        def hear(self, event):
            heard.append(event)

    wire = Wire(None, None, Supervisor(), [Buggy(), Noting()])
    wire._hear(claimed := EipClaimed(A, HERE, 1, None))
    assert (heard, met) == ([claimed], [("wire message", KeyError)])
    assert wire.held == {A}
