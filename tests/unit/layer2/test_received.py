"""How old received packets are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.packets.packet_socket import Received

SECOND = 10**9


def received(*stamps):
    """By their stamps in nanoseconds."""
    return Received(
        [b""] * len(stamps), bytearray(len(stamps)), [at // SECOND for at in stamps], [at % SECOND for at in stamps]
    )


@pytest.mark.parametrize(
    ("stamps", "now", "ages"),
    [
        ([100_250_000_000], 100.25, [0.0]),
        ([100_250_000_000, 100_240_000_000], 100.3, [0.05, 0.06]),
        ([99_990_000_000, 100_000_000_000], 100.01, [0.02, 0.01]),
        ([100_000_000_000], 99.0, [0.0]),  # the clock was set back while it waited
        ([100_000_000_000], 3700.0, [3600.0]),  # and here ahead
    ],
)
def test_age_is_counted_from_the_stamp_and_never_negative(stamps, now, ages):
    assert received(*stamps).ages(now) == pytest.approx(ages, abs=1e-6)
    assert received(*stamps).oldest(now) == pytest.approx(max(ages), abs=1e-6)


@given(st.lists(st.integers(0, 3 * SECOND), min_size=1), st.floats(0, 5))
def test_the_oldest_is_the_greatest_of_the_ages(stamps, now):
    batch = received(*stamps)
    assert batch.oldest(now) == pytest.approx(max(batch.ages(now)), abs=1e-6)
