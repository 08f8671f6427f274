"""Each kind of fault, and what inflicts it. All are undone after ``Fault.lasts``."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from simulation import link_faults, node_faults
from simulation.cluster import Cluster
from simulation.host import Host
from simulation.schedule import Fault, Kind

_Inflict: TypeAlias = Callable[[Cluster, Fault], None]


def _each(work: Callable[[Cluster, Host, Fault], None]) -> _Inflict:
    """On each of the fault's nodes by itself."""

    def inflict(cluster: Cluster, fault: Fault) -> None:
        for node in fault.nodes:
            work(cluster, cluster.hosts[node], fault)

    return inflict


FAULTS: dict[Kind, _Inflict] = {
    Kind.PARTITION: link_faults.part,
    Kind.ONE_WAY: link_faults.cut_one_way,
    Kind.PAIR: link_faults.cut_pair,
    Kind.DEAF: _each(partial(link_faults.sever, hears=False, speaks=True)),
    Kind.MUTE_ALL: _each(partial(link_faults.sever, hears=True, speaks=False)),
    Kind.BLACKOUT: _each(partial(link_faults.sever, hears=False, speaks=False)),
    Kind.UNFLOODED: _each(link_faults.stop_flooding),
    Kind.UNANSWERING: _each(link_faults.filter_port),
    Kind.THROTTLED: _each(link_faults.filter_port),
    Kind.UNASKED: _each(link_faults.filter_port),
    Kind.LOSSY: _each(link_faults.wear_out),
    Kind.HELLOS_EATEN: link_faults.eat_hellos,
    Kind.BURST: link_faults.hold_frames,
    Kind.GATEWAY_SILENT: _each(link_faults.silence_gateway),
    Kind.CRASH: _each(node_faults.crash_node),
    Kind.CRASH_HOLDER: node_faults.crash_holder,
    Kind.FREEZE: _each(node_faults.freeze),
    Kind.API_OUTAGE: _each(node_faults.cut_api),
    Kind.API_OUTAGE_OTHERS: node_faults.cut_api_of_others,
    Kind.STALE_WATCH: _each(node_faults.delay_watch),
    Kind.RECORD_TOUCHED: node_faults.touch_record,
    Kind.RECORD_DELETED: node_faults.delete_record,
    Kind.DRAIN: _each(node_faults.drain),
    Kind.UPGRADE: _each(node_faults.upgrade),
    Kind.BRIEF_DRAIN: _each(node_faults.drain_briefly),
    Kind.REBALANCE: _each(node_faults.rebalance),
    Kind.INELIGIBLE: _each(node_faults.veto),
    Kind.CABLE: _each(link_faults.pull_cable),
    Kind.WRONG_KEY: _each(link_faults.give_wrong_key),
    Kind.REPLAY: link_faults.replay,
    Kind.SEND_FAILS: _each(link_faults.refuse_hellos),
    Kind.KEY_ROTATION: link_faults.rotate_keys,
    Kind.STRANGER: link_faults.let_stranger_in,
}
