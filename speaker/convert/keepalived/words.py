"""The keywords of keepalived.conf(5), as of 2026-08 (9cbce3e), and what each of those is here that has no equal."""

from typing import TypeAlias

from speaker.api.fields import names

Told: TypeAlias = tuple[str, ...]
"""Why a keyword is not converted, and what somebody has to decide where something is lost by that."""

_ALERTS = ("the speaker sends no mail", "alert on its metrics (docs/runbooks.md) or MQTT events (docs/mqtt.md)")
SCRIPTS = ("the speaker runs no scripts", "let what the script does follow from its metrics or MQTT events")
_ITSELF = ("is about keepalived itself",)
_REPORTS = ("is keepalived's own report: the speaker has metrics, a status page and MQTT",)
_VRRP = ("is of VRRP: speakers find each other by signed broadcasts (docs/ownership.md)",)
_TIMES = ("is of VRRP: a silent node is dead after half a second, or as --hello says",)
_MASTER = ("no node is the master by what is written: the first holder stays the holder",)
_UNICAST = (
    "speakers find each other by broadcasts on the EIPs' own link",
    "make sure that all hosts are on one LAN: without broadcasts each of them would answer",
)
_KEY = ("hellos are signed with a key of 256 bits", "make it with `speaker keygen`, and copy it to each host")
_GARP = ("a move is announced by gratuitous.burst packets, gratuitous.interval apart",)
_MAC = ("clients see the MAC of the host that answers, and learn it anew at a move",)
_BOUND = ("an EIP is bound on no link of the LAN",)
_LINUX = ("is the host's own network configuration", "leave it to what configures the host's network")
_ROUTES = ("the speaker sets no routes or rules", "set them on each host, whether it holds the EIP or not")
TRACKED = (
    "who holds an EIP does not follow from scripts or other links",
    "write a health check of the Service that stands for it (docs/migration/keepalived.md)",
)
_GROUP = ("each EIP moves by itself", "make sure that no EIP needs another one on the same host")
_SYNC = (
    "moves hand connections over (docs/forwarding.md), and no table is copied",
    "nothing, or read about --hand-over",
)
_CHECKED = ("a check has its own interval, and begins at once",)
_WEIGHED = ("is what the speaker always does: who is unwell gets nothing new, and is drained",)
_ALL = (
    "when no endpoint is well all are served: there is no number of them below which a Service ends",
    "nothing, or alert on the metrics of the checks",
)
_LIMITS = ("endpoints have no limit of connections", "limit them on the server")
_ONE_PACKET = ("the forwarder decides for each flow, not for each packet", "look at clients that use one port for all")
_PERSISTENT = ("affinity is of single clients' addresses", "use eip-speaker.io/scheduler: sh instead, or nothing")
_PROBE = ("a check sends from the node's own address, to the endpoint itself", "check it by its own address and port")
_CHECK = ("is a check that the speaker does not make: it knows TCP, HTTP and HTTPS", "check TCP or HTTP instead")
_CONTENT = ("a check reads the status, not the content", "serve a path whose status tells")


def _table(*rows: tuple[str, Told]) -> dict[str, Told]:
    return {name: told for keywords, told in rows for name in keywords.split()}


TOP = _table(
    ("vrrp_script", ("is what tracks say below",)),
    ("vrrp_track_file track_file vrrp_track_process", ("is what tracks say below",)),
    ("static_ipaddress static_routes static_rules track_group", _LINUX),
    ("interface_up_down_delays linkbeat_interfaces linkbeat_use_polling garp_group", ("a link counts by its carrier",)),
    ("bfd_instance", ("the speaker speaks no BFD: hosts miss each other within half a second",)),
    ("SSL", ("a check of HTTPS sends no certificate", "give its CA in the health check: ca=/FILE")),
    ("net_namespace net_namespace_ipvs", ("is where keepalived runs", "run the speaker there")),
    ("namespace_with_ipsets use_pid_dir instance child_wait_time", _ITSELF),
)
GLOBAL = _table(
    ("notification_email smtp_alert smtp_alert_vrrp smtp_alert_checker", _ALERTS),
    ("notify_fifo vrrp_notify_fifo lvs_notify_fifo", SCRIPTS),
    ("notify_fifo_script vrrp_notify_fifo_script lvs_notify_fifo_script startup_script shutdown_script", SCRIPTS),
    ("lvs_sync_daemon", _SYNC),
    ("lvs_timeouts", ("is a flag of the speaker", "give it --ipvs-timeouts")),
)
OTHER_GLOBAL = ("is about keepalived itself, and not about who is served",)
_NOTIFY = "notify notify_master notify_backup notify_fault notify_stop notify_deleted notify_master_rx_lower_pri"
INSTANCE = _table(
    ("state", _MASTER),
    ("virtual_router_id version advert_int mcast_src_ip unicast_src_ip mcast_dst_ip native_ipv6 debug", _VRRP),
    ("v3_checksum_as_v2 old_unicast_checksum skip_check_adv_addr check_unicast_src unicast_ttl", _VRRP),
    ("unicast_fault_no_peer lower_prio_no_advert higher_prio_send_advert kernel_rx_buf_size", _VRRP),
    ("no_virtual_ipaddress linkbeat_use_polling track_src_ip notify_priority_changes", _VRRP),
    ("owner_ignore_adverts", _VRRP),
    ("down_timer_adverts thread_timer_expired timer_expired_backup", _TIMES),
    ("unicast_peer", _UNICAST),
    ("authentication auth_hmac", _KEY),
    ("garp_master_delay garp_master_repeat garp_lower_prio_delay garp_lower_prio_repeat garp_extra_if", _GARP),
    ("garp_master_refresh_repeat garp_extra_if_vmac vmac_garp_intvl", _GARP),
    ("lvs_sync_daemon_interface", _SYNC),
    ("use_vmac use_vmac_addr vmac_xmit_base use_ipvlan", _MAC),
    ("promote_secondaries", _BOUND),
    ("vrf", ("is a link of its own here", "see which link serves the EIP, by `speaker plan`")),
    ("dont_track_primary", ("a link without a carrier is never used", "nothing, if the link has an Ethernet port")),
    ("track_interface track_script track_file track_process track_bfd", TRACKED),
    ("virtual_routes virtual_rules", _ROUTES),
    (_NOTIFY, SCRIPTS),
    ("smtp_alert", _ALERTS),
    ("accept", ("is as it is here",)),
)
SYNC_GROUP = _table(
    ("group", _GROUP),
    ("track_interface track_script track_file track_process track_bfd", TRACKED),
    (_NOTIFY, SCRIPTS),
    ("smtp_alert", _ALERTS),
    ("global_tracking sync_group_tracking_weight notify_priority_changes", _VRRP),
)
_BOTH = (
    ("alpha omega warmup ha_suspend log_all_failures", _CHECKED),
    ("delay_before_retry", ("what failed is checked again after the interval",)),
    ("smtp_alert", _ALERTS),
    ("snmp_name", _REPORTS),
)
_CHECKING = ("is of checks, and there is none",)
SERVER = _table(
    *_BOTH,
    ("delay_loop connect_timeout retry virtualhost", _CHECKING),
    ("inhibit_on_failure", _WEIGHED),
    ("ops", _ONE_PACKET),
    (
        "hashed flag-1 flag-2 flag-3 sh-fallback mh-fallback",
        ("schedulers have no such flags here", "nothing, or look at rr"),
    ),
    ("net_mask nat_mask", ("keepalived reads it no more",)),
    ("persistence_engine persistence_granularity", _PERSISTENT),
    ("quorum hysteresis", _ALL),
    ("quorum_up quorum_down notify_up notify_down", SCRIPTS),
    ("sorry_server sorry_server_lvs_method sorry_server_inhibit", _ALL),
    ("uthreshold lthreshold", _LIMITS),
    ("ip_family", ("follows from the address",)),
    ("MISC_CHECK", ("is a check by a program, and the speaker runs none", "check TCP or HTTP instead")),
    ("SMTP_CHECK DNS_CHECK BFD_CHECK UDP_CHECK PING_CHECK FILE_CHECK", _CHECK),
)
"""Of virtual and real servers: each has some of them."""
CHECK = _table(
    *_BOTH,
    ("connect_ip bindto bind_port bind_if fwmark", _PROBE),
    ("http_protocol fast_recovery tls_compliant enable_sni", ("is how the check speaks, not what it asks",)),
    ("digest regex regex_no_match regex_options regex_min_offset regex_max_offset regex_stack", _CONTENT),
)
"""Of a checker and its ``url``."""

SHOWN = names(
    "state interface virtual_router_id version advert_int priority nopreempt preempt_delay garp_master_refresh "
    "delay_loop virtual_server real_server lb_algo lvs_sched lb_kind lvs_method protocol persistence_timeout weight "
    "quorum sorry_server hysteresis retry nb_get_retry connect_timeout connect_port delay_before_retry "
    "uthreshold lthreshold path status_code unicast_src_ip mcast_src_ip use_vmac ip_family"
)
"""Keywords whose values are printed. Others may hold a secret, or the arguments of a script that do."""
