"""Every address that any Service ever had, in the order in which a real API server stored it."""

import json
import ssl
import urllib.request
from threading import Thread
from typing import Any, NamedTuple

from asking import Asking
from real_api import PATIENCE, USERS, RealApi

SERVICES = "/api/v1/services"
LAST = "/api/v1/namespaces/default/services/kubernetes"
"""A Service that nobody else writes: a label there is the end of what is watched."""


class Moment(NamedTuple):
    service: str
    """namespace/name."""
    event: str
    """ADDED, MODIFIED or DELETED."""
    addresses: tuple[str, ...]


class Moments:
    """``with Moments(api) as seen``: watched from here on, without a gap; complete once the block has ended."""

    def __init__(self, api: RealApi) -> None:
        self._api, self._ask = api, Asking(api)
        self.all: list[Moment] = []

    def __enter__(self) -> "Moments":
        _, listed = self._ask("GET", SERVICES)
        self._version = listed["metadata"]["resourceVersion"]
        self._thread = Thread(target=self._watch, name="moments", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ask("PATCH", LAST, {"metadata": {"labels": {"watched-from": self._version}}})
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _watch(self) -> None:
        url = f"{self._api.url}{SERVICES}?watch=1&timeoutSeconds=3600&resourceVersion={self._version}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {USERS['admin'][0]}"})  # noqa: S310
        context = ssl.create_default_context(cafile=self._api.ca)
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as lines:  # noqa: S310 (our own server)
            for line in lines:
                told = json.loads(line)
                if told["object"]["metadata"].get("labels", {}).get("watched-from") == self._version:
                    return
                self.all.append(_moment(told["type"], told["object"]))

    def of(self, service: str) -> list[Moment]:
        return [each for each in self.all if each.service == service]


def _moment(event: str, service: dict[str, Any]) -> Moment:
    meta, ingress = service["metadata"], service["status"].get("loadBalancer", {}).get("ingress", [])
    return Moment(f"{meta['namespace']}/{meta['name']}", event, tuple(each["ip"] for each in ingress))
