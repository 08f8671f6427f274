"""No edge raises anything but the speaker's own errors where this process can have no more of something, so that
whoever uses it tries again. In a process of its own: pytest needs descriptors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("starved.py")


@pytest.mark.parametrize("kind", ["descriptors", "processes"])
def test_every_edge_that_can_get_no_more_of_it_raises_an_error_of_ours(kind, tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    came_to = json.loads(done.stdout.splitlines()[-1])
    assert {
        name: what
        for name, what in came_to.items()
        if not what.startswith("SpeakerError: ") and not name.startswith("goes on")
    } == {}
    assert {name: what for name, what in came_to.items() if name.startswith("goes on")} == {
        name: "nothing raised" for name in came_to if name.startswith("goes on")
    }
