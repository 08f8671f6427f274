"""Text of ``spec.addresses`` and ``spec.exclude`` → ``AddressRange``.

Four spellings, IPv4 and IPv6: a single address, ``a-b``, a CIDR, and ``a/netmask`` (IPv4 only, where netmasks were
ever written). Whatever could never be an EIP is refused here, so that nothing further in has to ask.
"""

from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from speaker.model import AddressRange, IPAddress, IPNetwork

#: Blocks no EIP can come from, with what they are. Link-local IPv4 and 240.0.0.0/4 are missing on purpose: Linux
#: resolves both by ARP like any other unicast address, and some sites use them.
NEVER_AN_EIP: tuple[tuple[IPNetwork, str], ...] = (
    (IPv4Network("0.0.0.0/8"), "'this network', never a destination (RFC 1122 section 3.2.1.3)"),
    (IPv4Network("127.0.0.0/8"), "loopback"),
    (IPv4Network("224.0.0.0/4"), "multicast"),
    (IPv4Network("255.255.255.255/32"), "the limited broadcast address"),
    (IPv6Network("::/128"), "the unspecified address"),
    (IPv6Network("::1/128"), "loopback"),
    (IPv6Network("::ffff:0:0/96"), "IPv4-mapped and never on the wire (RFC 4291 section 2.5.5.2): write it as IPv4"),
    (IPv6Network("fe80::/10"), "link-local: the same address exists on every link, so routers do not forward it"),
    (IPv6Network("ff00::/8"), "multicast"),
)


class NoNotation(ValueError):
    """Raised by ``parse_range`` for what is written as nothing that it knows."""


def parse_range(text: str) -> AddressRange:
    """The addresses that ``text`` names. Raises ValueError whose message is a sentence stating the broken rule."""
    text = text.strip()
    if "%" in text:
        raise ValueError("an EIP has no scope id: drop the '%' and what follows, and choose the link with 'interface'")
    if "-" in text:
        parsed = _from_to(*text.split("-", 1))
    elif "/" in text:
        parsed = _cidr(*text.split("/", 1))
    else:
        address = _address(text)
        parsed = AddressRange(address, address)
    _refuse_what_is_never_an_eip(parsed)
    return parsed


def _from_to(first_text: str, last_text: str) -> AddressRange:
    if "/" in first_text or "/" in last_text:
        raise ValueError("a range is written a-b with two plain addresses: leave out the prefix length")
    first, last = _address(first_text), _address(last_text)
    if isinstance(first, IPv4Address) and isinstance(last, IPv4Address):
        return _ordered(first, last, first > last)
    if isinstance(first, IPv6Address) and isinstance(last, IPv6Address):
        return _ordered(first, last, first > last)
    raise ValueError("both ends of a range must be of the same IP family")


def _ordered(first: IPAddress, last: IPAddress, is_reversed: bool) -> AddressRange:
    if is_reversed:
        raise ValueError(f"the first address of a range must not come after the last: did you mean {last}-{first}?")
    return AddressRange(first, last)


def _cidr(address_text: str, length_text: str) -> AddressRange:
    address = _address(address_text)
    length = _prefix_length(address, length_text.strip())
    network = ip_network((int(address), length) if address.version == 4 else (address.packed, length), strict=False)
    if network.network_address != address:
        raise ValueError(
            f"the address has bits set behind its /{length}: "
            f"write {network} for the whole network or {address} for the one address"
        )
    return AddressRange(network.network_address, network.broadcast_address, network)


def _prefix_length(address: IPAddress, text: str) -> int:
    if address.version == 4 and "." in text:
        return _netmask_length(text)
    # isascii: int() also takes digits of other scripts, which nobody means here.
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= address.max_prefixlen):
        form = "or a netmask such as 255.255.255.0 " if address.version == 4 else ""
        raise ValueError(f"what follows '/' must be a prefix length from 0 to {address.max_prefixlen} {form}".rstrip())
    return int(text)


def _netmask_length(text: str) -> int:
    try:
        mask = int(IPv4Address(text))
    except AddressValueError:
        raise ValueError("what follows '/' is neither a prefix length nor a netmask such as 255.255.255.0") from None
    host_bits = mask ^ 0xFFFFFFFF
    if host_bits & (host_bits + 1):  # ones after a zero: not of the form 1…10…0
        raise ValueError("a netmask is ones followed by zeros, such as 255.255.255.0 (a wildcard mask is not one)")
    return 32 - host_bits.bit_length()


def _address(text: str) -> IPAddress:
    text = text.strip()
    try:
        return ip_address(text)
    except ValueError:
        raise NoNotation(
            "must be a single address, a range a-b with both ends in full, a CIDR such as 192.0.2.0/24 or "
            "2001:db8::/64, or an IPv4 address with a netmask"
        ) from None


def _refuse_what_is_never_an_eip(parsed: AddressRange) -> None:
    first, last = int(parsed.first), int(parsed.last)
    for block, what in NEVER_AN_EIP:
        if block.version != parsed.first.version:
            continue
        if first <= int(block.broadcast_address) and int(block.network_address) <= last:
            named = f"{block.network_address}" if block.prefixlen == block.max_prefixlen else f"{block}"
            raise ValueError(f"may not contain an address that cannot be an EIP: {named} is {what}")
