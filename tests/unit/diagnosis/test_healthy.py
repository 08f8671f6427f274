"""A node that is well gets no finding, whatever else is true of it: a finding that is wrong there is a bug."""

import pytest
from examples import examples
from healthy import facts, many
from hypothesis import HealthCheck, given, settings

from speaker.diagnosis.chain import explain, findings
from speaker.diagnosis.facts import decode, encode

MANY = settings(max_examples=examples(350), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(facts())
def test_the_doctor_is_silent(found):
    assert findings(found) == []


@pytest.mark.parametrize("eips", [1, 300, 3000])
@MANY
@given(found=facts())
def test_the_doctor_is_silent_with_many_eips(eips, found):
    assert findings(many(found, eips)) == []


@settings(max_examples=examples(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(facts())
def test_no_step_of_an_explanation_is_broken(found):
    chain = explain(found)
    assert chain.verdict is None, chain.verdict
    assert chain.code in (0, 2)


@settings(max_examples=examples(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(facts())
def test_facts_are_the_same_behind_a_wire(found):
    assert decode(encode(found)) == found
