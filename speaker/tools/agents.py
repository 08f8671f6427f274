"""Edge: asks every agent of a cluster, from wherever a kubeconfig works, by running ``speaker`` in its pod.

Nothing new listens anywhere, and who may ask is whom the cluster lets run commands in those pods (``pods/exec``).
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from speaker.api.objects import Object
from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client, execute, listed
from speaker.errors import EdgeError
from speaker.settings import AGENTS_NAMESPACE
from speaker.system.files import is_there

SECONDS = 15.0
"""For the answer of one agent: it looks for 5 at most, and a program has to start where the CPU may be scarce."""
AT_ONCE = 32
MOST = 16 * 2**20
"""Bytes of one answer: ten thousand EIPs take a quarter of it."""
LABELS = "app.kubernetes.io/name=eip-speaker,app.kubernetes.io/component=agent"
CONTAINER = "agent"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Whose agents are asked. ``nodes``: only those; all where none is named."""

    access: Access
    namespace: str = AGENTS_NAMESPACE
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Answers(Generic[_T]):
    """By node: what it said, and why it said nothing."""

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
    """As kubectl finds it; None: a pod's own ServiceAccount. Raises EdgeError where it may not look."""
    if given is not None:
        return given
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    try:
        usual = home() / ".kube" / "config"
    except RuntimeError:  # a user of a number alone, without $HOME
        return None
    return usual if is_there(usual) else None


async def ask(cluster: Cluster, command: Sequence[str], read: Callable[[str, bytes], _T]) -> Answers[_T]:
    """Of ``speaker COMMAND…`` in each agent's pod. ``read``, given the node and the answer, raises EdgeError for what
    is none. Raises SettingError, EdgeError where no agent can be asked at all."""
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
    """By node; of several there the one that stays."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    pods = await listed(client, path, PodObject, {"labelSelector": LABELS})
    if not pods:
        raise EdgeError(f"no agent runs in namespace {cluster.namespace} ({LABELS}): which --namespace have they?")
    ordered = sorted(pods, key=lambda pod: (pod.metadata.deletion_timestamp is None, pod.status.phase == "Running"))
    found = {pod.spec.node_name or f"pod {pod.metadata.name}": pod for pod in ordered}
    return {node: found[node] for node in sorted(found) if not cluster.nodes or node in cluster.nodes}


async def _said(client: Client, cluster: Cluster, pod: PodObject, command: Sequence[str]) -> bytes:
    place = cluster.namespace, pod.metadata.name, CONTAINER
    said = await execute(client, *place, ("speaker", *command), within=SECONDS, most=MOST)
    if not said.out:
        first = next(iter(said.err.splitlines()), "") or said.failed or "it said nothing"
        raise EdgeError(first.removeprefix("speaker: "))
    return said.out
