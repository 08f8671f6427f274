"""A simulated host answers what its machine ordered, and nothing else: what the machine believes counts for nothing."""

from simulation.families import FAMILIES
from simulation.promises import Promise
from simulation.schedule import Limits, Schedule
from simulation.shrink import broken
from simulation.world import World

from speaker.ownership.events import Claim, Event, Order, Withdraw
from speaker.ownership.machine.machine import Ownership

ALONE = Schedule(seed=1, nodes=1, eips=1, end=4.0, limits=Limits(unanswered=1.5, causeless=False))


class NeverSaysSo(Ownership):
    """It holds, and orders nobody to answer."""

    def step(self, now: float, event: Event) -> list[Order]:
        return [order for order in super().step(now, event) if not isinstance(order, Claim)]


class KeepsQuietAboutLettingGo(Ownership):
    """It lets go, and orders nobody to stop."""

    def step(self, now: float, event: Event) -> list[Order]:
        return [order for order in super().step(now, event) if not isinstance(order, Withdraw)]


class LetsGoTwice(Ownership):
    def step(self, now: float, event: Event) -> list[Order]:
        orders = super().step(now, event)
        return [*(order for order in orders if isinstance(order, Withdraw)), *orders]


def test_what_a_machine_holds_without_an_order_to_answer_is_not_answered() -> None:
    found = broken(ALONE, NeverSaysSo)
    assert found is not None
    assert found.promise is Promise.HEAL, "nobody answers the client at the end"


def test_what_a_machine_lets_go_without_an_order_to_stop_is_answered_on() -> None:
    schedules = (FAMILIES["drain"][0](seed) for seed in range(20))
    found = [each.promise for schedule in schedules if (each := broken(schedule, KeepsQuietAboutLettingGo)) is not None]
    assert Promise.ONE_ANSWER in found


def test_what_is_let_go_twice_in_one_step_is_let_go_once() -> None:
    schedule = FAMILIES["drain"][0](1)
    world, twice = World(schedule).run(), World(schedule, LetsGoTwice).run()
    assert twice.promises.broken is None
    assert twice.promises.moves == world.promises.moves


def test_no_answer_is_given_once_the_deadline_behind_the_last_hello_is_over() -> None:
    world = World(ALONE).run(until=2.0)
    host, eip = world.hosts[0], world.eips[0]
    assert host.answers(eip)
    world.clock.now += host.times.self_lease
    assert not host.answers(eip)
    assert host.machine.holding(eip)
