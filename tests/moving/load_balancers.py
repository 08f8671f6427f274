"""Those that a cluster moves from, and back to: what people ask of each, and which of its programs run where."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, ClassVar

from agent_cluster import Cluster
from agent_objects import NAMESPACE

from speaker.model import IPAddress

Body = dict[str, Any]


class LoadBalancer(ABC):
    """``programs``: the directory of what was built."""

    page: str
    namespace: str
    workloads: ClassVar[Mapping[str, str]]
    """Those that run here: the kind → the name."""
    step: ClassVar[Mapping[str, str]]
    """Section → the line after which somebody falls silent."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs

    def install(self, cluster: Cluster) -> None:
        """What has to be there before the objects."""
        if (definitions := self.programs / "crds").exists():
            cluster.api.kubectl("create", "-f", str(definitions))
            cluster.api.kubectl("wait", "--for=condition=Established", "--timeout=180s", "-f", str(definitions))
        if self.namespace != "kube-system":
            cluster.api.kubectl("create", "namespace", self.namespace)

    @abstractmethod
    def pools(self, eips: tuple[IPAddress, ...]) -> Iterator[Body]: ...

    @abstractmethod
    def asks(self, eip: IPAddress, *, shared: bool) -> Mapping[str, str]:
        """Annotations of a Service."""

    @abstractmethod
    def command(self, kind: str, node: str, cluster: Cluster) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Of a program, with its environment; ``node`` is where a DaemonSet's runs."""

    @abstractmethod
    def is_back(self, said: Mapping[str, str], services: set[str]) -> bool:
        """Whether it only waits for us to be gone, by what its programs said since they were started last: the
        workload's name, with the node's behind a DaemonSet's → its log."""

    def objects(self) -> Iterator[Body]:
        """Its programs, as the cluster has them."""
        for kind, name in self.workloads.items():
            yield self._workload(kind, name)

    def _workload(self, kind: str, name: str) -> Body:
        """Nobody pulls the image."""
        labels = {"app": self.page, "component": name}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": name, "image": self.page}]}}
        meta = {"name": name, "namespace": self.namespace}
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": meta,
            "spec": {"selector": {"matchLabels": labels}, "template": pod},
        }


class MetalLB(LoadBalancer):
    page = "metallb"
    namespace = "metallb-system"
    workloads: ClassVar = {"Deployment": "controller", "DaemonSet": "speaker"}
    step: ClassVar = {"The move": "delete l2advertisements", "The way back": "patch daemonset"}

    def install(self, cluster: Cluster) -> None:
        super().install(cluster)
        for pod in ("controller", *(f"speaker-{node}" for node in cluster.nodes)):
            spec = {"containers": [{"name": "metallb", "image": "metallb"}]}
            cluster.done("POST", f"/api/v1/namespaces/{self.namespace}/pods", {"metadata": {"name": pod}, "spec": spec})

    def pools(self, eips: tuple[IPAddress, ...]) -> Iterator[Body]:
        four = [eip for eip in eips if isinstance(eip, IPv4Address)]
        six = [eip for eip in eips if not isinstance(eip, IPv4Address)]
        spec: Body = {"addresses": [f"{them[0]}-{them[-1]}" for them in (four, six)]}
        meta = {"name": "lan", "namespace": self.namespace}
        yield {"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": meta, "spec": spec}
        spec = {"ipAddressPools": ["lan"], "interfaces": ["eth0"]}
        yield {"apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement", "metadata": meta, "spec": spec}

    def asks(self, eip: IPAddress, *, shared: bool) -> Mapping[str, str]:
        return {"metallb.io/loadBalancerIPs": str(eip)} | ({"metallb.io/allow-shared-ip": "one-host"} if shared else {})

    def command(self, kind: str, node: str, cluster: Cluster) -> tuple[tuple[str, ...], Mapping[str, str]]:
        name = self.workloads[kind]
        pod, own = (f"{name}-{node}", f"--node-name={node}") if node else (name, "--webhook-mode=disabled")
        common = (f"--namespace={self.namespace}", f"--pod-name={pod}", "--port=0", "--health-probe-port=0")
        return (name, *common, own), {"KUBECONFIG": str(cluster.api.kubeconfig()), "METALLB_BGP_TYPE": "native"}

    def is_back(self, said: Mapping[str, str], services: set[str]) -> bool:
        """Its controller has looked at each."""
        return all(f"{NAMESPACE}/{name}" in said["controller"] for name in services)


class KubeVip(LoadBalancer):
    """Its cloud provider writes the annotation that people may write themselves: here they do, and it does not run."""

    page = "kube-vip"
    namespace = "kube-system"
    workloads: ClassVar = {"DaemonSet": "kube-vip-ds"}
    step: ClassVar = {"The move": "patch lease", "The way back": "patch daemonset"}

    def objects(self) -> Iterator[Body]:
        yield from super().objects()
        yield self._workload("Deployment", "kube-vip-cloud-provider")

    def pools(self, eips: tuple[IPAddress, ...]) -> Iterator[Body]:
        data = {"range-global": ",".join(map(str, eips))}
        meta = {"name": "kubevip", "namespace": self.namespace}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}

    def asks(self, eip: IPAddress, *, shared: bool) -> Mapping[str, str]:
        return {"kube-vip.io/loadbalancerIPs": str(eip)}

    def command(self, kind: str, node: str, cluster: Cluster) -> tuple[tuple[str, ...], Mapping[str, str]]:
        home = cluster.directory / "kube-vip"
        (home / ".kube").mkdir(parents=True, exist_ok=True)
        (home / ".kube" / "config").write_bytes(cluster.api.kubeconfig().read_bytes())
        return ("kube-vip", "manager"), {
            "HOME": str(home), "vip_nodename": node, "vip_interface": "eth0", "vip_arp": "true",
            "vip_leaderelection": "true", "svc_enable": "true", "prometheus_server": "",
        }  # fmt: skip

    def is_back(self, said: Mapping[str, str], services: set[str]) -> bool:
        """It runs on each node, and waits for the lease."""
        return all("eip-speaker" in log for name, log in said.items() if name.startswith("kube-vip-ds-"))
