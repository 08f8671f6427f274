"""Brokers that are overrun, full, slow, of somebody else, or hostile: what is retained is the truth in the end, and
nothing of ours grows."""

import asyncio
import resource
import struct
import subprocess
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from mqtt_publisher import TOPICS, as_read, eips, publisher, run, until, until_said

from speaker.errors import EdgeError
from speaker.model.events import ConflictBegun
from speaker.settings import MqttSettings
from speaker.telemetry.mqtt.connection import WINDOW, Connection, Login
from speaker.telemetry.mqtt.messages import Message
from speaker.telemetry.mqtt.outbox import MAX_EVENTS

EIPS = TOPICS.all_eips


@pytest.fixture
def here(new_namespace):
    return new_namespace("host")


def megabytes() -> float:
    """That this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def test_ten_thousand_changes_and_as_many_events_come_down_to_the_truth_and_no_more_than_fits(here, new_broker):
    broker = new_broker(here)
    broker.start()

    async def story():
        async with publisher() as (found, said):
            found.show({EIPS: eips(500)})
            await until_said(said)
            before, said_before = megabytes(), said.count("published_total", kind="state")
            for change in range(1, 21):  # of 500 states each
                found.show({EIPS: eips(500, change)})
                for number in range(500):
                    found.tell(ConflictBegun(f"10.0.0.{number % 250}", f"change {change}"))
                await asyncio.sleep(0)
                assert said.count("waiting") <= 501 + MAX_EVENTS + WINDOW
            await until_said(said)
            assert megabytes() - before < 30
            states = said.count("published_total", kind="state") - said_before
            events = said.count("published_total", kind="event")
            assert 500 <= states < 5000, "of a state that changed while it waited only the last is said"
            assert events + said.count("events_dropped_total") == 10_000

    with here.entered():
        run(story)
    assert broker.retained(EIPS) == as_read(eips(500, 20))


def test_a_subscriber_that_does_not_read_keeps_nobody_waiting_and_has_the_truth_when_it_does(here, new_broker):
    broker = new_broker(here)
    broker.start()
    slow = broker.watch(EIPS)

    async def story():
        async with publisher() as (found, said):
            found.show({EIPS: eips(300)})
            await until_said(said)
            slow.freeze()
            for change in range(1, 6):
                found.show({EIPS: eips(300, change)})
                await until_said(said)
            assert said.errors == []

    with here.entered():
        run(story)
    truth = as_read(eips(300, 5))
    assert broker.retained(EIPS) == truth
    slow.thaw()
    slow.until(lambda states: states == truth)


def test_a_broker_whose_disk_is_full_takes_all_of_it_and_has_it_again_after_it_died_with_nothing(here, new_broker):
    broker = new_broker(here, disk="64k")
    broker.start()
    truth = as_read(eips(1500))

    async def story():
        async with publisher() as (found, said):
            found.show({EIPS: eips(1500)})
            await until_said(said)
            await until(
                lambda: any("rror" in line for line in broker.log)
            )  # it has 64 kB, and retains several times that
            assert await asyncio.to_thread(broker.retained, EIPS) == truth
            broker.kill()
            await said.fails.wait()
            broker.start()
            await said.works.wait()
            await until_said(said)
            assert await asyncio.to_thread(broker.retained, EIPS) == truth

    with here.entered():
        run(story)


# ── Whom to believe, and who believes us ──


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Files: an authority, a certificate of it for the broker and one for us; another authority."""
    place = tmp_path_factory.mktemp("certificates")

    def openssl(line: str) -> None:
        subprocess.run(["openssl", *line.split()], cwd=place, check=True, capture_output=True)

    for ca in ("ca", "stranger"):
        openssl(
            f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={ca} "
            f"-keyout {ca}.key -out {ca}.pem"
        )
    for name, who in (("broker", "IP:127.0.0.1"), ("elsewhere", "DNS:broker.example"), ("us", "DNS:n1")):
        openssl(
            f"req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -addext subjectAltName={who} "
            f"-keyout {name}.key -out {name}.csr"
        )
        openssl(
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy "
            f"-out {name}.pem"
        )
    return place


def tls(place, *lines, cert="broker"):
    return (
        "listener 8883 127.0.0.1",
        f"cafile {place}/ca.pem",
        f"certfile {place}/{cert}.pem",
        f"keyfile {place}/{cert}.key",
        *(lines or ("allow_anonymous true",)),
    )


def refused_with(broker, *words, **files):
    """Nothing is said there, and that is told of with these words."""

    async def story():
        async with publisher("mqtts://127.0.0.1", **files) as (_, said):
            await said.fails.wait()
            assert all(word in said.errors[0] for word in words), said.errors
            assert all("hunter2" not in error for error in said.errors)
            assert not said.works.is_set()

    with broker.namespace.entered():
        run(story)


def test_a_broker_with_a_certificate_of_somebody_else_is_told_nothing_until_the_file_is_mended(
    here, new_broker, certificates, tmp_path
):
    broker = new_broker(here, *tls(certificates))
    broker.start()
    ca = tmp_path / "ca.pem"
    ca.write_bytes((certificates / "stranger.pem").read_bytes())

    async def story():
        async with publisher("mqtts://127.0.0.1", ca=ca) as (_, said):
            await said.fails.wait()
            assert "CERTIFICATE_VERIFY_FAILED" in said.errors[0]
            assert "mqtt 127.0.0.1:8883" in said.errors[0]
            ca.write_bytes((certificates / "ca.pem").read_bytes())
            await said.works.wait()

    with here.entered():
        run(story)


def test_a_broker_with_a_certificate_for_another_name_is_told_nothing(here, new_broker, certificates):
    broker = new_broker(here, *tls(certificates, cert="elsewhere"))
    broker.start()
    refused_with(broker, "CERTIFICATE_VERIFY_FAILED", "127.0.0.1", ca=certificates / "ca.pem")


def test_a_broker_that_wants_a_certificate_of_ours_gets_it(here, new_broker, certificates):
    broker = new_broker(here, *tls(certificates, "require_certificate true", "use_identity_as_username true"))
    broker.start()
    refused_with(broker, "mqtt 127.0.0.1:8883", ca=certificates / "ca.pem")
    files = {"ca": certificates / "ca.pem", "cert": certificates / "us.pem", "key": certificates / "us.key"}

    async def story():
        async with publisher("mqtts://127.0.0.1", **files) as (_, said):
            await said.works.wait()

    with here.entered():
        run(story)


def test_a_wrong_password_is_told_of_and_not_shown(here, new_broker, certificates, tmp_path):
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "speaker", "right"], check=True)
    broker = new_broker(here, *tls(certificates, f"password_file {passwords}", "allow_anonymous false"))
    broker.start()
    (login := tmp_path / "login").write_text("speaker\nhunter2\n")
    refused_with(broker, "ot authori", ca=certificates / "ca.pem", login=login)
    login.write_text("speaker\nright\n")

    async def story():
        async with publisher("mqtts://127.0.0.1", ca=certificates / "ca.pem", login=login) as (_, said):
            await said.works.wait()

    with here.entered():
        run(story)


def test_a_broker_that_lets_us_in_and_takes_nothing_is_told_of(here, new_broker, tmp_path):
    (acl := tmp_path / "acl").write_text("topic read eip-speaker/#\n")
    broker = new_broker(here, "listener 1883 127.0.0.1", "allow_anonymous true", f"acl_file {acl}")
    broker.start()

    async def story():
        async with publisher() as (_, said):
            await said.fails.wait()
            assert "refused: Not authorized" in said.errors[0]

    with here.entered():
        run(story)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("login", None, "cannot be read"),
        ("login", "", "two lines"),
        ("login", "a" * (2**20 + 1), "larger than 1048576 bytes"),
        ("login", "a\nb\nc\n", "two lines"),
        ("login", b"\xff\xfe", "UTF-8"),
        ("ca", "no certificate", "CA certificates in PEM"),
        ("cert", "no certificate", "no certificate with its key"),
    ],
)
def test_a_file_that_is_no_good_is_named_and_none_of_it_shown(tmp_path, name, content, words):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    async def story():
        async with publisher("mqtts://127.0.0.1:1", **{name: path}) as (_, said):
            await said.fails.wait()
            assert words in said.errors[0]
            assert str(path) in said.errors[0]

    run(story)


# ── Hostile ones ──

CONNACK = bytes.fromhex("2003000000")


@asynccontextmanager
async def broker_that(answer):
    """``answer(reader, writer)`` is what it does with a connection; gives its port, and who is connected."""
    connected = set()

    async def serve(reader, writer):
        connected.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await answer(reader, writer)
                await reader.read()
        finally:
            connected.discard(writer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], connected
        for writer in list(connected):
            writer.transport.abort()


async def greet(reader, writer):
    await reader.readexactly(2)
    writer.write(CONNACK)


async def huge(reader, writer):
    await greet(reader, writer)
    writer.write(b"\x30\xff\xff\xff\x7f")
    with suppress(ConnectionError):
        while True:
            writer.write(bytes(2**16))
            await writer.drain()


async def garbage(reader, writer):
    await greet(reader, writer)
    writer.write(bytes(range(256)) * 64)


async def at_once(reader, writer):
    writer.write(b"\xff" * 4096)


async def no_text(reader, writer):
    await greet(reader, writer)
    writer.write(b"\x30\x06\x00\x02\xff\xfe\x00x")


async def flood(reader, writer):
    """Topics of its own, without end."""
    await greet(reader, writer)
    number = 0
    with suppress(ConnectionError):
        while True:
            topic = f"eip-speaker/v1/eips/{number}".encode()
            writer.write(b"\x30" + bytes([len(topic) + 4]) + struct.pack(">H", len(topic)) + topic + b"\x00x")
            number += 1
            if number % 100 == 0:
                await writer.drain()


async def hangs_up(reader, writer):
    writer.transport.abort()


async def silent(reader, writer):
    pass


@pytest.mark.parametrize("answer", [huge, garbage, at_once, no_text, hangs_up, flood])
def test_a_hostile_broker_costs_a_connection_and_no_memory(answer):
    async def story():
        async with broker_that(answer) as (port, _):
            before = megabytes()
            async with publisher(f"mqtt://127.0.0.1:{port}") as (found, said):
                found.show({EIPS: eips(10)})
                await said.fails.wait()
                assert said.count("waiting") <= 21_000
            assert megabytes() - before < 60

    run(story)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_broker_that_never_answers_keeps_no_descriptor_of_ours():
    async def story():
        will = Message("t", b"{}", retain=True)
        async with broker_that(silent) as (port, connected):
            settings = MqttSettings("127.0.0.1", port, tls=False)
            before = descriptors()
            for _ in range(5):
                with pytest.raises(EdgeError, match="timed out"):
                    async with Connection(settings, Login(), None, "n1", will, "n1", str, str, answer=0.05):
                        raise AssertionError
            await until(lambda: not connected)
            assert descriptors() <= before

    run(story)
