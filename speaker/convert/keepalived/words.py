"""The keywords of keepalived.conf(5), as of 2026-08 (9cbce3e), and for those without an equal here, what to say about
them.
"""

from typing import TypeAlias

from speaker.api.fields import names

Told: TypeAlias = tuple[str, ...]
"""Why a keyword is not converted, and what somebody has to decide if something is lost by that."""

_ALERTS = ("the speaker sends no mail", "alert on its metrics (docs/runbooks.md) or MQTT events (docs/mqtt.md)")
SCRIPTS = ("the speaker runs no scripts", "trigger what the script does from its metrics or MQTT events")
_ITSELF = ("is about keepalived itself",)
_REPORTS = ("is keepalived's own report: the speaker has metrics, a status page and MQTT",)
_VRRP = ("belongs to VRRP: speakers find each other by signed broadcasts (docs/ownership.md)",)
_TIMES = ("belongs to VRRP: a silent node counts as dead after half a second, or as --hello says",)
_MASTER = ("no node is configured as the master: the first holder stays the holder",)
_UNICAST = (
    "speakers find each other by broadcasts on the EIPs' own link",
    "make sure that all hosts are on one LAN: without broadcasts each would answer",
)
_KEY = ("hellos are signed with a 256-bit key", "make one with `speaker keygen`, and copy it to each host")
_GARP = ("a move is announced by gratuitous.burst packets, gratuitous.interval apart",)
_MAC = ("clients see the MAC of the host that answers, and learn the new one after a move",)
_BOUND = ("an EIP is not bound on any link of the LAN",)
_LINUX = ("is the host's own network configuration", "leave it to whatever configures the host's network")
_ROUTES = ("the speaker sets no routes or rules", "set them on every host, whether it holds the EIP or not")
TRACKED = (
    "scripts and other links do not decide who holds an EIP",
    "write a health check for the Service instead (docs/migration/keepalived.md)",
)
_GROUP = ("each EIP moves on its own", "make sure that no EIP depends on another one being on the same host")
_SYNC = (
    "connections are handed over when an EIP moves (docs/forwarding.md); no table is copied",
    "nothing, or read about --hand-over",
)
_CHECKED = ("a check has its own interval and begins at once",)
_WEIGHED = ("is what the speaker always does: an unwell endpoint gets no new connections, and is drained",)
_ALL = (
    "if no endpoint is well, all are used: a Service does not end below a number of endpoints",
    "nothing, or alert on the health check metrics",
)
_LIMITS = ("endpoints have no limit on connections", "limit them on the server")
_ONE_PACKET = ("the forwarder decides for each flow, not for each packet", "check clients that use one port for all")
_PERSISTENT = ("affinity is by the address of a single client", "use eip-speaker.io/scheduler: sh instead, or nothing")
_PROBE = ("a check sends from the node's own address to the endpoint itself", "check its own address and port")
_CHECK = ("is a check that the speaker cannot make: it can check TCP, HTTP and HTTPS", "check TCP or HTTP instead")
_CONTENT = ("a check reads the status, not the content", "serve a path whose status says enough")


def _table(*rows: tuple[str, Told]) -> dict[str, Told]:
    return {name: told for keywords, told in rows for name in keywords.split()}


TOP = _table(
    ("vrrp_script", ("is listed where it is tracked, below",)),
    ("vrrp_track_file track_file vrrp_track_process", ("is listed where it is tracked, below",)),
    ("static_ipaddress static_routes static_rules track_group", _LINUX),
    ("interface_up_down_delays linkbeat_interfaces linkbeat_use_polling garp_group", ("only a link's carrier counts",)),
    ("bfd_instance", ("the speaker does not use BFD: hosts notice each other's silence within half a second",)),
    ("SSL", ("an HTTPS check sends no certificate", "give its CA in the health check: ca=/FILE")),
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
OTHER_GLOBAL = ("is about keepalived itself, not about what it serves",)
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
    ("vrf", ("is a separate link here", "see which link serves the EIP with `speaker plan`")),
    ("dont_track_primary", ("a link without a carrier is never used", "nothing, if the link is an Ethernet port")),
    ("track_interface track_script track_file track_process track_bfd", TRACKED),
    ("virtual_routes virtual_rules", _ROUTES),
    (_NOTIFY, SCRIPTS),
    ("smtp_alert", _ALERTS),
    ("accept", ("is what the speaker does anyway",)),
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
    ("delay_before_retry", ("a failed check is repeated after the interval",)),
    ("smtp_alert", _ALERTS),
    ("snmp_name", _REPORTS),
)
_CHECKING = ("belongs to checks, and there is none",)
SERVER = _table(
    *_BOTH,
    ("delay_loop connect_timeout retry virtualhost", _CHECKING),
    ("inhibit_on_failure", _WEIGHED),
    ("ops", _ONE_PACKET),
    (
        "hashed flag-1 flag-2 flag-3 sh-fallback mh-fallback",
        ("schedulers have no such flags here", "nothing, or consider rr"),
    ),
    ("net_mask nat_mask", ("keepalived no longer reads it",)),
    ("persistence_engine persistence_granularity", _PERSISTENT),
    ("quorum hysteresis", _ALL),
    ("quorum_up quorum_down notify_up notify_down", SCRIPTS),
    ("sorry_server sorry_server_lvs_method sorry_server_inhibit", _ALL),
    ("uthreshold lthreshold", _LIMITS),
    ("ip_family", ("follows from the address",)),
    ("MISC_CHECK", ("is a check by a program, and the speaker runs no programs", "check TCP or HTTP instead")),
    ("SMTP_CHECK DNS_CHECK BFD_CHECK UDP_CHECK PING_CHECK FILE_CHECK", _CHECK),
)
"""Keywords of virtual and real servers: each has some of them."""
CHECK = _table(
    *_BOTH,
    ("connect_ip bindto bind_port bind_if fwmark", _PROBE),
    ("http_protocol fast_recovery tls_compliant enable_sni", ("is about how the check asks, not what",)),
    ("digest regex regex_no_match regex_options regex_min_offset regex_max_offset regex_stack", _CONTENT),
)
"""Keywords of a checker and its ``url``."""

SHOWN = names(
    "state interface virtual_router_id version advert_int priority nopreempt preempt_delay garp_master_refresh "
    "delay_loop virtual_server real_server lb_algo lvs_sched lb_kind lvs_method protocol persistence_timeout weight "
    "quorum sorry_server hysteresis retry nb_get_retry connect_timeout connect_port delay_before_retry "
    "uthreshold lthreshold path status_code unicast_src_ip mcast_src_ip use_vmac ip_family"
)
"""Keywords whose values are printed. Other values may be a secret, or a script's arguments that contain one."""
