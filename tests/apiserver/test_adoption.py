"""Coming from another balancer without losing an address: each page of docs/migration, typed into a real cluster's API.

What the peer left is there: its pools, its programs, its Services with what it wrote on them. The lines of the page are
run by a shell, in their order, with the real kubectl and speaker. As many controllers start as the page scales to. All
Services are watched from before the first line to after the last one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import Asking
from documented import MIGRATED, ROOT, Line, lines_of, where
from left_by_peers import CLUSTERS, NAMESPACES, Cluster
from moments import SERVICES, Moments
from real_api import BUILT, ENVTEST, MANIFESTS, RealApi, missing, until

pytestmark = pytest.mark.apiserver

CONTROLLER = "/apis/apps/v1/namespaces/eip-speaker/deployments/eip-speaker-controller"
POOLS = "/apis/eip-speaker.io/v1alpha1/eips"
NEWCOMER = "default/newcomer"
OURS = "eip-speaker.io/speaker"
PAGES = ROOT / "docs" / "migration"
ANEW = [line.text for line in lines_of(PAGES / "README.md") if "out/" in line.text]
"""What takes the place of APPLY for Services that are made anew."""
APPLY = "kubectl apply -f out"
BACK = "## The way back"
PROGRAM = re.compile(r"kubectl -n (\S+) .*?\b(deployment|daemonset)[ /](\S+)")


def page(peer: str) -> list[Line]:
    """Without the way back, which tests/moving goes."""
    path = PAGES / f"{peer}.md"
    lines = path.read_text().splitlines()
    end = lines.index(BACK) if BACK in lines else len(lines)
    return [line for line in lines_of(path) if line.number <= end]


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    """One for this file: with the definitions of all peers it is a cluster that no other test expects."""
    if reason := missing():
        pytest.skip(reason)
    with RealApi(tmp_path_factory.mktemp("adoption")) as api:
        api.install()
        made = [*definitions(), *({"apiVersion": "v1", "kind": "Namespace", "metadata": each} for each in namespaces())]
        api.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(made))
        api.kubectl("wait", "--for=condition=established", "crd", "--all")
        api.kubectl("apply", "-f", str(MANIFESTS / "controller.yaml"))
        yield api


def namespaces() -> list[dict[str, Any]]:
    of_peers = {line.text.split()[2] for peer in CLUSTERS for line in page(peer) if PROGRAM.match(line.text)}
    found = {**NAMESPACES, **{name: {} for name in of_peers - {"eip-speaker", "kube-system"}}}
    return [{"name": name, "labels": labels} for name, labels in found.items()]


def definitions() -> Iterator[dict[str, Any]]:
    """Of the peers' kinds, with any content."""
    versions: dict[tuple[str, str, bool], set[str]] = {}
    for each in (each for cluster in CLUSTERS.values() for each in cluster.pools()):
        group, _, version = each["apiVersion"].rpartition("/")
        if group:
            key = (group, each["kind"], "namespace" in each["metadata"])
            versions.setdefault(key, set()).add(version)
    versions[("metallb.io", "BGPAdvertisement", True)] = {"v1beta1"}  # the page asks for them, and there are none
    for (group, kind, namespaced), of_kind in versions.items():
        plural = kind.lower().removesuffix("y") + "ies" * kind.endswith("y") + "s" * (not kind.endswith("y"))
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        served = [{"name": name, "served": True, "storage": name == min(of_kind), "schema": schema} for name in of_kind]
        spec = {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": served,
        }
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        yield {**definition, "metadata": {"name": f"{plural}.{group}"}, "spec": spec}


def program(line: Line) -> dict[str, Any] | None:
    """A peer's that the line stops, changes or waits for. Nobody runs it here."""
    if not (found := PROGRAM.match(line.text)) or found[1] == "eip-speaker":
        return None
    labels = {"app": found[3]}
    pod = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "peer", "image": "registry.example.com/p"}]},
    }
    kind = {"deployment": "Deployment", "daemonset": "DaemonSet"}[found[2]]
    meta = {"name": found[3], "namespace": found[1]}
    spec = {"selector": {"matchLabels": labels}, "template": pod, **({"replicas": 0} if kind == "Deployment" else {})}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


class Story:
    """A peer's cluster, and who follows the page in it; our controllers take ``flags``."""

    def __init__(self, api: RealApi, directory: Path, peer: str, cls: str, flags: tuple[str, ...]) -> None:
        self.api, self.ask, self.directory, self.flags = api, Asking(api), directory, flags
        self.cluster = CLUSTERS[peer]
        self.controllers: list[subprocess.Popen[bytes]] = []
        token = api.kubectl("create", "token", "eip-speaker-controller", "--namespace=eip-speaker")
        self.rights = api.kubeconfig_with("adopter", token)
        programs = {path_of(found): found for line in page(peer) if (found := program(line))}
        asked = [*self.cluster.pools(), *programs.values(), *self.cluster.asked(cls)]
        asked += [self.cluster.lease] if self.cluster.lease else []
        api.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(asked))
        for path in programs:
            self.change(f"{path}/status", {"status": {"observedGeneration": 1}})
        for key, has in self.cluster.services.items():
            self.change(service_path(key), {"metadata": has.peers})
            ingress = [{"ip": address} for address in has.addresses]
            self.change(f"{service_path(key)}/status", {"status": {"loadBalancer": {"ingress": ingress}}})
        self.change(CONTROLLER, {"spec": {"replicas": 0}})

    def change(self, path: str, content: dict[str, Any]) -> None:
        code, answer = self.ask("PATCH", path, content)
        assert code == 200, answer

    def types(self, text: str) -> None:
        """Or, where the line is for one Service, for each that the peer keeps from being deleted."""
        if "NAMESPACE" in text:
            for key in (key for key, has in self.cluster.services.items() if "finalizers" in has.peers):
                namespace, name = key.split("/")
                self.types(text.replace("NAMESPACE", namespace).replace("NAME", name))
            return
        path = os.pathsep.join(map(str, (Path(sys.executable).parent, binaries(), os.environ["PATH"])))
        here = {"PATH": path, "KUBECONFIG": str(self.api.kubeconfig()), "HOME": str(self.api.directory)}
        done = subprocess.run(
            ["bash", "-c", text], cwd=self.directory, env=os.environ | here, capture_output=True, text=True, check=False
        )
        # 1 of convert: somebody has to decide; of validate: a pool does not admit a Service that has its EIP.
        refused = " convert " in text or (" validate " in text and " refused (pool_not_allowed)" in done.stdout)
        assert done.returncode in ((0, 1) if refused else (0,)), f"{text}: {done.stderr}{done.stdout}"
        if "scale deployment eip-speaker-controller" in text:
            self.start()

    def start(self) -> None:
        """What the Deployment asks for."""
        for i in range(self.ask("GET", CONTROLLER)[1]["spec"]["replicas"]):
            command = [sys.executable, "-m", "speaker", "controller", f"--kubeconfig={self.rights}", "--metrics=off"]
            with (self.directory / f"controller-{i}.log").open("wb") as log:
                self.controllers.append(subprocess.Popen([*command, *self.flags], stderr=log))

    def until_assigned(self) -> None:
        """Our controller speaks for every one of them, and for the newcomer."""
        until(lambda: self.assigned() >= {*self.cluster.services, NEWCOMER})

    def assigned(self) -> set[str]:
        def says(service: dict[str, Any]) -> bool:
            found = service["status"].get("conditions", [])
            return ("eip-speaker.io/Assigned", "True") in [(each["type"], each["status"]) for each in found]

        return {key_of(each) for each in self.ask("GET", SERVICES)[1]["items"] if says(each)}

    def newcomer(self) -> None:
        """Somebody makes a Service while the change is under way."""
        spec = {"type": "LoadBalancer", "loadBalancerClass": OURS, "ports": [{"port": 443}]}
        code, _ = self.ask("POST", service_path("default/"), {"metadata": {"name": "newcomer"}, "spec": spec})
        assert code == 201

    def close(self) -> None:
        for process in self.controllers:
            process.terminate()  # gives its Lease back, so that the next one need not wait
        for process in self.controllers:
            process.wait()
        for each in self.ask("GET", SERVICES)[1]["items"]:
            if key_of(each) != "default/kubernetes":
                self.remove(service_path(key_of(each)))
        for each in self.ask("GET", POOLS)[1]["items"]:
            self.remove(f"{POOLS}/{each['metadata']['name']}")

    def remove(self, path: str) -> None:
        self.change(path, {"metadata": {"finalizers": None}})
        self.ask("DELETE", path)


def key_of(found: dict[str, Any]) -> str:
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def service_path(key: str) -> str:
    namespace, name = key.split("/")
    return f"/api/v1/namespaces/{namespace}/services/{name}".rstrip("/")


def path_of(found: dict[str, Any]) -> str:
    meta = found["metadata"]
    return f"/apis/apps/v1/namespaces/{meta['namespace']}/{found['kind'].lower()}s/{meta['name']}"


def binaries() -> Path:
    return Path(os.environ.get("KUBEBUILDER_ASSETS") or (BUILT if BUILT.is_dir() else ENVTEST))


@pytest.fixture
def story(api_server: RealApi, tmp_path: Path) -> Iterator[Callable[..., Story]]:
    with ExitStack() as stack:

        def begin(peer: str, cls: str = "", *flags: str) -> Story:
            found = Story(api_server, tmp_path, peer, cls, flags)
            stack.callback(found.close)
            return found

        yield begin


def typed(peer: str) -> list[str]:
    return [line.text for line in page(peer) if where(line) == [MIGRATED]]


def nobody_else_had(seen: Moments, cluster: Cluster) -> None:
    theirs = {address for has in cluster.services.values() for address in has.addresses}
    others = [each for each in seen.all if each.service not in cluster.services]
    assert [each for each in others if theirs & {*each.addresses}] == []
    assert next(each for each in reversed(others) if each.service == NEWCOMER).addresses


@pytest.mark.parametrize("peer", CLUSTERS)
def test_who_follows_a_peers_page_keeps_every_address_at_every_moment(peer, story, api_server):
    told = story(peer, "", "--default-class")
    with Moments(api_server) as seen:
        for text in typed(peer):
            told.types(text)
            if text == APPLY:
                told.newcomer()
        told.until_assigned()
    for key, has in told.cluster.services.items():
        assert {(each.event, each.addresses) for each in seen.of(key)} == {("MODIFIED", has.addresses)}, key
    nobody_else_had(seen, told.cluster)


CLASSED = "speaker convert in --adopt --default-class -o out"


@pytest.mark.parametrize(
    ("peer", "instead"),
    [
        ("openelb", "speaker convert in --adopt -o out"),
        ("metallb", "speaker convert in --adopt --class NAME -o out"),
        ("kube-vip", "speaker convert in --adopt --default-class --from kube-vip -o out"),
        ("purelb", CLASSED),
        ("cilium", CLASSED),
    ],
    ids=list(CLUSTERS),
)
def test_services_that_are_made_anew_with_our_class_get_the_addresses_that_they_had(peer, instead, story, api_server):
    told = story(peer, CLUSTERS[peer].cls)
    assert instead in (PAGES / f"{peer}.md").read_text()
    with Moments(api_server) as seen:
        for text in typed(peer):
            if text == APPLY:
                told.newcomer()
            converting = instead.replace("NAME", told.cluster.cls)
            for line in ANEW if text == APPLY else [converting] if " convert " in text else [text]:
                told.types(line)
        told.until_assigned()
    for key, has in told.cluster.services.items():
        moments = seen.of(key)
        assert [each.event for each in moments].count("DELETED") == 1
        assert {each.addresses for each in moments} == {has.addresses, ()}
        assert moments[-1].addresses == has.addresses
    nobody_else_had(seen, told.cluster)
