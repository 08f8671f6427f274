"""Agents beside a real kube-proxy in ipvs mode, and on nodes that have none: what clients of the Services meet.

Needs QEMU's guest, and etcd and kube-apiserver outside it: `make test-qemu` on a machine that has run `make cluster`.
Every EIP has a port for TCP and one for UDP; half of them are of Services with ``externalTrafficPolicy: Local``; a
quarter are IPv6. One is of two Services, three have source ranges, two session affinity. In this order, one cluster
after the other becoming the next: the forwarder ``none``, the overlay ``ipvs`` beside kube-proxy and back, the same
without kube-proxy.
"""

import asyncio
import re
import subprocess
from functools import partial
from itertools import groupby

import pytest
from agent_cluster import MANAGEMENT, holders_of, until
from agent_objects import DRAIN, EXCLUDED, SERVICES
from proxied_cluster import STRANGER, outside, proxied_cluster_in

from speaker.lab.breaking.faults import cut
from speaker.lab.hosts.speakers import holds_most

pytestmark = [pytest.mark.ipvs, pytest.mark.apiserver]

MODULES = (
    "virtio_net", "dummy", "nf_conntrack", "nft_compat", "nft_chain_nat", "ip_vs", "ip_vs_rr", "xt_set",
    "ip_set", "ip_set_bitmap_port", "ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportip",
    "ip_set_hash_ipportnet",
)  # fmt: skip
RATE, ENOUGH = 16, 1000
"""Connections a second, as many as an emulated processor has time for; and in all, half of them datagrams."""
PLACES = "client", "node1", "pod1"
"""On the LAN; a node; a pod behind it that is, among others, a backend of every Service."""
RANGES = ("192.0.2.200/29", "2001:db8:0:1::200/120")
"""The pool."""
FORWARDS = ("--forwarder", "ipvs")
LOOPBACK = {"IPv4": "127.0.0.1", "IPv6": "[::1]"}
DRAINED = {"metadata": {"annotations": {DRAIN: "true"}}}
OURS, ITS = {"eip-speaker0"}, {"kube-ipvs0"}


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    if outside() is None:
        pytest.skip("needs QEMU's guest, and etcd and kube-apiserver outside it: `make cluster`, then `make test-qemu`")
    subprocess.run(["/run/modprobe", "--all", *MODULES], check=True)
    with proxied_cluster_in(tmp_path_factory.mktemp("proxied")) as cluster:
        yield cluster


@pytest.fixture
async def cluster(standing):
    await standing.whole()
    await standing.until_served(*standing.nodes)
    return standing


@pytest.fixture
def clients(standing, request, record_property):
    """``await clients(what)``: what those met that opened ENOUGH connections meanwhile; told at the end of the run."""
    least = -(-ENOUGH // (2 * len(standing.eips)))

    async def run(what, place="client", least=least):
        with standing.clients(RATE, least, place) as met:
            await what()
        record_property("told", f"{request.node.name} ({place}): {met}")
        return met

    return run


async def nothing():
    pass


def drain_of(cluster, victim, patch=DRAINED):
    async def drain():
        cluster.on_node(victim, patch)
        await cluster.agreed(lambda whose: victim not in whose.values())

    return drain


def update_of(cluster, *flags):
    """Of all agents, to others with these flags."""

    async def update():
        cluster.revision += 1
        cluster.flags = flags
        for node in cluster.nodes:
            await cluster.stopped(node)
            await cluster.settled()
            cluster.start(node)
            await cluster.until_healthy(node)
        await cluster.agreed()

    return update


def restart_of_kube_proxies(cluster):
    async def restart():
        for node in cluster.nodes:
            cluster.end_proxy(node)
            await asyncio.sleep(3)
            cluster.start_proxy(node)
            await cluster.until_synced(node)

    return restart


def crash_of(cluster, victim):
    """While the API is away."""

    async def crash():
        for node in cluster.nodes:
            await cluster.do(cut, node, MANAGEMENT)
        await cluster.dies(victim)
        await cluster.settled(lambda whose: victim not in whose.values())
        await asyncio.sleep(10)

    return crash


def still_held(cluster, before, victim):
    """Those that ``victim`` did not hold, by who held them ``before`` and who holds them now."""
    whose = {eip: node for eip, (node,) in cluster.holders().items()}
    others = [eip for eip, node in before.items() if node != victim]
    return {eip: before[eip] for eip in others}, {eip: whose[eip] for eip in others}


def moves_told(cluster):
    """The last by each agent."""
    told = {node: agent.said() for node, agent in cluster.agents.items()}
    return {
        node: [line for line in said if line.get("event") in ("claimed", "withdrawn")][-9:]
        for node, said in told.items()
    }


async def only_who_is_let_in(cluster, clients):
    """The ranges of the fenced Services name all places but one, and no other Service has any."""
    met = await clients(nothing, STRANGER, least=5)
    refused = {target for target, counts in met.targets.items() if counts["failed"] == counts["asked"]}
    assert refused == set(cluster.targets(cluster.fenced)), met
    assert met.all("failed") == met.all("asked", list(refused)), met


async def nobody_answers(cluster):
    async with cluster.asking() as asks:
        await asyncio.sleep(5)
    return not asks.replies()


async def pods_behind(cluster, what):
    """EIP → the pods that answer one client in turn, each once in a row, until ``what`` is done and for 20 rounds."""
    doing = asyncio.create_task(what())
    rounds = []
    while len(rounds) < 20 or not doing.done():
        rounds.append({eip: cluster.pod_behind(eip) for eip in (*cluster.sticky, cluster.shared)})
        await asyncio.sleep(0.2)
    await doing
    return {eip: [pod for pod, _ in groupby(each[eip] for each in rounds if each[eip])] for eip in rounds[0]}


async def clients_stay_with_their_pod(cluster, what):
    """With session affinity; it is one node's, so each move of the EIP may lead to one other."""
    before = holders_of(await cluster.agreed())
    pods = await pods_behind(cluster, what)
    after = holders_of(await cluster.agreed())
    assert len(set(pods.pop(cluster.shared))) == len(cluster.nodes), "without affinity each has its turn"
    moved = {eip: before[eip] != after[eip] for eip in cluster.sticky}
    assert all(1 <= len(pods[eip]) <= 1 + moved[eip] for eip in cluster.sticky), (pods, moved)
    return moved


# ── The forwarder none beside kube-proxy ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", PLACES)
async def test_every_eip_and_port_is_served(cluster, clients, place):
    met = await clients(nothing, place)
    assert met.all("failed") == met.all("cut") == 0, met


async def test_a_holder_alone_answers_arp(cluster):
    holders = holders_of(await cluster.agreed())
    macs = {node: cluster.lan.topology.host(node).mac("eth0") for node in cluster.nodes}
    async with cluster.asking() as asks:
        await asyncio.sleep(5)
    heard = {}
    for reply in (reply for reply in asks.replies() if reply.address.version == 4):
        heard.setdefault(reply.address, set()).add(reply.mac)
    assert heard == {eip: {macs[node]} for eip, node in holders.items() if eip.version == 4}


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(DRAINED, id="drain annotation"),
        pytest.param({"metadata": {"labels": {EXCLUDED: ""}}}, id="excluded from external load balancers"),
    ],
)
async def test_a_drained_node_fails_no_new_connection(cluster, clients, patch):
    victim = holds_most(holders_of(await cluster.agreed()))
    met = await clients(drain_of(cluster, victim, patch))
    assert met.all("failed") == 0, met


async def test_an_update_of_all_agents_fails_no_new_connection(cluster, clients):
    met = await clients(update_of(cluster))
    assert met.all("failed") == 0, met


async def test_a_restart_of_every_kube_proxy_fails_no_new_connection_and_moves_nothing(cluster, clients):
    before = holders_of(await cluster.agreed())
    met = await clients(restart_of_kube_proxies(cluster))
    assert met.all("failed") == 0, met
    assert holders_of(await cluster.agreed()) == before


async def test_kube_proxy_lets_only_those_in_whom_source_ranges_name(cluster, clients):
    await only_who_is_let_in(cluster, clients)


async def test_a_client_stays_with_its_pod_while_every_kube_proxy_is_restarted(cluster):
    moved = await clients_stay_with_their_pod(cluster, restart_of_kube_proxies(cluster))
    assert not any(moved.values())


async def test_a_client_stays_with_its_pod_until_the_eip_moves(cluster):
    victim = holders_of(await cluster.agreed())[cluster.sticky[0]]
    moved = await clients_stay_with_their_pod(cluster, drain_of(cluster, victim))
    assert moved[cluster.sticky[0]]


async def test_another_key_of_the_agents_fails_no_new_connection_and_moves_nothing(cluster, clients):
    """Three steps, as docs/kubernetes.md has them."""
    before, old = holders_of(await cluster.agreed()), cluster.key.read_text().split()

    async def rotate():
        for step in ("--add", "--promote", "--retire"):
            await cluster.rekey(step)

    met = await clients(rotate)
    assert met.all("failed") == 0, met
    assert holders_of(await cluster.agreed()) == before
    assert not set(old) & set(cluster.key.read_text().split())
    for node in cluster.nodes:
        heard = set(re.findall(r'hellos_received_total\{.*result="(.*)"', cluster.metrics(node)))
        assert "read" in heard, heard
        assert "wrong_key" not in heard, heard


async def test_other_tokens_of_the_agents_fail_no_new_connection(cluster, clients):
    """The API knows the former ones no more when the drain comes."""
    victim = holds_most(holders_of(await cluster.agreed()))

    async def renew():
        for node in cluster.nodes:
            await cluster.other_token(node)
        await drain_of(cluster, victim)()

    met = await clients(renew)
    assert met.all("failed") == 0, met


async def test_another_authority_of_the_api_fails_no_new_connection_and_moves_nothing(cluster, clients):
    """Both are trusted before the server shows the other certificate, and afterwards that one alone."""
    before, former = holders_of(await cluster.agreed()), cluster.api.ca.read_text()

    async def rotate():
        latter = cluster.api.another_certificate()
        cluster.trust(former + latter)
        await restart_of_kube_proxies(cluster)()
        cluster.api.change_certificate()
        cluster.trust(latter)
        await restart_of_kube_proxies(cluster)()
        await cluster.agreed()

    met = await clients(rotate)
    assert met.all("failed") == 0, met
    assert holders_of(await cluster.agreed()) == before, moves_told(cluster)
    await drain_of(cluster, holds_most(before))()  # which agents hear of by the API alone


async def test_an_older_etcd_backup_fails_no_new_connection_and_moves_nothing(cluster, clients):
    """What watches is restarted, as docs/kubernetes.md says: but for the speaker, which notices by itself."""
    await cluster.agreed()
    cluster.api.back_up()
    cluster.api.start()
    victim = holds_most(holders_of(await cluster.agreed()))
    await drain_of(cluster, victim)()
    moved = holders_of(await cluster.agreed())

    async def restore():
        cluster.api.restore()
        cluster.api.start()
        cluster.on_node(victim, DRAINED)  # as it was not yet when the backup was made
        await restart_of_kube_proxies(cluster)()
        await cluster.agreed()

    met = await clients(restore)
    assert met.all("failed") == 0, met
    assert holders_of(await cluster.agreed()) == moved


async def test_a_crash_while_the_api_is_away_moves_what_the_dead_node_held(cluster, clients):
    before = holders_of(await cluster.agreed())
    victim = holds_most(before)
    met = await clients(crash_of(cluster, victim))
    held, holds = still_held(cluster, before, victim)
    assert holds == held, met


async def test_a_kube_proxy_that_answers_arp_for_every_eip_is_a_problem(cluster):
    """With ``strictARP`` off, which is its default."""
    node = cluster.nodes[0]
    place = cluster.lan.namespace(node)
    place.sysctl("net.ipv4.conf.all.arp_ignore", 0)
    try:
        said = lambda: [line for line in cluster.agents[node].said() if "strictARP: true" in line.get("message", "")]  # noqa: E731
        await until(said)
    finally:
        place.sysctl("net.ipv4.conf.all.arp_ignore", 1)


# ── The overlay ipvs beside kube-proxy ────────────────────────────────────────────────────────────────────────


async def overlay_ipvs(cluster):
    """In the order of a `kubectl apply`: the agents node by node, and the controller. Before it the pool is excluded
    from what kube-proxy sweeps."""
    cluster.excluded = RANGES
    await restart_of_kube_proxies(cluster)()
    await update_of(cluster, *FORWARDS)()
    await cluster.control("--forwarder=ipvs")
    await until(lambda: cluster.modes() == {"Proxy"})


@pytest.fixture
async def overlay(cluster):
    if cluster.modes() != {"Proxy"}:
        await overlay_ipvs(cluster)
    return cluster


def bound(cluster):
    """For each node, all links on which EIPs are bound."""
    return {node: set().union(*cluster.bound(node).values()) for node in cluster.nodes}


def problems(cluster):
    """What agents say of themselves, by node."""
    return {node: said for node, agent in cluster.agents.items() if (said := agent.status()["problems"])}


async def test_a_change_to_the_overlay_ipvs_fails_no_new_connection(cluster, clients):
    """The agents take kube-proxy's virtual servers over: it leaves them behind, since their range is excluded."""
    met = await clients(lambda: overlay_ipvs(cluster))
    assert met.all("failed") == 0, met
    await until(lambda: bound(cluster) == dict.fromkeys(cluster.nodes, OURS), lambda: bound(cluster))
    await until(lambda: not problems(cluster), lambda: problems(cluster))


async def test_a_restart_of_every_kube_proxy_beside_agents_that_forward_fails_no_new_connection(overlay, clients):
    """When it starts it removes every virtual server that it does not know."""
    met = await clients(restart_of_kube_proxies(overlay))
    assert met.all("failed") == 0, met


@pytest.mark.parametrize("place", PLACES)
async def test_beside_kube_proxy_agents_serve_every_eip_and_port(overlay, clients, place):
    met = await clients(nothing, place)
    assert met.all("failed") == met.all("cut") == 0, met


async def test_beside_kube_proxy_agents_let_only_those_in_whom_source_ranges_name(overlay, clients):
    await only_who_is_let_in(overlay, clients)


async def test_beside_kube_proxy_a_client_of_agents_that_forward_stays_with_its_pod(overlay):
    await clients_stay_with_their_pod(overlay, restart_of_kube_proxies(overlay))


async def test_a_change_back_to_the_overlay_default_fails_no_new_connection(overlay, clients):
    """Its agents may not remove what those before them made: kube-proxy goes on with the virtual servers."""
    cluster = overlay

    async def back():
        await cluster.control()
        await update_of(cluster)()
        await until(lambda: cluster.modes() == {"VIP"})

    met = await clients(back)
    assert met.all("failed") == 0, met
    assert bound(cluster) == dict.fromkeys(cluster.nodes, OURS)


async def test_a_node_that_is_cleaned_while_its_agent_is_stopped_is_kube_proxys_again(cluster, clients):
    """What docs/beside-kube-proxy.md says to do after the overlay ``ipvs``."""
    cluster.excluded = ()

    async def clean():
        for node in cluster.nodes:
            await cluster.stopped(node)
            await cluster.settled()
            cluster.speaker_cleanup(node)
            cluster.end_proxy(node)
            cluster.start_proxy(node)
            await cluster.until_served(node)
            cluster.start(node)
            await cluster.until_healthy(node)
        await cluster.agreed()

    met = await clients(clean)
    assert met.all("failed") == 0, met
    assert bound(cluster) == dict.fromkeys(cluster.nodes, ITS)


async def test_uninstalled_as_the_documentation_says_nothing_is_left_beside_kube_proxy(cluster):
    await cluster.uninstalled()
    await until(lambda: not any(map(cluster.left, cluster.nodes)), lambda: [*map(cluster.left, cluster.nodes)])
    assert await nobody_answers(cluster)
    await cluster.installed()


# ── The overlay ipvs where no kube-proxy is ───────────────────────────────────────────────────────────────────


@pytest.fixture
async def alone(standing):
    """As on nodes that have never had a kube-proxy."""
    if standing.proxied:
        for node in standing.nodes:
            if node in standing.agents:
                await standing.stopped(node)
            standing.end_proxy(node)
            standing.clean(node)
        standing.flags = FORWARDS
        await standing.control("--forwarder=ipvs")
    await standing.whole()
    await until(lambda: standing.modes() == {"Proxy"})
    await standing.until_served(*standing.nodes)
    return standing


@pytest.mark.parametrize("place", PLACES)
async def test_without_kube_proxy_agents_serve_every_eip_and_port(alone, clients, place):
    met = await clients(nothing, place)
    assert met.all("failed") == met.all("cut") == 0, met


async def test_without_kube_proxy_agents_find_no_problem_and_answer_health_checks(alone):
    await until(lambda: not problems(alone), lambda: problems(alone))
    for node in alone.nodes:
        assert alone.bound(node) == dict.fromkeys(alone.eips, OURS)
    specs = (each["spec"] for each in alone.done("GET", SERVICES)["items"])
    ports = {each["healthCheckNodePort"]: each["ipFamilies"] for each in specs if "healthCheckNodePort" in each}
    assert len(ports) == len(alone.local)
    for port, (family,) in ports.items():
        asked = partial(alone.says_yes, alone.nodes[0], port, host=LOOPBACK[family])
        await until(asked, lambda port=port, family=family: f"port {port}, {family}")


async def test_without_kube_proxy_agents_let_only_those_in_whom_source_ranges_name(alone, clients):
    await only_who_is_let_in(alone, clients)


async def test_without_kube_proxy_a_client_stays_with_its_pod_until_the_eip_moves(alone):
    victim = holders_of(await alone.agreed())[alone.sticky[0]]
    moved = await clients_stay_with_their_pod(alone, drain_of(alone, victim))
    assert moved[alone.sticky[0]]


async def test_without_kube_proxy_a_drained_node_fails_no_new_connection(alone, clients):
    victim = holds_most(holders_of(await alone.agreed()))
    met = await clients(drain_of(alone, victim))
    assert met.all("failed") == 0, met


async def test_without_kube_proxy_an_update_of_all_agents_fails_no_new_connection(alone, clients):
    met = await clients(update_of(alone, *FORWARDS))
    assert met.all("failed") == 0, met


async def test_without_kube_proxy_a_crash_while_the_api_is_away_moves_what_the_dead_node_held(alone, clients):
    before = holders_of(await alone.agreed())
    victim = holds_most(before)
    met = await clients(crash_of(alone, victim))
    held, holds = still_held(alone, before, victim)
    assert holds == held, met


async def test_without_kube_proxy_uninstalled_and_cleaned_nothing_is_left(alone):
    """The last: here it does not come again."""
    await alone.uninstalled()
    assert await nobody_answers(alone)
    for node in alone.nodes:
        alone.speaker_cleanup(node)
        assert alone.left(node) == set()
