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
from cluster_world import groups_left
from real_cluster import RealCluster, missing

pytestmark = pytest.mark.cluster
HERE = Path(__file__).parent
SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


def machine():
    """What a cluster might change of it."""
    sysctls = {name: Path("/proc/sys", name).read_text() for name in SETTINGS}
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    links = {link["ifname"] for link in json.loads(subprocess.check_output(["ip", "-json", "link"]))}
    return {"sysctls": sysctls, "mounts": mounts, "links": links}


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


def test_a_cluster_whose_owner_is_killed_leaves_nothing(images):
    before = machine()
    owner = subprocess.Popen([sys.executable, str(HERE / "owner.py"), str(images)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name, directory, sweeper = owner.stdout.readline().split()
    swept = os.pidfd_open(int(sweeper))
    owner.send_signal(signal.SIGKILL)
    owner.communicate()

    assert select.select([swept], [], [], 60.0)[0], "the sweeper goes on"
    assert machine() == before
    assert groups_left(name) == processes_of(name) == []
    assert not Path(directory).exists()
