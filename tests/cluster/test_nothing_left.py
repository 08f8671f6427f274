"""A cluster that has ended, however it did, was never here."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_nodes import store
from cluster_parts import base_image
from cluster_world import groups_left, sweep
from real_cluster import RealCluster, missing

pytestmark = [pytest.mark.cluster, pytest.mark.long(part="rest")]
HERE = Path(__file__).parent
SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


def machine():
    """What a cluster might change of it."""
    sysctls = {name: Path("/proc/sys", name).read_text() for name in SETTINGS}
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    links = {link["ifname"] for link in json.loads(subprocess.check_output(["ip", "-json", "link"]))}
    files = {place: sorted(Path(place).iterdir()) for place in ("/etc", "/var/lib")}
    return {"sysctls": sysctls, "mounts": mounts, "links": links, "files": files}


def processes_of(name):
    return [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if name.encode() in (path.read_bytes() if path.exists() else b"")
    ]


@pytest.fixture
def images():
    if why := missing():
        pytest.skip(why)
    return store()


def test_a_cluster_that_is_closed_leaves_nothing(images):
    before = machine()
    with RealCluster(images, nodes=1) as cluster:
        assert groups_left(cluster.name)
        assert machine() == before, "not even while it runs"
    assert machine() == before
    assert groups_left(cluster.name) == processes_of(cluster.name) == []
    assert not cluster.directory.exists()


def test_what_builds_images_leaves_nothing(images):
    before = machine()
    base_image()
    assert machine() == before


def owned(images):
    """An owner's process, and of its cluster: name, directory, sweeper."""
    owner = subprocess.Popen([sys.executable, str(HERE / "owner.py"), str(images)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name, directory, sweeper = owner.stdout.readline().split()
    return owner, name, directory, os.pidfd_open(int(sweeper))


def test_a_cluster_whose_owner_is_killed_leaves_nothing(images):
    before = machine()
    owner, name, directory, swept = owned(images)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()

    assert select.select([swept], [], [], 60.0)[0], "the sweeper goes on"
    assert machine() == before
    assert groups_left(name) == processes_of(name) == []
    assert not Path(directory).exists()


def test_what_is_left_where_owner_and_sweeper_are_killed_together_can_be_swept_later(images):
    before = machine()
    owner, name, directory, sweeper = owned(images)
    signal.pidfd_send_signal(sweeper, signal.SIGKILL)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()

    assert groups_left(name)
    sweep(name, Path(directory))
    assert machine() == before
    assert groups_left(name) == processes_of(name) == []
    assert not Path(directory).exists()
