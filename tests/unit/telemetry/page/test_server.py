"""Who may ask for the page, what it is sent with, and what becomes of who does not read it."""

import asyncio
import json
import re
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from speaker.errors import SettingError
from speaker.settings import Bind
from speaker.system import listening
from speaker.telemetry.page.server import FILES, MOST, Live, serving


class Supervisor:
    """Fails the test where anything unforeseen is told."""

    def internal_error(self, task, error):
        raise AssertionError(task) from error


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@asynccontextmanager
async def page(document=None):
    """Live, and a port."""
    live, port = Live(), free_port()
    async with asyncio.timeout(60), serving(Bind("127.0.0.1", port), live, Supervisor()):
        if document is not None:
            live.show(lambda: document)
        yield live, port


async def ask(port, path, host="127.0.0.1:9901", method="GET"):
    """Status, headers, body; of a stream its beginning."""
    async with AsyncExitStack() as stack:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stack.callback(writer.close)
        writer.write(f"{method} {path} HTTP/1.1\r\n{f'Host: {host}' if host else 'X: y'}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        body = await reader.read() if "Content-Length" in headers else await reader.readuntil(b"\n\n")
        return int(head.split()[1]), headers, body


@pytest.mark.parametrize("path", [*FILES, "/status.json", "/events"])
async def test_everything_is_sent_with_what_keeps_other_sites_and_tenants_out(path):
    async with page({"eips": {}}) as (_, port):
        status, headers, _ = await ask(port, path)
        assert status == 200
        policy = dict(each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


async def test_what_is_so_is_there_as_json():
    async with page({"eips": {"192.0.2.10": {}}}) as (_, port):
        _, headers, body = await ask(port, "/status.json")
        assert headers["Content-Type"].startswith("application/json")
        assert json.loads(body) == {"eips": {"192.0.2.10": {}}}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9901", 200),
        ("127.0.0.1", 200),
        ("localhost:9901", 200),
        ("localhost", 200),
        ("[::1]:9901", 200),
        ("[::1]", 200),
        ("evil.example:9901", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:9901", 421),
        ("", 421),
    ],
)
async def test_only_who_asks_by_address_is_answered_so_that_no_name_of_anybodys_leads_here(host, status):
    async with page() as (_, port):
        assert (await ask(port, "/", host))[0] == status


async def test_who_asks_by_a_name_reads_how_to_ask_and_not_the_name_again():
    async with page() as (_, port):
        _, _, body = await ask(port, "/", "<b>evil.example")
    assert b"ask by address, as localhost" in body
    assert b"evil" not in body


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/", 405), ("DELETE", "/status.json", 405), ("GET", "/metrics", 404), ("GET", "/../page.html", 404)],
)
async def test_nothing_else_can_be_asked(method, path, status):
    async with page() as (_, port):
        assert (await ask(port, path, method=method))[0] == status


async def test_one_too_many_that_look_is_told_so_and_there_is_room_when_one_goes():
    async with page({"eips": {}}) as (live, port), AsyncExitStack() as stack:
        writers = []
        for _ in range(MOST):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writers.append(writer)
            writer.write(b"GET /events HTTP/1.1\r\nHost: [::1]\r\n\r\n")
            await reader.readuntil(b"event: all")
        assert (await ask(port, "/events"))[0] == 503
        assert (await ask(port, "/status.json"))[0] == 200
        writers[0].close()
        while live.full:  # noqa: ASYNC110 -- it sets no event
            await asyncio.sleep(0)
        assert (await ask(port, "/events"))[0] == 200


async def test_who_does_not_read_is_let_go_and_others_are_told(monkeypatch):
    monkeypatch.setattr(listening, "MAX_BEHIND", 200_000)
    async with page({"eips": {}}) as (live, port), AsyncExitStack() as stack:
        deaf = socket.socket()
        stack.callback(deaf.close)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", port))
        await asyncio.get_running_loop().sock_sendall(deaf, b"GET /events HTTP/1.1\r\nHost: [::1]\r\n\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
        stack.callback(writer.close)
        writer.write(b"GET /events HTTP/1.1\r\nHost: [::1]\r\n\r\n")
        await reader.readuntil(b"event: all")
        for number in range(40):
            text = str(number) * 300_000
            live.show(lambda text=text: {"eips": {"192.0.2.10": {"conflict": text}}})
            await reader.readuntil(b"event: change")
            if len(live) == 1:
                return
        pytest.fail("it is still told")


async def test_an_address_that_is_taken_is_refused_by_its_flag():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = Bind("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(SettingError, match="--page"):
            async with serving(bind, Live(), Supervisor()):
                pass


async def test_the_page_asks_for_nothing_from_elsewhere_and_shows_what_others_wrote_as_text_alone():
    async with page() as (_, port):
        html, css, *scripts = [(await ask(port, path))[2].decode() for path in FILES]
    script = "".join(scripts)
    docs = '<link rel="help" href="https://github.com/REPOSITORY/blob/main/docs/">'
    assert docs in html, "which no browser loads"
    assert re.findall(r"https?://|//[a-z]|@import|url\(", html.replace(docs, "") + css) == []
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", html.replace(docs, "")) == [
        "data:,",
        "page.css",
        "page.js",
        "status.json",
    ]
    assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|https?://", script) == []
    assert len(html + css + script) <= 30_000
    assert re.findall(r"(?m)^\s.*|(?:^| )// .*", html + css + script) == [], "for readers of the source"
    assert "style=" not in html
    assert not re.search(r"<script>|onclick", html)
