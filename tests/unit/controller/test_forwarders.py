"""When kube-proxy is told to leave the EIPs alone: once no agent is left that does not forward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.controller.sessions import DEAD, Forwarders

STORIES = [
    ("nobody says that it does not forward", [(0, {})], True),
    ("one that is there may be long gone", [(0, {"a": "1"})], None),
    ("one that renews its Lease is not", [(0, {"a": "1"}), (5, {"a": "2"})], False),
    ("one that comes is not", [(0, {}), (5, {"a": "1"})], False),
    (
        "one that goes on without a renewal for a while is not",
        [(0, {}), (5, {"a": "1"}), (4 + DEAD, {"a": "1"})],
        False,
    ),
    ("one that died says nothing any more", [(0, {}), (5, {"a": "1"}), (5 + DEAD, {"a": "1"})], True),
    ("one that had died before says nothing", [(0, {"a": "1"}), (DEAD, {"a": "1"})], True),
    ("one that comes back from the dead counts", [(0, {"a": "1"}), (DEAD, {"a": "1"}), (99, {"a": "2"})], False),
    ("the last of them forwards", [(0, {"a": "1"}), (5, {"a": "2", "b": "1"}), (9, {"b": "2"}), (15, {})], True),
    ("of two one is dead", [(0, {"a": "1", "b": "1"}), (5, {"a": "1", "b": "2"})], False),
]


@pytest.mark.parametrize(("story", "heard", "told"), STORIES, ids=[story for story, *_ in STORIES])
def test_who_says_what(story, heard, told):
    forwarders = Forwarders()
    for now, without in heard:
        forwarders.heard(without, now)
    assert forwarders.all_forward is told


NODES = ["n1", "n2", "n3"]
STEP = st.one_of(
    st.tuples(st.just("roll"), st.sampled_from(NODES), st.sampled_from(["none", "ipvs"])),
    st.tuples(st.just("ready"), st.sampled_from(NODES), st.just("")),
    st.tuples(st.just("ask"), st.just(""), st.just("")),
    st.tuples(st.just("new leader"), st.just(""), st.just("")),
)


@given(steps=st.lists(STEP, max_size=40))
def test_there_and_back_in_any_order_nobody_holds_an_eip_that_nobody_carries(steps):
    """Agents without a forwarder may hold EIPs while kube-proxy carries them, and say so before they do; agents with
    one hold them always, and say so when they are ready."""
    works = dict.fromkeys(NODES, "none")
    says, versions, now = dict(works), dict.fromkeys(NODES, 0), 0.0
    forwarders, proxied = Forwarders(), False
    may_hold = set(NODES)
    for step, node, forwarder in steps:
        now += 1
        for each in NODES:  # all renew their Leases
            versions[each] += 1
        match step:
            case "roll":
                works[node] = forwarder
                may_hold.discard(node)
                if forwarder == "none":
                    says[node] = forwarder
            case "ready":
                says[node] = works[node]
            case "ask":
                forwarders.heard({each: str(versions[each]) for each in NODES if says[each] == "none"}, now)
                proxied = proxied if forwarders.all_forward is None else forwarders.all_forward
            case "new leader":
                forwarders = Forwarders()
        may_hold |= {each for each in NODES if works[each] == "ipvs" or not proxied}
        assert {each for each in may_hold if works[each] == "none" and proxied} == set()


def test_a_cluster_that_forwards_everywhere_is_left_alone_in_the_end_and_one_that_does_not_is_not():
    forwarders, versions = Forwarders(), {"n1": 1, "n2": 1}
    forwarders.heard({name: str(version) for name, version in versions.items()}, 0)
    forwarders.heard({"n1": "1", "n2": "2"}, 5)
    assert forwarders.all_forward is False
    forwarders.heard({"n2": "3"}, 20)
    assert forwarders.all_forward is False
    forwarders.heard({}, 25)
    assert forwarders.all_forward is True
    forwarders.heard({"n2": "5"}, 30)
    assert forwarders.all_forward is False
