"""The settings: turns every flag into a valid value, or raises a SettingError that says what would be valid."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from speaker.errors import SettingError, written
from speaker.model import NO_GROUP, Balancer, Forwarding, Group, IPAddress, with_port

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"(?=[-a-z0-9.]{{1,253}}(/|\Z)){_DNS_LABEL}(\.{_DNS_LABEL})*"
_NODE_NAME = re.compile(_SUBDOMAIN)
_GROUP_NAME = re.compile(rf"(?=.{{1,63}}\Z){_DNS_LABEL}")
_LABEL_KEY = re.compile(rf"({_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _address(text: str) -> IPAddress | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Bind:
    """Where metrics or a page listen: a literal address (not a name, as names differ from node to node) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return with_port(self.host, self.port)

    @staticmethod
    def parse(text: str, flag: str = "--metrics") -> "Bind | None":
        """``127.0.0.1:9900``, ``[::1]:9900``, or ``off``. Raises SettingError, which names the ``flag``."""
        if text == "off":
            return None
        host, colon, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        address, listens_at = _address(host), whole_number(port, 65535)
        if address is None or not colon or not listens_at:
            rule = "must be ADDRESS:PORT with a literal address and a port of 1-65535, or off"
            raise SettingError(f"{flag} {written(text)}: {rule}")
        return Bind(str(address), listens_at)


@dataclass(frozen=True, slots=True)
class Node:
    """This host as selectors and EndpointSlices see it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    excluded: bool = False
    """It must hold no EIP: label ``node.kubernetes.io/exclude-from-external-load-balancers``."""

    @staticmethod
    def parse(name: str, labels: str = "") -> "Node":
        """``labels`` is ``key=value,key=value``; ``kubernetes.io/hostname`` is always added."""
        if not _NODE_NAME.fullmatch(name):
            rule = "must be a DNS name in lower case (RFC 1123); it is how EndpointSlices name this host"
            raise SettingError(f"--node {written(name)}: {rule}")
        pairs: dict[str, str] = {}
        for part in filter(None, labels.split(",")):
            key, equals, value = part.partition("=")
            if not (equals and _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
                raise SettingError(
                    f"--node-labels {written(part)}: must be key=value, as a Kubernetes label is written"
                )
            if key in pairs:
                raise SettingError(f"--node-labels {written(part)}: names {key} again: must have one value")
            pairs[key] = value
        return Node(name, {"kubernetes.io/hostname": name, **pairs})


def parse_group(text: str) -> Group:
    """'' means no group. Raises SettingError."""
    if text and not _GROUP_NAME.fullmatch(text):
        rule = "must be a DNS label (RFC 1123): 1 to 63 letters in lower case, digits and '-', neither first nor last"
        raise SettingError(f"--group {written(text)}: {rule}")
    return Group(text)


def of_group(path: Path, group: Group) -> Path:
    """``path``; with a group, the directory's name also has the group's name."""
    return Path(*(f"{part}-{group.name}" if group.name and part == "eip-speaker" else part for part in path.parts))


DEFAULT_KEY = Path("/etc/speaker/key")
DEFAULT_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_HELLO_MS = 100
DEFAULT_ETHERTYPE = 0x88B5  # IEEE 802 local experimental EtherType 1

_HELLO_MS = 20, 1000
"""Below this, a busy host's own jitter looks like death (and the frames add up); above it, failover takes seconds."""

_NUMBER = re.compile("0[xX][0-9a-fA-F]{1,8}|[1-9][0-9]{0,8}")
"""int() would also take ' 1_00 ', and digits of other scripts."""
_TAKEN = {0x0800: "IPv4", 0x0806: "ARP", 0x86DD: "IPv6", 0x8100: "a VLAN tag", 0x88A8: "a VLAN tag"}


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Several hosts serve the same manifests: how they hear each other. The same on all of them."""

    key_file: Path = DEFAULT_KEY
    hello: float = DEFAULT_HELLO_MS / 1000
    """Seconds between two hellos; ``Parameters.for_hello`` accepts every value that comes from ``parse``."""
    ethertype: int = DEFAULT_ETHERTYPE
    revision: int = 0
    """Revision of what is installed here, 0 to 2³²-1: EIPs go first to hosts with a higher one. 0 means unknown."""
    hand_over: bool | None = None
    """Whether packets of connections that this host does not know go to the previous holder of their EIP. None: if this
    host forwards and its kernel can do it."""

    def hands_over(self, forwarder: Forwarding) -> bool:
        return forwarder.ours if self.hand_over is None else self.hand_over

    @staticmethod
    def of_agent(
        key_file: Path | None, hello: str | None, ethertype: str | None, revision: str, hand_over: bool | None = None
    ) -> "PeerSettings":
        """An agent always has peers."""
        found = PeerSettings.parse(True, key_file, hello, ethertype, hand_over)
        assert found is not None
        return replace(found, revision=number("--revision", revision, 0, 2**32 - 1))

    @staticmethod
    def parse(
        with_peers: bool,
        key_file: Path | None = None,
        hello: str | None = None,
        ethertype: str | None = None,
        hand_over: bool | None = None,
    ) -> "PeerSettings | None":
        """From the flags as written, None for a missing one; ``hello`` in milliseconds.

        None without ``--with-peers``, and then the other flags are refused: a host that was meant to have peers must
        not believe that it is alone.
        """
        if not with_peers:
            for flag, value in (("--key", key_file), ("--hello", hello), ("--ethertype", ethertype)):
                if value is not None:
                    raise SettingError(f"{flag} {value}: needs --with-peers: without it this host believes it is alone")
            if hand_over:
                raise SettingError("--hand-over: needs --with-peers: without peers no EIP ever moves")
            return None
        every = DEFAULT_HELLO_MS if hello is None else number("--hello", hello, *_HELLO_MS, "whole milliseconds")
        frame_type = DEFAULT_ETHERTYPE if ethertype is None else parse_ethertype(ethertype)
        return PeerSettings(key_file or DEFAULT_KEY, every / 1000, frame_type, hand_over=hand_over)


def parse_ethertype(text: str) -> int:
    found = int(text, 0) if _NUMBER.fullmatch(text) else -1
    if not 0x0600 <= found <= 0xFFFF:  # smaller values are lengths (IEEE 802.3 §3.2.6)
        raise SettingError(f"--ethertype {written(text)}: must be from 0x0600 to 0xFFFF, as 0x88B5 or decimal")
    if found in _TAKEN:
        taken = f"is {_TAKEN[found]}: must be one that nothing else on the LAN uses"
        raise SettingError(f"--ethertype {written(text)}: {taken}")
    return found


class Timeouts(NamedTuple):
    """Seconds of silence after which IPVS forgets a connection: an established TCP one, one that is closing, and a UDP
    one. 0 keeps the kernel's value."""

    tcp: int = 0
    tcp_fin: int = 0
    udp: int = 0


AS_THEY_ARE = Timeouts()

_MOST_SECONDS = 2**31 // 1000 - 1
"""The kernel takes at most INT_MAX ticks (ip_vs_set_timeout), and there may be 1,000 ticks in a second."""
_MOST_ENTRIES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the kernel's connection tables."""

    ipvs_timeouts: Timeouts = AS_THEY_ARE
    conntrack_max: int = 0
    """The kernel should track at least so many connections; 0 leaves the limit alone."""

    @staticmethod
    def parse(
        forwarder: Forwarding, ipvs_timeouts: str | None, conntrack_max: str | None, group: Group = NO_GROUP
    ) -> "Limits":
        """From the flags as written, None for a missing one."""
        if ipvs_timeouts is not None and group.name:
            raise SettingError(f"--ipvs-timeouts {ipvs_timeouts}: not with --group: IPVS has one set for all groups")
        if ipvs_timeouts is not None and forwarder is not Forwarding.IPVS:
            raise SettingError(f"--ipvs-timeouts {ipvs_timeouts}: needs --forwarder ipvs: they are IPVS's own")
        return Limits(
            ipvs_timeouts=AS_THEY_ARE if ipvs_timeouts is None else _timeouts(ipvs_timeouts),
            conntrack_max=0 if conntrack_max is None else number("--conntrack-max", conntrack_max, 1, _MOST_ENTRIES),
        )


def _timeouts(text: str) -> Timeouts:
    seconds = [whole_number(part, _MOST_SECONDS) for part in text.split(",")]
    if len(seconds) != 3 or None in seconds:
        raise SettingError(
            f"--ipvs-timeouts {written(text)}: must be TCP,TCPFIN,UDP in whole seconds from 0 (leave it as it is) to "
            f"{_MOST_SECONDS}"
        )
    return Timeouts(*(each or 0 for each in seconds))


def parse_balancers(text: str) -> frozenset[Balancer]:
    """``metallb,cilium``; '' means none."""
    names = [*filter(None, text.split(","))]
    if unknown := [name for name in names if name not in {*Balancer}]:
        rule = f"must be names of {', '.join(Balancer)}, separated by commas"
        raise SettingError(f"--honour-annotations {written(unknown[0])}: {rule}")
    return frozenset(map(Balancer, names))


def whole_number(text: str, most: int) -> int | None:
    """None if it is not a number from 0 to ``most``. isdecimal: int() would also take ' 1_00 '."""
    well = text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most
    return int(text) if well else None


def number(flag: str, text: str, least: int, most: int, what: str = "a whole number") -> int:
    """Raises SettingError, which names the ``flag``, for anything but a number from ``least`` to ``most``."""
    found = whole_number(text, max(most, 10**9 - 1))
    if found is None or not least <= found <= most:
        raise SettingError(f"{flag} {written(text)}: must be {what} from {least} to {most}")
    return found


def metrics_of_real_servers(asked: bool, forwarder: Forwarding) -> bool:
    """Whether /metrics also has every real server. Raises SettingError without IPVS, which counts them."""
    if asked and forwarder is not Forwarding.IPVS:
        raise SettingError("--metrics-real-servers: needs --forwarder ipvs: only IPVS counts their connections")
    return asked


DEFAULT_STATE = Path("/var/lib/eip-speaker/state.json")
AGENTS_NAMESPACE = "eip-speaker-agents"
"""Namespace of the agents' session Leases."""
DEFAULT_RUNTIME_DIR = Path("/run/eip-speaker")
DEFAULT_METRICS = "127.0.0.1:9900"
"""For speakers without a group, as two cannot listen at one address."""
DEFAULT_OUTLIVE = 30.0
"""Seconds for which the wire process goes on without a main process."""
DEFAULT_SETTLE = 30.0
"""Seconds after which a large removal counts, if it is still the case (``removals.py``)."""
DEFAULT_REST = 60.0
KUBEADMS_CA = Path("/etc/kubernetes/pki/ca.crt")
DEFAULT_API_PORT = "6443"
DEFAULT_IMAGE = "eip-speaker:dev"


_MQTT_PORTS = {"mqtts": 8883, "mqtt": 1883}
_MQTT_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}(/[A-Za-z0-9._-]{1,64}){0,7}")
_HOST_NAME = re.compile(r"\w([-\w]{0,61}\w)?(\.\w([-\w]{0,61}\w)?)*\.?")
DEFAULT_PREFIX = "eip-speaker"


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """A broker to publish states and events to. Files are read for every connection, as they may be replaced."""

    host: str
    port: int
    prefix: str = DEFAULT_PREFIX
    """Of all topics."""
    tls: bool = True
    ca: Path | None = None
    """Certificates of trusted authorities; None: the system's."""
    cert: Path | None = None
    key: Path | None = None
    """The key of our certificate; None: it is in the same file."""
    login: Path | None = None
    """A file with the user name and the password, one per line."""

    @property
    def broker(self) -> str:
        return with_port(self.host, self.port)

    @staticmethod
    def parse(
        url: str | None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        login: Path | None = None,
    ) -> "MqttSettings | None":
        """From the flags as written, None for a missing one. ``url``: ``mqtts://host:port/prefix``."""
        files = {"--mqtt-ca": ca, "--mqtt-cert": cert, "--mqtt-key": key, "--mqtt-login": login}
        given = [flag for flag, path in files.items() if path is not None]
        if url is None:
            if given:
                raise SettingError(f"{given[0]}: needs --mqtt: there is no broker to use it with")
            return None
        scheme, host, port, prefix = _mqtt_url(url)
        if scheme == "mqtt" and given and not (given == ["--mqtt-login"] and _is_loopback(host)):
            raise SettingError(f"{given[0]}: needs mqtts://: mqtt:// neither encrypts nor proves who the broker is")
        if key is not None and cert is None:
            raise SettingError(f"--mqtt-key {key}: needs --mqtt-cert: it is the key of that certificate")
        return MqttSettings(host, port, prefix, scheme == "mqtts", ca, cert, key, login)


def _mqtt_url(text: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and prefix. A refused value is not shown, as it may contain a password."""
    rule = (
        f"--mqtt: must be mqtts://HOST[:PORT][/PREFIX], or mqtt:// without TLS; PREFIX (default {DEFAULT_PREFIX}) has "
        "one to eight levels of letters, digits, '.', '_' and '-'"
    )
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise SettingError(rule) from error
    if url.username is not None or url.password is not None or "@" in text:
        raise SettingError(
            "--mqtt: must not have a user or password in it, which every user of this host could read: "
            "put them into a file for --mqtt-login"
        )
    prefix = url.path.strip("/") or DEFAULT_PREFIX
    host = url.hostname or ""
    well = url.scheme in _MQTT_PORTS and _is_host(host) and port != 0 and not set(text) & set("?#")
    if not well or not _MQTT_PREFIX.fullmatch(prefix):
        raise SettingError(rule)
    return url.scheme, host, port or _MQTT_PORTS[url.scheme], prefix


def _is_host(text: str) -> bool:
    """A literal address, or a name that can be looked up, in any script (IDNA)."""
    return _address(text) is not None or (len(text) <= 253 and _HOST_NAME.fullmatch(text) is not None)


def _is_loopback(host: str) -> bool:
    return host == "localhost" if (address := _address(host)) is None else address.is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """Settings of every command that serves."""

    metrics: Bind | None = None
    page: Bind | None = None
    """Where the status page listens; None: there is none."""
    mqtt: MqttSettings | None = None
    """None: there is no broker."""
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    settle_seconds: float = DEFAULT_SETTLE
    """How long a large removal has to last before it is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(ServingSettings):
    """Settings of every command that works on a node."""

    node: Node
    group: Group = NO_GROUP
    peers: PeerSettings | None = None
    """None: this host is the only one that serves these EIPs."""
    runtime_dir: Path = DEFAULT_RUNTIME_DIR
    """Facts about the running kernel, which are void after a reboot: must be on a tmpfs."""
    forwarder: Forwarding = Forwarding.NONE
    limits: Limits = field(default_factory=Limits)
    metrics_real_servers: bool = False
    """Whether /metrics also has every real server."""
    take_over: bool = False
    """Another load balancer still answers for the EIPs: they are taken when it falls silent."""
    in_kernel: bool = False
    """A program in the kernel answers plain requests, if the kernel accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings(NodeSettings):
    """All settings of ``speaker run``."""

    directory: Path
    state: Path = DEFAULT_STATE
    """The allocator's memory: which Service has which EIP. Losing it may move addresses."""
    forwarder: Forwarding = Forwarding.AUTO
    rest_seconds: float = DEFAULT_REST
    """How long a released address stays unused before another Service may have it."""
    honoured: frozenset[Balancer] = frozenset()
    """Other load balancers whose annotations on our Services are obeyed."""
