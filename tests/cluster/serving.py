"""A cluster with the speaker and Services of every sort, and clients of all of them that run while something happens:
on the LAN, on a node and in a pod."""

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import pytest
from beside import TARGET, ControlPlane
from cluster_nodes import store
from cluster_packets import Seen, seen
from cluster_story import AFTERWARDS, AT_LEAST, all_answer, drain, end_drain, first_service, install, url
from knock import TOLD, UNANSWERED, Knocked, knocking
from real_cluster import PACE, SPEAKER_NAMESPACE, RealCluster

GRACE = 20 if PACE == 1 else 60
"""Seconds until a silent node is NotReady: Kubernetes' 50 would be waited for, and show nothing else. On a slow machine
an API server takes longer than 20 to start, and no endpoint would be ready meanwhile."""
RATES = {"LAN": 480 * PACE, "node": 60 * PACE, "pod": 60 * PACE}
"""Connections a second of the clients at each place."""
ENOUGH = 1000
"""Connections to each policy, of all places together; those on the LAN are as many by themselves."""
LEAST = {"LAN": ENOUGH // 2}
"""To each target, however busy the machine is: only the address of the control plane is alone."""
BESIDE = bool(os.environ.get("EIP_SPEAKER_BESIDE"))
"""Whether every node also has the static pod of `speaker control-plane`, whose address is asked all the time."""

SOON = 3.0
"""Seconds that no connection to EIPs of the policy Local may be refused for: the promise is half a second, and the
clients need their share of a busy machine too."""

Targets = Mapping[str, Sequence[str]]
"""Policy, or what a Service asks for → targets of clients."""


@dataclass(frozen=True)
class Met:
    """What clients met: place → Knocked."""

    targets: Targets
    by_place: Mapping[str, Knocked]
    seen: Seen | None = None
    """Until clients run again."""

    def all(self, name: str) -> int:
        return sum(each.all(name) for each in self.by_place.values())

    def asked(self, policy: str) -> int:
        targets = set(self.targets[policy])
        places = (each for each in self.by_place.values() if targets <= each.targets.keys())
        return sum(each.all("asked", self.targets[policy]) for each in places)

    def longest(self, place: str, policy: str) -> float:
        return self.by_place[place].longest(self.targets[policy])

    def rows(self) -> Iterator[str]:
        """Place by place: of how many connections how many failed, by policy; and what befell others."""
        for place, knocked in self.by_place.items():
            counted = [
                f"{policy} {knocked.all('failed', targets)} of {knocked.all('asked', targets)}"
                for policy, targets in self.targets.items()
                if set(targets) <= knocked.targets.keys()
            ]
            yield f"  {place}: {', '.join(counted)}; {', '.join(knocked.befell()) or 'all in time'}"
        if self.slipped:
            yield f"  {self.slipped} of those that failed: passed by kube-proxy's rules, which stood there all the time"
        if self.forgotten:
            yield f"  {self.forgotten} of those that failed: answered, and a node had been made to forget the datagram"

    def __str__(self) -> str:
        told = "; ".join(f"{place}: {knocked}" for place, knocked in self.by_place.items())
        return "\n".join((told, *self._stories()))

    @cached_property
    def forgotten(self) -> int:
        """Datagrams among those that failed that were answered: the node that had sent them on knew of them no more."""
        return self._seen_of(Seen.forgotten, datagrams=True)

    @cached_property
    def slipped(self) -> int:
        """TCP connections among those that failed that the kernel of the node that took them let pass kube-proxy's
        rules: one at the most is believed to be that."""
        return min(self._seen_of(Seen.slipped, datagrams=False), 1)

    def _seen_of(self, judge: Callable[[Seen, int, str, float], bool], *, datagrams: bool) -> int:
        if self.seen is None or self.all("failed") > TOLD:
            return 0
        lost = (each for knocked in self.by_place.values() for each in knocked.harmed if each.fate == UNANSWERED)
        return sum(
            judge(self.seen, port, target.partition(",")[0], begun)
            for target, port, begun, _ in lost
            if target.endswith(",udp") is datagrams
        )

    def _stories(self) -> Iterator[str]:
        """Of the first connections that failed, were sent again or were slow."""
        if self.seen is None:
            return
        harmed = ((place, each) for place, knocked in self.by_place.items() for each in knocked.harmed)
        for place, (target, port, begun, fate) in harmed:
            told = time.strftime("%T", time.gmtime(begun)) + f"{begun % 1:.6f}"[1:]
            yield f"{place}: port {port} to {target}, begun at {told}: {fate}"
            yield self.seen.story(port, target.partition(",")[0], begun)


def unharmed(met: Met) -> None:
    asked = {policy: met.asked(policy) for policy in met.targets}
    assert all(asked[policy] >= ENOUGH // 2 * min(len(of), 2) for policy, of in met.targets.items()), str(asked)
    assert met.all("failed") == met.forgotten + met.slipped, str(met)
    assert met.all("cut") <= met.all("asked") / 100, str(met)


class Serving(RealCluster):
    """``with Serving(proxy) as cluster``: each EIP answers."""

    def __init__(self, proxy: str, forwarder: str = "none", components: Sequence[str] = ()) -> None:
        super().__init__(store(), proxy=proxy, forwarder=forwarder, components=components, grace=GRACE)
        self.forwards_by = proxy if forwarder == "none" else f"the speaker, {forwarder}"
        self.targets: Targets = {}
        self.control_plane = ControlPlane(self)
        self.seconds = 0.0
        """From `kubectl apply -f` to the first EIP that answered."""

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            if BESIDE:
                self.control_plane.set_up()
            self.seconds = install(self)
            self.serve_all()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def serve_all(self) -> None:
        eips = first_service(self)
        self.apply(_MORE)
        web, local = eips["web"], eips["local"]
        (shared,) = all_answer(self, "first", 1)
        self.targets = {
            "Cluster": web,
            "Local": local,
            "UDP": [f"{eip},53,udp" for eip in web],
            "source ranges": all_answer(self, "fenced", 2),
            "affinity": all_answer(self, "sticky", 2),
            "shared": [shared, *(f"{eip},81" for eip in all_answer(self, "second", 1, port=81))],
            **({"control plane": [TARGET]} if BESIDE else {}),
        }

    def boot(self, name: str) -> None:
        super().boot(name)
        if BESIDE:
            self.control_plane.write(name)

    def settle(self) -> None:
        """All pods serve, and every connection is answered, as if nothing had happened."""
        self.until(
            "all pods run", lambda: sum(len(self.processes(each, "web")) for each in self.nodes) == len(self.nodes)
        )
        self.rolled_out("deployment/web")
        self.await_speaker()
        # Each node has a kube-proxy that waits, after an outage, before it asks the API again.
        self.until("every node leads everywhere", lambda: all(map(self._leads, self.nodes)))

    def empty(self, node: str) -> None:
        """No EIP is there, nor one of the pods that serve."""
        drain(self, node)
        self.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data")
        self.rolled_out("deployment/web")

    def _leads(self, node: str) -> bool:
        often = [url(eip) for eip in self.targets["Cluster"] for _ in range(10)]
        said = self.in_node(node, "curl", "--silent", "--show-error", "--globoff", "--max-time", "2", *often)
        return len(said.splitlines()) == len(often)

    def clients(
        self, what: Callable[[], object], *, seconds: float = AT_LEAST, avoid: str = "", places: Collection[str] = RATES
    ) -> Met:
        """What clients meet while ``what`` is done, and some time after. None of them is on the node ``avoid``."""
        inside, pod = next(
            (self.inside_node(node), pods[0])
            for node in self.nodes
            if node != avoid and (pods := self.processes(node, "web"))
        )
        everywhere = [*self.targets["Cluster"], *self.targets["Local"]]
        known: dict[str, tuple[list[str], Sequence[str]]] = {
            "LAN": (self.world.inside("client"), [target for each in self.targets.values() for target in each]),
            "node": (inside, everywhere),
            "pod": ([*inside, "nsenter", f"--target={pod}", "--net", "--"], everywhere),
        }
        with seen(self) as kept, ExitStack() as stack:
            by_place = {
                place: stack.enter_context(knocking(words, targets, RATES[place], LEAST.get(place, 0)))
                for place, (words, targets) in known.items()
                if place in places
            }
            time.sleep(2)
            begun = time.monotonic()
            what()
            time.sleep(max(AFTERWARDS, begun + seconds - time.monotonic()))
        return Met(self.targets, by_place, kept)


@contextmanager
def ended(cluster: Serving, node: str) -> Iterator[None]:
    """Whatever happens: afterwards the node takes EIPs and pods again."""
    try:
        yield
    finally:
        end_drain(cluster, node)
        cluster.kubectl("uncordon", node)


def moved(cluster: Serving, eips, node):
    for addresses in eips.values():
        for eip in addresses:
            assert cluster.holder(eip) not in ("", node)


def let_in_by_ranges(cluster: Serving, stranger: str) -> None:
    """Whom the Service's source ranges name is, and nobody else."""
    eip = cluster.eips("fenced")[0]
    assert cluster.ask(url(eip))
    assert cluster.ask(url(cluster.eips("web")[0]), "--interface", stranger)
    with pytest.raises(RuntimeError, match=r"exit (7|28)"):
        cluster.ask(url(eip), "--interface", stranger, "--max-time", "2")


def one_pod_for_one_client(cluster: Serving) -> None:
    eip = cluster.eips("sticky")[0]
    assert len({cluster.ask(url(eip)).split()[0] for _ in range(30)}) == 1


def healthy_where_endpoints_are(cluster: Serving, eip: str) -> None:
    """The health check port of ``local`` says which nodes have endpoints, and one of them holds its EIP."""
    port = cluster.get("service", "local")["spec"]["healthCheckNodePort"]

    def healthy() -> set[str]:
        told = "--write-out", "%{http_code}", "--output", "/dev/null"
        said = {node: cluster.ask(url(cluster.nodes[node].addresses[0], port), *told) for node in cluster.nodes}
        assert set(said.values()) <= {"200", "503"}
        return {node for node, code in said.items() if code == "200"}

    def serving() -> set[str]:
        return {node for node in cluster.nodes if cluster.processes(node, "web")}

    for replicas in (1, len(cluster.nodes)):
        cluster.kubectl("scale", "deployment/web", f"--replicas={replicas}")
        cluster.rolled_out("deployment/web")
        cluster.until(
            f"{replicas} nodes are healthy",
            lambda replicas=replicas: len(healthy()) <= replicas and healthy() == serving(),
        )
        cluster.until("one of them holds", lambda: cluster.holder(eip) in healthy())
        assert cluster.ask(url(eip))


def restarts(cluster: Serving) -> dict[str, int]:
    """Of the speaker's containers."""
    return {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"]
        for namespace in ("eip-speaker", SPEAKER_NAMESPACE)
        for pod in cluster.get("pods", "-n", namespace)["items"]
    }


def remove_services(cluster: Serving) -> None:
    """The first two steps of docs/kubernetes.md's "Uninstall"."""
    for service in cluster.get("services")["items"]:
        if service["spec"]["type"] == "LoadBalancer":
            cluster.kubectl("delete", "service", service["metadata"]["name"])
    cluster.kubectl("delete", "eip", "--all", "--timeout=60s")


def is_gone(cluster: Serving, eips: list[str]) -> bool:
    kinds = "namespaces,crds,clusterroles,clusterrolebindings,validatingadmissionpolicies"
    return (
        "eip-speaker" not in cluster.kubectl("get", kinds, "--output=name")
        and not any(_left(cluster, node) for node in cluster.nodes)
        and not any(map(cluster.holder, eips))
    )


def _left(cluster: Serving, node: str) -> bool:
    """Of the cluster's own agents."""
    tables = cluster.in_node(node, "nft", "list", "tables").splitlines()
    running = set(cluster.processes(node, "speaker")) - set(cluster.control_plane.processes(node))
    return bool(running) or any("speaker" in table and "/control-plane" not in table for table in tables)


@contextmanager
def booted_again(cluster: Serving, node: str) -> Iterator[None]:
    """Whatever is found meanwhile: the tests after this one have all nodes."""
    try:
        yield
    finally:
        if not cluster.nodes[node].first:
            cluster.boot(node)
            cluster.settle()


def _service(name: str, port: int, spec: str, annotations: str = "") -> str:
    """Of the pods that web.yaml makes."""
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default, annotations: {{{annotations}}}}}
spec:
  type: LoadBalancer
  loadBalancerClass: eip-speaker.io/speaker
  selector: {{app: web}}
  ports: [{{port: {port}, targetPort: 8080}}]
  {spec}
---"""


_CLIENT = '["192.0.2.100/31", "2001:db8:1::100/127"]'
"""Not one address alone: those kube-proxy in ipvs mode takes out and puts in again (docs/beside-kube-proxy.md)."""
_MORE = "".join(
    (
        _service("fenced", 80, f"ipFamilyPolicy: RequireDualStack\n  loadBalancerSourceRanges: {_CLIENT}"),
        _service("sticky", 80, "ipFamilyPolicy: RequireDualStack\n  sessionAffinity: ClientIP"),
        _service("first", 80, "", "eip-speaker.io/share: both"),
        _service("second", 81, "", "eip-speaker.io/share: both"),
    )
)
