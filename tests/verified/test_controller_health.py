"""What the kubelet asks the controller, and that a loop that hangs does not answer."""

import asyncio
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from real_api import _free_port

from speaker.controller.run import Voice
from speaker.settings import Bind
from speaker.telemetry.http import serving

MANIFEST = Path(__file__).parents[2] / "manifests" / "base" / "controller.yaml"


def probe(kind: str) -> str:
    """The path that the manifest names."""
    deployment = next(each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    path: str = container[kind]["httpGet"]["path"]
    return path


@pytest.mark.parametrize("kind", ["livenessProbe", "readinessProbe"])
async def test_a_probe_is_answered_while_the_loop_turns_and_not_when_it_hangs(kind):
    voice, bind = Voice(), Bind("127.0.0.1", _free_port())

    def ask(seconds: float) -> int:
        url = f"http://127.0.0.1:{bind.port}{probe(kind)}"
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            status: int = answer.status
            return status

    async with serving(bind, voice.registry, voice.health):
        assert await asyncio.to_thread(ask, 60.0) == 200
        with ThreadPoolExecutor(1) as elsewhere, pytest.raises(TimeoutError):
            elsewhere.submit(ask, 0.3).result()  # the loop stands still until the asker has given up
        assert await asyncio.to_thread(ask, 60.0) == 200
