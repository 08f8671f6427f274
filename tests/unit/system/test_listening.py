"""HTTP for a question a connection, with real sockets on loopback: what a crowd, a mumbler or a deaf client does."""

import asyncio
import json
import os
import resource
import socket
import urllib.request
from collections.abc import Mapping
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from speaker.errors import SettingError
from speaker.kubeproxy.health_checks import HealthCheck as Check
from speaker.kubeproxy.watch import HealthServer
from speaker.model import Family, ServiceKey
from speaker.node.control import NAME, ask, serving_control
from speaker.settings import Bind
from speaker.system.listening import MAX_CONNECTIONS, MAX_REQUEST, Answer, Front
from speaker.system.process import raise_limit, share
from speaker.telemetry.http import serving


class Supervisor:
    """Fails the test where anything unforeseen is told."""

    def internal_error(self, task, error):
        raise AssertionError(task) from error


async def hello(question):
    return Answer(200, f"{question.method} {question.path}".encode(), {"X-Hello": "yes"})


@asynccontextmanager
async def answering(answer=hello, **bounds):
    async with Front(**bounds) as front:
        yield (await front.open("127.0.0.1", 0, answer, names=None)).sockets[0].getsockname()[1]


def taken(port):
    return socket.create_connection(("127.0.0.1", port))


async def said(port, text):
    """All that is said to ``text`` before the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text)
        return await reader.read()
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def get(port, path="/"):
    return await said(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


async def test_a_question_is_answered_and_the_connection_ends():
    async with answering() as port:
        assert await get(port, "/metrics?a=b") == (
            b"HTTP/1.1 200 OK\r\nX-Hello: yes\r\nContent-Length: 12\r\nConnection: close\r\n\r\nGET /metrics"
        )


async def test_a_usual_client_is_content():
    async with answering() as port:
        with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/x") as answer:
            assert (answer.status, answer.read()) == (200, b"GET /x")


async def test_the_head_alone_is_sent_to_who_asks_for_that():
    async with answering() as port:
        assert (await said(port, b"HEAD / HTTP/1.0\r\n\r\n")).endswith(
            b"Content-Length: 6\r\nConnection: close\r\n\r\n"
        )


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /\r\n\r\n", b"400"),
        (b"\x16\x03\x01\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"GET /" + b"x" * MAX_REQUEST, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * MAX_REQUEST, b"431"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * MAX_REQUEST + b"\r\n\r\n", b"431"),
    ],
)
async def test_what_is_no_question_is_told_so(text, status):
    async with answering() as port:
        assert (await said(port, text)).startswith(b"HTTP/1.1 " + status)


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=st.binary(max_size=100))
def test_no_bytes_get_anything_but_an_answer_or_an_end(text):
    async def ask_it():
        async with answering() as port:
            return await said(port, text + b"\r\n\r\n")

    assert asyncio.run(ask_it())[:9] == b"HTTP/1.1 "


async def test_an_answer_that_fails_is_one_failed_answer():
    async def fail(question):
        if question.path == "/fail":
            raise TypeError("a bug")
        return await hello(question)

    async with answering(fail) as port:
        assert (await get(port, "/fail")).startswith(b"HTTP/1.1 500")
        assert (await get(port)).startswith(b"HTTP/1.1 200")


async def test_two_thousand_idle_connections_keep_nobody_out():
    raise_limit()
    async with answering() as port:
        crowd = [await asyncio.to_thread(taken, port) for _ in range(2000)]
        assert (await get(port)).startswith(b"HTTP/1.1 200")
        for each in crowd:
            each.close()


async def test_who_has_asked_is_answered_although_a_crowd_comes():
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(question):
        begun.set()
        await go_on.wait()
        return await hello(question)

    async with answering(wait) as port:
        asked = asyncio.create_task(get(port))
        await begun.wait()
        crowd = [await asyncio.to_thread(taken, port) for _ in range(3 * MAX_CONNECTIONS)]
        go_on.set()
        assert (await asked).startswith(b"HTTP/1.1 200")
        for each in crowd:
            each.close()


@pytest.mark.parametrize("mumbled", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nA: b\r\n"])
async def test_who_does_not_come_to_the_point_is_shown_the_door(mumbled):
    async with answering(seconds=0.05) as port:
        assert await said(port, mumbled) == b""


async def test_who_reads_nothing_is_shown_the_door():
    ended = asyncio.Event()

    async def much(_):
        ended.set()
        return Answer(200, bytes(20_000_000), {})

    async with Front(seconds=0.2) as front:
        port = (await front.open("127.0.0.1", 0, much, names=None)).sockets[0].getsockname()[1]
        with taken(port) as deaf:
            deaf.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await ended.wait()
            while len(front):  # noqa: ASYNC110 -- the end of a connection is nobody's event
                await asyncio.sleep(0.01)


async def test_answers_that_nobody_reads_have_a_bound_together():
    async def much(_):
        return Answer(200, bytes(20_000_000), {})

    async with Front(most_unread=30_000_000) as front:
        port = (await front.open("127.0.0.1", 0, much, names=None)).sockets[0].getsockname()[1]
        deaf = [taken(port) for _ in range(6)]
        for each in deaf:
            each.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while len(front) != 1:  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0.01)
        for each in deaf:
            each.close()


# ── Where it has a bug ──


class Unsayable(Mapping):
    """Headers that no answer can be made of."""

    def __init__(self, error):
        self._error = error

    def __getitem__(self, name):
        raise self._error

    def __iter__(self):
        raise self._error

    def __len__(self):
        return 1

    def keys(self):
        raise self._error


@pytest.mark.parametrize("error", [ValueError("a bug"), asyncio.CancelledError("a bug")], ids=lambda one: repr(one))
async def test_who_gets_no_answer_for_a_bug_is_cut_off_at_once_and_the_loop_is_told(error):
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(type(context["exception"])))

    async def answer(question):
        return Answer(200, b"", Unsayable(error)) if question.path == "/" else await hello(question)

    async with answering(answer) as port:
        async with asyncio.timeout(60.0):
            with suppress(ConnectionError):
                assert await get(port) == b""
        assert (await get(port, "/more")).startswith(b"HTTP/1.1 200")
    assert told == [type(error)]


# ── Where there are few descriptors ──


@contextmanager
def only(descriptors):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_process_without_a_descriptor_left_answers_again_once_it_has_one():
    told, first = [], asyncio.Event()

    def tell(_, context):
        told.append(context["message"])
        first.set()

    asyncio.get_running_loop().set_exception_handler(tell)
    async with answering() as port:
        client = socket.socket()
        lowest = os.dup(0)
        os.close(lowest)
        with only(lowest):
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.setblocking(False)
            await first.wait()
            for _ in range(1000):
                await asyncio.sleep(0)
            assert set(told) == {"socket.accept() out of system resource"}
            assert len(told) < 100  # asyncio waits for a second, and spins not
        assert await asyncio.get_running_loop().sock_recv(client, 12) == b"HTTP/1.1 200"
        client.close()


@pytest.mark.parametrize(
    ("limit", "parts", "expected"), [(64, 16, 4), (1024, 16, 64), (2048, 16, 64), (16, 16, 2), (64, 4, 16)]
)
def test_a_share_is_never_more_than_was_asked_for_nor_nothing(limit, parts, expected):
    with only(limit):
        assert share(parts, 64) == expected


def test_the_limit_is_raised_as_far_as_it_may_be_and_never_lowered():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with only(256):
        raise_limit(512)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, hard)
        raise_limit(100)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, hard)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


# ── Everything that listens ──


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


async def test_a_crowd_keeps_nobody_from_the_metrics():
    port = _free_port()
    async with serving(Bind("127.0.0.1", port), CollectorRegistry(), lambda: (True, {"ready": True})):
        crowd = [await asyncio.to_thread(taken, port) for _ in range(1100)]
        assert (await get(port, "/metrics")).startswith(b"HTTP/1.1 200")
        healthy = await get(port, "/healthz")
        assert json.loads(healthy.partition(b"\r\n\r\n")[2]) == {"ready": True}
        assert (await get(port, "/elsewhere")).startswith(b"HTTP/1.1 404")
        assert (await said(port, b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 405")
        for each in crowd:
            each.close()


@pytest.mark.parametrize(("host", "written"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
async def test_a_port_that_cannot_be_had_for_the_metrics_is_told_as_it_is_written_and_once(host, written):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as another:
        port = another.getsockname()[1]
        with pytest.raises(SettingError) as refused:
            await _served(Bind(host, port))
    assert str(refused.value) == f"--metrics {written}:{port}: cannot listen there: Address already in use"


async def _served(bind):
    async with serving(bind, CollectorRegistry(), lambda: (True, {})):
        pass


async def test_a_crowd_keeps_nobody_from_the_health_checks():
    port = _free_port()
    async with HealthServer(lambda: True) as server:
        await server.bring_to({(Family.IPV4, port): Check(ServiceKey("default", "web"), 2)})
        crowd = [await asyncio.to_thread(taken, port) for _ in range(200)]
        assert (await get(port)).startswith(b"HTTP/1.1 200")
        for each in crowd:
            each.close()


async def test_a_crowd_keeps_nobody_from_the_control_socket(tmp_path):
    async def done(_):
        yield {"done": True}

    def connected():
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(tmp_path / NAME))
        return client

    async with serving_control(tmp_path / NAME, {"status": done}, Supervisor()):
        crowd = [await asyncio.to_thread(connected) for _ in range(2000)]
        assert await asyncio.to_thread(lambda: list(ask(tmp_path, "status", 5.0))) == [{"done": True}]
        for each in crowd:
            each.close()
