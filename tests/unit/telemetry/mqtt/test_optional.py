"""MQTT's library is an extra: without it everything else works, and what needs it says so."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[4]
WITHOUT = "import sys; sys.modules['aiomqtt'] = sys.modules['paho'] = None; "


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_what_tells_no_broker_starts_without_its_library():
    everything = "import speaker.cli, speaker.node.serve, speaker.standalone.run, speaker.agent.source"
    done = python(f"{WITHOUT}{everything}, speaker.controller.run, speaker.wire.process")
    assert done.returncode == 0, done.stderr


def test_whoever_asks_for_it_is_told_what_to_install():
    done = python(f"{WITHOUT}from speaker.cli import main; sys.exit(main(['agent', '--mqtt', 'mqtts://broker']))")
    assert done.returncode == 2
    (wanted,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["mqtt"]
    assert f"pip install '{wanted}'" in done.stderr
