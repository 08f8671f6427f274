"""What `make cluster` plays: a first Service, a drain, an update and a crash, with clients that count failures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster_parts import NEXT, say
from knock import PORT_EACH, RATE, Knocked, knocking
from real_cluster import SPEAKER_NAMESPACE, RealCluster

DRAIN = "eip-speaker.io/drain"
AFTERWARDS = 5.0
"""Seconds for which clients go on once a thing is done."""
AT_LEAST = 12.0
"""Seconds of clients, so that there are a thousand connections."""
CRASH = 25.0
"""Seconds of clients in which a node dies."""


@contextmanager
def step(title: str) -> Iterator[None]:
    begun = time.monotonic()
    say(f"\n── {title}")
    yield
    say(f"   {time.monotonic() - begun:.1f} s")


def clients_during(cluster: RealCluster, what: Callable[[], object], seconds: float = AT_LEAST) -> Knocked:
    """What clients of both Services meet while ``what`` is done, and some time after."""
    addresses = [eip for service in ("web", "local") for eip in cluster.eips(service)]
    # IPVS mixes up connections from one port: at this rate each has its own.
    rate = PORT_EACH if cluster.proxy == "ipvs" else RATE
    with knocking(cluster.world.inside("client"), addresses, rate) as knocked:
        time.sleep(2)
        begun = time.monotonic()
        what()
        time.sleep(max(AFTERWARDS, begun + seconds - time.monotonic()))
    return knocked


def install(cluster: RealCluster, put: Callable[[], object] | None = None) -> float:
    """The speaker, as ``put`` does it, and the first Service, as a newcomer applies them; seconds until the first EIP
    answers."""
    begun = time.monotonic()
    (put or cluster.install)()
    cluster.serve()
    (eip, *_) = cluster.until("web has an EIP", lambda: cluster.eips("web"))
    cluster.until(f"{eip} answers", lambda: cluster.ask(url(eip)))
    return time.monotonic() - begun


def first_service(cluster: RealCluster) -> dict[str, list[str]]:
    """The EIPs of the first Services, each of which answers the client at the end."""
    cluster.rolled_out("deployment/web")
    return {service: all_answer(cluster, service, 2) for service in ("web", "local")}


def all_answer(cluster: RealCluster, service: str, count: int, port: int = 80) -> list[str]:
    """So many EIPs of a Service, each of which answers the client at the end."""
    found: list[str] = cluster.until(
        f"{service} has {count} EIPs", lambda: len(eips := cluster.eips(service)) == count and eips
    )
    for eip in found:
        cluster.until(f"{eip} answers", lambda eip=eip: cluster.ask(url(eip, port)))
    return found


def url(eip: str, port: int = 80) -> str:
    return f"http://[{eip}]:{port}/" if ":" in eip else f"http://{eip}:{port}/"


def drain(cluster: RealCluster, node: str) -> None:
    cluster.kubectl("annotate", "node", node, f"{DRAIN}=true")
    cluster.until(f"{node} holds nothing", lambda: node not in holders(cluster).values())


def end_drain(cluster: RealCluster, node: str) -> None:
    cluster.kubectl("annotate", "node", node, f"{DRAIN}-")


def holders(cluster: RealCluster) -> dict[str, str]:
    """EIP, as records name it → node, as the API has it."""
    return {
        each["metadata"]["name"]: each.get("status", {}).get("holder", "")
        for each in cluster.get("announcements")["items"]
    }


def update(cluster: RealCluster) -> None:
    """The agents, node by node, to another version."""
    cluster.kubectl("-n", SPEAKER_NAMESPACE, "set", "image", "daemonset/eip-speaker-agent", f"agent={NEXT}")
    cluster.rolled_out("daemonset/eip-speaker-agent", SPEAKER_NAMESPACE)


def tell(cluster: RealCluster) -> None:
    with step("the other EIPs: two Services, IPv4 and IPv6"):
        eips = first_service(cluster)
        for service, addresses in eips.items():
            for eip in addresses:
                served = cluster.ask(url(eip))
                say(f"   {service:6} {eip:18} answered by {cluster.holder(eip)}; the client gets: {served}")
    holder = cluster.holder(eips["web"][0])
    with step(f"a drain: {holder} gives its EIPs away, and answers until they are taken"):
        say(f"   {clients_during(cluster, lambda: drain(cluster, holder))}")
        end_drain(cluster, holder)
    with step("an update of all agents to another version, node by node"):
        say(f"   {clients_during(cluster, lambda: update(cluster))}")
    holder = cluster.holder(eips["local"][0])
    if len(cluster.nodes) > 1:
        with step(f"a crash: {holder} dies without a word, with all its pods"):
            knocked = clients_during(cluster, lambda: cluster.crash(holder), CRASH)
            say(f"   {knocked}")
            for service, addresses in eips.items():
                say(f"   {service:6} took no connection for {knocked.longest(addresses)} s")
            say("   (web: kube-proxy goes on sending to the dead node's pods until Kubernetes takes it for NotReady)")
            for eip in eips["web"] + eips["local"]:
                say(f"   {eip:18} answered by {cluster.holder(eip)}")
        with step(f"{holder} boots again, and takes nothing back"):
            cluster.boot(holder)
            # For the API they never went: the node was away for less than Kubernetes waits.
            cluster.until("its agent answers", lambda: cluster.in_agent(holder, "speaker", "--version"))
            cluster.await_speaker()
