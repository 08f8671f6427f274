"""Other load balancers' own programs, built once from their published Go modules and kept beside the cluster's."""

import json
import shutil
from pathlib import Path

from cluster_parts import _SETTINGS, CACHE, _go, alone, digest, kept, run

SOURCES = Path(__file__).with_name("peers")
KUBE_VIP = "github.com/kube-vip/kube-vip"
METALLB = "go.universe.tf/metallb"
FRR = "github.com/metallb/frr-k8s"
TYPES = Path("api", "v1beta1", "frrconfiguration_types.go")
LACKS = """
type AsPathPrependPrefixes struct {
	AsPathPrepend uint8
	Prefixes      []string
}
"""
"""What MetalLB knows of BGP through FRR, and the newest release of its types at the public proxy does not."""


def programs_of(peer: str) -> Path:
    """The directory of what was built. Raises RuntimeError where it cannot be."""
    sources = [Path(__file__), *(SOURCES / peer).iterdir()]
    with alone():
        return kept(CACHE / "peers" / peer, digest(sources), {"metallb": _metallb, "kube-vip": _kube_vip}[peer])


def _kube_vip(target: Path) -> None:
    target.mkdir()
    run(_go(), "build", "-o", target / "kube-vip", KUBE_VIP, directory=SOURCES / "kube-vip", **_SETTINGS)


def _metallb(target: Path) -> None:
    """``controller``, ``speaker`` and ``crds/``."""
    go = _go()
    sources = target.with_name("sources")
    shutil.copytree(SOURCES / "metallb", sources)
    types = sources / "frr-k8s" / TYPES
    shutil.copytree(_directory(go, FRR), sources / "frr-k8s", copy_function=shutil.copyfile)
    types.parent.chmod(0o755)
    begin = "type Advertise struct {\n"
    types.write_text(
        types.read_text().replace(begin, f"{begin}\tPrefixesWithAsPathPrepend []AsPathPrependPrefixes\n") + LACKS
    )
    run(go, "mod", "edit", f"-replace={FRR}=./frr-k8s", directory=sources, **_SETTINGS)
    target.mkdir()
    for name in ("controller", "speaker"):
        run(go, "build", "-o", target / name, f"{METALLB}/{name}", directory=sources, **_SETTINGS)
    shutil.copytree(_directory(go, METALLB) / "config" / "crd" / "bases", target / "crds")


def _directory(go: Path, module: str) -> Path:
    sources = SOURCES / "metallb"
    run(go, "mod", "download", module, directory=sources, **_SETTINGS)
    return Path(json.loads(run(go, "list", "-m", "-json", module, directory=sources, **_SETTINGS))["Dir"])
