"""What was recorded of seconds is played as hours: counters rise on, as they did."""

from hypothesis import given
from hypothesis import strategies as st
from playing import Phase, Scrape, series

COUNTER = "eip_speaker_hellos_sent_total"
RISES = st.one_of(st.integers(0, 10**6), st.floats(0, 10**4))


def scrape(at, value):
    return Scrape(at, {"agents": {"n1": f"# TYPE {COUNTER} counter\n{COUNTER} {value!r}\n"}})


def played(line):
    """The first and the last value of each phase, added up as promtool does."""
    for words in line.split():
        start, _, rest = words.partition("+")
        pace, _, times = rest.partition("x")
        last = float(start)
        for _ in range(int(times)):
            last += float(pace)
        yield float(start), last


@given(st.lists(st.tuples(RISES, st.floats(0.5, 10.0), RISES, st.integers(1, 60)), min_size=2, max_size=5))
def test_a_counter_that_never_fell_never_falls(phases):
    value, recorded, steps = 0.0, [], {}
    for number, (rise, seconds, between, count) in enumerate(phases):
        name, value, before = str(number), value + rise, value
        recorded.append(Phase(name, scrape(100.0 * number, before), scrape(100.0 * number + seconds, value)))
        value, steps[name] = value + between, count
    (told,) = series(recorded, steps)
    found = [value for pair in played(told["values"]) for value in pair]
    assert found == sorted(found)


@given(st.integers(0, 10**9), st.integers(1, 60))
def test_and_one_that_stands_still_does_so(value, count):
    still = [Phase(name, scrape(at, value), scrape(at + 3.0, value)) for name, at in (("one", 0.0), ("two", 50.0))]
    (told,) = series(still, {"one": count, "two": count})
    assert len({value for pair in played(told["values"]) for value in pair}) == 1
