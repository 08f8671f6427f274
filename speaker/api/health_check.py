"""The annotation ``eip-speaker.io/health-check`` → ``HealthCheck``. Pure.

``https:/readyz interval=1s timeout=1s rise=2 fall=3 status=200-399 ca=/etc/ssl/ca.crt server-name=api.example``: the
first word is ``tcp``, ``http:/PATH`` or ``https:/PATH``, the others are optional, in any order.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from speaker.api.fields import did_you_mean, dns_subdomain, duration
from speaker.model import HealthCheck

MAX_TEXT = 1024
"""Characters of the annotation."""
HIGHEST = 100
"""Of ``rise`` and ``fall``."""
SHORTEST, LONGEST = 0.1, 3600.0
"""Seconds of an interval, and of a jitter and a timeout at most."""

_RULE = "must begin with tcp, http:/PATH or https:/PATH"
_PATH = re.compile(r"/[!-~]*")
_RANGE = re.compile(r"([2-5][0-9]{2})(?:-([2-5][0-9]{2}))?")


def health_check(text: str) -> HealthCheck:
    """ValueError says the rule."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"must be at most {MAX_TEXT} characters")
    first, *rest = text.split() or [""]
    kind, colon, path = first.partition(":")
    if kind == "exec":
        raise ValueError(f"{_RULE}: the speaker runs no commands")
    if kind not in ("tcp", "http", "https") or (kind == "tcp" and colon):
        raise ValueError(_RULE)
    if kind != "tcp" and not _PATH.fullmatch(path):
        raise ValueError(f"{_RULE}, where PATH has no blanks and no characters beyond ASCII")
    found = _words(kind, rest)
    if "interval" in found:
        found.setdefault("jitter", found["interval"] / 10)
    return HealthCheck(cast(Literal["tcp", "http", "https"], kind), path, **found)


def _words(kind: str, words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        name = key.replace("-", "_")
        if key not in _KEYS:
            raise ValueError(f"has the unknown word {word!r}: {did_you_mean(key, _KEYS)}")
        if not equals or not value:
            raise ValueError(f"must have a value: {key}=VALUE")
        if name in found:
            raise ValueError(f"must have {key} once")
        if kind not in _KINDS.get(key, (kind,)):
            raise ValueError(f"must not have {key}, which is for {' and '.join(_KINDS[key])}")
        found[name] = _KEYS[key](key, value)
    return found


def _seconds(low: float) -> Callable[[str, str], float]:
    def parse(key: str, text: str) -> float:
        if not low <= (seconds := duration(text)) <= LONGEST:  # NaN is neither
            raise ValueError(f"must have a duration from {low:g}s to {LONGEST / 3600:g}h: {key}=1s, not {text!r}")
        return seconds

    return parse


def _number(high: int) -> Callable[[str, str], int]:
    def parse(key: str, text: str) -> int:
        if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= high:
            raise ValueError(f"must have a number from 1 to {high}: {key}=2, not {text!r}")
        return int(text)

    return parse


def _status(key: str, text: str) -> tuple[tuple[int, int], ...]:
    found = [_RANGE.fullmatch(part) for part in text.split(",")]
    ranges = tuple((int(each[1]), int(each[2] or each[1])) for each in found if each is not None)
    if len(ranges) < len(found) or any(low > high for low, high in ranges):
        raise ValueError(f"must have statuses from 200 to 599: {key}=200-299,401, not {text!r}")
    return ranges


def _file(key: str, text: str) -> str:
    if not text.startswith("/") or not text.isprintable():
        raise ValueError(f"must have the full path of a file: {key}=/etc/ssl/ca.crt, not {text!r}")
    return text


def _name(key: str, text: str) -> str:
    try:
        return dns_subdomain(text)
    except ValueError as error:
        raise ValueError(f"must have a name: {key}=api.example: it {error}") from None


_KEYS: Mapping[str, Callable[[str, str], Any]] = {
    "port": _number(65535),
    "interval": _seconds(SHORTEST),
    "jitter": _seconds(0),
    "timeout": _seconds(0.01),
    "rise": _number(HIGHEST),
    "fall": _number(HIGHEST),
    "status": _status,
    "ca": _file,
    "server-name": _name,
}
_KINDS = {"status": ("http", "https"), "server-name": ("http", "https"), "ca": ("https",)}
