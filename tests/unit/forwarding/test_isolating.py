"""What the kernel refuses of one Service keeps no other from its own."""

import asyncio
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.errors import EdgeError, NotDone
from speaker.forwarding.changes import diff
from speaker.forwarding.isolating import HANGS, Isolating, differing, mixed
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer
from speaker.model import Protocol

EIPS = [ip_address(f"192.0.2.{number}") for number in range(10, 16)]


class Heard:
    def __init__(self):
        self.errors = []

    def internal_error(self, task, error):
        self.errors.append((task, error))


class Kernel:
    """Takes a plan whole or refuses it whole, and remembers the last one it took."""

    name = "kernel"

    def __init__(self, poison=frozenset(), raises=EdgeError):
        self.plan, self.asked, self.poison, self.raises = EMPTY, EMPTY, poison, raises
        self.tries = 0
        self.broken = False

    async def apply(self, plan):
        self.asked = plan
        self.tries += 1
        if self.broken:
            raise EdgeError("no nft here")
        for key, server in plan.virtual_servers.items():
            if key in self.poison and self.plan.virtual_servers.get(key) != server:
                raise self.raises(f"refused {key}")
        changes = diff(self.plan, plan)
        self.plan = plan
        return changes

    async def pending(self, plan):
        return diff(self.plan, plan)


def plan_of(keys, weight=1):
    real = RealServer(ip_address("10.0.0.1"), 8080, weight=weight)
    servers = [VirtualServer(EIPS[eip], Protocol.TCP, port, real_servers=(real,)) for eip, port in keys]
    return Plan(frozenset(server.address for server in servers), {server.key: server for server in servers})


keys = st.frozensets(st.tuples(st.integers(0, 5), st.sampled_from([80, 443, 8443])), max_size=12)


@given(before=keys, after=keys, bad=keys)
def test_all_but_what_is_refused_comes_about(before, after, bad):
    async def story():
        kernel = Kernel()
        isolating = Isolating(kernel, Heard())
        await isolating.apply(plan_of(before))
        kernel.poison = frozenset(plan_of(bad).virtual_servers)
        want = plan_of(after, weight=2)
        await isolating.apply(want)
        stands = kernel.plan.virtual_servers
        for key, server in want.virtual_servers.items():
            if key not in kernel.poison:
                assert stands[key] == server
        assert kernel.asked == kernel.plan, "what is kept up is what was accepted"
        assert set(isolating.refused) == {key for key in want.virtual_servers if key in kernel.poison}
        for eip in want.eips:
            served = any(key[0] == eip for key in stands)
            assert (eip in isolating.unserved(want)) is not served

    asyncio.run(story())


@pytest.mark.parametrize("raises", [EdgeError, ZeroDivisionError])
async def test_the_one_that_is_refused_is_named_with_the_reason(raises):
    heard = Heard()
    poison = plan_of([(1, 80)])
    isolating = Isolating(Kernel(frozenset(poison.virtual_servers), raises), heard)
    await isolating.apply(plan_of([(0, 80)]))
    await isolating.apply(plan_of([(0, 80), (1, 80), (2, 80)]))
    ((part, words),) = isolating.refused.items()
    assert part == (EIPS[1], Protocol.TCP, 80)
    assert "refused" in words
    assert isolating.unserved(plan_of([(0, 80), (1, 80), (2, 80)])) == {EIPS[1]}
    assert bool(heard.errors) is (raises is ZeroDivisionError)


async def test_a_change_that_is_refused_leaves_what_stood():
    kernel = Kernel()
    isolating = Isolating(kernel, Heard())
    await isolating.apply(plan_of([(0, 80), (1, 80)]))
    kernel.poison = frozenset(plan_of([(1, 80)]).virtual_servers)
    want = plan_of([(0, 80), (1, 80)], weight=0)
    await isolating.apply(want)
    assert kernel.plan.virtual_servers[EIPS[0], Protocol.TCP, 80].real_servers[0].weight == 0
    assert kernel.plan.virtual_servers[EIPS[1], Protocol.TCP, 80].real_servers[0].weight == 1
    assert isolating.unserved(want) == frozenset()
    kernel.poison = frozenset()
    await isolating.apply(want)
    assert kernel.plan == want
    assert not isolating.refused


async def test_a_kernel_that_refuses_everything_is_asked_a_few_times_and_its_refusal_raised():
    kernel = Kernel()
    isolating = Isolating(kernel, Heard())
    await isolating.apply(plan_of([(0, 80)]))
    kernel.broken, kernel.tries = True, 0
    with pytest.raises(EdgeError, match="no nft here"):
        await isolating.apply(plan_of([(eip, port) for eip in range(6) for port in (80, 443)]))
    assert kernel.tries == 2


async def test_a_kernel_whose_program_hangs_is_asked_fewer_times_yet():
    """A minute passes each time, in which nothing else is done."""
    ports = [(eip, port) for eip in range(6) for port in (80, 443, 8443)]
    kernel = Kernel(frozenset(plan_of(ports).virtual_servers), NotDone)
    isolating = Isolating(kernel, Heard())
    with pytest.raises(NotDone):
        await isolating.apply(plan_of(ports))
    assert kernel.tries == 2 + HANGS


async def test_a_speaker_that_has_just_started_takes_nothing_of_what_stands_away():
    kernel = Kernel()
    kernel.plan = plan_of([(eip, 80) for eip in range(5)])
    kernel.poison = frozenset(plan_of([(5, 80)]).virtual_servers)
    isolating = Isolating(kernel, Heard())
    taken = []
    apply = kernel.apply

    async def watched(plan):
        changes = await apply(plan)
        taken.extend(change for change in changes if type(change).__name__.startswith("Remove"))
        return changes

    kernel.apply = watched
    await isolating.apply(plan_of([(eip, 80) for eip in range(6)]))
    assert not taken
    assert isolating.unserved(plan_of([(eip, 80) for eip in range(6)])) == {EIPS[5]}


@given(have=keys, want=keys)
def test_the_parts_that_differ_are_the_whole_difference(have, want):
    have, want = plan_of(have), plan_of(want, weight=2)
    assert mixed(have, want, differing(have, want)) == want
    assert mixed(have, want, []) == have
