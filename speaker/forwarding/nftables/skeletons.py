"""The fixed parts of our nft tables: sets, maps, and the rules that look things up in them. Pure."""

TABLE = "eip-speaker"
GUARD_TABLE = "eip-speaker-guard"
ASSIST_TABLE = "eip-speaker-assist"


def _both(text: str) -> str:
    """Lines about ``ip#`` twice: with ``ip`` and 4 for each ``#``, and with ``ip6`` and 6."""
    lines = text.splitlines(keepends=True)
    return "".join(_of(4, line) + _of(6, line) if "ip#" in line else line for line in lines)


def _of(version: int, line: str) -> str:
    return (line.replace("ip#", "ip") if version == 4 else line).replace("#", str(version))


_SETS = """
  set eips# { typeof ip# daddr; }
  # virtual servers that only some may reach, and who
  set restricted# { typeof ip# daddr . meta l4proto . th dport; }
  set sources# { typeof ip# daddr . meta l4proto . th dport . ip# saddr; flags interval; }
  # EIP, client, real server: client and real server are one host
  set hairpin# { typeof ip# daddr . ip# saddr . ip# daddr; }
  # real servers on this node
  set local# { typeof ip# daddr; }
  # EIP, real server, its port (nft 1.0.6 cannot look up `ct original proto-dst` together with an address)
  set masquerade# { typeof ip# daddr . ip# daddr . meta l4proto . th dport; }
"""

_SOURCES = """
    ip# daddr . meta l4proto . th dport @restricted# \
ip# daddr . meta l4proto . th dport . ip# saddr != @sources# drop comment "not a source range"
"""

# Where an EIP is bound, only this host speaks as the EIP: whoever else did could have what it then sends to it taken
# for replies, which the guard lets pass. Behind the kernel's martian check, which counts what it drops, and which IPv6
# has not. What it began before the EIP was here is stopped by its first packet, which is no reply to anything.
_SPOOFED = """
  chain spoofed_input {
    type filter hook input priority filter - 6; policy accept;
    iif != "lo" ip# saddr @eips# ct state new drop comment "nobody else speaks as an EIP"
  }
  chain spoofed_forward {
    type filter hook forward priority filter - 6; policy accept;
    iif != "lo" ip# saddr @eips# ct state new drop comment "nobody else speaks as an EIP"
  }
"""

_REPLIES = """
    ct state established,related ct direction reply meta l4proto != tcp return \
comment "to what the EIP itself began"
    ct state established,related ct direction reply tcp flags & (syn | ack) != syn return \
comment "to a connection the EIP itself opened"
"""

# The last chain is the same for both: without masquerade a reply from another host would bypass us and be refused by
# the client; a real server that connects to itself through us would answer itself directly. A socket of this host
# that talks to a bound EIP does so from that EIP: a real server would not know it for this node. Ports are random, as
# kube-proxy's are: a client's own port may be taken here, and of two connections that are given one port in the same
# instant one loses its first packet (kubernetes#56903).
_POSTROUTING = """
  chain postrouting {
    type nat hook postrouting priority srcnat - 5; policy accept;
    ct original ip# daddr . ip# saddr . ip# daddr @hairpin# masquerade fully-random comment "hairpin"
    ct original ip# daddr @eips# ip# saddr @eips# \
masquerade fully-random comment "from this node, where the EIP is bound"
    ip# daddr @local# return comment "replies pass here anyway"
    ct original ip# daddr . ip# daddr . meta l4proto . th dport @masquerade# \
masquerade fully-random comment "bring replies back"
  }
"""

_TRANSLATED = """\
  chain prerouting {
    type nat hook prerouting priority dstnat - 5; policy accept;
    jump translate comment "from outside"
  }
  chain output {
    type nat hook output priority -105; policy accept;
    jump translate comment "from this node"
  }
"""

# Translation happens at priority dstnat whatever a nat chain's own priority (net/netfilter/nf_nat_core.c); chains are
# asked in order, ours before kube-proxy's. What still has an EIP as destination afterwards was not translated: no
# virtual server, no usable real server, a broken segment, an untracked packet. It must reach neither a socket of this
# host nor the LAN again. Fragments were put together by conntrack before (priority -400).
FORWARDER = _both(
    _SETS
    + """
  map services# { typeof ip# daddr . meta l4proto . th dport : verdict; }
  chain translate {
"""
    + _SOURCES
    + """
    ip# daddr . meta l4proto . th dport vmap @services# comment "one chain per virtual server"
    ip daddr @eips4 icmp type echo-request redirect comment "an EIP can be pinged"
    ip6 daddr @eips6 icmpv6 type echo-request redirect comment "an EIP can be pinged"
  }
"""
    + _TRANSLATED
    + """\
  chain refuse {
"""
    + _REPLIES
    + """
    ct state invalid drop comment "a reset would let strangers end connections"
    meta l4proto { icmp, icmpv6 } drop comment "errors and neighbour discovery are never answered with errors"
    meta l4proto tcp reject with tcp reset comment "no such service"
    reject with icmpx type port-unreachable comment "no such service"
  }
  chain guard_prerouting {
    type filter hook prerouting priority dstnat + 5; policy accept;
    ip# daddr @eips# goto refuse comment "guard"
  }
  chain guard_output {
    type filter hook output priority -95; policy accept;
    ct state untracked tcp flags & syn == 0 return comment "a stray, handed over"
    ip# daddr @eips# goto refuse comment "guard"
  }
"""
    + _POSTROUTING
)

# IPVS takes its packets in the input hook at priority 99 (net/netfilter/ipvs/ip_vs_core.c, ip_vs_ops4), so what the
# guard returns there is IPVS's. ICMP passes: the kernel answers pings for a bound EIP, IPVS takes the errors. Some of
# an open port IPVS leaves to the host: what comes from port 20 (ip_vs_schedule), frames to more than our own MAC
# (ip_vs_in_hook), TCP without a SYN, and everything once somebody has cleared the virtual servers. Hence a second look;
# it resets even what conntrack finds invalid, such as the connections of the node that had the EIP before.
GUARD = _both(
    _SETS
    + _SPOOFED
    + """
  set ports# { typeof ip# daddr . meta l4proto . th dport; }
  chain input {
    type filter hook input priority filter - 5; policy accept;
    ip# daddr @eips# goto guard comment "guard"
  }
  chain guard {
    meta l4proto { icmp, icmpv6 } return comment "pings, errors, neighbour discovery"
"""
    + _REPLIES
    + _SOURCES
    + """
    ip# daddr . meta l4proto . th dport @ports# return comment "IPVS takes it"
    ct state invalid drop comment "a reset would let strangers end connections"
    meta l4proto tcp reject with tcp reset comment "no such service"
    reject with icmpx type port-unreachable comment "no such service"
  }
  chain input_after_ipvs {
    type filter hook input priority 110; policy accept;
    ip# daddr @eips# goto left_over comment "guard"
  }
  chain left_over {
    meta l4proto { icmp, icmpv6 } return comment "pings, errors, neighbour discovery"
"""
    + _REPLIES
    + """
    meta l4proto tcp reject with tcp reset comment "IPVS did not take it"
    reject with icmpx type port-unreachable comment "IPVS did not take it"
  }
"""
    + _POSTROUTING
)

# In front of kube-proxy, for a few virtual servers and for a short time. The first translation of a connection counts
# (net/netfilter/nf_nat_core.c, nf_nat_inet_fn). What these rules do not take is kube-proxy's as ever: clients outside
# source ranges, and TCP packets without SYN, which look new where conntrack has lost their connection. Kube-proxy
# masquerades whatever reaches an EIP of the policy Cluster, so this does, too. With kube-proxy's mark its rules let the
# connection pass where forwarded traffic is dropped by default (KUBE-FORWARD). As there, the mark is taken off before
# the packet is put into another one. If nobody renews it, all ends by itself.
ASSIST = _both(
    """
  # virtual servers that only some may reach, and who
  set restricted# { typeof ip# daddr . meta l4proto . th dport; }
  set sources# { typeof ip# daddr . meta l4proto . th dport . ip# saddr; flags interval; }
  # EIP, real server, its port
  set masquerade# { typeof ip# daddr . ip# daddr . meta l4proto . th dport; }
  map services# { typeof ip# daddr . meta l4proto . th dport : verdict; flags timeout; timeout 30s; }
  chain translate {
    meta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn return comment "it began elsewhere"
    ip# daddr . meta l4proto . th dport @restricted# \
ip# daddr . meta l4proto . th dport . ip# saddr != @sources# return comment "kube-proxy drops it"
    ip# daddr . meta l4proto . th dport vmap @services# comment "one chain per virtual server"
  }
"""
    + _TRANSLATED
    + """\
  chain postrouting {
    type nat hook postrouting priority srcnat - 5; policy accept;
    ct original ip# daddr . ip# daddr . meta l4proto . th dport @masquerade# \
meta mark set meta mark & 0xffffbfff masquerade fully-random comment "as kube-proxy does"
  }
"""
)
