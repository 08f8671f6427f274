"""``keepalived.conf`` → pools, Services and their endpoints, and what became of each line.

The addresses of a ``vrrp_instance`` go into a pool for its instance and link, which gives an address only to a Service
that names it. A ``virtual_server`` at such an address becomes a Service, and its ``real_server`` become the endpoints.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import pairwise

from speaker.api.addresses import parse_eip, parse_host, parse_range
from speaker.api.eip import MAX_PREFERENCES, MAX_REFRESH, MIN_REFRESH
from speaker.api.endpoints import SERVICE_NAME
from speaker.api.fields import ApiObject, names
from speaker.api.service import (
    HEALTH_CHECK,
    HIGHEST,
    LOAD_BALANCER_CLASS,
    LONGEST,
    SCHEDULER,
    SCHEDULERS,
    SHORTEST,
    health_check,
)
from speaker.convert.document import Document, Listed
from speaker.convert.draft import Draft as Pool
from speaker.convert.draft import of_host
from speaker.convert.keepalived import words
from speaker.convert.keepalived.text import Passed, Read, Statement
from speaker.convert.services import Draft as Service
from speaker.errors import Place
from speaker.model import AddressRange, Family, IPAddress, Protocol, ServiceKey

MAX_SERVICES = 1000
NAMESPACE = "default"

_SCHEDULER, _PERSISTENCE = "wlc", 360
"""keepalived's defaults: ``IPVS_DEF_SCHED``, and ``IPVS_SVC_PERSISTENT_TIMEOUT`` in seconds."""
_MAX_PERSISTENCE = 86400
_PREEMPTS = 5
"""Seconds after which a router of higher priority takes over: a little more than three times ``advert_int``."""
_DELAY_LOOP, _CONNECT_TIMEOUT = 60.0, 5.0
"""keepalived's defaults, in seconds."""
_OWNER = "255"
"""The priority of a router that owns the address, and so always accepts packets to it (RFC 5798)."""

_CORRECT = "correct it and convert again"
_UNKNOWN = ("is not a known keyword, and might restrict something", "correct it or remove it")
_LEFT_OUT = ("is left out, as parts of it cannot be read", _CORRECT)

_INSTANCE = names(
    "interface virtual_ipaddress virtual_ipaddress_excluded priority nopreempt preempt preempt_delay no_accept "
    "strict_mode garp_master_refresh"
)
_SERVER = names(
    "lb_algo lvs_sched lb_kind lvs_method persistence_timeout protocol weight real_server sh-port mh-port "
    "delay_loop connect_timeout retry virtualhost TCP_CHECK HTTP_GET SSL_GET"
)
_CHECKERS = {"TCP_CHECK": "tcp", "HTTP_GET": "http", "SSL_GET": "https"}
_CHECK = names("delay_loop connect_timeout retry nb_get_retry connect_port url virtualhost sni_name path status_code")
_TABLES = {
    "global_defs": words.GLOBAL,
    "vrrp_sync_group": words.SYNC_GROUP,
    "vrrp_instance": words.INSTANCE,
    **dict.fromkeys(("virtual_server", "real_server"), words.SERVER),
    **dict.fromkeys((*_CHECKERS, "url"), words.CHECK),
}
"""Statements without an equal in a block that is converted, by the block's keyword."""
_CONVERTED = frozenset(_TABLES) | {"virtual_server_group", "vrrp_strict", "vrrp_garp_master_refresh"}
_KNOWN = frozenset().union(words.TOP, *_TABLES.values(), _CONVERTED, _INSTANCE, _SERVER, _CHECK, words.SHOWN)
_DIFFER = names("state priority router_id interface unicast_src_ip mcast_src_ip")
"""A difference between hosts in these loses nothing that hosts have in common."""

_OPTIONS, _FLAGS = (
    names("dev scope brd broadcast label peer preferred_lft"),
    names("home -nodad mngtmpaddr noprefixroute autojoin no_track use_vmac"),
)
"""Words behind an address: with a value, and without."""
_LABEL = 15
"""Characters of a link's name and so of a label (``IFNAMSIZ``)."""
_OTHER_FAMILY = (
    "is not of the family of the first address, so keepalived ignores it",
    "move it to virtual_ipaddress_excluded, and convert again",
)
_PROTOCOL = "write protocol TCP if that was meant, and convert again"
_ONE_EACH = "write each address on a line of its own, and convert again"

_SECRETS = names("auth_pass auth_hmac key password")
"""Keywords followed by a secret, in the right place or elsewhere."""
_SAFE = re.compile(r"[\w.:/%,-]{1,64}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}")
_HOST = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(slots=True)
class Site:
    """The result. ``slices``: EndpointSlices, by Service. ``lines``: everything that is listed about lines."""

    pools: list[Pool] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    slices: dict[ServiceKey, list[dict[str, object]]] = field(default_factory=dict)
    lines: Document = field(default_factory=lambda: Document(ApiObject({})))


@dataclass(slots=True)
class _Carried:
    """An address of an instance. ``shut``: it accepts no packets."""

    entry: Statement
    shut: bool
    services: list[Service] = field(default_factory=list)


@dataclass(slots=True)
class _Real:
    """``port`` 0 means the virtual server's port."""

    statement: Statement
    address: IPAddress
    port: int
    ready: bool
    check: str = ""
    """The annotation that stands for its checker, or ''."""


def site(read: Read) -> Site:
    """Converts a configuration that was read without problems."""
    made = _Site(read)
    made.instances()
    made.servers()
    made.unused()
    for statement in read.top:
        made.rest(statement, words.TOP)
    for line in read.passed:
        if line not in made.heeded:
            made.pass_over(line)
    made.found.lines.listed.sort(key=lambda each: (each.place.file, each.place.line))
    return made.found


@dataclass(slots=True)
class _Site:
    read: Read
    found: Site = field(default_factory=Site)
    carried: dict[IPAddress, _Carried] = field(default_factory=dict)
    ordered: list[IPAddress] = field(default_factory=list)
    """The addresses that instances have, once all are known."""
    told: set[tuple[Place, str]] = field(default_factory=set)
    names: Counter[str] = field(default_factory=Counter)
    """How many pools would have had that name."""

    others: dict[int, list[Passed]] = field(default_factory=dict)
    heeded: set[Passed] = field(default_factory=set)
    """Lines for other hosts that are converted."""

    @property
    def top(self) -> list[Statement]:
        return self.read.top

    # ── What became of a statement ──

    def leave(self, statement: Statement, why: str, do: str = "") -> None:
        """Lists it and everything in its block."""
        self.note(statement, why, do)
        _done(statement)

    def note(self, statement: Statement, why: str, do: str = "") -> None:
        listed = Listed(statement.place, _subject(statement), _path(statement), _value(statement), why, do)
        if (statement.place, why) not in self.told:
            self.told.add((statement.place, why))
            self.found.lines.listed.append(listed)

    def pass_over(self, line: Passed) -> None:
        keyword = line.words[0] if line.words and line.words[0] in _KNOWN | {"include"} else ""
        do = "" if keyword in _DIFFER else line.do
        self.found.lines.listed.append(Listed(line.place, line.condition, keyword, None, line.why, do))

    def rest(self, statement: Statement, table: dict[str, words.Told]) -> None:
        """Lists the statements that are not converted."""
        if not statement.done and statement.keyword in _CONVERTED - table.keys():
            statement.done = table is words.TOP
        if not statement.done:
            usual = words.OTHER_GLOBAL if table is words.GLOBAL else _UNKNOWN
            self.leave(statement, *table.get(statement.keyword, usual))
        for inner in statement.inner:
            self.rest(inner, _TABLES.get(statement.keyword, {}))

    def understood(self, statement: Statement, more: frozenset[str]) -> bool:
        """Whether every keyword of its block is known; if not, it is left out."""
        known = _TABLES[statement.keyword].keys() | more
        unknown = [inner for inner in statement.inner if inner.keyword not in known]
        for inner in unknown:
            self.leave(inner, *_UNKNOWN)
        if unknown:
            self.leave(statement, *_LEFT_OUT)
        return not unknown

    def last(self, statement: Statement, *keywords: str) -> Statement | None:
        """The last statement of these keywords, as keepalived uses that one."""
        said = [inner for inner in statement.inner if inner.keyword in keywords]
        for inner in said:
            inner.done = True
        for inner in said[:-1]:
            self.note(inner, "appears again below, and the last one counts")
        return said[-1] if said else None

    def number(self, statement: Statement | None, low: int, high: int, default: int) -> int:
        text = _argument(statement)
        if statement is None or (_NUMBER.fullmatch(text) and low <= int(text) <= high):
            return int(text) if statement is not None else default
        self.leave(statement, f"must be a number from {low} to {high}: {default} is used", _CORRECT)
        return default

    # ── vrrp_instance → pools ──

    def instances(self) -> None:
        self.others = self._for_others()
        strict = refresh = None
        for block in self._blocks("global_defs"):
            strict = self.last(block, "vrrp_strict") or strict
            refresh = self.last(block, "vrrp_garp_master_refresh") or refresh
        known: set[tuple[str, ...]] = set()
        for statement in self._blocks("vrrp_instance"):
            if len(statement.words) != 2 or statement.words in known:
                why = "keepalived skips it: its name is missing, not one word, or that of an instance above"
                self.leave(statement, why, "give it a name of its own, and each host's file alone")
            elif self.understood(statement, _INSTANCE):
                self._instance(statement, strict, refresh)
            known.add(statement.words)

    def _blocks(self, keyword: str) -> Iterator[Statement]:
        for statement in self.top:
            if statement.keyword == keyword and not statement.done:
                statement.done = True
                yield statement

    def _instance(self, statement: Statement, strict: Statement | None, refresh: Statement | None) -> None:
        link = _argument(self.last(statement, "interface"))
        shut = self._shut(statement, strict)
        refresh = self.last(statement, "garp_master_refresh") or refresh
        every = self.number(refresh, 0, int(MAX_REFRESH), 0)
        by_link: dict[str, list[IPAddress]] = {}
        listed = (entry for block in statement.inner if block.keyword == "virtual_ipaddress" for entry in block.inner)
        first = next(filter(None, map(_version, listed)), 0)
        for block in statement.inner:
            if block.keyword in ("virtual_ipaddress", "virtual_ipaddress_excluded"):
                block.done = True
                for entry in block.inner:
                    if block.keyword == "virtual_ipaddress" and _version(entry) not in (0, first):
                        self.leave(entry, *_OTHER_FAMILY)
                    elif (address := self._address(entry)) is not None:
                        self.carried[address] = _Carried(entry, shut)
                        dev = entry.words[entry.words.index("dev") + 1 :][:1] if "dev" in entry.words else ()
                        by_link.setdefault(dev[0] if dev else link, []).append(address)
        before = len(self.found.pools)
        for name, addresses in by_link.items():
            self._pool(statement, name, name != link and len(by_link) > 1, addresses, every)
        self._preference(statement, self.found.pools[before:])

    def _shut(self, statement: Statement, everywhere: Statement | None) -> bool:
        """Whether it accepts no packets to its addresses."""
        strict, refused = self.last(statement, "strict_mode"), self.last(statement, "no_accept")
        accepts = any(inner.keyword == "accept" for inner in statement.inner)
        owner = any(inner.words[:2] == ("priority", _OWNER) for inner in statement.inner)
        is_strict = _is_on(strict) if strict is not None else _is_on(everywhere)
        if not owner and (refused or (is_strict and not accepts)):
            why = "makes its addresses accept no packets: no Service is made of them"
            self.note(
                refused or strict or statement, why, "remove no_accept or vrrp_strict if they should be reachable"
            )
            return True
        return False

    def _address(self, entry: Statement) -> IPAddress | None:
        entry.done = True
        try:
            address = parse_eip(entry.keyword.partition("/")[0])
        except ValueError as error:
            self.leave(entry, f"cannot be an EIP: {error}", _CORRECT)
            return None
        if address in self.carried:
            self.leave(entry, f"{address} already appears at {self.carried[address].entry.place}: the first one counts")
            return None
        if not _version(entry):
            self.leave(entry, "keepalived skips it, as its options contradict each other", _CORRECT)
            return None
        options = iter(entry.words[1:])
        if any(word not in _FLAGS and not (word in _OPTIONS and next(options, "")) for word in options):
            self.note(entry, f"only {address} is read: a line has one address and its options", _ONE_EACH)
        if {*entry.words[1::2]} - {"dev"}:
            self.note(entry, "the speaker binds an EIP to no link: labels, scopes and the like have no effect")
        return address

    def _pool(self, statement: Statement, link: str, beside: bool, addresses: list[IPAddress], every: int) -> None:
        name = _slug(_argument(statement)) + (f"-{_slug(link)}" if beside else "")
        self.names[name] += 1
        name = name if self.names[name] == 1 else f"{name}--{self.names[name]}"
        heading = {"kind": statement.keyword, "metadata": {"name": _argument(statement)}}
        document = Document(ApiObject(heading, lambda _: statement.place))
        pool = Pool(document, name, [AddressRange(each, each) for each in addresses], auto_assign=False)
        pool.interface = link
        pool.gratuitous = {"refresh": max(every, int(MIN_REFRESH))} if every else {}
        self.found.pools.append(pool)

    def _preference(self, statement: Statement, pools: list[Pool]) -> None:
        """If lines ``@ID`` give each host's priority, the pools get these: an id is a host's name."""
        stays, delay = self.last(statement, "nopreempt"), self.last(statement, "preempt_delay")
        self.last(statement, "preempt")
        mine = self.last(statement, "priority")
        priorities = self._priorities(statement, mine)
        if len(priorities) < 2:
            for said in (mine, delay):
                if said is not None:
                    why = "no host is preferred, and the holder keeps an EIP: nothing is known about other hosts here"
                    self.leave(said, why, "nothing, or write nodePreference and failback (docs/manifests.md)")
            return
        ranks = sorted(set(priorities.values()), reverse=True)
        for pool in pools:
            pool.node_preference = [(100 - 5 * ranks.index(each), of_host(name)) for name, each in priorities.items()]
            pool.failback = "" if stays else f"preferred-after {max(1, self.number(delay, 0, 1000, _PREEMPTS))}s"

    def _priorities(self, statement: Statement, mine: Statement | None) -> dict[str, int]:
        """Host → priority."""
        lines = [each for each in self.others.get(id(statement), ()) if each.words[:1] == ("priority",)]
        others = {each.condition[1:]: each for each in lines if not each.condition.startswith("@^")}
        if mine is None or not others or len(others) >= MAX_PREFERENCES:
            return {}
        found = {self.read.config_id: _argument(mine)} | {
            name: " ".join(each.words[1:]) for name, each in others.items()
        }
        if not all(_NUMBER.fullmatch(each) and _HOST.fullmatch(name) for name, each in found.items()):
            return {}
        self.heeded.update(others.values())
        return {name: int(each) for name, each in found.items()}

    def _for_others(self) -> dict[int, list[Passed]]:
        """Lines ``@ID``, by the identity of the top block that they are in, as far as their places tell."""
        starts: dict[str, list[Statement]] = {}
        for each in sorted(self.top, key=lambda each: each.place.line):
            starts.setdefault(each.place.file, []).append(each)
        found: dict[int, list[Passed]] = {}
        for line in self.read.passed:
            here = starts.get(line.place.file, [])
            at = bisect_right(here, line.place.line, key=lambda each: each.place.line)
            if line.condition and at:
                found.setdefault(id(here[at - 1]), []).append(line)
        return found

    # ── virtual_server → Services ──

    def servers(self) -> None:
        groups = {_argument(each): each for each in reversed(self.top) if each.keyword == "virtual_server_group"}
        for statement in self._blocks("virtual_server"):
            kind = _argument(statement)
            if kind == "group":
                self._group(statement, groups.get(_argument(statement, 2)))
            elif kind == "fwmark":
                why = "packets are marked by rules that the speaker does not read"
                self.leave(statement, why, "write a virtual_server with its address and port, and convert again")
            elif (places := self._places(statement, _first(kind), _argument(statement, 2), statement)) is not None:
                self._server(statement, places)
        for group in groups.values():
            if not group.done:
                self.leave(group, "no virtual_server uses it")

    def _group(self, statement: Statement, group: Statement | None) -> None:
        if group is None:
            self.leave(statement, "names a virtual_server_group that does not exist", _CORRECT)
            return
        group.done = True
        places: list[tuple[IPAddress, int]] = []
        for entry in group.inner:
            entry.done = True
            if entry.keyword == "fwmark":
                self.leave(entry, "packets are marked by rules that the speaker does not read", "name address and port")
            elif (found := self._places(entry, entry.keyword, _argument(entry), entry)) is not None:
                places += found
        if places:
            self._server(statement, places)
        else:
            self.leave(statement, "is left out, as its group has no usable address and port")

    def _places(self, said: Statement, text: str, port: str, blamed: Statement) -> list[tuple[IPAddress, int]] | None:
        """The addresses that instances have, with the port. If there are none, leaves ``blamed`` out and
        returns None."""
        try:
            block = parse_range(_long_form(text))
        except ValueError as error:
            self.leave(blamed, f"cannot be an EIP: {error}", _CORRECT)
            return None
        if not (_NUMBER.fullmatch(port) and 0 < int(port) < 2**16):
            self.leave(blamed, "serves every port, or an invalid one", "write a virtual_server for each port")
            return None
        here = self._within(block)
        if not here:
            why = "no vrrp_instance has its address, so this file lets nobody answer for it"
            self.leave(blamed, why, "if the speaker should answer, write a pool and a Service for it")
            return None
        if any(self.carried[each].shut for each in here):
            self.leave(blamed, "its vrrp_instance accepts no packets, so nobody could reach it")
            return None
        if int(block.last) - int(block.first) >= len(here):
            self.note(said, f"only those of its addresses that a vrrp_instance has are served: {len(here)}")
        return [(each, int(port)) for each in here]

    def _within(self, block: AddressRange) -> list[IPAddress]:
        if block.first == block.last:
            return [block.first] if block.first in self.carried else []
        if not self.ordered:
            self.ordered = sorted(self.carried, key=_key)
        first, last = (
            bisect_left(self.ordered, _key(block.first), key=_key),
            bisect_right(self.ordered, _key(block.last), key=_key),
        )
        return self.ordered[first:last]

    def _server(self, statement: Statement, places: list[tuple[IPAddress, int]]) -> None:
        if len(self.found.services) + len(places) > MAX_SERVICES:
            self.leave(statement, f"there are more than {MAX_SERVICES} Services", "convert the file in parts")
            return
        if not self.understood(statement, _SERVER):
            return
        said = self.last(statement, "protocol")
        try:
            protocol = Protocol(_argument(said).upper()) if said is not None else Protocol.UDP
        except ValueError:
            self.leave(statement, "is left out: its protocol is not TCP, UDP or SCTP", _CORRECT)
            return
        if said is None:
            self.note(statement, "names no protocol, and keepalived then serves UDP: so does the Service", _PROTOCOL)
        real = self._real_servers(statement, {address.version for address, _ in places})
        if not real:
            self.leave(statement, "is left out, as it has no endpoint", "give it real servers, and convert again")
            return
        annotations = {SCHEDULER: self._scheduler(statement)}
        annotations |= self._one_check(real)
        spec = _affinity(self._affinity(statement))
        for address, port in places:
            self._service(statement, (address, port, protocol), annotations, spec, real)

    def _direct(self, statement: Statement, inherited: bool) -> bool:
        """Whether real servers get packets as clients sent them, and answer clients directly."""
        said = self.last(statement, "lb_kind", "lvs_method")
        if said is None:
            return inherited
        if _argument(said) in ("DR", "TUN"):
            why = "the forwarder translates addresses: servers see the node's address, and answer through the node"
            self.leave(said, why, "let servers listen on their own addresses, and remove the EIP from their links")
        elif _argument(said) != "NAT":
            self.leave(said, "is not NAT, DR or TUN: NAT is used", _CORRECT)
        return _argument(said) in ("DR", "TUN")

    def _scheduler(self, statement: Statement) -> str:
        said = self.last(statement, "lb_algo", "lvs_sched")
        name = _argument(said) or _SCHEDULER
        if said is not None and name not in SCHEDULERS:
            self.leave(said, f"is not an IPVS scheduler: {_SCHEDULER} is used, as in keepalived", _CORRECT)
            name = _SCHEDULER
        by_port = self.last(statement, f"{name}-port") if name in ("sh", "mh") else None
        return name if by_port is None else f"{name}-port"

    def _affinity(self, statement: Statement) -> int | None:
        said = self.last(statement, "persistence_timeout")
        if said is None or _argument(said) == "0":
            return None
        return self.number(said, 1, _MAX_PERSISTENCE, _PERSISTENCE) if _argument(said) else _PERSISTENCE

    def _real_servers(self, statement: Statement, families: set[int]) -> list[_Real]:
        usual = self.number(self.last(statement, "weight"), 0, 65535, 1)
        direct = self._direct(statement, inherited=False)
        found: list[_Real] = []
        weights: dict[int, Statement] = {}
        for each in statement.inner:
            if each.keyword == "real_server" and self.understood(each, _SERVER):
                each.done = True
                said = self.last(each, "weight")
                weight = self.number(said, 0, 65535, usual)
                if (real := self._endpoint(each, self._direct(each, direct), weight, families)) is not None:
                    real.check = self._check(each, statement, real.port)
                    found.append(real)
                    weights |= {weight: said or each} if weight else {}
        if len(weights) > 1:
            why = f"endpoints have no weights: {', '.join(map(str, sorted(weights)))} all become 1"
            self.note(weights[max(weights)], why, "nothing, or give the stronger server a second address")
        return found

    def _endpoint(self, statement: Statement, direct: bool, weight: int, families: set[int]) -> _Real | None:
        text, port = _argument(statement), _argument(statement, 2)
        try:
            address = parse_host(text)
        except ValueError as error:
            self.leave(statement, f"is left out: its address {error}", _CORRECT)
            return None
        if port.strip("0") and not (_NUMBER.fullmatch(port) and int(port) < 2**16):
            self.leave(statement, "is left out: its port is not valid", _CORRECT)
        elif address.version not in families:
            self.leave(statement, "is left out: its address is not of the EIP's family", _CORRECT)
        else:
            if direct and port.strip("0"):
                self.note(statement, "packets came to the virtual server's port, so that port is used here too")
            return _Real(statement, address, 0 if direct or not port.strip("0") else int(port), weight > 0)
        return None

    # ── Checkers → one health check ──

    def _check(self, real: Statement, server: Statement, port: int) -> str:
        checkers = [each for each in real.inner if each.keyword in _CHECKERS and self.understood(each, _CHECK)]
        for other in checkers[1:]:
            self.leave(other, "a Service has one check, and this endpoint has one already", "keep the best one")
        if not checkers:
            return ""
        checker = checkers[0]
        checker.done = True
        said = [f"{_CHECKERS[checker.keyword]}{self._url(checker)}"]
        chain = (checker, real, server)
        if (other_port := self._nearest(chain, "connect_port")) is not None:
            said.append(f"port={_argument(other_port)}")
        elif _argument(_last(server, "protocol")).upper() != "TCP":
            said.append(f"port={port or _argument(server, 2)}")
        said.append(f"interval={self._seconds(self._nearest(chain, 'delay_loop'), _DELAY_LOOP)}")
        said.append(f"timeout={self._seconds(self._nearest(chain, 'connect_timeout'), _CONNECT_TIMEOUT)}")
        retries = self.number(self._nearest(chain, "nb_get_retry", "retry"), 0, HIGHEST - 1, 1)
        said += ["rise=1", f"fall={retries + 1}", *self._http(checker, chain)]
        try:
            health_check(text := " ".join(said))
        except ValueError as error:
            self.leave(checker, f"cannot be a health check: it {error}", _CORRECT)
            return ""
        return text

    def _nearest(self, chain: tuple[Statement, ...], *keywords: str) -> Statement | None:
        said = [found for each in chain if (found := self.last(each, *keywords)) is not None]
        return said[0] if said else None

    def _url(self, checker: Statement) -> str:
        """'' for TCP. The first ``url`` counts."""
        urls = [each for each in checker.inner if each.keyword == "url" and self.understood(each, _CHECK)]
        for other in urls[1:]:
            self.leave(other, "a check asks for one path", "serve one path whose status covers all of them")
        for url in urls[:1]:
            url.done = True
        return "" if checker.keyword == "TCP_CHECK" else f":{_argument(_last(checker, 'url', 'path')) or '/'}"

    def _http(self, checker: Statement, chain: tuple[Statement, ...]) -> Iterator[str]:
        if checker.keyword == "TCP_CHECK":
            return
        url = _last(checker, "url")
        chain = chain if url is None else (url, *chain)
        self._nearest(chain, "path")
        status = self._nearest(chain, "status_code")
        yield f"status={','.join(status.words[1:])}" if status is not None else "status=200-299"
        name = self._nearest(chain, "virtualhost")
        sni = self._nearest(chain, "sni_name")
        if (said := name or sni) is not None:
            yield f"server-name={_argument(said)}"
        if sni is not None and name is not None and _argument(sni) != _argument(name):
            self.note(sni, "a check has one name: that of virtualhost is used")

    def _seconds(self, said: Statement | None, usual: float) -> str:
        try:
            seconds = float(_argument(said)) if said is not None else usual
        except ValueError:
            seconds = 0.0
        if not SHORTEST <= seconds <= LONGEST and said is not None:
            self.leave(said, f"must be {SHORTEST:g} to {LONGEST:g} seconds: {usual:g} is used", _CORRECT)
            seconds = usual
        return f"{seconds:g}s"

    def _one_check(self, real: list[_Real]) -> dict[str, str]:
        """The check that most endpoints have: in keepalived each real server has its own, here a Service has one."""
        counted = Counter(each.check for each in real if each.check)
        if not counted:
            return {}
        [(check, _)] = counted.most_common(1)
        for each in real:
            if each.check != check:
                self.note(
                    each.statement,
                    "a Service has one check: the one that most endpoints have",
                    "make sure that it suits this endpoint too",
                )
        return {HEALTH_CHECK: check}

    def _service(
        self,
        statement: Statement,
        place: tuple[IPAddress, int, Protocol],
        annotations: dict[str, str],
        spec: dict[str, object],
        real: list[_Real],
    ) -> None:
        address, port, protocol = place
        suffix = "" if protocol is Protocol.TCP else f"-{protocol.value.lower()}"
        key = ServiceKey(NAMESPACE, f"{_named(address)}-{port}{suffix}")
        heading = {"kind": statement.keyword, "metadata": {"name": f"{address} {port}"}}
        data: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": key.name, "namespace": key.namespace, "annotations": dict(annotations)},
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": LOAD_BALANCER_CLASS,
                "ipFamilies": [Family.of(address).value],
                "ports": [{"protocol": protocol.value, "port": port}],
                **spec,
            },
        }
        service = Service(Document(ApiObject(heading, lambda _: statement.place)), key, data, [address], present=True)
        carried = self.carried[address].services
        carried.append(service)
        for each in carried if len(carried) > 1 else ():
            each.share = _named(address)
        self.found.services.append(service)
        here = [each for each in real if each.address.version == address.version]
        self.found.slices.setdefault(key, [*_slices(key, place, here)])

    def unused(self) -> None:
        """Lists addresses that nobody would answer for any longer."""
        for address, each in self.carried.items():
            if not each.services and not each.shut:
                why = f"{address} has no virtual_server: it is in the pool, and answered for once a Service names it"
                self.note(
                    each.entry, why, "write a Service with the ports and endpoints (docs/migration/keepalived.md)"
                )


def _slices(key: ServiceKey, place: tuple[IPAddress, int, Protocol], real: list[_Real]) -> Iterator[dict[str, object]]:
    """One slice for each port."""
    address, port, protocol = place
    for number in sorted({each.port or port for each in real}):
        endpoints: list[dict[str, object]] = [
            {"addresses": [str(each.address)]} | ({} if each.ready else {"conditions": {"ready": False}})
            for each in real
            if (each.port or port) == number
        ]
        yield {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{key.name}-{number}",
                "namespace": key.namespace,
                "labels": {SERVICE_NAME: key.name},
            },
            "addressType": Family.of(address).value,
            "ports": [{"protocol": protocol.value, "port": number}],
            "endpoints": endpoints,
        }


def _affinity(seconds: int | None) -> dict[str, object]:
    config = {"clientIP": {"timeoutSeconds": seconds}}
    return {} if seconds is None else {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}


# ── What is printed of a statement ────────────────────────────────────────────────────────────────────────────


def _done(statement: Statement) -> None:
    statement.done = True
    for inner in statement.inner:
        _done(inner)


def _subject(statement: Statement) -> str:
    while statement.parent is not None:
        statement = statement.parent
    if statement.keyword not in _CONVERTED | words.TOP.keys():
        return ""
    parts = statement.words[: 3 if statement.keyword == "virtual_server" else 2]
    return "/".join(parts if _may_be_shown(parts) else parts[:1])


def _path(statement: Statement) -> str:
    """Keywords from the block down. An unknown one is left out, as it may be a secret in the wrong place."""
    steps: list[str] = []
    each: Statement | None = statement
    while each is not None and each.parent is not None:
        steps.insert(0, each.keyword if each.keyword in _KNOWN else "")
        each = each.parent
    return ".".join(step for step in steps if step)


def _value(statement: Statement) -> str | None:
    said = statement.words[1:]
    if statement.parent is None or statement.keyword not in words.SHOWN or not _may_be_shown(said):
        return None
    return " ".join(said) or None


def _may_be_shown(said: tuple[str, ...]) -> bool:
    return all(map(_SAFE.fullmatch, said)) and not _SECRETS.intersection(said)


def _key(address: IPAddress) -> tuple[int, int]:
    return address.version, int(address)


def _last(statement: Statement, *keywords: str) -> Statement | None:
    """The last of the first keyword in its block, then the last of the next keyword in that block, and so on."""
    found: Statement | None = statement
    for keyword in keywords:
        found = next((each for each in reversed(found.inner) if each.keyword == keyword), None) if found else None
    return found


def _argument(statement: Statement | None, number: int = 1) -> str:
    return statement.words[number] if statement is not None and len(statement.words) > number else ""


def _is_on(statement: Statement | None) -> bool:
    return statement is not None and _argument(statement) not in ("off", "no", "false")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-") or "pool"


def _version(entry: Statement) -> int:
    """The family of an address, 0 if ``alloc_ipaddress`` of keepalived skips the line: for two links, a long label, a
    broadcast of IPv6, or an option without its value."""
    options = entry.words[1:]
    try:
        version = ip_address(entry.keyword.partition("/")[0]).version
    except ValueError:
        return 0
    long_label = any(word == "label" and len(value) > _LABEL for word, value in pairwise(options))
    broadcast = version == 6 and not {"brd", "broadcast"}.isdisjoint(options)
    odd = options.count("dev") > 1 or long_label or broadcast or not _OPTIONS.isdisjoint(options[-1:])
    return 0 if odd else version


def _named(address: IPAddress) -> str:
    """Never the same for two addresses."""
    return f"vip-{address}".replace(":", "-").replace(".", "-")


def _first(text: str) -> str:
    """Outside a group keepalived reads only the first address of a range, and no prefix length."""
    return re.split("[-/]", text)[0]


_SHORT = re.compile(r"(.*[.:])([0-9A-Fa-f]+)-([0-9A-Fa-f]+)")


def _long_form(text: str) -> str:
    """``192.0.2.1-10`` as a range of two addresses."""
    found = _SHORT.fullmatch(text)
    return f"{found[1]}{found[2]}-{found[1]}{found[3]}" if found else text
