"""Cost follows the addresses in use, never the size of a pool. No clock: enumerating these pools would not end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.allocator.pools import Space, offers
from speaker.api.addresses import parse_range
from speaker.model import Family, Pool

HUGE = ["10.0.0.0/8", "1.0.0.0-126.255.255.255", "2001:db8::/32", "2000::/3", "2001:db8::/48"]


@pytest.mark.parametrize("addresses", HUGE)
def test_a_huge_pool_serves_ten_thousand_like_a_small_one(lan, service, addresses):
    lan.pool("lan", addresses)
    family = "6" if ":" in addresses else "4"
    services = [service(f"s{n}", families=family) for n in range(10_000)]
    first = lan.settle(services)
    assert len(set(first.values())) == 10_000
    assert lan.settle(services) == first
    lan.settle(services[5_000:])
    assert lan.used("lan", Family.of(parse_range(addresses).first))[1:] == (5_000, 5_000)
    lan.restart()
    assert lan.settle(services[5_000:]) == {f"s{n}": first[f"s{n}"] for n in range(5_000, 10_000)}


class CountingOffer:
    """Counts how often the arithmetic is asked, which is where a walk over a pool would show."""

    def __init__(self, offer):
        self.offer, self.asked = offer, 0
        self.size, self.address = offer.size, offer.address

    def at_or_after(self, number):
        self.asked += 1
        return self.offer.at_or_after(number)


@pytest.mark.parametrize("addresses", ["10.0.0.0/16", *HUGE])
def test_each_choice_takes_a_constant_number_of_steps(addresses):
    pool = Pool("lan", (parse_range(addresses),))
    ((_, offer),) = offers(pool).items()
    counting = CountingOffer(offer)
    space = Space(pool, counting)
    held = []
    for _ in range(10_000):
        held.append(space.choose())
        space.use(held[-1])
    assert counting.asked <= 2 * 10_000
    for address in held:
        space.rest(address)
        space.free(address)
    counting.asked = 0
    assert [space.choose() for _ in range(100)] == [held[0]] * 100
    assert counting.asked == 0


def test_churn_leaves_nothing_behind():
    """One address asked for and given back for ever must not grow the list of free ones."""
    pool = Pool("lan", (parse_range("10.0.0.0/8"),))
    space = Space(pool, offers(pool)[Family.IPV4])
    first = space.choose()
    space.use(first)
    space.choose()
    for _ in range(1_000):
        space.rest(first)
        space.free(first)
        space.use(first)
    assert len(space._freed) <= 1


@given(st.lists(st.tuples(st.sampled_from(["use", "rest", "free"]), st.integers(0, 9)), max_size=60))
def test_the_choice_is_always_the_lowest_free_address(steps):
    pool = Pool("lan", (parse_range("192.0.2.10-192.0.2.19"),))
    space = Space(pool, offers(pool)[Family.IPV4])
    base = parse_range("192.0.2.10").first
    used, resting = set(), []
    for step, n in steps:
        address = sorted(used)[n % len(used)] if step == "rest" and used else base + n
        if step == "use" and address not in used:
            space.use(address)
            used.add(address)
            resting = [each for each in resting if each != address]
        elif step == "rest" and address in used:
            space.rest(address)
            used.discard(address)
            resting.append(address)
        elif step == "free" and resting:
            space.free(resting.pop(0))
        free = [base + k for k in range(10) if base + k not in used and base + k not in resting]
        assert space.choose() == (free[0] if free else resting[0] if resting else None)
        assert (space.used, space.resting) == (len(used), len(resting))
