"""Hellos of all kinds, for searches."""

from ipaddress import IPv6Address, ip_address

from hypothesis import strategies as st

from speaker.model import MAX_TERM, rank
from speaker.ownership.hello import EVERYTHING, MAX_AGE, Accused, Digest, Heard, Hello, Incarnation, Span
from speaker.ownership.hellos import frames

eips = st.ip_addresses() | st.sampled_from([ip_address(a) for a in ("0.0.0.0", "255.255.255.255", "::", "::1")])
few = st.dictionaries(eips, st.integers(0, MAX_TERM), max_size=60)
runs = st.builds(lambda first, count: {first + i: i for i in range(count)}, st.just(IPv6Address(5)), st.integers(0, 99))
terms = few | runs | st.builds(dict.__or__, few, runs)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60) | st.sampled_from(["n1", "n" * 253])
incarnations = st.integers(0, 2**63 - 1).map(Incarnation)
spans = st.tuples(eips, eips).map(lambda ends: Span(*sorted(ends, key=rank))) | st.just(EVERYTHING) | st.none()


def some_weak(said):
    some = st.sets(st.sampled_from(list(said.claims))) if said.claims else st.just(())
    return st.one_of(st.just(()), st.just(said.claims), some).map(lambda weak: said._replace(weak=frozenset(weak)))


hellos = st.builds(
    Hello,
    node=names,
    incarnation=incarnations,
    sequence=st.integers(0, 2**64 - 1),
    clock=st.integers(0, 2**64 - 1),
    digest=st.builds(Digest, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
    draining=st.booleans(),
    revision=st.integers(0, 2**32 - 1),
    claims=terms,
    covers=spans,
    intents=terms,
    yielded=terms,
    heard=st.dictionaries(
        names,
        st.builds(Heard, incarnations, st.integers(0, MAX_AGE), st.integers(0, 2**32 - 1)),
        max_size=30,
    ),
    probes=st.frozensets(names, max_size=5),
    wants=st.frozensets(names, max_size=5),
    weights=st.dictionaries(st.integers(0, 2**64 - 1), st.integers(1, 65535), max_size=80),
    weighs=st.just(True),
    moves=st.dictionaries(eips, names, max_size=20),
    unanswered=st.frozensets(st.builds(Accused, names, st.sampled_from([4, 6])), max_size=5),
    direct=st.booleans(),
    link=st.integers(0, 2**32 - 1),
    addresses=st.tuples(st.none() | st.ip_addresses(v=4), st.none() | st.ip_addresses(v=6)).map(
        lambda either: tuple(address for address in either if address is not None)
    ),
    own=st.frozensets(eips, max_size=64),
    deaf=st.booleans(),
    demoted=st.booleans(),
    interval=st.integers(0, 65535),
    links=st.integers(0, 255),
    lost=st.dictionaries(names, st.integers(0, 100), max_size=16),
    group=st.just(""),
).flatmap(some_weak)
mtus = st.integers(frames.MIN_MTU, 9000) | st.sampled_from([frames.MIN_MTU, 1280, 1500, 9000])
