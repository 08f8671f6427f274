"""How the agents of a soak are asked: by a real kube-apiserver, which stands still now and then."""

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from agent_cluster import Cluster
from agent_objects import POOLS
from lab_speaker import Speaker
from wishes import Wish, pool

from speaker.lab.lan import Lan
from speaker.lab.speakers import HEALTH
from speaker.settings import DEFAULT_HELLO_MS

SERVICES = "/api/v1/namespaces/many/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/many/endpointslices"


class AgentSpeaker(Speaker):
    """An agent, as a soak sees speakers."""

    def __init__(self, node: str, cluster: Cluster, home: Path, environment: Mapping[str, str]) -> None:
        self.node, self.namespace, self.runtime_dir = node, cluster.lan.namespace(node), home / "run"
        self._cluster, self._environment = cluster, environment
        self._log = home / "log"

    def start(self) -> None:
        self._cluster.agents.pop(self.node, None)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._environment.items():
                patch.setenv(name, value)
            self._cluster.start(self.node, "--metrics", f"{HEALTH[0]}:{HEALTH[1]}")
        self.process = self._cluster.agents[self.node].process


class ByApi:
    """Hellos come as often as agents send them by themselves. Nobody is alone."""

    lone = None
    lones: Sequence[Wish] = ()

    def __init__(self, directory: Path, lan: Lan, environment: Mapping[str, str], hello_ms: int) -> None:
        assert hello_ms >= DEFAULT_HELLO_MS, "promised is what takes longer"
        self._directory, self._lan, self._environment = directory, lan, environment
        self._stack = ExitStack()
        self._there: dict[str, Wish] = {}
        self._pool = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._cluster = stack.enter_context(Cluster(self._directory, self._lan))
            self._cluster.done("POST", "/api/v1/namespaces", {"metadata": {"name": "many"}})
            self.speakers = {
                node: AgentSpeaker(node, self._cluster, self._directory / node, self._environment)
                for node in self._lan.topology.nodes
            }
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, wishes: Sequence[Wish], changed: Iterable[int]) -> None:
        if not self._pool:
            self._cluster.done("POST", POOLS, yaml.safe_load(pool(len(wishes))))
            self._pool = True
        for at in changed:
            self._ask(wishes[at])

    def _ask(self, wish: Wish) -> None:
        service, endpoints = wish.objects()
        before = self._there.get(wish.name)
        if before == wish:
            return
        if not wish.there:
            if before is not None and before.there:
                self._cluster.done("DELETE", f"{SLICES}/{wish.name}")
                self._cluster.done("DELETE", f"{SERVICES}/{wish.name}")
        elif before is None or not before.there:
            self._cluster.done("POST", SERVICES, dict(service))
            self._cluster.done("POST", SLICES, dict(endpoints))
        else:
            self._cluster.done("PATCH", f"{SERVICES}/{wish.name}", {"spec": self._whole(service["spec"])})
            self._cluster.done("PATCH", f"{SLICES}/{wish.name}", {"endpoints": endpoints["endpoints"]})
        self._there[wish.name] = wish

    @staticmethod
    def _whole(spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """A merge patch takes away only what it names."""
        return {"loadBalancerSourceRanges": None, **spec}

    def disturb(self, _: random.Random) -> str:
        self._cluster.api.freeze()
        return "API server that stands still"

    def calm(self) -> None:
        self._cluster.api.thaw()
