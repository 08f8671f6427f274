"""``speaker control-plane``: writes what a control-plane node needs before ``kubeadm init`` or ``kubeadm join``: the
API servers and their address, as values and as files.

The EIP goes to the holder's own API server (``externalTrafficPolicy: Local``), not to all healthy ones: so a node that
dies affects only its own clients, and nothing is forwarded (docs/control-plane.md).
"""

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from string import Template
from typing import NamedTuple, TypeVar

from speaker.api.addresses import parse_eip, parse_host
from speaker.api.eip import parse_interface
from speaker.errors import SettingError, as_edge_error, written
from speaker.model import Family, IPAddress, with_port
from speaker.ownership.hellos.keyfile import read_keys
from speaker.settings import DEFAULT_API_PORT, KUBEADMS_CA, number
from speaker.system.files import is_there, shown, write_atomically
from speaker.tools.keygen import Step, keygen

GROUP = "control-plane"
CONFIGURED = Path("/etc/eip-speaker-control-plane")
STATE, RUNTIME = Path("/var/lib/eip-speaker-control-plane"), Path("/run/eip-speaker-control-plane")
FIRST = "eip-speaker.io/bootstrap"
"""Label of the node where the cluster began."""
METRICS = 9901
"""Port; the agents of the cluster use 9900."""
MAX_SERVERS = 16
"""etcd never has more than nine members in practice."""

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,511}")
_PATH = re.compile(r"/[A-Za-z0-9._/+@-]{1,255}")
T = TypeVar("T")


class Site(NamedTuple):
    """``here`` is the one of ``servers`` on this host. ``first``: the cluster begins here, and this node is preferred
    while no server is well."""

    address: IPAddress
    servers: tuple[IPAddress, ...]
    here: IPAddress
    port: int
    interface: str = ""
    ca: Path = KUBEADMS_CA
    first: bool = False

    @staticmethod
    def parse(
        address: str,
        servers: str,
        own: Collection[IPAddress],
        port: str = DEFAULT_API_PORT,
        interface: str = "",
        ca: Path = KUBEADMS_CA,
        first: bool = False,
    ) -> "Site":
        """From the flags as written. ``own``: this host's addresses. Raises SettingError."""
        eip = _parsed("ADDRESS", address, parse_eip)
        found = tuple(_parsed("--servers", word, parse_host) for word in servers.split(","))
        _check(eip, found)
        if interface:
            _parsed("--interface", interface, parse_interface)
        if not _PATH.fullmatch(str(ca)):
            raise SettingError(f"--ca {written(str(ca))}: must be an absolute path without spaces or quotes")
        return Site(eip, found, _here(found, own), number("--port", port, 1, 65535), interface, ca, first)

    @property
    def flags(self) -> tuple[str, ...]:
        """Of ``speaker run``."""
        return (
            *("run", str(CONFIGURED), f"--group={GROUP}", f"--node={node_name(self.here)}", "--with-peers"),
            *(f"--key={CONFIGURED / 'key'}", f"--state={STATE / 'state.json'}", f"--runtime-dir={RUNTIME}"),
            *("--forwarder=nftables", f"--metrics=127.0.0.1:{METRICS}", "--log-format=json"),
            *((f"--node-labels={FIRST}=true",) if self.first else ()),
        )


def node_name(server: IPAddress) -> str:
    """A DNS label. Hosts are named after their servers, as their names are unknown before there is an API."""
    return server.exploded.replace(".", "-").replace(":", "-")


def _parsed(flag: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise SettingError(f"{flag} {written(text)}: {error}") from error


def _check(eip: IPAddress, servers: tuple[IPAddress, ...]) -> None:
    """Raises SettingError."""
    for server in servers:
        if server == eip:
            raise SettingError(f"--servers {server}: is the address itself: must be the API servers' own addresses")
        if server.version != eip.version:
            raise SettingError(f"--servers {server}: must be {Family.of(eip)}, as {eip} is: one family for all of them")
        if servers.count(server) > 1:
            raise SettingError(f"--servers {server}: must be named once")
    if len(servers) > MAX_SERVERS:
        raise SettingError(f"--servers: {len(servers)} addresses: must be at most {MAX_SERVERS}")


def _here(servers: tuple[IPAddress, ...], own: Collection[IPAddress]) -> IPAddress:
    """Raises SettingError."""
    here = [server for server in servers if server in own]
    if len(here) > 1:
        raise SettingError(f"--servers {','.join(map(str, here))}: all belong to this host: must name each host once")
    if not here:
        listed = ", ".join(map(str, own)) or "nothing"
        raise SettingError(f"--servers: none of them is this host's, which has {listed}: must be run on each of them")
    return here[0]


# ── As files ──────────────────────────────────────────────────────────────────────────────────────────────────


def manifests(site: Site) -> str:
    """Pool, Service and endpoints in one file, so that no reader sees only half of them."""
    line = '  - {{addresses: ["{0}"], nodeName: "{1}"}}'.format
    return _filled(
        "manifests.yaml",
        address=str(site.address),
        interface=f"\n  interface: {json.dumps(site.interface, ensure_ascii=False)}" if site.interface else "",
        family=Family.of(site.address).value,
        first=FIRST,
        port=str(site.port),
        ca=str(site.ca),
        endpoints="\n".join(line(server, node_name(server)) for server in site.servers),
    )


def static_pod(site: Site, image: str) -> str:
    """Raises SettingError."""
    if not _IMAGE.fullmatch(image):
        raise SettingError(f"--image {written(image)}: must be an image's name, such as registry.example.com/speaker:1")
    arguments = "\n".join(f'        - "{flag}"' for flag in site.flags)
    places = {"configured": str(CONFIGURED), "state": str(STATE), "runtime": str(RUNTIME), "ca": str(site.ca)}
    return _filled("static-pod.yaml", image=image, arguments=arguments, metrics=str(METRICS), **places)


def unit(site: Site, speaker: str) -> str:
    """``speaker``: the path of the program. Raises SettingError."""
    if not _PATH.fullmatch(speaker):
        raise SettingError(
            f"{written(speaker)}: a unit needs an absolute path without spaces: install the speaker at one"
        )
    return _filled("unit.service", speaker=speaker, arguments=" \\\n".join(f"  {flag}" for flag in site.flags))


def _filled(template: str, **words: str) -> str:
    return Template(Path(__file__).with_name(template).read_text()).substitute(words)


# ── The command ───────────────────────────────────────────────────────────────────────────────────────────────
#
# Edge: files. Existing files are left alone: the key always, others if they would not change.

KEY = CONFIGURED / "key"
STATIC_POD = Path("/etc/kubernetes/manifests/eip-speaker-control-plane.yaml")
UNIT = Path("/etc/systemd/system/eip-speaker-control-plane.service")


def control_plane(site: Site, root: Path, bootstrap: bool, starter: tuple[Path, str]) -> Iterator[str]:
    """Writes the files below ``root`` and yields what to say. ``bootstrap``: a key is made if there is none.
    ``starter``: the file that starts the speaker (STATIC_POD or UNIT) and its content; it is written last.

    Raises SettingError before anything is written, and EdgeError; before that as well if a file cannot be read.
    """
    place, content = starter
    other = _below(root, UNIT if place == STATIC_POD else STATIC_POD)
    if is_there(other):
        raise SettingError(f"{shown(other)}: would start a second speaker: remove it first")
    described, starts = _below(root, CONFIGURED / "control-plane.yaml"), _below(root, place)
    for file in filter(is_there, (described, starts)):
        _read(file)
    yield from _key(site, root, bootstrap)
    yield _written(described, manifests(site), 0o644)
    yield _written(starts, content, 0o600 if place == STATIC_POD else 0o644)
    yield from _next(site, bootstrap, place)


def was_first(root: Path) -> bool:
    """According to what this command wrote there before. Raises EdgeError."""
    return any(
        is_there(file) and FIRST.encode() in _read(file) for file in (_below(root, STATIC_POD), _below(root, UNIT))
    )


def _read(file: Path) -> bytes:
    with as_edge_error(f"cannot read {shown(file)}"):
        return file.read_bytes()


def starter(site: Site, image: str, speaker: str, systemd: bool) -> tuple[Path, str]:
    """Raises SettingError."""
    return (UNIT, unit(site, speaker)) if systemd else (STATIC_POD, static_pod(site, image))


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _key(site: Site, root: Path, bootstrap: bool) -> Iterator[str]:
    """Two different keys would separate the nodes: each would hold the address. So only the first node makes one."""
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
    """Uses a pipe, as the directory may not exist yet; the key passes through no argument and no log."""
    return f"ssh root@{server} {shlex.quote(f'install -D -m 600 /dev/stdin {KEY}')} < {KEY}"


def _written(file: Path, content: str, mode: int) -> str:
    """An identical file is left alone, as the kubelet and the speaker react to changes."""
    there = _read(file) if is_there(file) else None
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
