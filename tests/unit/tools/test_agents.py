"""Whose kubeconfig it is that ``--cluster`` goes by."""

from pathlib import Path

import pytest

from speaker.errors import EdgeError
from speaker.tools.agents import kubeconfig


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_it_is_found_where_kubectl_finds_it(home, monkeypatch):
    assert kubeconfig(None) is None
    (home / ".kube").mkdir()
    (home / ".kube" / "config").touch()
    assert kubeconfig(None) == home / ".kube" / "config"
    monkeypatch.setenv("KUBECONFIG", "/other")
    assert kubeconfig(None) == Path("/other")
    assert kubeconfig(Path("/named")) == Path("/named")


def test_a_home_that_may_not_be_looked_into_is_named(home):
    (home / ".kube").symlink_to(".kube")
    with pytest.raises(EdgeError, match=f"cannot look at {home}/.kube/config: "):
        kubeconfig(None)


@pytest.mark.usefixtures("home")
def test_a_user_without_a_home_has_no_kubeconfig():
    def nowhere() -> Path:  # as Path.home, of a user of a number alone and without $HOME
        raise RuntimeError("Could not determine home directory.")

    assert kubeconfig(None, nowhere) is None
