"""A Service that meets a bug of ours keeps what it holds, and nobody else notices."""

from dataclasses import replace

import pytest

BROKEN = {"addresses": (object(),), "families": object()}
"""Values that no reading ever gives: whatever looks at them raises."""


@pytest.mark.parametrize("field", ["addresses", "families"])
def test_one_that_cannot_be_settled_is_refused_by_name_and_the_others_are_served(lan, service, field):
    lan.pool("lan", "192.0.2.0/29")
    broken = replace(service("b"), **{field: BROKEN[field]})
    assert lan.settle([service("a"), broken, service("c")]) == {
        "a": "192.0.2.1",
        "b": "internal_error",
        "c": "192.0.2.2",
    }


@pytest.mark.parametrize("field", ["addresses", "families"])
def test_what_it_holds_it_keeps_until_it_can_be_settled_again(lan, service, field):
    lan.pool("lan", "192.0.2.0/29")
    assert lan.settle([service("a"), service("b")]) == {"a": "192.0.2.1", "b": "192.0.2.2"}
    answers = lan.settle([replace(service("a"), **{field: BROKEN[field]}), service("b"), service("c")])
    assert "192.0.2.1" in answers["a"]
    assert "internal_error" in answers["a"]
    assert (answers["b"], answers["c"]) == ("192.0.2.2", "192.0.2.3")
    assert lan.settle([service("a"), service("b")]) == {"a": "192.0.2.1", "b": "192.0.2.2"}
