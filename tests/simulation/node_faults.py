"""What goes wrong with a node: its life, its clock, its eligibility, its API."""

from collections.abc import Callable, Iterable

from simulation.cluster import Cluster
from simulation.host import Host
from simulation.schedule import FOR_GOOD, Fault
from speaker.model import IPAddress
from speaker.ownership.events import Drain, Rebalance


def later(cluster: Cluster, lasts: float, undo: Callable[[], None]) -> None:
    """Undone after ``lasts``, unless that is for good."""
    if lasts < FOR_GOOD:
        cluster.clock.after(lasts, undo)


def trouble(cluster: Cluster, hosts: Iterable[Host], link: int | None, lasts: float) -> None:
    """What these hosts hold there may go, for a reason of their own."""
    concerned = [(host, n) for host in hosts for n in cluster.network.those(link)]
    for host, n in concerned:
        host.troubles[n] += 1
        host.trouble_began[n] = cluster.clock.now

    def over() -> None:
        for host, n in concerned:
            host.troubles[n] -= 1
            host.trouble_ended[n] = cluster.clock.now

    later(cluster, lasts, over)


# ── Lives ─────────────────────────────────────────────────────────────────────────────────────────────────────


def crash(cluster: Cluster, host: Host, lasts: float) -> None:
    if not host.alive:
        return
    held = [eip for eip in cluster.eips if host.answers(eip)]
    host.halt()
    cluster.promises.crashed(host, held)
    life = host.life
    later(cluster, lasts, lambda: cluster.boot(host) if host.life == life and not host.alive else None)


def crash_node(cluster: Cluster, host: Host, fault: Fault) -> None:
    crash(cluster, host, fault.lasts)


def crash_holder(cluster: Cluster, fault: Fault) -> None:
    for host in [host for host in cluster.hosts if host.answers(cluster.eips[fault.eip])][:1]:
        crash(cluster, host, fault.lasts)


def freeze(cluster: Cluster, host: Host, fault: Fault) -> None:
    if not host.alive or host.frozen_at is not None:
        return
    host.frozen_at, life = cluster.clock.now, host.life
    trouble(cluster, [host], None, fault.lasts)
    cluster.promises.disturbed()

    def thaw() -> None:
        if not host.alive or host.life != life or host.frozen_at is None:
            return
        cluster.trace.say(f"{host.name} thaws, {len(host.waiting)} wait")
        host.thaw()
        cluster.promises.disturbed()
        host.catch_up()

    later(cluster, fault.lasts, thaw)


# ── What an operator does ─────────────────────────────────────────────────────────────────────────────────────


def drain(cluster: Cluster, host: Host, fault: Fault) -> None:
    if not host.alive:
        return
    _begin_to_drain(cluster, host, fault)
    life = host.life

    def restart() -> None:
        if host.alive and host.life == life:
            crash(cluster, host, FOR_GOOD)
            cluster.boot(host)

    later(cluster, fault.lasts, restart)


def upgrade(cluster: Cluster, host: Host, fault: Fault) -> None:
    host.revision += 1
    drain(cluster, host, fault)


def drain_briefly(cluster: Cluster, host: Host, fault: Fault) -> None:
    if not host.alive or host.draining:
        return
    _begin_to_drain(cluster, host, fault)
    life = host.life

    def end() -> None:
        if host.alive and host.life == life:
            host.draining = False
            cluster.promises.disturbed()
            host.tell(Drain(on=False))

    later(cluster, fault.lasts, end)


def _begin_to_drain(cluster: Cluster, host: Host, fault: Fault) -> None:
    host.draining = True
    trouble(cluster, [host], None, fault.lasts)
    cluster.promises.disturbed()
    host.tell(Drain())


def rebalance(cluster: Cluster, host: Host, fault: Fault) -> None:
    def plan() -> None:
        host.step(Rebalance())
        cluster.promises.rebalanced(host.machine.rebalancing)

    host.do(plan)


def veto(cluster: Cluster, host: Host, fault: Fault) -> None:
    eip = cluster.eips[fault.eip]

    def change(eligible: bool) -> None:
        (host.ineligible.discard if eligible else host.ineligible.add)(eip)
        cluster.promises.disturbed()
        host.tell_eligibility(eip)

    trouble(cluster, [host], cluster.network.link_of[eip], fault.lasts)
    change(eligible=False)
    later(cluster, fault.lasts, lambda: change(eligible=True))


# ── The API ───────────────────────────────────────────────────────────────────────────────────────────────────


def cut_api(cluster: Cluster, host: Host, fault: Fault) -> None:
    host.api_cuts += 1

    def mend() -> None:
        host.api_cuts -= 1

    later(cluster, fault.lasts, mend)


def cut_api_of_others(cluster: Cluster, fault: Fault) -> None:
    for host in cluster.hosts:
        if not host.answers(cluster.eips[fault.eip]):
            cut_api(cluster, host, fault)


def delay_watch(cluster: Cluster, host: Host, fault: Fault) -> None:
    host.api_stale += 1

    def mend() -> None:
        host.api_stale -= 1

    later(cluster, fault.lasts, mend)


def delete_record(cluster: Cluster, fault: Fault) -> None:
    cluster.api.delete(cluster.eips[fault.eip])


def touch_record(cluster: Cluster, fault: Fault) -> None:
    _touch_until(cluster, cluster.eips[fault.eip], cluster.clock.now + fault.lasts)


def _touch_until(cluster: Cluster, eip: IPAddress, until: float) -> None:
    cluster.api.touch(eip)
    if cluster.clock.now < until:
        cluster.clock.after(0.003, lambda: _touch_until(cluster, eip, until))
