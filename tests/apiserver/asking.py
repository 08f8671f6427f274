"""Requests to the real API server as anybody, and what it says to them."""

import json
import ssl
import urllib.request
from typing import Any
from urllib.error import HTTPError

from real_api import USERS, RealApi

GUARD = 300.0
"""Seconds; against a hang: of a busy server a whole collection takes long to delete."""
BY_METHOD = {"PATCH": "application/merge-patch+json", "APPLY": "application/apply-patch+yaml"}


class Asking:
    """``ask("POST", path, body)`` → HTTP's code and the answer as plain data, whether it was refused or not. ``APPLY``
    is a PATCH by server-side apply."""

    def __init__(self, api: RealApi, token: str = USERS["admin"][0]) -> None:
        self._url, self._token = api.url, token
        self._context = ssl.create_default_context(cafile=api.ca)

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": BY_METHOD.get(method, "application/json"),
        }
        content = None if body is None else json.dumps(body).encode()
        method = "PATCH" if method == "APPLY" else method
        request = urllib.request.Request(self._url + path, content, headers, method=method)  # noqa: S310 (our own server)
        try:
            with urllib.request.urlopen(request, timeout=GUARD, context=self._context) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)


def refusals(answer: dict[str, Any]) -> dict[str, list[str]]:
    """Field → what is wrong with it, of a refused object."""
    found: dict[str, list[str]] = {}
    for cause in answer.get("details", {}).get("causes", []):
        found.setdefault(cause.get("field", ""), []).append(cause["message"])
    return found
