"""What was given is counted once for each Service, with the reason of whoever lacks something."""

from speaker.allocator.assign import Outcome, Usage
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.allocator.settle import INVALID, MAX_FULL, Given, given, tally
from speaker.model import Assignment, Family, ServiceKey

WEB = ServiceKey("default", "web")
HAS = Assignment(WEB, (), ())
FULL = Refusal(WEB, RefusalReason.POOL_FULL, "no free address")


def test_a_service_has_all_or_part_or_nothing_of_what_it_asks_for():
    services = [given(Outcome(HAS)), given(Outcome(HAS, FULL)), given(Outcome(None, FULL)), Given(True, INVALID)]
    found = tally(services, {})
    assert found.services == {"assigned": 1, "partly": 2, "refused": 1}
    assert found.lacking == {"pool_full": 2, INVALID: 1}


def test_an_outcome_that_nobody_has_is_counted_as_none():
    assert tally([], {}).services == {"assigned": 0, "partly": 0, "refused": 0}


def test_pools_are_counted_by_family():
    usage = {"lan": {Family.IPV4: Usage(10, 2, 1), Family.IPV6: Usage(2**64, 0, 0)}}
    assert tally([], usage).pools == {("lan", "IPv4"): (10, 2, 1), ("lan", "IPv6"): (2**64, 0, 0)}


def test_namespaces_that_have_all_they_may_are_counted_up_to_a_bound():
    full = tuple((f"n{n:03}", 2) for n in range(MAX_FULL + 1))
    found = tally([], {"lan": {Family.IPV4: Usage(1000, 202, 0, full)}}).full
    assert len(found) == MAX_FULL
    assert found["lan", "IPv4", "n099"] == 2
