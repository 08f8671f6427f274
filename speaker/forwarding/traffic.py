"""What a forwarder tells of the traffic it carries, for metrics. Pure."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Counts: TypeAlias = tuple[int, int, int, int, int]
"""Connections, packets in, packets out, bytes in, bytes out, since the virtual server was made."""
Name: TypeAlias = tuple[str, str, str]
"""A virtual server as labels: EIP, protocol, port."""
RealName: TypeAlias = tuple[str, str, str, str]
"""One of its real servers: ``address:port`` comes fourth."""


class Traffic(NamedTuple):
    """Only of virtual servers that have counted anything: every node has those of all EIPs, and traffic for a few.
    ``real_servers``: active and inactive connections."""

    virtual_servers: Mapping[Name, Counts]
    real_servers: Mapping[RealName, tuple[int, int]]


UNKNOWN = Traffic({}, {})
"""Of a forwarder that does not count."""
