"""What an operator dreads, and does all the same: authorities, keys and backups that change, and the way out. Each is
about agents and the API, not about kube-proxy."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import cluster_keys
import pytest
from cluster_parts import PROGRAMS
from cluster_story import install, url
from real_cluster import MODES, SPEAKER_NAMESPACE, missing
from serving import Serving, is_gone, remove_services, restarts, unharmed

pytestmark = pytest.mark.cluster
DISASTER = pytest.mark.long(part="disasters")
MOUNTED = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


@pytest.fixture(scope="module", params=MODES)
def doomed(request: pytest.FixtureRequest) -> Iterator[Serving]:
    """In the order of this file: the last tests take the speaker away."""
    if why := missing(request.param):
        pytest.skip(why)
    with Serving(request.param) as cluster:
        yield cluster


def serve_another(cluster: Serving, name: str) -> str:
    """Controllers and agents hear of the API and it of them: a new Service has an EIP that answers."""
    cluster.kubectl("create", "--filename", "-", stdin=ANOTHER.replace("NAME", name))
    (eip,) = cluster.until(f"{name} has an EIP", lambda: cluster.eips(name))
    cluster.until(f"{eip} answers", lambda: cluster.ask(url(eip)))
    holder = cluster.holder(eip)
    cluster.until("the record says who", lambda: cluster.get("announcement", eip)["status"]["holder"] == holder)
    return str(eip)


ANOTHER = """
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: default}
spec:
  type: LoadBalancer
  loadBalancerClass: eip-speaker.io/speaker
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"""


def restart_clients(cluster: Serving) -> None:
    """All of Kubernetes' own that speaks to the API."""
    for control in ("kube-controller-manager", "kube-scheduler"):
        cluster.stop(control)
        cluster.start(control)
    for program in ("kubelet", "kube-proxy"):
        cluster.restart_everywhere(program)


def brought(cluster: Serving) -> None:
    """The pods have the authorities that ``ca.crt`` holds."""
    wanted = (cluster.keys / "ca.crt").read_text().strip()

    def told() -> bool:
        found = cluster.get("configmap", "-n", SPEAKER_NAMESPACE, "kube-root-ca.crt")["data"]["ca.crt"]
        return bool(found.strip() == wanted)

    cluster.until("the cluster tells of its authorities", told)
    cluster.restart_everywhere("kubelet")  # which mounts anew at once, not within the next minutes
    for node in cluster.nodes:
        cluster.until(
            f"the agent of {node} has them", lambda node=node: cluster.in_agent(node, "cat", MOUNTED).strip() == wanted
        )


@DISASTER
def test_another_authority_of_the_cluster_fails_no_new_connection_and_restarts_nothing(doomed: Serving, during):
    before = restarts(doomed)

    def rotate():
        for step in cluster_keys.rotate(doomed.keys, doomed.nodes):
            doomed.stop("kube-apiserver")
            doomed.start("kube-apiserver")
            restart_clients(doomed)
            brought(doomed)
            doomed.until(f"nodes are Ready after {step}", lambda: doomed.ready() == set(doomed.nodes))

    met = during(doomed, rotate)
    serve_another(doomed, "authorised")
    assert restarts(doomed) == before
    unharmed(met)


@DISASTER
def test_another_key_of_the_agents_fails_no_new_connection(doomed: Serving, during, tmp_path):
    """Three steps, as docs/kubernetes.md has them."""
    key = tmp_path / "key"
    name = "secret", "eip-speaker-key", "-n", SPEAKER_NAMESPACE
    write = os.open(key, os.O_CREAT | os.O_WRONLY, 0o600)
    with os.fdopen(write, "w") as file:
        file.write(doomed.kubectl("get", *name, "--output=go-template={{.data.key | base64decode}}"))

    def read(node: str) -> int:
        said = doomed.kubectl("-n", SPEAKER_NAMESPACE, "logs", doomed.agent_on(node), "--tail=-1")
        return said.count('"keys read"')

    def rotate():
        for step in ("--add", "--promote", "--retire"):
            before = {node: read(node) for node in doomed.nodes}
            subprocess.run([sys.executable, "-m", "speaker", "keygen", step, key], check=True, capture_output=True)
            doomed.kubectl("patch", *name, "--patch", json.dumps({"stringData": {"key": key.read_text()}}))
            for node in doomed.nodes:
                # A pod that changes is looked after at once, its Secrets too.
                doomed.kubectl("annotate", "--overwrite", "pod", doomed.agent_on(node), "-n", SPEAKER_NAMESPACE,
                               f"step={step.strip('-')}")  # fmt: skip
            for node in doomed.nodes:
                doomed.until(f"{node} has read {step}", lambda node=node, before=before: read(node) > before[node])
                assert doomed.in_agent(node, "cat", "/etc/speaker/key") == key.read_text()

    unharmed(during(doomed, rotate))


@DISASTER
def test_an_older_etcd_backup_fails_no_new_connection(doomed: Serving, during):
    """And what was given since then is given anew. What watches is restarted, as docs/kubernetes.md says: but for the
    speaker, which notices by itself."""
    doomed.stop("etcd")
    backup = doomed.directory / "backup"
    shutil.copytree(doomed.etcd, backup)
    doomed.start("etcd")
    doomed.until("the API is ready", lambda: doomed.kubectl("get", "--raw=/readyz") == "ok")
    lost = serve_another(doomed, "lost")
    before = restarts(doomed)

    def restore():
        doomed.stop("kube-apiserver")
        doomed.stop("etcd")
        shutil.rmtree(doomed.etcd)
        backup.rename(doomed.etcd)
        doomed.start("etcd", "kube-apiserver")
        restart_clients(doomed)
        doomed.until("nodes are Ready", lambda: doomed.ready() == set(doomed.nodes))
        doomed.until("nobody answers for what is lost", lambda: not doomed.holder(lost))

    met = during(doomed, restore)
    serve_another(doomed, "found")
    assert restarts(doomed) == before
    unharmed(met)


def test_it_goes_as_the_documentation_says_and_leaves_nothing(doomed: Serving):
    eips = doomed.eips("web") + doomed.eips("local")
    remove_services(doomed)
    doomed.kubectl("delete", "--filename", doomed.manifest, "--timeout=120s")
    doomed.until("nothing is left", lambda: is_gone(doomed, eips))


def test_it_comes_again_with_helm_and_goes_again(doomed: Serving, tell):
    from render import write_chart

    write_chart(str(PROGRAMS / "kubectl"), "eip-speaker:dev", doomed.directory)

    def helm(*words):
        return doomed.world.run(*doomed.words_in_api("helm"), *words, place="api")

    def put():
        helm("install", "eip-speaker", doomed.directory / "eip-speaker")
        doomed.await_speaker()

    seconds = install(doomed, put)
    tell(f"{doomed.proxy}: {seconds:.1f} s from `helm install` to the first EIP that answers")
    assert "deployed" in helm("status", "eip-speaker")
    eips = doomed.eips("web")
    remove_services(doomed)
    helm("uninstall", "eip-speaker", "--wait")
    doomed.kubectl("delete", "crd", "eips.eip-speaker.io", "announcements.eip-speaker.io")
    doomed.until("nothing is left", lambda: is_gone(doomed, eips))
