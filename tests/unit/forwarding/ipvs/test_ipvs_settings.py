"""IPVS's own settings: those of the host where a pod has them mounted, else /proc/sys as it is."""

import pytest

from speaker.forwarding.ipvs.settings import NEEDED, IpvsSettings, Remembered


@pytest.fixture
def settings(tmp_path):
    """``settings("host", "own")`` looks for those folders in that order."""

    def look(*names):
        return IpvsSettings(Remembered(tmp_path / "kept.json"), [tmp_path / name for name in names])

    return look


def made(folder, value):
    (folder / "vs").mkdir(parents=True)
    for name in NEEDED:
        (folder / "vs" / name).write_text(f"{value}\n")


def shown(folder):
    return {int((folder / "vs" / name).read_text()) for name in NEEDED}


def test_what_a_pod_has_of_the_host_is_set_and_its_own_is_left(settings, tmp_path):
    for name in ("host", "own"):
        made(tmp_path / name, 0)
    found = settings("host", "own")
    found.adjust()
    assert (shown(tmp_path / "host"), shown(tmp_path / "own")) == ({1}, {0})
    assert not found.problems()
    assert found.restore() == tuple(f"net.ipv4.vs.{name}=1" for name in NEEDED)
    assert shown(tmp_path / "host") == {0}


def test_where_there_is_no_pod_its_own_is_set(settings, tmp_path):
    made(tmp_path / "own", 0)
    settings("host", "own").adjust()
    assert shown(tmp_path / "own") == {1}


def test_a_module_that_comes_later_is_set_then(settings, tmp_path):
    (tmp_path / "host").mkdir()
    found = settings("host", "own")
    found.adjust()
    made(tmp_path / "host", 0)
    assert len(found.problems()) == len(NEEDED)
    found.adjust()
    assert not found.problems()
