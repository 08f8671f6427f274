"""Edge: asks every agent of a cluster, from wherever a kubeconfig works, by running ``speaker`` in its pod.

No new port listens anywhere. Who may ask is decided by the cluster's right to run commands in those pods
(``pods/exec``).
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from speaker.api.kinds import ASSIGNED, EIPS, SERVICES, AssignedStatus, EipObject, condition_of
from speaker.api.objects import Object
from speaker.checks import Finding
from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client, execute, listed
from speaker.errors import EdgeError
from speaker.model import IPAddress
from speaker.settings import AGENTS_NAMESPACE
from speaker.system.files import is_there

SECONDS = 15.0
"""Time for one agent's answer: it looks for at most 10 s, and a program has to start where CPU may be scarce."""
AT_ONCE = 32
MOST = 16 * 2**20
"""Most bytes in one answer; ten thousand EIPs take a quarter of it."""
LABELS = "app.kubernetes.io/name=eip-speaker,app.kubernetes.io/component=agent"
CONTAINER = "agent"

_T = TypeVar("_T")


class Cluster(NamedTuple):
    """The cluster whose agents are asked. ``nodes``: only the agents there; empty means all."""

    access: Access
    namespace: str = AGENTS_NAMESPACE
    nodes: frozenset[str] = frozenset()
    group: str = ""


class Answers(NamedTuple, Generic[_T]):
    """By node: its answer, or why there is none."""

    told: Mapping[str, _T]
    silent: Mapping[str, str]


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class PodMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    deletion_timestamp: str | None = None


class PodObject(Object, frozen=True, gc=False):
    metadata: PodMetadata  # type: ignore[assignment]
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def kubeconfig(given: Path | None, home: Callable[[], Path] = Path.home) -> Path | None:
    """Found as kubectl finds it; None means a pod's own ServiceAccount. Raises EdgeError if it may not look."""
    if given is not None:
        return given
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    try:
        usual = home() / ".kube" / "config"
    except RuntimeError:  # a user that is only a number, without $HOME
        return None
    return usual if is_there(usual) else None


async def ask(cluster: Cluster, command: Sequence[str], read: Callable[[str, bytes], _T]) -> Answers[_T]:
    """The answers to ``speaker COMMAND…`` in each agent's pod. ``read`` gets the node and the answer, and raises
    EdgeError if that is invalid. Raises SettingError; and EdgeError if no agent can be asked at all."""
    async with Client(await configure(cluster.access)) as client:
        pods = await _pods(client, cluster)
        turns = asyncio.Semaphore(AT_ONCE)

        told: dict[str, _T] = {}
        silent = dict.fromkeys(cluster.nodes - pods.keys(), "it has no agent")

        async def one(node: str, pod: PodObject) -> None:
            if pod.status.phase != "Running":
                silent[node] = f"its pod {pod.metadata.name} is {pod.status.phase or 'unknown'}"
                return
            async with turns:
                try:
                    told[node] = read(node, await _said(client, cluster, pod, command))
                except EdgeError as error:
                    silent[node] = str(error)

        await asyncio.gather(*(one(node, pod) for node, pod in pods.items()))
    return Answers(dict(sorted(told.items())), dict(sorted(silent.items())))


async def _pods(client: Client, cluster: Cluster) -> dict[str, PodObject]:
    """By node; if there are several, the one that stays."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    pods = await listed(client, path, PodObject, {"labelSelector": LABELS})
    if not pods:
        raise EdgeError(f"no agent runs in namespace {cluster.namespace} ({LABELS}): name theirs with --namespace")
    ordered = sorted(pods, key=lambda pod: (pod.metadata.deletion_timestamp is None, pod.status.phase == "Running"))
    found = {pod.spec.node_name or f"pod {pod.metadata.name}": pod for pod in ordered}
    return {node: found[node] for node in sorted(found) if not cluster.nodes or node in cluster.nodes}


async def _said(client: Client, cluster: Cluster, pod: PodObject, command: Sequence[str]) -> bytes:
    place = cluster.namespace, pod.metadata.name, CONTAINER
    group = ["--group", cluster.group] if cluster.group else []
    said = await execute(client, *place, ("speaker", *command[:1], *group, *command[1:]), within=SECONDS, most=MOST)
    if not said.out:
        first = next(iter(said.err.splitlines()), "") or said.failed or "it sent no answer"
        raise EdgeError(first.removeprefix("speaker: "))
    return said.out


# ── What the controller refused ───────────────────────────────────────────────────────────────────────────────


async def unserved(access: Access) -> list[str]:
    """Services that have no EIP or lack one, and pools that are out of use, a sentence each; or why that is unknown."""
    try:
        async with Client(await configure(access)) as client:
            services, pools = await listed(client, SERVICES, NamingObject), await listed(client, EIPS, EipObject)
    except EdgeError as error:
        return [f"Services and pools cannot be read: {error}"]
    return [*_refused(services), *_out_of_use(pools)]


def _refused(services: Iterable["NamingObject"]) -> Iterator[str]:
    for each in services:
        said = [found.message for found in each.status.conditions or () if found.type == ASSIGNED and found.message]
        yield from (f"Service {each.named}: {message}" for message in said)


def _out_of_use(pools: Iterable[EipObject]) -> Iterator[str]:
    for each in pools:
        ready = condition_of(each.status.conditions, "Ready") or {}
        if ready.get("status") != "True":
            yield f"pool {each.metadata.name}: {ready.get('message') or ready.get('reason', 'has no condition Ready')}"


# ── Which Services have kube-proxy send an EIP elsewhere than to the Service that has it (CVE-2020-8554) ────

_ZEROS = re.compile(r"(?<![0-9a-fA-F:.])0+(?=\d)|(?<=\.)0+(?=\d)")
"""Leading zeros in the parts of an IPv4 address; in IPv6 they mean nothing."""


class NamingSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")


class NamingObject(Object, frozen=True, gc=False):
    """The parts of a Service that kube-proxy forwards besides its cluster IP."""

    spec: NamingSpec = NamingSpec()
    status: AssignedStatus = AssignedStatus()

    @property
    def named(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


async def taking(access: Access) -> tuple[list[Finding], dict[str, str]]:
    """The findings, and why there may be others (empty if everything could be read)."""
    try:
        async with Client(await configure(access)) as client:
            return findings(await listed(client, SERVICES, NamingObject)), {}
    except EdgeError as error:
        return [], {"Services of the API": str(error)}


def findings(found: Iterable[NamingObject]) -> list[Finding]:
    """Pure."""
    naming = [*found]
    owners: dict[IPAddress, str] = {}
    for each in naming:
        if each.status.is_ours:
            owners |= dict.fromkeys(_in_status(each), each.named)
    return [one for each in naming for one in _of(each, owners)]


def _of(found: NamingObject, owners: dict[IPAddress, str]) -> Iterator[Finding]:
    namespace, name = found.metadata.namespace, found.metadata.name
    edit = f"kubectl -n {namespace} edit service {name}"
    for eip in sorted({*_addresses(found.spec.external_ips)} & owners.keys(), key=str):
        whose = "its own EIP" if owners[eip] == found.named else f"the EIP of {owners[eip]}"
        what = f"Service {found.named} lists {eip}, {whose}, in spec.externalIPs: kube-proxy forwards it as well"
        mend = f"{edit}   # remove it; also turn on the admission plugin DenyServiceExternalIPs"
        yield Finding("external_ips", what, mend, str(eip))
    for eip in () if found.status.is_ours else sorted({*_in_status(found)} & owners.keys(), key=str):
        what = f"the status of Service {found.named} has {eip}, the EIP of {owners[eip]}, but not from the speaker"
        mend = f"{edit} --subresource=status   # remove it; also check who may write services/status"
        yield Finding("external_ips", what, mend, str(eip))


def _in_status(found: NamingObject) -> Iterator[IPAddress]:
    return _addresses(each.ip for each in found.status.load_balancer.ingress)


def _addresses(texts: Iterable[str]) -> Iterator[IPAddress]:
    """Reads addresses like kube-proxy (``ParseIPSloppy``): with leading zeros, and IPv4 written as IPv6."""
    for text in texts:
        try:
            address = ip_address(_ZEROS.sub("", text))
        except ValueError:
            continue
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        yield mapped or address
