"""What making the agents' key sends, and when."""

from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from speaker.controller.leader import ENTRY, SECRET, make_key
from speaker.errors import ApiRefused, ApiUnreachable, EdgeError
from speaker.ownership.hellos.keys import parse

AGENT = Path(__file__).resolve().parents[3] / "manifests" / "base" / "agent.yaml"


class Api:
    """Refuses with each of ``errors``, and takes what comes then."""

    def __init__(self, *errors: EdgeError) -> None:
        self.errors, self.bodies = list(errors), []

    async def create(self, path: str, body: Any) -> bytes:
        assert path == "/api/v1/namespaces/there/secrets"
        self.bodies.append(body)
        if self.errors:
            raise self.errors.pop(0)
        return b"{}"


async def made(api: Api) -> tuple[list[EdgeError], list[float]]:
    told: list[EdgeError] = []
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    await make_key(api, "there", SimpleNamespace(failed=lambda _, error: told.append(error)), sleep=sleep)
    return told, waits


FORBIDDEN = ApiRefused(403, "Forbidden", "no")


async def test_waits_grow_and_are_random_and_have_a_bound():
    told, waits = await made(Api(*[FORBIDDEN] * 40))
    assert told == [FORBIDDEN] * 40
    assert all(wait <= min(30.0, 0.1 * 2**tries) for tries, wait in enumerate(waits))
    assert len(set(waits)) == 40
    assert max(waits) > 5


async def test_every_try_has_a_key_of_its_own_and_no_line_of_the_log_has_any():
    api = Api(FORBIDDEN, ApiUnreachable("no answer in time"), FORBIDDEN)
    with capture_logs() as lines:
        await made(api)
    contents = [b64decode(body["data"][ENTRY]) for body in api.bodies]
    assert len({parse(content, "").signing.secret for content in contents}) == 4
    assert [line["event"] for line in lines] == ["key made"]
    for content, body in zip(contents, api.bodies, strict=True):
        assert content.decode().strip() not in str(lines)
        assert body["data"][ENTRY] not in str(lines)


@pytest.mark.parametrize(
    ("error", "done"),
    [
        (ApiRefused(409, "AlreadyExists", "there is one"), True),
        (ApiRefused(409, "Conflict", "a quota was changed meanwhile"), False),
        (ApiRefused(404, "NotFound", "no such namespace"), False),
    ],
)
async def test_only_that_there_is_one_ends_it(error, done):
    api = Api(error)
    told, _ = await made(api)
    assert (told == []) is done
    assert len(api.bodies) == (1 if done else 2)


def test_the_secret_is_the_one_that_the_agents_mount():
    (agent,) = yaml.safe_load_all(AGENT.read_text())
    (mounted,) = (each["secret"] for each in agent["spec"]["template"]["spec"]["volumes"] if "secret" in each)
    assert (mounted["secretName"], mounted["items"][0]["key"]) == (SECRET, ENTRY)
