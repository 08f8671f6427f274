"""``.ci/need`` finds what the tests run, and does not take another program of the same name for it."""

import subprocess
from pathlib import Path

import pytest

NEED = Path(__file__).parents[2] / ".ci/need"
HABETS = "ARPing 2.23, by Thomas Habets <thomas@habets.se>"
IPUTILS = "Usage:\n  arping [options] <destination>"


@pytest.fixture
def needs(tmp_path):
    """``needs("arping:arping", arping="what it says")``, on a host that has these programs, and not as root."""

    def run(*pairs, **programs):
        (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
        for name, words in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
        for each in tmp_path.iterdir():
            each.chmod(0o755)
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run([NEED, *pairs], env=path, capture_output=True, text=True, check=False)

    return run


def test_what_is_there_is_not_missing(needs):
    ran = needs("curl-of-ours:curl", "arping:arping", **{"curl-of-ours": "", "arping": HABETS})
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_is_not_there_is_named(needs):
    ran = needs("no-such-program:some-package")
    assert ran.returncode == 1
    assert "missing: some-package." in ran.stderr


def test_the_arping_of_iputils_is_not_the_one_that_the_tests_run(needs):
    ran = needs("arping:arping", arping=IPUTILS)
    assert ran.returncode == 1
    assert "missing: arping." in ran.stderr
