"""Whom the client believes to be the API: authorities as clusters have them, and others as they are replaced."""

import asyncio
import json
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_release import PYTHON_313, unpacked

from speaker.cluster.access import AGE, Access, Server, Trust, configure, hosts_certificates_unread
from speaker.cluster.client import Client
from speaker.errors import ApiUnreachable

NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
ROOT = Path(__file__).parents[4]
ASK = """
import socket, ssl, sys
from pathlib import Path
from speaker.cluster.access import Trust
authority = Path(sys.argv[1])
make = lambda: ssl.create_default_context(cafile=authority)
assert sys.version_info[:2] == (3, 13) and make().verify_flags & ssl.VERIFY_X509_STRICT
for context in (make(), Trust(make, authority)()):
    try:
        with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as plain:
            context.wrap_socket(plain, server_hostname="127.0.0.1").close()
        print("believed")
    except ssl.SSLCertVerificationError as error:
        print(error.verify_message)
"""


@dataclass(frozen=True)
class Signed:
    """An authority without a keyUsage, and a server's certificate that it signed."""

    authority: Path
    chain: Path
    key: Path

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[int]:
        """An API that says {} to everything."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
                writer.close()
                return

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.chain, self.key)
        server = await asyncio.start_server(answer, "127.0.0.1", port, ssl=context)
        async with server:
            yield server.sockets[0].getsockname()[1]


@pytest.fixture
def signed(tmp_path) -> Callable[[str], Signed]:
    def make(name: str) -> Signed:
        folder = tmp_path / name
        folder.mkdir()

        def openssl(line: str) -> None:
            subprocess.run(["openssl", *line.split()], cwd=folder, check=True, capture_output=True)

        (folder / "san").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        openssl(f"req -x509 {NEW_KEY} -subj /CN={name} -keyout ca.key -out ca.crt -days 30")
        openssl(f"req {NEW_KEY} -subj /CN=server -keyout key -out csr")
        openssl("x509 -req -in csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile san -out crt -days 30")
        return Signed(folder / "ca.crt", folder / "crt", folder / "key")

    return make


def strict(authority: Path) -> ssl.SSLContext:
    """What Python 3.13 makes, on any."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


async def test_an_authority_without_a_key_usage_is_believed(signed):
    one = signed("one")
    trust = Trust(lambda: strict(one.authority), one.authority)
    async with one.serving() as port, Client(Server(f"https://127.0.0.1:{port}", trust)) as client:
        assert await client.get("/") == b"{}"


async def test_the_images_python_believes_it_too(signed):
    python = unpacked("trixie", "python3.13", PYTHON_313)
    program = python.program("usr/bin/python3.13", f"PYTHONHOME={python.root}/usr PYTHONPATH={ROOT}")
    one = signed("one")
    async with one.serving() as port:
        asked = await asyncio.create_subprocess_exec(
            program, "-c", ASK, one.authority, str(port), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asked.communicate()
    assert output.decode().splitlines() == ["CA cert does not include key usage extension", "believed"]


def service_account(folder: Path, authority: Path) -> Access:
    folder.mkdir()
    (folder / "token").write_text("t")
    (folder / "ca.crt").write_bytes(authority.read_bytes())
    return Access(service_account=folder)


def kubeconfig(folder: Path, authority: Path) -> Access:
    folder.mkdir()
    (folder / "ca.crt").write_bytes(authority.read_bytes())
    (folder / "config").write_text(
        json.dumps(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [
                    {"name": "x", "cluster": {"server": "https://192.0.2.1", "certificate-authority": "ca.crt"}}
                ],
                "users": [{"name": "x", "user": {"token": "t"}}],
            }
        )
    )
    return Access(folder / "config")


@pytest.mark.parametrize("access", [service_account, kubeconfig])
async def test_an_authority_that_was_replaced_is_read_once_its_successor_is_not_believed(
    tmp_path, signed, access, unused_tcp_port
):
    one, two = signed("one"), signed("two")
    known = access(tmp_path / "known", one.authority)
    server = await configure(Access(known.kubeconfig, server=f"https://127.0.0.1:{unused_tcp_port}",
                                    service_account=known.service_account))  # fmt: skip
    async with Client(server) as client:
        async with one.serving(unused_tcp_port):
            assert await client.get("/") == b"{}"
        async with two.serving(unused_tcp_port):
            with pytest.raises(ApiUnreachable, match="certificate"):
                await client.get("/")
            (tmp_path / "known" / "ca.crt").write_bytes(two.authority.read_bytes())
            assert await client.get("/") == b"{}"


async def test_an_authority_that_was_replaced_is_read_before_it_fails_anybody(tmp_path, signed):
    now = 0.0
    file = tmp_path / "ca.crt"
    file.write_bytes(signed("one").authority.read_bytes())
    trust = Trust(lambda: ssl.create_default_context(cafile=file), file, clock=lambda: now)
    first = trust()
    now = AGE
    assert trust() is first  # nothing has changed: connections that stand may be used again
    file.write_bytes(signed("two").authority.read_bytes())
    assert trust() is first
    now = 2 * AGE
    (known,) = trust().get_ca_certs()
    assert known["subject"] == ((("commonName", "two"),),)


@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_text("no certificate")])
async def test_what_is_no_authority_replaces_none(tmp_path, signed, spoil):
    file = tmp_path / "ca.crt"
    content = signed("one").authority.read_bytes()
    file.write_bytes(content)
    trust = Trust(lambda: ssl.create_default_context(cafile=file), file)
    first = trust()
    spoil(file)
    trust.expire()
    assert trust() is first


@pytest.mark.parametrize("named", [None, "/etc/ssl/mine.pem"])
def test_what_the_host_trusts_is_only_unread_while_the_http_library_is_imported(named, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if named:
        monkeypatch.setenv("SSL_CERT_FILE", named)
    with hosts_certificates_unread():
        assert ssl.create_default_context().cert_store_stats()["x509"] == 0
    assert os.environ.get("SSL_CERT_FILE") == named
