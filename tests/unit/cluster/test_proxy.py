"""The proxy between this process and the API server, where the environment names one."""

import asyncio

import pytest

from speaker.cluster.access import Server
from speaker.cluster.client import Client
from speaker.errors import ApiUnreachable

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


async def asked_of_a_proxy(environ: pytest.MonkeyPatch, **variables: str) -> list[str]:
    """The first lines of what reaches it."""
    lines: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append((await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0])
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        for name, value in variables.items():
            environ.setenv(name, value.format(port=port))
        async with Client(Server("http://127.0.0.2:1")) as client:
            try:
                await client.get("/version", within=2.0)
            except ApiUnreachable:
                lines.append("unreachable")
    return lines


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        ({"http_proxy": "http://127.0.0.1:{port}"}, ["GET http://127.0.0.2:1/version HTTP/1.1"]),
        ({"http_proxy": "http://127.0.0.1:{port}", "no_proxy": "127.0.0.2"}, ["unreachable"]),
        ({"https_proxy": "http://127.0.0.1:{port}"}, ["unreachable"]),
        ({}, ["unreachable"]),
    ],
    ids=["of that scheme", "but not for that server", "of another scheme", "none"],
)
async def test_the_environment_names_the_proxy(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], seen: list[str]
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert await asked_of_a_proxy(monkeypatch, **variables) == seen
