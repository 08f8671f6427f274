"""What is read of an object's metadata."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.api.fields import timestamp


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("", ""),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T01:00:00+02:00", "2026-01-30T23:00:00Z"),
        ("2026-01-31T23:00:00-02:00", "2026-02-01T01:00:00Z"),
    ],
)
def test_a_time_is_read_as_the_api_writes_it_so_that_the_older_service_sorts_first(written, read):
    assert timestamp(written) == read


@pytest.mark.parametrize(
    "written",
    [
        "yesterday",
        " ",
        "2026-01-31",
        "20260131T120000Z",
        "2026-01-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-W05-6",
        "2026-01-31T25:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "٢٠٢٦-01-31T12:00:00Z",
        "2026-01-31T12:00:00Z\n",
    ],
)
def test_what_is_no_time_is_refused(written):
    with pytest.raises(ValueError, match=r"RFC 3339|not a time that exists"):
        timestamp(written)


OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=OFFSETS)  # noqa: DTZ001


@given(MOMENTS, MOMENTS)
def test_two_times_sort_as_they_follow_each_other_whatever_their_offsets(one, other):
    first, second = sorted((one, other), key=lambda each: each.timestamp())
    assert timestamp(first.isoformat()) <= timestamp(second.isoformat())
