"""What a check finds of real servers on loopback, each of which behaves in its own way."""

import asyncio
import select
import socket
import ssl
import struct
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from checked_servers import OK, Told, asked, closes, drips, resets, says, serving, speaks_first, waits

from speaker.errors import EdgeError
from speaker.health.judge import Found, Result, Target
from speaker.health.prober import (
    MAX_CA,
    MAX_HEAD,
    MAX_READS,
    Prober,
    checking,
    connecting,
    context,
    failed,
    request_of,
)
from speaker.model import HealthCheck
from speaker.system.threads import start_threads

TCP, HTTP = HealthCheck("tcp", timeout=30.0), HealthCheck("http", "/healthz", timeout=30.0)
"""Not even a busy machine answers so late: a check that is to run out of time has ``BRIEF``."""
HTTPS = replace(HTTP, kind="https")
BRIEF = 0.5
NAME = "api.example"


async def found(*targets, seconds=60.0):
    """What the first check of each finds."""
    start_threads()
    heard = {}
    prober = Prober(lambda news: heard.update({each.target: each.condition.found for each in news}), Told())
    prober.follow(dict.fromkeys(targets, ()))
    running = asyncio.create_task(prober.run())
    await prober.known(seconds)
    running.cancel()
    await asyncio.wait((running,))
    return [heard.get(each) for each in targets]


def checked(check, port, address="127.0.0.1"):
    [result] = asyncio.run(found(Target(ip_address(address), port, check)))
    return result


BEHAVIOURS = [
    ("it answers", HTTP, says(OK), Result.WELL, ""),
    ("it accepts, and is asked for no more", TCP, waits, Result.WELL, ""),
    ("it answers slowly, but in time", HTTP, says(OK[:20], OK[20:], pause=0.1), Result.WELL, ""),
    (
        "it answers too slowly",
        replace(HTTP, timeout=BRIEF),
        says(OK[:20], OK[20:], pause=1.0),
        Result.TIMEOUT,
        "it does not answer",
    ),
    (
        "it accepts and says nothing: half open",
        replace(HTTP, timeout=BRIEF),
        waits,
        Result.TIMEOUT,
        "does not answer within 0.5s",
    ),
    ("it redirects", HTTP, says(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n"), Result.WELL, ""),
    (
        "it redirects, and only 200 will do",
        replace(HTTP, status=((200, 200),)),
        says(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n"),
        Result.STATUS,
        "status 302",
    ),
    ("it fails", HTTP, says(b"HTTP/1.1 503 Unavailable\r\n\r\n"), Result.STATUS, "it answers with status 503"),
    ("it wants to know who asks", HTTP, says(b"HTTP/1.1 401 Unauthorized\r\n\r\n"), Result.STATUS, "status 401"),
    ("100 Continue comes first", HTTP, says(b"HTTP/1.1 100 Continue\r\n\r\n", OK), Result.WELL, ""),
    ("two early hints come first", HTTP, says(b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" * 2 + OK), Result.WELL, ""),
    ("100 Continue, and a failure", HTTP, says(b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 500 X\r\n\r\n"), Result.STATUS, "500"),
    ("100 Continue, and nothing", HTTP, says(b"HTTP/1.1 100 C\r\n\r\n"), Result.CLOSED, "without an answer"),
    ("interim answers without end", HTTP, says(b"HTTP/1.1 102 X\r\n\r\n" * 50000), Result.NOT_HTTP, f"than {MAX_HEAD}"),
    ("it switches protocols", HTTP, says(b"HTTP/1.1 101 Switching\r\n\r\n"), Result.STATUS, "status 101"),
    ("it resets the connection", HTTP, resets, Result.RESET, "reset"),
    ("it closes at once", HTTP, closes, Result.RESET, "reset"),
    ("it closes after the question", HTTP, says(), Result.CLOSED, "it closes the connection without an answer"),
    ("it closes within the headers", HTTP, says(OK[:20]), Result.CLOSED, "without an answer"),
    ("it speaks something else", HTTP, says(b"SSH-2.0-OpenSSH_9.2\r\n"), Result.NOT_HTTP, "'SSH-2.0"),
    ("it answers garbage", HTTP, says(bytes(range(256)) * 40), Result.NOT_HTTP, "not HTTP/1"),
    ("its status is none", HTTP, says(b"HTTP/1.1 2000 OK\r\n\r\n"), Result.NOT_HTTP, "not HTTP/1"),
    ("it answers by HTTP/1.0", HTTP, says(b"HTTP/1.0 200 OK\r\n\r\n"), Result.WELL, ""),
    ("it has no words for its status", HTTP, says(b"HTTP/1.1 204\r\n\r\n"), Result.WELL, ""),
    ("its lines end with LF alone", HTTP, says(b"HTTP/1.0 200 OK\nA: b\n\n"), Result.WELL, ""),
    ("its header is large", HTTP, says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 30000 + b"\r\n\r\n"), Result.WELL, ""),
    ("its header is huge", HTTP, says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10**6), Result.NOT_HTTP, f"than {MAX_HEAD}"),
    ("its body drips in chunks", HTTP, says(OK[:38], b"1\r\na\r\n" * 5, pause=0.2), Result.WELL, ""),
    ("its headers come byte by byte", HTTP, drips(b"HTTP/1.1 200 OK\r\n\r\n"), Result.WELL, ""),
    ("it has a body without end", HTTP, says(OK[:38] + b"x" * 10**6), Result.WELL, ""),
    ("it speaks no TLS", HTTPS, speaks_first, Result.TLS, "TLS: "),
]


@pytest.mark.parametrize(("check", "behaviour", "result", "words"), [each[1:] for each in BEHAVIOURS], ids=[
    each[0] for each in BEHAVIOURS
])  # fmt: skip
def test_what_a_server_does_is_what_is_found(check, behaviour, result, words):
    with serving(behaviour) as port:
        told = checked(check, port)
    assert (told.result, words in told.words) == (result, True), told
    assert bool(told.words) == (result is not Result.WELL)


def test_headers_in_too_many_parts_are_given_up():
    def behaviour(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked(connection)
        for each in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10 * MAX_READS:
            connection.sendall(bytes([each]))
            time.sleep(0.001)

    with serving(behaviour) as port:
        told = checked(HTTP, port)
    assert told.words == f"its headers come in more than {MAX_READS} parts"


def test_a_handshake_in_too_many_parts_is_given_up():
    def behaviour(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.recv(65536)
        for each in bytes.fromhex("1603034000 02004e00 0303") + bytes(10 * MAX_READS):  # a long ServerHello
            connection.sendall(bytes([each]))
            time.sleep(0.001)

    with serving(behaviour) as port:
        told = checked(HTTPS, port)
    assert (told.result, told.words) == (Result.TLS, f"TLS: more than {MAX_READS} parts")


@pytest.mark.parametrize("check", [TCP, HTTP])
def test_it_answers_over_ipv6(check):
    with serving(says(OK), "::1") as port:
        assert checked(check, port, "::1").result is Result.WELL


def test_nobody_listens():
    with serving(says(OK)) as port:
        pass
    told = checked(TCP, port)
    assert (told.result, told.words) == (Result.REFUSED, "connection refused")


def test_a_full_backlog_is_a_black_hole():
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # more than it takes; who is not accepted keeps the others out
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listening.getsockname())
        told = checked(replace(TCP, timeout=BRIEF), listening.getsockname()[1])
    assert (told.result, told.words) == (Result.TIMEOUT, "it does not accept the connection within 0.5s")


def test_there_is_no_way():
    told = checked(TCP, 80, "255.255.255.255")
    assert told.result is Result.UNREACHABLE


def test_what_is_asked_for():
    heard = []

    def behaviour(connection):
        heard.append(asked(connection).decode())
        connection.sendall(OK)

    with serving(behaviour) as port:
        checked(HTTP, port)
        checked(replace(HTTP, path="/x?y=1", server_name=NAME), port)
    [first, second] = [each.split("\r\n") for each in heard]
    assert first[:2] == ["GET /healthz HTTP/1.1", f"Host: 127.0.0.1:{port}"]
    assert second[:2] == ["GET /x?y=1 HTTP/1.1", f"Host: {NAME}:{port}"]
    assert "Connection: close" in first


# ── TLS ──


OPENSSL_CA = """
[ca]
default_ca = one
[one]
database = index
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A directory with ca.crt, and certificates it signed: for a name, for an address, two that are not valid now, and
    that of another CA, which signed one more. Beside them files that contain ca.crt, or not quite."""
    at = tmp_path_factory.mktemp("tls")
    (at / "ca.cnf").write_text(OPENSSL_CA)
    (at / "index").touch()

    def run(*words):
        subprocess.run(["openssl", *words], cwd=at, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for ca in ("ca", "other"):
        run("req", "-x509", *new, "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", f"/CN={ca}", "-days", "30")
    times = {"expired": ("20200101000000Z", "20200201000000Z"), "early": ("20980101000000Z", "20991231000000Z")}
    for name in ("name", "address", *times):
        run("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (at / f"{name}.ext").write_text(f"subjectAltName={f'DNS:{NAME}' if name == 'name' else 'IP:127.0.0.1'}\n")
        start, end = times.get(name, ("20200101000000Z", "20991231000000Z"))
        signing = ("-cert", "ca.crt", "-keyfile", "ca.key", "-in", f"{name}.csr", "-out", f"{name}.crt")
        dates = ("-startdate", start, "-enddate", end, "-extfile", f"{name}.ext", "-batch", "-notext")
        run("ca", "-config", "ca.cnf", *signing, *dates)
    (at / "middle.ext").write_text("basicConstraints=critical,CA:TRUE\n")
    for name, ca, ext in (("middle", "ca", "middle"), ("below", "middle", "address")):
        run("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-extfile", f"{ext}.ext")
        run("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signing)
    run("x509", "-in", "ca.crt", "-outform", "DER", "-out", "binary.crt")
    whole, other = ((at / f"{name}.crt").read_bytes() for name in ("ca", "other"))
    contents = {"empty": b"", "half": whole[:200], "and-half": whole + whole[:200], "no-ascii": b"\xff" * 9}
    contents |= {"several": other + whole, "crlf": whole.replace(b"\n", b"\r\n"), "with-words": b"# ours\n" + whole}
    for name, content in contents.items():
        (at / f"{name}.crt").write_bytes(content)
    return at


PEM = "must contain certificates in PEM, each of them whole"


def over_tls(authority: Path, name, behaviour):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / f"{name}.crt", authority / f"{name}.key")

    def secure(connection):
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
            behaviour(tls)

    return secure


@pytest.mark.parametrize(
    ("name", "ca", "server_name", "result", "words"),
    [
        ("address", "ca.crt", "", Result.WELL, ""),
        ("name", "ca.crt", NAME, Result.WELL, ""),
        ("name", "ca.crt", "", Result.TLS, "IP address mismatch"),
        ("name", "ca.crt", "b.example", Result.TLS, "ostname mismatch"),
        ("expired", "ca.crt", "", Result.TLS, "certificate has expired"),
        ("address", "other.crt", "", Result.TLS, "unable to get local issuer certificate"),
        ("expired", None, "", Result.WELL, ""),
        ("early", "ca.crt", "", Result.TLS, "certificate is not yet valid"),
        ("below", "middle.crt", "", Result.WELL, ""),
        *[("address", f"{name}.crt", "", Result.WELL, "") for name in ("several", "crlf", "with-words")],
        ("address", "none.crt", "", Result.HERE, "No such file"),
        ("address", "", "", Result.HERE, "Is a directory"),
        *[("address", f"{name}.crt", "", Result.HERE, PEM) for name in ("empty", "half", "and-half", "no-ascii")],
        *[("address", name, "", Result.HERE, PEM) for name in ("binary.crt", "ca.key")],
    ],
)
def test_a_certificate_is_verified_where_a_ca_is_given(authority, name, ca, server_name, result, words):
    check = replace(HTTPS, ca="" if ca is None else str(authority / ca), server_name=server_name)
    with serving(over_tls(authority, name, says(OK))) as port:
        told = checked(check, port)
    assert (told.result, words in told.words) == (result, True), told


@pytest.mark.parametrize(
    ("check", "behaviour", "result"),
    [
        (HTTPS, says(b"HTTP/1.1 500 X\r\n\r\n"), Result.STATUS),
        (HTTPS, says(b"HTTP/1.1 100 C\r\n\r\n", OK, pause=0.05), Result.WELL),
        (HTTPS, says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 60000 + b"\r\n\r\n"), Result.WELL),
        (HTTPS, says(b"HTTP/1.1 102 X\r\n\r\n" * 50000), Result.NOT_HTTP),
        (HTTPS, says(), Result.CLOSED),
        (replace(HTTPS, timeout=BRIEF), waits, Result.TIMEOUT),
    ],
)
def test_within_tls_the_same_is_found(authority, check, behaviour, result):
    with serving(over_tls(authority, "address", behaviour)) as port:
        assert checked(check, port).result is result


def test_a_handshake_that_does_not_end_is_told_so():
    with serving(waits) as port:
        assert checked(replace(HTTPS, timeout=BRIEF), port).words == "its TLS handshake does not finish within 0.5s"


def test_who_resets_just_before_the_handshake_has_reset():
    def behaviour(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with serving(behaviour) as port:
        target = Target(ip_address("127.0.0.1"), port, HTTPS)
        sock = connecting(socket.AF_INET, ("127.0.0.1", port))
        steps = checking(sock, target, request_of(target), context(""))
        next(steps)
        select.select([sock], [], [], 30.0)  # until it is there
        with pytest.raises(StopIteration) as end:
            steps.send(select.EPOLLOUT)  # as the kernel had told before
    assert end.value.value == Found(Result.RESET, "connection reset by peer")


def test_what_openssl_has_no_name_for_is_told_in_its_words():
    told = failed(ssl.SSLError(1, "[SSL] legacy sigalg disallowed or unsupported (_ssl.c:992)"))
    assert told.words == "TLS: legacy sigalg disallowed or unsupported"


def test_a_ca_without_end_is_not_read(tmp_path):
    with (tmp_path / "large.crt").open("wb") as file:
        file.truncate(MAX_CA + 1)
    with pytest.raises(EdgeError, match=f"more than {MAX_CA} bytes"):
        context(str(tmp_path / "large.crt"))
