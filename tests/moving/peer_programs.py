"""Other load balancers' own programs, built once from their published Go modules and kept beside the cluster's."""

import json
import shutil
from pathlib import Path

from cluster_parts import _SETTINGS, CACHE, _go, alone, digest, kept, run

SOURCES = Path(__file__).with_name("peers")
METALLB = "go.universe.tf/metallb"


def metallb() -> Path:
    """A directory with ``controller``, ``speaker`` and ``crds/``. Raises RuntimeError where they cannot be built."""
    with alone():
        return kept(CACHE / "peers" / "metallb", digest(SOURCES.iterdir()), _build_metallb)


def _build_metallb(target: Path) -> None:
    go = _go()
    target.mkdir()
    for name in ("controller", "speaker"):
        run(go, "build", "-o", target / name, f"{METALLB}/{name}", directory=SOURCES, **_SETTINGS)
    found = json.loads(run(go, "list", "-m", "-json", METALLB, directory=SOURCES, **_SETTINGS))
    shutil.copytree(Path(found["Dir"]) / "config" / "crd" / "bases", target / "crds")
