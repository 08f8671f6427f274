"""What one mirror notices of a restored API counts for all others."""

from typing import Any, cast

from speaker.cluster.mirror.reflector import Reflector, Resource, list_others
from speaker.cluster.objects import Object
from speaker.cluster.transport.client import Client


class Noting(Reflector[Object]):
    """Notes that it is told to list anew."""

    def __init__(self, path: str, told: list[str]) -> None:
        nobody = cast("Client", None)  # never asked: it does not run
        super().__init__(nobody, Resource(path, Object), lambda _: None)
        self._noted = told

    def list_anew(self) -> None:
        self._noted.append(self.resource.path)


def test_all_but_the_one_that_noticed_it_list_anew() -> None:
    told: list[str] = []
    mirrors: list[Reflector[Any]] = [Noting(path, told) for path in ("/services", "/eips", "/nodes")]
    list_others(mirrors, "/eips")
    assert told == ["/services", "/nodes"]
