"""The control socket, with real sockets: commands in, answers out, and nothing a client does harms the speaker."""

import asyncio
import json
import socket
import stat
import threading
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speaker.errors import EdgeError
from speaker.node import control
from speaker.node.control import MAX_COMMAND, NAME, ask, serving_control

PATIENCE = 30.0
"""Seconds until a test gives up."""


class Supervisor:
    def __init__(self):
        self.errors = []

    def internal_error(self, task, error):
        self.errors.append((task, error))


async def count(command):
    for number in range(command.get("to", 3)):
        yield {"number": number}
    yield {"done": True}


async def refuse(_):
    yield {"number": 0}
    raise EdgeError("the kernel said no")


async def break_off(_):
    yield {"number": 0}


HANDLERS = {"count": count, "refuse": refuse, "break off": break_off}


async def asked(path, command):
    return await asyncio.to_thread(lambda: list(ask(path.parent, command)))


@asynccontextmanager
async def connected(path):
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def answers_to(path, line):
    async with connected(path) as (reader, writer):
        writer.write(line)
        return [json.loads(answer) async for answer in reader]


@pytest.fixture
def path(tmp_path):
    return tmp_path / NAME


async def test_answers_come_one_by_one_and_end_with_done(path):
    async with serving_control(path, HANDLERS, Supervisor()):
        assert await asked(path, "count") == [{"number": 0}, {"number": 1}, {"number": 2}, {"done": True}]


async def test_a_handler_is_given_the_whole_command_and_what_follows_its_line_is_passed_over(path):
    async with serving_control(path, HANDLERS, Supervisor()):
        assert await answers_to(path, b'{"command": "count", "to": 1}\nmore\n') == [{"number": 0}, {"done": True}]


async def test_an_answer_may_be_larger_than_any_buffer(path):
    async def fill(_):
        yield {"text": "x" * 5_000_000}
        yield {"done": True}

    async with serving_control(path, {"fill": fill}, Supervisor()):
        assert len((await asked(path, "fill"))[0]["text"]) == 5_000_000


async def test_several_clients_are_served_at_once(path):
    both = asyncio.Barrier(2)

    async def meet(_):
        await both.wait()
        yield {"done": True}

    async with serving_control(path, {"meet": meet}, Supervisor()):
        assert await asyncio.gather(asked(path, "meet"), asked(path, "meet")) == [[{"done": True}]] * 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"drain\n", "the line is not a JSON object"),
        (b"[]\n", "the line is not a JSON object"),
        (b"\n", "the line is not a JSON object"),
        (b'{"command": "\xff"}\n', "the line is not a JSON object"),
        (b"[" * 60_000 + b"\n", "the line is not a JSON object"),
        (b'{"a": ' * 10_000 + b"\n", "the line is not a JSON object"),
        (b"{}\n", "command None: must be one of break off, count, refuse"),
        (b'{"command": ["count"]}\n', "command ['count']: must be one of"),
        (b'{"command": "halt"}\n', "command 'halt': must be one of"),
        (b"x" * (MAX_COMMAND + 1) + b"\n", "the line is too long: must be at most 65536 bytes"),
        (b"x" * MAX_COMMAND * 4, "the line is too long"),
    ],
)
async def test_what_is_no_command_is_told_so_and_the_next_one_is_served(path, line, said):
    async with serving_control(path, HANDLERS, Supervisor()):
        with socket.socket(socket.AF_UNIX) as client:
            await asyncio.to_thread(client.connect, str(path))
            # Beside the answer, which may come (and the end with it) before a line that is too long is written.
            writing = asyncio.create_task(asyncio.to_thread(_send, client, line))
            answer = await asyncio.to_thread(_first_line, client)
            await writing
        assert said in json.loads(answer)["error"]
        assert len(answer) < 300
        assert len(await asked(path, "count")) == 4


def _send(client, line):
    with suppress(ConnectionError):
        client.sendall(line)


def _first_line(client):
    received = b""
    while not received.endswith(b"\n"):
        received += client.recv(4096)
    return received


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(line=st.binary(max_size=200))
def test_no_bytes_are_answered_with_anything_but_an_error(path, line):
    async def send():
        async with serving_control(path, HANDLERS, Supervisor()):
            return await answers_to(path, line.replace(b"\n", b" ") + b"\n")

    (answer,) = asyncio.run(send())
    assert set(answer) == {"error"}


async def test_an_error_of_a_handler_reaches_the_client_as_its_sentence(path):
    async with serving_control(path, HANDLERS, Supervisor()):
        assert await answers_to(path, b'{"command": "refuse"}\n') == [{"number": 0}, {"error": "the kernel said no"}]
        with pytest.raises(EdgeError, match=r"^the kernel said no$"):
            await asked(path, "refuse")


async def test_a_client_that_goes_away_ends_its_own_handler_and_no_other(path):
    ended, go_on = asyncio.Event(), asyncio.Event()

    async def hang(_):
        try:
            yield {"number": 0}
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def wait(_):
        yield {"number": 0}
        await go_on.wait()
        yield {"done": True}

    async with serving_control(path, {"hang": hang, "wait": wait}, Supervisor()), connected(path) as (reader, writer):
        writer.write(b'{"command": "wait"}\n')
        await reader.readline()
        async with connected(path) as (other_reader, other_writer):
            other_writer.write(b'{"command": "hang"}\n')
            await other_reader.readline()
        await ended.wait()
        go_on.set()
        assert json.loads(await reader.readline()) == {"done": True}


async def test_a_client_that_reads_nothing_and_goes_away_ends_a_handler_that_never_stops_talking(path):
    ended = asyncio.Event()

    async def talk(_):
        try:
            while True:
                yield {"text": "x" * 10_000}
        finally:
            ended.set()

    async with serving_control(path, {"talk": talk}, Supervisor()):
        async with connected(path) as (reader, writer):
            writer.write(b'{"command": "talk"}\n')
            await reader.readline()
        await ended.wait()


@pytest.mark.parametrize("said", [b"", b'{"command": "cou', b"x" * 1000])
async def test_a_client_that_leaves_without_a_whole_line_is_forgotten(path, said):
    async with serving_control(path, HANDLERS, Supervisor()):
        async with connected(path) as (_, writer):
            writer.write(said)
        assert len(await asked(path, "count")) == 4


async def test_whoever_still_waits_when_the_speaker_stops_is_cut_off(path):
    async def hang(_):
        yield {"number": 0}
        await asyncio.Event().wait()

    async with serving_control(path, {"hang": hang}, Supervisor()):
        waiting = asyncio.create_task(asked(path, "hang"))
        async with connected(path) as (reader, writer):
            writer.write(b'{"command": "hang"}\n')
            await reader.readline()
            silent_reader, silent_writer = await asyncio.open_unix_connection(path)
    with pytest.raises(EdgeError, match=r"the speaker ended before it finished hang|no speaker runs here"):
        await waiting
    assert await silent_reader.read() == b""
    silent_writer.close()
    assert not path.exists()


@pytest.mark.parametrize("turns", range(8))
async def test_who_comes_at_the_very_end_is_cut_off_too(path, turns):
    async with serving_control(path, HANDLERS, Supervisor()):
        late = socket.socket(socket.AF_UNIX)
        late.connect(str(path))
        for _ in range(turns):
            await asyncio.sleep(0)
    late.setblocking(False)
    with late, suppress(ConnectionResetError):
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.get_running_loop().sock_recv(late, 1) == b""


async def test_handlers_have_ended_when_the_block_has(path):
    steps = []

    async def talk(_):
        try:
            while True:
                yield {"text": "x" * 100_000}
        finally:
            await asyncio.sleep(0)
            steps.append("handler ended")

    async with connected_to_a_talker(path, talk):
        pass
    steps.append("block ended")
    assert steps == ["handler ended", "block ended"]


@asynccontextmanager
async def connected_to_a_talker(path, talk):
    """A client that listens no longer, so that the handler is held up in mid-answer; it stays beyond the block."""
    async with serving_control(path, {"talk": talk}, Supervisor()):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"command": "talk"}\n')
        await reader.readexactly(1)
        yield
    writer.close()


async def test_a_speaker_that_ends_without_done_is_not_taken_for_done(path):
    async with serving_control(path, HANDLERS, Supervisor()):
        with pytest.raises(EdgeError, match="the speaker ended before it finished break off"):
            await asked(path, "break off")


async def test_a_bug_in_a_handler_is_told_to_both_sides_and_the_next_client_is_served(path):
    async def stumble(_):
        yield {"number": 1 // 0}

    supervisor = Supervisor()
    async with serving_control(path, HANDLERS | {"stumble": stumble}, supervisor):
        (answer,) = await answers_to(path, b'{"command": "stumble"}\n')
        assert "ZeroDivisionError" in answer["error"] or "division" in answer["error"]
        assert (await asked(path, "count"))[-1] == {"done": True}
    ((task, error),) = supervisor.errors
    assert (task, type(error)) == ("control", ZeroDivisionError)


async def test_a_handler_that_is_cancelled_by_nobody_is_told_of_and_the_next_client_is_served(path):
    async def give_up(_):
        yield {"number": 0}
        raise asyncio.CancelledError

    supervisor = Supervisor()
    async with serving_control(path, HANDLERS | {"give up": give_up}, supervisor):
        assert await answers_to(path, b'{"command": "give up"}\n') == [{"number": 0}]
        assert (await asked(path, "count"))[-1] == {"done": True}
    ((task, error),) = supervisor.errors
    assert (task, str(error)) == ("control", "control answers was cancelled from within")


async def test_a_client_that_leaves_and_a_speaker_that_ends_are_no_bugs(path):
    async def talk(_):
        while True:
            yield {"number": 0}
            await asyncio.sleep(0)

    supervisor = Supervisor()
    async with serving_control(path, HANDLERS | {"talk": talk}, supervisor):
        async with connected(path) as (reader, writer):
            writer.write(b'{"command": "talk"}\n')
            await reader.readline()
        async with connected(path) as (reader, writer):
            writer.write(b'{"command": "talk"}\n')
            await reader.readline()
            ended = asyncio.create_task(reader.read())
    await ended
    assert supervisor.errors == []


async def test_the_socket_is_for_its_owner_alone_and_gone_afterwards(path):
    async with serving_control(path, HANDLERS, Supervisor()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [file.name for file in path.parent.iterdir()] == [NAME]
    assert list(path.parent.iterdir()) == []


async def test_a_socket_that_a_killed_speaker_left_is_replaced(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(EdgeError, match=f"no speaker runs here: cannot connect to {path}: Connection refused"):
        await asked(path, "count")
    async with serving_control(path, HANDLERS, Supervisor()):
        assert len(await asked(path, "count")) == 4


async def test_a_path_that_cannot_be_a_socket_is_named(tmp_path):
    (tmp_path / "taken" / "by").mkdir(parents=True)
    (tmp_path / "taken" / "file").touch()
    for path in (tmp_path / "taken", tmp_path / "taken" / "file" / NAME, tmp_path / ("x" * 120)):
        with pytest.raises(EdgeError, match=f"cannot listen on {path}: "):
            async with serving_control(path, HANDLERS, Supervisor()):
                pass
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


def test_no_speaker_is_said_with_the_path(path):
    with pytest.raises(EdgeError) as refused:
        list(ask(path.parent, "count"))
    assert str(refused.value) == f"no speaker runs here: cannot connect to {path}: No such file or directory"


def test_who_may_not_ask_is_told_who_may(closed_off):
    with pytest.raises(EdgeError, match=r"cannot connect to .*: Permission denied: run this as root, or as the user"):
        list(ask(closed_off, "count"))


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"[1]\n", b"\xff\n", b"[" * 5000 + b"\n"])
def test_what_is_no_speaker_is_told_to_be_none(path, said):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        answers = ask(path.parent, "count", PATIENCE)

        def answer():
            accepted, _ = other.accept()
            with accepted:
                accepted.recv(MAX_COMMAND)  # or who asks may find nobody to ask
                accepted.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(EdgeError, match=f"what listens on {path} is not a speaker: "):
            list(answers)
        answering.join()


def test_a_speaker_that_does_not_answer_in_time_is_given_up(path):
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(path))
        frozen.listen()
        with pytest.raises(EdgeError, match=r"the speaker did not finish count within 0\.01 s"):
            list(ask(path.parent, "count", 0.01))


async def test_a_client_may_stop_listening_early(path):
    async with serving_control(path, HANDLERS, Supervisor()):
        answers = ask(path.parent, "count")
        assert await asyncio.to_thread(next, answers) == {"number": 0}
        answers.close()
        assert len(await asked(path, "count")) == 4


async def test_who_says_nothing_or_half_a_line_is_shown_the_door(path, monkeypatch):
    monkeypatch.setattr(control, "COMMAND_SECONDS", 0.05)
    async with serving_control(path, HANDLERS, Supervisor()):
        assert await answers_to(path, b"") == []
        assert await answers_to(path, b'{"command": ') == []


async def test_who_is_being_answered_stays_although_a_crowd_comes(path):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_):
        begun.set()
        await go_on.wait()
        yield {"done": True}

    async with serving_control(path, {"wait": wait}, Supervisor()), connected(path) as (reader, writer):
        writer.write(b'{"command": "wait"}\n')
        await begun.wait()
        crowd = [await asyncio.open_unix_connection(path) for _ in range(2 * control.MAX_CLIENTS)]
        go_on.set()
        assert json.loads(await reader.readline()) == {"done": True}
        for _, each in crowd:
            each.close()
