"""What a Service of ours asks of another balancer: said, or obeyed as if it had asked us. It never gets more by it."""

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from speaker.api.fields import ApiObject, read, read_leniently
from speaker.api.others import WISHES, balancer_of
from speaker.api.reading import read_world
from speaker.api.service import service
from speaker.errors import InvalidManifests
from speaker.model import Balancer
from speaker.settings import parse_balancers

VALUES = {"addresses": "192.0.2.7", "pool": "lan", "share": "a key", "share-namespaces": "red,blue"}
BAD = {
    "addresses": ["192.0.2.300", "0.0.0.0", "224.0.0.1", "dhcp", "192.0.2.1,", " "],
    "pool": ["LAN", "a b", "-", "x" * 300],
    "share": [],
    "share-namespaces": ["*", "RED", "a,,b", ",".join(f"n{i}" for i in range(300))],
}


def asking(annotations, **spec):
    return ApiObject(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec},
        }
    )


def decoded(annotations, honoured=(), **spec):
    return read(asking(annotations, **spec), lambda root: service(root, default_class=True, honoured=honoured))


def wishes(found):
    return found.addresses, found.pools, found.share, found.share_namespaces


def ours(kind, value):
    return {f"eip-speaker.io/{kind}": value, **with_key(kind, "eip-speaker.io/share")}


def with_key(kind, name):
    return {name: "a key"} if kind == "share-namespaces" else {}


def theirs(name, value):
    key = next(each for each, kind in WISHES.items() if kind == "share")
    sharing = next(
        (each for each, kind in WISHES.items() if kind == "share" and balancer_of(each) is balancer_of(name)), key
    )
    return {name: value, **with_key(WISHES[name], sharing)}


@pytest.mark.parametrize("name", [name for name, wish in WISHES.items() if wish in ("addresses", "pool")])
def test_another_balancers_annotation_names_one_address_of_a_family_and_one_pool(name):
    """Ours may name several."""
    value = {"addresses": "192.0.2.10,192.0.2.11", "pool": "lan,dmz"}[WISHES[name]]
    with pytest.raises(InvalidManifests):
        decoded({name: value}, honoured=[*Balancer])


@pytest.mark.parametrize("name", WISHES)
def test_what_is_asked_of_another_balancer_is_said_with_both_ways_to_have_it(name):
    reading = read_world([asking({name: VALUES[WISHES[name]]})], default_class=True)
    (found,) = reading.world.services.values()
    (notice,) = reading.notices
    assert wishes(found) == ((), (), None, frozenset())
    assert found.unheeded == (name,)
    for part in (name, f"write eip-speaker.io/{WISHES[name]}", f"--honour-annotations {balancer_of(name).value}"):
        assert part in notice.sentence


@pytest.mark.parametrize("name", WISHES)
def test_an_honoured_balancers_annotation_asks_as_ours_does(name):
    kind = WISHES[name]
    found = decoded(theirs(name, VALUES[kind]), {balancer_of(name)})
    assert wishes(found) == wishes(decoded(ours(kind, VALUES[kind])))
    assert found.unheeded == ()


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, kind in WISHES.items() for value in BAD[kind]])
def test_a_bad_value_of_an_honoured_one_is_refused_by_the_rule_that_ours_has(name, value):
    def rules(annotations, honoured):
        with pytest.raises(InvalidManifests) as refused:
            decoded(annotations, honoured)
        return [problem.rule for problem in refused.value.problems]

    assert rules(theirs(name, value), {balancer_of(name)}) == rules(ours(WISHES[name], value), ())


@pytest.mark.parametrize("name", WISHES)
@pytest.mark.parametrize("honoured", [(), {*Balancer}], ids=["none", "all"])
def test_ours_counts_where_both_ask_and_the_other_is_said(name, honoured):
    kind = WISHES[name]
    both = {**ours(kind, VALUES[kind]), name: "192.0.2.9" if kind == "addresses" else "another"}
    found = decoded(both, honoured)
    assert wishes(found) == wishes(decoded(ours(kind, VALUES[kind])))
    assert found.unheeded == (name,)


def test_one_that_says_what_ours_says_is_obeyed_already():
    both = {**ours("pool", "lan"), "metallb.io/address-pool": "lan"}
    assert decoded(both).unheeded == ()


def test_only_the_honoured_balancers_count_and_of_one_its_newer_annotation():
    annotations = {
        "metallb.universe.tf/address-pool": "old",
        "metallb.io/address-pool": "new",
        "purelb.io/service-group": "other",
    }
    found = decoded(annotations, {Balancer.METALLB})
    assert found.pools == ("new",)
    assert found.unheeded == ("metallb.universe.tf/address-pool", "purelb.io/service-group")


@pytest.mark.parametrize("name", WISHES)
def test_an_empty_value_asks_for_nothing(name):
    for honoured in ((), {*Balancer}):
        found = decoded({name: ""}, honoured)
        assert (wishes(found), found.unheeded) == (((), (), None, frozenset()), ())


def test_the_field_for_one_address_must_agree_with_an_honoured_annotation():
    with pytest.raises(InvalidManifests, match="must be the same as the annotation lbipam"):
        decoded({"lbipam.cilium.io/ips": "192.0.2.7"}, {Balancer.CILIUM}, loadBalancerIP="192.0.2.8")


@settings(max_examples=examples(200), deadline=None)
@given(
    annotations=st.dictionaries(
        st.sampled_from([*WISHES, "eip-speaker.io/pool", "eip-speaker.io/addresses"]),
        st.text(max_size=8) | st.sampled_from([*VALUES.values(), *(each for bad in BAD.values() for each in bad)]),
        max_size=4,
    ),
    honoured=st.sets(st.sampled_from(Balancer)),
)
def test_every_wish_is_obeyed_refused_or_said(annotations, honoured):
    found, problems = read_leniently(
        asking(annotations), lambda root: service(root, default_class=True, honoured=honoured)
    )
    for name, value in annotations.items():
        if name not in WISHES or not value:
            continue
        obeyed = any(annotations.get(other) == value for other in heard(annotations, WISHES[name], honoured))
        assert problems or obeyed or name in found.unheeded


def heard(annotations, kind, honoured):
    names = [name for name, each in WISHES.items() if each == kind and balancer_of(name) in honoured]
    names = [f"eip-speaker.io/{kind}", *names]
    return [next((name for name in names if annotations.get(name)), "")]


def test_the_flag_takes_names_and_refuses_others():
    assert parse_balancers("metallb,kube-vip") == {Balancer.METALLB, Balancer.KUBE_VIP}
    assert parse_balancers("") == frozenset()
    with pytest.raises(Exception, match="openelb, metallb, kube-vip, purelb, cilium"):
        parse_balancers("metallb,f5")
