"""What ``speaker run`` asks of its node, as its directory and its state file come and go."""

import asyncio
import os
import shutil
import threading
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import pytest
from structlog.testing import capture_logs

from speaker.allocator.book import Ledger
from speaker.allocator.settle import Settlement
from speaker.model import Assignment, ServiceKey
from speaker.node.report import Report
from speaker.settings import Node, RunSettings
from speaker.standalone.run import Manifests
from speaker.standalone.state import Holdings, only, read_state, recall, write_state
from speaker.system.waiting import boottime
from speaker.telemetry.metrics import Metrics

PATIENCE = 60.0
"""Seconds; only a failure waits for so long."""
WEB, DNS = ServiceKey("default", "web"), ServiceKey("default", "dns")
POOL = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [192.0.2.10-192.0.2.19]}
"""
SERVICE = """
---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {type: LoadBalancer, ports: [{port: %d}]}
"""
SITE = POOL + SERVICE % ("web", 80)


class Site:
    """A directory of manifests that is followed, its state file, and what is told."""

    def __init__(self, home, settle_seconds, write):
        self.directory, self.state = home / "site", home / "state.json"
        self.directory.mkdir(exist_ok=True)
        settings = RunSettings(
            directory=self.directory, node=Node.parse("n1"), state=self.state, settle_seconds=settle_seconds
        )
        self.report = Report(Metrics(), home / "run")
        self.changed = asyncio.Event()
        self.manifests = Manifests(settings, recall(self.state, 60.0, boottime()), self.report, write)

    def write(self, name, text):
        (self.directory / f".{name}").write_text(text)
        (self.directory / f".{name}").rename(self.directory / name)

    async def asked(self):
        """Waits for news; the addresses of every Service that is to be served then."""
        async with asyncio.timeout(PATIENCE):
            await self.changed.wait()
        self.changed.clear()
        return await self.asked_now()

    async def asked_now(self):
        view = await self.manifests.view({})
        return None if view is None else {key.name: _text(each) for key, each in view.settlement.assignments.items()}

    async def until_told(self, words):
        async with asyncio.timeout(PATIENCE):
            while not any(words in problem for problem in self.report.problems()):
                await self.report.stale.wait()
                self.report.stale.clear()


def _text(assignment):
    return " ".join(map(str, assignment.addresses))


@pytest.fixture
def following(tmp_path, monkeypatch):
    monkeypatch.setattr("speaker.standalone.watch.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("speaker.standalone.run.AGAIN_SECONDS", 0.05)

    @asynccontextmanager
    async def follow(settle_seconds=3600.0, write=write_state):
        site = Site(tmp_path, settle_seconds, write)
        task = asyncio.create_task(site.manifests.run(None, site.changed.set))
        try:
            yield site
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    return follow


LOST = {
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "web.yaml': must be a file that can be read: Is a"),
    "a FIFO": (os.mkfifo, "'web.yaml': must be a file that can be read: Is a FIFO"),
    "a directory": (lambda path: path.mkdir(), "'web.yaml': must be a file that can be read: Is a directory"),
}


@pytest.mark.parametrize(("become", "said"), LOST.values(), ids=LOST.keys())
async def test_a_manifest_that_becomes_something_else_is_told_and_keeps_what_it_asked_for(following, become, said):
    async with following() as site:
        site.write("lan.yaml", POOL)
        site.write("web.yaml", SERVICE % ("web", 80))
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        (site.directory / "web.yaml").unlink()
        become(site.directory / "web.yaml")
        await site.until_told(said)
        assert await site.asked_now() == {"web": "192.0.2.10"}


async def test_an_emptied_directory_keeps_everything_until_that_has_stood(following):
    async with following() as site:
        site.write("site.yaml", SITE)
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        (site.directory / "site.yaml").unlink()
        with capture_logs() as logs:
            await site.until_told("has no manifests now: was it emptied, or is it lost?")
        assert [entry["in_force"] for entry in logs] == ["the last good ones stay in force"]
        assert await site.asked_now() == {"web": "192.0.2.10"}
        assert not site.changed.is_set()
        site.write("site.yaml", SITE)
        assert await site.asked() == {"web": "192.0.2.10"}
        assert site.report.problems() == []


async def test_an_emptied_directory_that_has_stayed_empty_is_what_was_asked_for(following):
    async with following(settle_seconds=0.3) as site:
        site.write("site.yaml", SITE)
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        (site.directory / "site.yaml").unlink()
        await site.until_told("It takes effect if it stays so for 0.3 s")
        assert await site.asked() == {}
        assert site.report.problems() == []


async def test_a_directory_that_vanishes_deletes_nothing_however_long(following):
    async with following(settle_seconds=0.0) as site:
        site.write("site.yaml", SITE)
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        shutil.rmtree(site.directory)
        await site.until_told("must be a directory that can be read: No such file or directory")
        assert await site.asked_now() == {"web": "192.0.2.10"}


async def test_a_start_over_an_empty_directory_forgets_nobody(following):
    async with following() as site:
        site.write("site.yaml", SITE)
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        (site.directory / "site.yaml").unlink()
    remembered = read_state(site.state, Ledger).held
    assert [held.service for held in remembered] == [WEB]
    async with following(settle_seconds=0.0) as site:
        await site.until_told("has no manifests, while the state file remembers Services")
        assert await site.asked_now() is None
        site.write("site.yaml", SITE)
        assert await site.asked() == {"web": "192.0.2.10"}


async def test_a_link_that_leads_to_another_directory_is_followed_at_once(following, tmp_path):
    """As git-sync and other deployers do."""
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "site.yaml").write_text(SITE)
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "other.yaml").write_text(POOL + SERVICE % ("dns", 53))
    (tmp_path / "v1").rename(tmp_path / "site")
    async with following() as site:
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        (tmp_path / "site").rename(tmp_path / "old")
        (tmp_path / "v2").rename(tmp_path / "site")
        while list(await site.asked()) != ["dns"]:
            pass


async def test_a_mounted_configmap_that_loses_a_key_is_followed(following, tmp_path):
    """kubelet's AtomicWriter: ``..data`` is swapped first, and the links to what is gone are removed after that."""

    def publish(revision, **files):
        data = site.directory / f"..{revision}"
        data.mkdir()
        for name, text in files.items():
            (data / f"{name}.yaml").write_text(text)
        (site.directory / "..data_tmp").symlink_to(data.name)
        (site.directory / "..data_tmp").rename(site.directory / "..data")

    async with following() as site:
        publish("one", lan=POOL, web=SERVICE % ("web", 80), dns=SERVICE % ("dns", 53))
        for name in ("lan", "web", "dns"):
            (site.directory / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
        while await site.asked() != {"dns": "192.0.2.10", "web": "192.0.2.11"}:
            pass
        publish("two", lan=POOL, web=SERVICE % ("web", 81))
        await site.until_told(
            "dns.yaml': must be a file that can be read: Is a link to ..data/dns.yaml, which does not exist"
        )
        assert await site.asked_now() == {"dns": "192.0.2.10", "web": "192.0.2.11"}
        (site.directory / "dns.yaml").unlink()
        while await site.asked() != {"web": "192.0.2.11"}:
            pass
        assert site.report.problems() == []


async def test_an_editor_that_moves_the_only_manifest_away_and_writes_a_new_one_withdraws_nothing(following):
    """As vim does with ``backupcopy=no``."""
    async with following() as site:
        site.write("site.yaml", SITE)
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        (site.directory / "site.yaml").rename(site.directory / "site.yaml~")
        await site.until_told("has no manifests now")
        (site.directory / "site.yaml").write_text(SITE + SERVICE % ("dns", 53))
        while await site.asked() != {"web": "192.0.2.10", "dns": "192.0.2.11"}:
            pass
        assert site.report.problems() == []


# ── A state file that cannot be written ───────────────────────────────────────────────────────────────────────


async def test_what_cannot_be_remembered_is_not_served_and_everything_else_goes_on(following):
    async with following() as site:
        site.write("site.yaml", SITE)
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        site.state.unlink()
        site.state.mkdir()
        site.write("site.yaml", SITE.replace("port: 80", "port: 81") + SERVICE % ("dns", 53))
        assert await site.asked() == {"web": "192.0.2.10"}
        assert any("state.json" in problem for problem in site.report.problems())
        view = await site.manifests.view({})
        assert view.world.services[WEB].ports[0].port == 81, "what needs no memory comes into force"
        site.state.rmdir()
        while await site.asked() != {"web": "192.0.2.10", "dns": "192.0.2.11"}:
            pass
        assert site.report.problems() == []


async def test_a_disk_that_hangs_is_waited_for_no_longer_than_one_that_refuses_and_is_asked_once(
    following, monkeypatch
):
    """Between one edit and the next it once kept a node for 40 s from following any."""
    monkeypatch.setattr("speaker.standalone.run.DISK_SECONDS", 0.05)
    hangs, goes_on, asked = threading.Event(), threading.Event(), []

    def hang(state, ledger):
        if hangs.is_set():
            asked.append(state)
            goes_on.wait(PATIENCE)
        write_state(state, ledger)

    async with following(write=hang) as site:
        site.write("site.yaml", SITE)
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
        hangs.set()
        site.write("site.yaml", SITE.replace("port: 80", "port: 81") + SERVICE % ("dns", 53))
        while not any("the disk took longer than" in problem for problem in site.report.problems()):
            assert await site.asked() == {"web": "192.0.2.10"}
        site.write("site.yaml", POOL + SERVICE % ("dns", 53))
        while await site.asked() != {}:
            pass
        assert len(asked) == 1, "the one that hangs, and none beside it"
        hangs.clear()
        goes_on.set()
        while await site.asked() != {"dns": "192.0.2.11"} or site.report.problems():
            pass


async def test_a_start_whose_state_cannot_be_written_serves_what_it_remembers(following):
    async with following() as site:
        site.write("site.yaml", SITE)
        while await site.asked() != {"web": "192.0.2.10"}:
            pass
    async with following() as site:
        site.state.unlink()
        site.state.mkdir()
        while await site.asked() != {"web": "192.0.2.10"}:
            pass


A, B = ip_address("192.0.2.10"), ip_address("2001:db8::10")


@pytest.mark.parametrize(
    ("on_disk", "served"),
    [
        ({(WEB, str(A)), (WEB, str(B))}, {WEB: Assignment(WEB, (A, B), ("four", "six"), frozenset({A, B}))}),
        ({(WEB, str(B))}, {WEB: Assignment(WEB, (B,), ("six",), frozenset({B}))}),
        ({(DNS, str(A))}, {}),
        (set(), {}),
    ],
)
def test_only_what_is_on_disk_is_served(on_disk, served):
    both = Settlement({WEB: Assignment(WEB, (A, B), ("four", "six"), frozenset({A, B}))}, {})
    assert only(both, Holdings(on_disk)).assignments == served
