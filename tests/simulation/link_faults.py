"""What goes wrong between stations: cables, ports, switches, filters, keys."""

from functools import partial

from simulation.cluster import Cluster
from simulation.host import Host
from simulation.network import Path
from simulation.node_faults import later, trouble
from simulation.schedule import Fault, Kind
from simulation.stranger import Stranger
from simulation.wire import key
from speaker.ownership.hellos.keys import Keys

Pairs = list[tuple[int, int]]
"""(from, to), of stations of any kind."""


def _cut(cluster: Cluster, pairs: Pairs, fault: Fault) -> None:
    network = cluster.network
    paths: list[Path] = [(n, a, b) for a, b in pairs for n in network.those(fault.link)]
    network.cuts.update(paths)
    cluster.promises.rewired()

    def heal() -> None:
        network.mend(network.cuts, paths)
        cluster.promises.rewired()

    later(cluster, fault.lasts, heal)


# ── Between some of them ──────────────────────────────────────────────────────────────────────────────────────


def part(cluster: Cluster, fault: Fault) -> None:
    """``nodes`` and what is on their side from all others; it is no trouble of the larger group's."""
    nodes, count = fault.nodes, len(cluster.hosts)
    group = cluster.stations.group(nodes)
    others = [station for station in cluster.stations.everybody if station not in group]
    smaller = nodes if 2 * len(nodes) < count else () if 2 * len(nodes) == count else others
    trouble(cluster, [host for host in cluster.hosts if host.index in smaller], fault.link, fault.lasts)
    _cut(cluster, [pair for a in group for b in others for pair in ((a, b), (b, a))], fault)


def cut_one_way(cluster: Cluster, fault: Fault) -> None:
    sender, receiver = fault.nodes
    if len(cluster.hosts) == 2:
        trouble(cluster, [cluster.hosts[sender]], fault.link, fault.lasts)
    _cut(cluster, [(sender, receiver)], fault)


def cut_pair(cluster: Cluster, fault: Fault) -> None:
    one, other = fault.nodes
    _cut(cluster, [(one, other), (other, one)], fault)


def eat_hellos(cluster: Cluster, fault: Fault) -> None:
    network, nodes, everybody = cluster.network, fault.nodes, range(len(cluster.hosts))
    senders, receivers = nodes or everybody, nodes if len(nodes) > 1 else everybody
    paths = [(n, a, b) for n in network.those(fault.link) for a in senders for b in receivers if a != b]
    network.eaten.update(paths)
    later(cluster, fault.lasts, partial(network.mend, network.eaten, paths))


def hold_frames(cluster: Cluster, fault: Fault) -> None:
    burst = fault.hold, frozenset(fault.nodes)
    cluster.network.bursts.append(burst)
    cluster.promises.disturbed()
    later(cluster, fault.lasts, partial(cluster.network.bursts.remove, burst))


def silence_gateway(cluster: Cluster, host: Host, fault: Fault) -> None:
    """It answers ``host`` no more, which stands behind those whom it does."""
    gateway = cluster.stations.gateway

    def change(by: int) -> None:
        for n in cluster.network.those(fault.link):
            host.demoted[n] += by
        for eip in cluster.eips:
            host.tell_eligibility(eip)

    change(1)
    _cut(cluster, [(host.index, gateway), (gateway, host.index)], fault)
    later(cluster, fault.lasts, lambda: change(-1))


# ── At one port ───────────────────────────────────────────────────────────────────────────────────────────────


def _through(cluster: Cluster, host: Host, *, hears: bool, speaks: bool) -> Pairs:
    """What no longer passes its port."""
    others = [station for station in cluster.stations.everybody if station != host.index]
    deaf = [] if hears else [(other, host.index) for other in others]
    return deaf if speaks else [*deaf, *((host.index, other) for other in others)]


def sever(cluster: Cluster, host: Host, fault: Fault, *, hears: bool, speaks: bool) -> None:
    """Nothing arrives there, or nothing leaves, and the carrier stays."""
    links = cluster.network.those(fault.link)
    host.severed.update(links)

    def mend() -> None:
        host.severed.subtract(links)
        cluster.promises.disturbed()

    trouble(cluster, [host], fault.link, fault.lasts)
    later(cluster, fault.lasts, mend)
    _cut(cluster, _through(cluster, host, hears=hears, speaks=speaks), fault)
    cluster.promises.disturbed()


def stop_flooding(cluster: Cluster, host: Host, fault: Fault) -> None:
    """Its port gets no broadcasts; what it sends, and what is for it alone, passes."""
    network = cluster.network
    links = network.those(fault.link)
    paths: list[Path] = [(n, a, host.index) for n in links for a in cluster.stations.everybody if a != host.index]
    host.severed.update(links)
    network.unflooded.update(paths)
    trouble(cluster, [host], fault.link, fault.lasts)
    cluster.promises.disturbed()

    def mend() -> None:
        host.severed.subtract(links)
        network.mend(network.unflooded, paths)
        cluster.promises.disturbed()

    later(cluster, fault.lasts, mend)


def filter_port(cluster: Cluster, host: Host, fault: Fault) -> None:
    """Hellos pass. Its answers do not; or little of what it sends; or no questions to everybody."""
    network = cluster.network
    ports = [(n, host.index) for n in network.those(fault.link)]
    of = {Kind.UNANSWERING: network.mute, Kind.THROTTLED: network.throttled, Kind.UNASKED: network.unasked}
    spoilt = of[fault.kind]
    spoilt.update(ports)
    trouble(cluster, [host], fault.link, fault.lasts)
    cluster.promises.disturbed()

    def mend() -> None:
        spoilt.subtract(ports)
        cluster.promises.disturbed()

    later(cluster, fault.lasts, mend)


def pull_cable(cluster: Cluster, host: Host, fault: Fault) -> None:
    network = cluster.network
    links, pairs = network.those(fault.link), _through(cluster, host, hears=False, speaks=False)

    def change(by: int) -> None:
        cluster.promises.disturbed()
        for n in links:
            host.cables_out[n] += by
            network.cuts.update({(n, *pair): by for pair in pairs})
            for other in cluster.hosts:
                network.heard_since[n, host.index, other.index] = cluster.clock.now
                network.heard_since[n, other.index, host.index] = cluster.clock.now
            host.tell_link(n)
        cluster.promises.rewired()

    trouble(cluster, [host], fault.link, fault.lasts)
    change(1)
    later(cluster, fault.lasts, lambda: change(-1))


def wear_out(cluster: Cluster, host: Host, fault: Fault) -> None:
    """Much of what passes its port is lost, and not all."""
    network, pairs = cluster.network, _through(cluster, host, hears=False, speaks=False)
    paths: list[Path] = [(n, *pair) for pair in pairs for n in network.those(fault.link)]
    trouble(cluster, [host], fault.link, fault.lasts)
    network.lossy.update(dict.fromkeys(paths, fault.share))

    def mend() -> None:
        for path in paths:
            network.lossy.pop(path, None)

    later(cluster, fault.lasts, mend)


def refuse_hellos(cluster: Cluster, host: Host, fault: Fault) -> None:
    """Its socket takes none."""
    network, links = cluster.network, cluster.network.those(fault.link)
    host.mute.update(links)
    trouble(cluster, [host], fault.link, fault.lasts)
    cluster.promises.disturbed()

    def mend() -> None:
        host.mute.subtract(links)
        cluster.promises.disturbed()
        network.heard_again((n, host.index, o.index) for o in cluster.hosts if o is not host for n in links)

    later(cluster, fault.lasts, mend)


def replay(cluster: Cluster, fault: Fault) -> None:
    """Only what reached the receiver, or would have: bringing what was lost would be a slow network, no replay."""
    sender, receiver = (cluster.hosts[n] for n in fault.nodes)
    for _, link, payload, within in list(sender.sent):
        if receiver.index in within:
            cluster.clock.after(cluster.random.uniform(0, fault.lasts), partial(receiver.hear, link, payload))


# ── Keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


def give_wrong_key(cluster: Cluster, host: Host, fault: Fault) -> None:
    network = cluster.network
    pairs = [pair for o in cluster.hosts if o is not host for pair in ((host.index, o.index), (o.index, host.index))]
    host.wrong_keys += 1
    network.strangers.update(pairs)

    def mend() -> None:
        host.wrong_keys -= 1
        network.strangers.subtract(pairs)
        network.heard_again((n, *pair) for pair in pairs for n in network.links)
        cluster.promises.disturbed()

    later(cluster, fault.lasts, mend)


def rotate_keys(cluster: Cluster, fault: Fault) -> None:
    old, new, over = key("first"), key("second"), fault.lasts
    for step, keys in enumerate((Keys(old, new), Keys(new, old), Keys(new))):
        for host in cluster.hosts:
            begin = step * over
            cluster.clock.after(cluster.random.uniform(begin, begin + over), partial(_set_keys, host, keys))


def _set_keys(host: Host, keys: Keys) -> None:
    host.use_keys(keys)


def let_stranger_in(cluster: Cluster, fault: Fault) -> None:
    Stranger(cluster.clock, cluster.network, cluster.schedule.seed).play(fault.lasts)
