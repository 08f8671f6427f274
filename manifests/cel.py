"""The rules of ``speaker.api`` for text in an ``Eip``, as CEL for its CRD. Pure.

Kubernetes' ``isIP`` and ``isCIDR`` read addresses as Python's ``ipaddress`` does, but for IPv4-mapped IPv6, which they
refuse. Their values know no order, so IPv4 is counted out as a number here; nothing does that for IPv6: a range that
runs backwards, or around a forbidden block, is left to the controller's condition.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network
from typing import Any, TypeAlias

from speaker.api.addresses import NEVER_AN_EIP, NEVER_ANOTHER_HOST
from speaker.api.eip import FAILBACK, IFNAMSIZ, MAX_FAILBACK, MIN_FAILBACK
from speaker.api.fields import DURATION, QUALIFIED, SUBDOMAIN
from speaker.model import IPNetwork

Rules: TypeAlias = list[dict[str, Any]]
"""The value of ``x-kubernetes-validations``."""

Blocks: TypeAlias = Iterable[tuple[IPNetwork, str]]


def rule(text: str, message: str) -> dict[str, Any]:
    return {"rule": text, "message": message}


# ── Addresses: one of four spellings ──────────────────────────────────────────────────────────────────────────
# The API server reckons what a rule may cost before it takes it, and takes parts of a `split` for as long as a request
# can be: hence `substring`, and no more of `split` than `int` takes. Likewise `a in [b]` costs nothing, `a == b` much.
# A rule passes over what breaks one before it, so that everything wrong is said once.

_RANGE = "self.contains('-')"
_SLASH = "(!self.contains('-') && self.contains('/'))"


def _before(sign: str) -> str:
    return f"self.substring(0, self.indexOf('{sign}')).trim()"


def _behind(sign: str) -> str:
    return f"self.substring(self.indexOf('{sign}') + 1).trim()"


_WHOLE = "self.trim()"
_FIRST, _LAST = _before("-"), _behind("-")
_NETWORK, _MASK = _before("/"), _behind("/")
_CIDR = f"{_NETWORK} + '/' + {_MASK}"

_ONES = "(255|254|252|248|240|224|192|128|0)"
_MASKS = "^(" + "|".join(r"255\\." * n + _ONES + r"\\.0" * (3 - n) for n in range(4)) + ")$"


def _is_ipv4(text: str) -> str:
    return f"isIP({text}) && ip({text}).family() == 4"


_IS_MASKED = f"({_MASK}.matches('{_MASKS}') && {_is_ipv4(_NETWORK)})"
_BOTH = f"(isIP({_FIRST}) && isIP({_LAST}))"
_BOTH_IPV4 = f"({_is_ipv4(_FIRST)} && {_is_ipv4(_LAST)})"

_SPELLINGS = (
    "must be a single address, a range a-b with both ends in full, a CIDR such as 192.0.2.0/24 or 2001:db8::/64, "
    "or an IPv4 address with a netmask such as 192.0.2.0/255.255.255.0"
)


def _number(text: str) -> str:
    octets = (f"int({text}.split('.')[{i}]) * {256 ** (3 - i)}" for i in range(4))
    return f"({' + '.join(octets)})"


def _ipv4_meets(first: str, last: str, blocks: Blocks) -> str:
    found = (
        f"{first} <= {int(block.broadcast_address)} && {last} >= {int(block.network_address)}"
        for block, _ in blocks
        if isinstance(block, IPv4Network)
    )
    return " || ".join(f"({each})" for each in found)


def _known(blocks: Blocks) -> list[str]:
    """As CEL's ``cidr`` takes them: not the IPv4-mapped one, in which no address is that ``isIP`` takes."""
    return [f"cidr('{block}')" for block, _ in blocks if not str(block).startswith("::ffff:")]


def _within(address: str, blocks: Blocks) -> str:
    return " || ".join(f"{block}.containsIP({address})" for block in _known(blocks))


def _shares(network: str, blocks: Blocks) -> str:
    """Whether two CIDRs have an address in common: one holds the other."""
    return " || ".join(
        f"{block}.containsCIDR({network}) || cidr({network}).containsCIDR({block})" for block in _known(blocks)
    )


def _named(blocks: Blocks) -> str:
    return ", ".join(str(block.network_address if block.num_addresses == 1 else block) for block, _ in blocks)


def _never(text: str) -> dict[str, Any]:
    return rule(text, f"may not contain an address that cannot be an EIP: {_named(NEVER_AN_EIP)}")


def addresses() -> Rules:
    """For one entry of ``addresses`` or ``exclude``."""
    first, last = _number(_FIRST), _number(_LAST)
    network, size = _number(_NETWORK), f"({2**32} - {_number(_MASK)})"
    return [
        rule(
            "!self.contains('%')",
            "an EIP has no scope id: drop the '%' and what follows, and choose the link with 'interface'",
        ),
        rule(
            f"self.contains('%') || ({_RANGE} ? {_BOTH} : {_SLASH} ? {_IS_MASKED} || isCIDR({_CIDR}) : isIP({_WHOLE}))",
            _SPELLINGS,
        ),
        rule(
            f"!{_RANGE} || !{_BOTH} || ip({_FIRST}).family() == ip({_LAST}).family()",
            "both ends of a range must be of the same IP family",
        ),
        rule(
            f"!{_RANGE} || !{_BOTH_IPV4} || {first} <= {last}",
            "the first address of a range must not come after the last",
        ),
        rule(
            f"!{_SLASH} || !isCIDR({_CIDR}) || cidr({_CIDR}) in [cidr({_CIDR}).masked()]",
            "the address has bits set behind its prefix length: write the network, or leave out the length for the "
            "one address",
        ),
        rule(
            f"!{_SLASH} || !{_IS_MASKED} || {network} % {size} == 0",
            "the address has bits set behind its netmask: write the network, or leave out the netmask for the one "
            "address",
        ),
        _never(f"!isIP({_WHOLE}) || !({_within(_WHOLE, NEVER_AN_EIP)})"),
        _never(f"!{_SLASH} || !isCIDR({_CIDR}) || !({_shares(_CIDR, NEVER_AN_EIP)})"),
        _never(f"!{_SLASH} || !{_IS_MASKED} || !({_ipv4_meets(network, f'{network} + {size} - 1', NEVER_AN_EIP)})"),
        _never(f"!{_RANGE} || !{_BOTH_IPV4} || !({_ipv4_meets(first, last, NEVER_AN_EIP)})"),
        _never(f"!{_RANGE} || !{_BOTH} || !({_within(_FIRST, NEVER_AN_EIP)} || {_within(_LAST, NEVER_AN_EIP)})"),
    ]


# ── interface ─────────────────────────────────────────────────────────────────────────────────────────────────

_CAN_REACH = "can_reach:"
# What Python's \s takes for a space, and RE2's does not.
_NAME = rf"[^\\s\\x{{0b}}\\x{{1c}}-\\x{{1f}}\\x{{85}}\\pZ/:,]{{1,{IFNAMSIZ - 1}}}"


def interface() -> Rules:
    target = f"self.substring({len(_CAN_REACH)})"
    names = "self.split(',')"
    return [
        rule(
            f"!self.contains(':') || self.startsWith('{_CAN_REACH}')",
            f"must be link names separated by commas, or {_CAN_REACH}IP",
        ),
        rule(
            f"!self.startsWith('{_CAN_REACH}') || isIP({target})",
            f"{_CAN_REACH} must be followed by an IP address, such as 192.0.2.10 or 2001:db8::10, without a scope id",
        ),
        rule(
            f"!self.startsWith('{_CAN_REACH}') || !isIP({target}) || !({_within(target, NEVER_ANOTHER_HOST)})",
            f"{_CAN_REACH} must be followed by the unicast address of a host, not one of {_named(NEVER_ANOTHER_HOST)}",
        ),
        rule(
            f"self.contains(':') || self.matches('^{_NAME}(,{_NAME})*$') && !self.matches('(^|,)[.]{{1,2}}(,|$)')",
            f"must be link names of 1-{IFNAMSIZ - 1} bytes without space, '/', ':' or ',', separated by commas",
        ),
        rule("self.contains(':') || !self.matches('(^|,)lo(,|$)')", "must not be lo: nobody on the LAN would hear it"),
        rule(f"self.contains(':') || {names}.all(n, {names}.exists_one(m, m in [n]))", "must name every link once"),
    ]


# ── gratuitous ────────────────────────────────────────────────────────────────────────────────────────────────


def seconds(unit_pattern: str, low: float, high: float, *, or_zero: bool = False) -> Rules:
    """A whole number of seconds, or text that is a duration. ``unit_pattern``: one number with its unit."""
    pattern = f"^({unit_pattern})+$".replace("\\", "\\\\")
    within = f"duration('{int(low * 1000)}ms') <= d && d <= duration('{int(high * 1000)}ms')"
    value = "[type(self) == int ? duration(string(self) + 's') : duration(self)]"
    zero = "d == duration('0s') || " if or_zero else ""
    limits = f"{'must be 0 (never), or ' if or_zero else 'must be '}from {low:g} to {high:g} seconds"
    return [
        rule(
            f"type(self) == int || self.matches('{pattern}')",
            "must be a whole number of seconds, or a duration such as 1.1s, 5m or 1h30m",
        ),
        rule(f"type(self) != int && !self.matches('{pattern}') || {value}.all(d, {zero}{within})", limits),
    ]


def failback() -> Rules:
    """``never``, or ``preferred-after`` and a duration."""
    pattern = f"^{FAILBACK} *({DURATION.pattern})+$".replace("\\", "\\\\")
    waits = f"duration(self.substring({len(FAILBACK)}).trim())"
    within = f"{waits} >= duration('{MIN_FAILBACK:g}s') && {waits} <= duration('{MAX_FAILBACK:.0f}s')"
    otherwise = f"must be never, or {FAILBACK.strip()} and a duration, such as {FAILBACK}5m"
    return [
        rule(f"self == 'never' || self.matches('{pattern}')", otherwise),
        rule(
            f"!self.matches('{pattern}') || ({within})",
            f"must be from {MIN_FAILBACK:g} to {MAX_FAILBACK:.0f} seconds",
        ),
    ]


# ── Labels ────────────────────────────────────────────────────────────────────────────────────────────────────

_KEY = f"^(({SUBDOMAIN.pattern})/)?{QUALIFIED.pattern}$".replace("\\", "\\\\")
_KEY_MESSAGE = "is no label key: 1-63 letters, digits, '-', '_' and '.', optionally after a DNS prefix and '/'"


def _is_key(text: str) -> str:
    return f"{text}.matches('{_KEY}') && (!{text}.contains('/') || {text}.split('/')[0].size() <= 253)"


def label_key() -> Rules:
    return [rule(_is_key("self"), _KEY_MESSAGE)]


def match_labels() -> Rules:
    """For a mapping of labels whose values are ``nullable``: an API server drops a null where it is not, and with it
    the requirement."""
    return [
        rule(f"self.all(k, {_is_key('k')})", f"holds a key that {_KEY_MESSAGE}"),
        rule("self.all(k, type(self[k]) == string)", "holds a key without a value: write '' for an empty value"),
    ]


def match_expression() -> Rules:
    given = "has(self.values) && self.values.size() > 0"
    return [
        rule(f"!(self.operator in ['In', 'NotIn']) || {given}", "In and NotIn need at least one value"),
        rule(
            f"!(self.operator in ['Exists', 'DoesNotExist']) || !({given})",
            "values must be left out for Exists and DoesNotExist",
        ),
    ]
