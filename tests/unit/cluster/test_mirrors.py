"""What shows that the server has other data has every mirror list anew, once."""

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from speaker.api.objects import Object
from speaker.cluster.feed import Resource
from speaker.cluster.reflector import Mirrors, Reflector


class Noting(Reflector[Object]):
    """Counts how often it is to list anew."""

    def __init__(self, path: str, among: Mirrors) -> None:
        nobody = cast("Any", None)  # never asked: it does not run
        super().__init__(nobody, Resource(path, Object), lambda _: None, nobody, among=among)
        self.anew = 0

    def list_anew(self) -> None:
        self.anew += 1


def made() -> tuple[Mirrors, list[Noting]]:
    mirrors = Mirrors()
    return mirrors, [Noting("/services", mirrors), Noting("/eips", mirrors)]


@pytest.mark.parametrize(
    ("versions", "times"),
    [
        ([], 0),
        ([7], 0),
        ([7, 7, 9, 1000], 0),
        ([0, 0, 7], 0),
        ([7, 6], 1),
        ([7, 0], 1),
        ([7, 6, 8, 9], 1),
        ([7, 6, 5], 2),
        ([7, 0, 0, 3], 1),
    ],
)
def test_each_time_that_the_lease_goes_back_everything_is_listed_anew(versions: list[int], times: int) -> None:
    mirrors, noting = made()
    with capture_logs() as logs:
        for version in versions:
            mirrors.saw_lease(version)
    assert [each.anew for each in noting] == [times, times]
    assert len(logs) == times


def test_what_one_mirror_noticed_is_not_noticed_again_by_the_lease() -> None:
    mirrors, noting = made()
    mirrors.saw_lease(7)
    mirrors.restored()
    mirrors.saw_lease(5)
    assert [each.anew for each in noting] == [1, 1]
    mirrors.saw_lease(4)
    assert [each.anew for each in noting] == [2, 2]
