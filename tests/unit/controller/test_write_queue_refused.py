"""What the queue does with a write that the API refuses again and again, or that meets a bug of ours."""

import asyncio

import pytest

from speaker.controller.wanted import Write
from speaker.controller.write_queue import HEARD_SECONDS, WORKERS, WriteQueue
from speaker.errors import ApiRefused

NOT_SERVED = ApiRefused(404, "", "")
"""'404 page not found': by a server that does not know the kind yet, or by a proxy that has no server."""
DELETED = ApiRefused(404, "NotFound", 'eips "lan" not found')
CONFLICT = ApiRefused(409, "Conflict", "the object has been modified")
BUG = TypeError("a bug")
LONG = 10 * HEARD_SECONDS


class Api:
    """Refuses the writes of ``lan`` as ``errors`` say, one after the other, and takes all others."""

    def __init__(self, errors):
        self.errors, self.written, self.tried = iter(errors), [], 0

    async def patch(self, path, body, *, within):
        if path == "lan":
            self.tried += 1
            if (error := next(self.errors, None)) is not None:
                raise error
        self.written.append(path)


class Bugs(list):
    def __init__(self, told):
        self.told = told

    def failed(self, _, error):
        self.told.append(error)

    def internal_error(self, task, error):
        self.append((task, error))


async def written(errors, seconds, others=()):
    """What an API with these errors took of a write of ``lan`` and one of each of the others, within ``seconds``; how
    often ``lan`` was tried; the failures and the bugs that were told."""
    api, told = Api(errors), []
    bugs = Bugs(told)
    queue = WriteQueue(api, lambda: 10.0, bugs)
    working = asyncio.create_task(queue.run())
    await queue.want({path: Write(path, "1", {"status": path}) for path in ("lan", *others)})
    await asyncio.sleep(seconds)
    assert not working.done()
    working.cancel()
    await asyncio.wait([working])
    return api.written, api.tried, told, bugs


def test_a_write_to_a_server_that_does_not_know_the_kind_yet_is_told_and_tried_until_it_does(in_virtual_time):
    done, _, told, _ = in_virtual_time(written([NOT_SERVED] * 3, LONG))
    assert (done, told) == (["lan"], [NOT_SERVED] * 3)


@pytest.mark.parametrize("error", [DELETED, CONFLICT], ids=["deleted", "changed"])
def test_that_the_object_is_another_is_no_failure_where_that_is_heard_soon(error, in_virtual_time):
    _, tried, told, _ = in_virtual_time(written([error] * 10, HEARD_SECONDS / 2))
    assert (tried, told) == (1, [])


@pytest.mark.parametrize("error", [DELETED, CONFLICT], ids=["deleted", "changed"])
def test_that_it_is_another_of_which_nothing_is_heard_is_doubted(error, in_virtual_time):
    done, _, told, _ = in_virtual_time(written([error], LONG))
    assert (done, told) == (["lan"], [])


def test_conflicts_for_ever_are_told_and_never_given_up(in_virtual_time):
    _, tried, told, _ = in_virtual_time(written([CONFLICT] * 10**4, LONG))
    assert len(told) == tried - 1
    assert 5 < tried < 40


def test_a_bug_in_one_write_is_told_and_holds_up_no_other(in_virtual_time):
    others = [f"other-{number}" for number in range(2 * WORKERS)]
    done, tried, told, bugs = in_virtual_time(written([BUG] * 10**4, 1.0, others))
    assert sorted(done) == sorted(others)
    assert (told, bugs) == ([], [("writes", BUG)] * tried)
    assert in_virtual_time(written([BUG], LONG))[0] == ["lan"], "and it is tried again"
