"""Many checks at once, and over time."""

import asyncio
import resource
import select
import ssl
import subprocess
import threading
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from itertools import count

import pytest
from checked_servers import OK, Told, asked, says, serving

from speaker.health.judge import Result, Target
from speaker.health.prober import Prober
from speaker.model import HealthCheck, ServiceKey
from speaker.system.threads import start_threads

QUICK = HealthCheck("http", "/", interval=0.1, jitter=0.01, timeout=30.0)
LOCALHOST = ip_address("127.0.0.1")


class Heard(Told):
    """What a prober tells."""

    def __init__(self):
        super().__init__()
        self.states, self.tallies, self.news = [], [], asyncio.Event()

    def tell(self, watched):
        self.states += [(each.target, each.condition.well) for each in watched]
        self.news.set()

    def failed(self, edge, error):
        super().failed(edge, error)
        self.news.set()

    def recovered(self, edge):
        super().recovered(edge)
        self.news.set()

    def endpoints_checked(self, tally):
        self.tallies.append(tally)
        self.news.set()

    async def until(self, holds):
        async with asyncio.timeout(30):
            while not (found := holds()):
                self.news.clear()
                await self.news.wait()
        return found


@asynccontextmanager
async def probing(*targets, **bounds):
    start_threads()
    heard = Heard()
    prober = Prober(heard.tell, heard, **bounds)
    prober.follow(dict.fromkeys(targets, ()))
    running = asyncio.create_task(prober.run())
    try:
        yield prober, heard
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


class Switched:
    """A server that is well, or not."""

    def __init__(self):
        self.status, self.asked = 200, 0

    def __call__(self, connection):
        asked(connection)
        self.asked += 1
        connection.sendall(f"HTTP/1.1 {self.status} X\r\n\r\n".encode())


async def test_who_falls_and_rises_is_told_each_time_and_once():
    server = Switched()
    with serving(server) as port:
        target = Target(LOCALHOST, port, QUICK)
        async with probing(target) as (prober, heard):
            await prober.known(60)
            for status, well in ((503, False), (200, True), (503, False)):
                server.status = status
                await heard.until(lambda well=well: heard.states[-1] == (target, well))
        assert [well for _, well in heard.states] == [True, False, True, False]


async def test_who_flaps_faster_than_it_falls_stays_well():
    server = Switched()

    def flapping(connection):
        server.status = 503 if server.asked % 3 else 200
        server(connection)

    with serving(flapping) as port:
        async with probing(Target(LOCALHOST, port, QUICK)) as (_, heard):
            await heard.until(lambda: server.asked > 9 and heard.tallies)
    assert [well for _, well in heard.states] == [True]


async def test_who_answers_later_than_the_next_check_is_due_is_checked_on_and_not_only_once_a_timeout():
    def slow(connection):
        asked(connection)
        time.sleep(2 * QUICK.interval)
        connection.sendall(OK)

    with serving(slow) as port:
        async with probing(Target(LOCALHOST, port, replace(QUICK, timeout=1000.0))) as (_, heard):
            await heard.until(lambda: sum(tally.results[Result.WELL] for tally in heard.tallies) > 3)


async def test_an_endpoint_is_unwell_until_its_first_check_and_forgotten_with_its_service():
    with serving(says(OK)) as port:
        target = Target(LOCALHOST, port, QUICK)
        heard = Heard()
        prober = Prober(heard.tell, heard)
        prober.follow({target: (ServiceKey("default", "web"),)})
        assert prober.unwell == {target: "not checked yet"}
        async with probing(target) as (prober, _):
            await prober.known(60)
            assert prober.unwell == {}
            prober.follow({})
            assert prober.unwell == {}


async def test_of_too_many_endpoints_the_rest_count_as_well_and_are_told():
    with serving(says(b"HTTP/1.1 500 X\r\n\r\n")) as port:
        targets = [Target(ip_address(f"127.0.0.{at}"), port, QUICK) for at in range(1, 6)]
        async with probing(*targets, most=2) as (prober, heard):
            await prober.known(60)
            await heard.until(lambda: any(tally.beyond == 3 for tally in heard.tallies))
            assert prober.unwell.keys() == set(targets[:2])


async def test_no_more_checks_are_under_way_than_may_be_and_late_ones_are_counted():
    every, most, over, lock = select.poll(), 0, threading.Event(), threading.Lock()
    connections = []

    def behaviour(connection):
        nonlocal most
        with lock:
            connections.append(connection)
            every.register(connection, 0)
            ended = every.poll(0)  # one that has been reset has an event, though nobody asked for any
            most = max(most, len(connections) - len(ended))
        over.wait(60)

    with serving(behaviour) as port:
        targets = [Target(LOCALHOST, port, HealthCheck("http", f"/{at}", interval=0.1, timeout=0.4)) for at in range(8)]
        async with probing(*targets, at_once=2) as (_, heard):
            await heard.until(lambda: any(tally.late for tally in heard.tallies))
            assert len(heard.states) == len(targets)
        over.set()
    assert 1 <= most <= 2


async def test_that_this_host_has_no_descriptor_left_says_nothing_of_the_endpoint():
    with serving(says(OK)) as port:
        async with probing(Target(LOCALHOST, port, QUICK)) as (prober, heard):
            await prober.known(60)
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
                await heard.until(lambda: heard.edges)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            await heard.until(lambda: heard.edges[-1] == "recovered")
    assert "Too many open files" in heard.edges[0]
    assert [well for _, well in heard.states] == [True]


async def test_what_was_under_way_while_this_process_stood_still_says_nothing():
    asking, enough, over, number = asyncio.Event(), asyncio.Event(), threading.Event(), count()
    loop, stood = asyncio.get_running_loop(), 0.0
    loop.time = lambda: time.monotonic() + stood

    def behaviour(connection):
        if (turn := next(number)) == 1:
            loop.call_soon_threadsafe(asking.set)
            over.wait(60)
        if turn > 4:
            loop.call_soon_threadsafe(enough.set)
        says(OK)(connection)

    check = HealthCheck("http", "/", interval=0.1, jitter=0.0, timeout=30.0, fall=1)
    with serving(behaviour) as port:
        async with probing(Target(LOCALHOST, port, check)) as (_, heard):
            await asking.wait()
            stood = 2 * check.timeout
            await enough.wait()
        over.set()
    assert [well for _, well in heard.states] == [True]


@pytest.fixture
def signed(tmp_path):
    """a.crt and b.crt, which sign themselves."""
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x", "-days", "2")
    for name in ("a", "b"):
        san = ("-addext", "subjectAltName=IP:127.0.0.1")
        keys = ("-keyout", f"{name}.key", "-out", f"{name}.crt")
        subprocess.run(["openssl", "req", "-x509", *new, *san, *keys], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


async def test_a_ca_that_was_replaced_is_used_and_one_that_is_gone_is_kept(signed):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed / "a.crt", signed / "a.key")

    def secure(connection):
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
            says(OK)(tls)

    ca = signed / "ca.crt"
    ca.write_bytes((signed / "b.crt").read_bytes())
    check = HealthCheck("https", "/", interval=0.1, ca=str(ca))
    with serving(secure) as port:
        target = Target(LOCALHOST, port, check)
        async with probing(target) as (prober, heard):
            await heard.until(lambda: heard.states == [(target, False)])
            ca.write_bytes((signed / "a.crt").read_bytes())
            prober.follow({target: ()})  # which reads it as well
            await heard.until(lambda: heard.states[-1] == (target, True))
            for makes in (lambda: ca.write_bytes(b""), lambda: ca.write_bytes(b"-----BEGIN"), ca.unlink, ca.mkdir):
                makes()
                prober.follow({target: ()})
                heard.edges.clear()
                await heard.until(lambda: str(ca) in "".join(heard.edges))
                for _ in range(3):
                    before = len(heard.tallies)
                    await heard.until(lambda before=before: len(heard.tallies) > before)
            assert heard.states[-1] == (target, True)
            assert not any(tally.results[Result.HERE] for tally in heard.tallies)
            ca.rmdir()
            ca.write_bytes((signed / "a.crt").read_bytes())
            prober.follow({target: ()})
            await heard.until(lambda: heard.edges[-1] == "recovered")
