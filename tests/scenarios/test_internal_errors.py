"""A bug of ours in the ownership machine of one node of three, at each place in turn. Time is virtual, in seconds."""

import pytest
from simulation.schedule import Fault, Kind, Limits, Schedule
from simulation.world import World

from speaker.ownership.events import InternalError, Order
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.rules import Rules

BEGINS = 2.0
FAILOVER = 0.5
TRIO = Schedule(
    seed=4,
    nodes=3,
    eips=6,
    links=2,
    end=9.0,
    faults=(
        *(Fault(2.3, Kind.HELLOS_EATEN, (0, 2), 0.5, link=link) for link in (1, 2)),
        Fault(3.3, Kind.CRASH, (2,), 0.5),
        Fault(5.0, Kind.CABLE, (0,), 0.5, link=1),
        Fault(7.0, Kind.DRAIN, (0,)),
    ),
    limits=Limits(causeless=False),
)
"""Something happens, so that every place is come by."""
PLACES = [
    *("_take_in", "_hear", "_climb", "_learn", "_answer_requests", "_hear_moves", "_peer_changed", "_watch_peers"),
    *("_watch", "_probe", "must_listen", "_judge", "_judge_held", "_judge_free", "rivals", "eligible", "held_until"),
    *("claim_at", "rank", "_claim", "_yield", "_announce", "_judge_draining", "_judge_record", "_hello"),
    *("_keep_touch", "_ask", "in_touch", "_hear_frame", "_hear_answer", "_judge_rival"),
    *("_follow_move_plans", "_change_link", "_look_at", "_end_write", "_set_vacant", "_hear_left", "_become_mutual"),
]


class Unforeseen(Exception):
    """Raised when a test plays a bug."""


def breaking(place: str) -> type[Ownership]:
    """Raises at ``place`` once, in the machine of n0."""

    class Misjudging(Rules):
        pass

    class Breaking(Ownership):
        told: list[InternalError] = []  # noqa: RUF012  one for all of the world's hosts
        now = 0.0
        born = float("inf")

        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, rules=Misjudging(), **named)  # type: ignore[arg-type]

        def step(self, now: float, event: object) -> list[Order]:
            Breaking.born = min(Breaking.born, now)
            self.now = now
            orders = super().step(now, event)  # type: ignore[arg-type]
            self.told.extend(order for order in orders if isinstance(order, InternalError))
            return orders

    judges = hasattr(Rules, place)
    where = Misjudging if judges else Breaking

    def once(self: object, *arguments: object, **named: object) -> object:
        machine = arguments[0] if judges else self
        if machine.node == "n0" and machine.now >= BEGINS and not Breaking.broken:
            Breaking.broken = True
            raise Unforeseen(place)
        return getattr(super(where, self), place)(*arguments, **named)

    Breaking.broken = False  # type: ignore[attr-defined]
    setattr(where, place, once)
    return Breaking


@pytest.mark.parametrize("place", PLACES)
def test_no_eip_goes_unanswered_for_longer_than_a_failover(place: str) -> None:
    make = breaking(place)
    world = World(TRIO, make, trace=True).run(until=TRIO.end)
    assert make.broken, "the place was not come by"  # type: ignore[attr-defined]
    assert [str(order.error) for order in make.told] == [place]  # type: ignore[attr-defined]
    assert all(len(world.holders(eip)) == 1 for eip in world.eips)
    gaps = [(str(eip), round(end - begin, 3)) for eip, begin, end in world.promises.gaps if begin > BEGINS - 0.1]
    assert all(gap <= FAILOVER for _, gap in gaps), gaps
