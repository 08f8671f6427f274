"""A bug of ours in the ownership machine of one node of three, at each place in turn. Time is virtual, in seconds."""

import pytest
from simulation.schedule import Fault, Kind, Limits, Schedule
from simulation.world import World
from simulation.wrong_machines import part

from speaker.ownership.events import Event, InternalError, Order
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
    *("Ownership._take_in", "Hearing.hear", "Name.climb", "Hearing._learn", "Hearing._answer_requests", "Moves.hear"),
    *("Silence.peer_changed", "Silence.watch_peers", "Silence._watch", "Silence._probe", "Rules.must_listen"),
    *("Claims.judge", "Claims._judge_held", "Claims._judge_free", "Known.rivals", "Rules.eligible", "Rules.held_until"),
    *("Rules.claim_at", "Rules.rank", "Claims.claim", "Claims.yield_", "Claims.announce", "Claims._judge_draining"),
    *("Records.follow", "Ownership._hello", "Silence._keep_touch", "Silence._ask", "Rules.in_touch"),
    *("Silence.hear_frame", "Hearing.hear_answer", "Claims._judge_rival", "Moves._follow", "Ownership._change_link"),
    *("Agenda.look_at", "Records.end", "Claims._set_vacant", "Hearing._hear_left", "Hearing._become_mutual"),
]


class Unforeseen(Exception):
    """Raised when a test plays a bug."""


def breaking(place: str) -> type[Ownership]:
    """Raises at ``place`` once, in the machine of n0."""

    class Breaking(Ownership):
        told: list[InternalError] = []  # noqa: RUF012  one for all of the world's hosts
        broken = False

        def __init__(self, *arguments: object, **named: object) -> None:
            misjudging = type("Misjudging", (Rules,), {})()
            super().__init__(*arguments, rules=misjudging, **named)  # type: ignore[arg-type]
            kind, method = place.split(".")
            right = getattr(part(self, kind), method)

            def once(*arguments: object, **named: object) -> object:
                if self.node == "n0" and self.known.agenda.now >= BEGINS and not Breaking.broken:
                    Breaking.broken = True
                    raise Unforeseen(place)
                return right(*arguments, **named)

            setattr(part(self, kind), method, once)

        def step(self, now: float, event: Event) -> list[Order]:
            orders = super().step(now, event)
            self.told.extend(order for order in orders if isinstance(order, InternalError))
            return orders

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
