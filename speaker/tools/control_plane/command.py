"""``speaker control-plane``: writes what a control-plane node needs before ``kubeadm init`` or ``kubeadm join``.

Edge: files. What is there already is left as it is: the key always, all else where it would not change.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

from speaker.errors import EdgeError, SettingError
from speaker.model import with_port
from speaker.ownership.hellos.keyfile import read_keys
from speaker.system.files import is_there, shown, write_atomically
from speaker.tools.control_plane.site import CONFIGURED, Site, manifests, static_pod, unit
from speaker.tools.keygen import Step, keygen

KEY = CONFIGURED / "key"
STATIC_POD = Path("/etc/kubernetes/manifests/eip-speaker-control-plane.yaml")
UNIT = Path("/etc/systemd/system/eip-speaker-control-plane.service")


def control_plane(site: Site, root: Path, bootstrap: bool, starter: tuple[Path, str]) -> Iterator[str]:
    """Writes the files below ``root`` and yields what to say. ``bootstrap``: a key is made if there is none.
    ``starter``: what starts the speaker, STATIC_POD or UNIT, and its content; it is written last.

    Raises SettingError before anything is written, and EdgeError.
    """
    place, content = starter
    other = _below(root, UNIT if place == STATIC_POD else STATIC_POD)
    if is_there(other):
        raise SettingError(f"{shown(other)}: would start a second speaker: remove it first")
    yield from _key(site, root, bootstrap)
    yield _written(_below(root, CONFIGURED / "control-plane.yaml"), manifests(site), 0o644)
    yield _written(_below(root, place), content, 0o600 if place == STATIC_POD else 0o644)
    yield from _next(site, bootstrap, place)


def starter(site: Site, image: str, speaker: str, systemd: bool) -> tuple[Path, str]:
    """Raises SettingError."""
    return (UNIT, unit(site, speaker)) if systemd else (STATIC_POD, static_pod(site, image))


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _key(site: Site, root: Path, bootstrap: bool) -> Iterator[str]:
    """Two keys would part the nodes: each would hold the address. So the first node alone makes one."""
    file = _below(root, KEY)
    if is_there(file):
        yield f"{shown(file)}: kept: key {read_keys(file).signing.id.hex()} signs"
    elif not bootstrap:
        raise SettingError(
            f"{shown(file)}: is missing: copy it from the node that was the first. If this is the first, "
            "add --bootstrap, which makes one"
        )
    else:
        yield keygen(file, Step.MAKE)[0]
    if bootstrap and len(site.servers) > 1:
        yield "Copy it to the other servers before you run this command there:"
        yield from (f"  {_copied(str(server))}" for server in site.servers if server != site.here)


def _copied(server: str) -> str:
    """By a pipe, as the directory may not be there yet; the key passes through no argument and no log."""
    return f"ssh root@{server} {shlex.quote(f'install -D -m 600 /dev/stdin {KEY}')} < {KEY}"


def _written(file: Path, content: str, mode: int) -> str:
    """An equal file is left alone: the kubelet and the speaker look at what changes."""
    try:
        there = file.read_bytes() if is_there(file) else None
    except OSError as error:
        raise EdgeError(f"cannot read {shown(file)}: {error.strerror}") from error
    if there == content.encode():
        return f"{shown(file)}: unchanged"
    write_atomically(file, content.encode(), mode=mode)
    return f"{shown(file)}: {'written' if there is None else 'replaced'}"


def _next(site: Site, bootstrap: bool, place: Path) -> Iterator[str]:
    if place == UNIT:
        yield f"Next: systemctl daemon-reload && systemctl enable --now {UNIT.stem}"
    endpoint = with_port(site.address, site.port)
    if bootstrap:
        yield f"Next: kubeadm init --control-plane-endpoint {shlex.quote(endpoint)} --upload-certs"
    else:
        yield f"Then run the `kubeadm join {endpoint} … --control-plane` that `kubeadm init` printed."
