"""Edge: which Services have kube-proxy send an EIP elsewhere than to the Service that has it (CVE-2020-8554).

Two ways lead there, and Kubernetes stops neither by itself: whoever may write Services may list any address in
``spec.externalIPs``, and whoever may write their statuses may put any address there. Read where somebody asks, with
that person's rights: neither agents nor the controller keep other Services, and a tenant is not to hear of another.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, ip_address

import msgspec

from speaker.api.kinds import SERVICES, AssignedStatus
from speaker.api.objects import Object
from speaker.checks import Finding
from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client, listed
from speaker.errors import EdgeError
from speaker.model import IPAddress

_ZEROS = re.compile(r"(?<![0-9a-fA-F:.])0+(?=\d)|(?<=\.)0+(?=\d)")
"""Leading zeros of the parts of an IPv4 address; in IPv6 they mean nothing."""


class NamingSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")


class NamingObject(Object, frozen=True, gc=False):
    """A Service, by what kube-proxy forwards for it besides its cluster IP."""

    spec: NamingSpec = NamingSpec()
    status: AssignedStatus = AssignedStatus()

    @property
    def named(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


async def taking(access: Access) -> tuple[list[Finding], dict[str, str]]:
    """What is found, and why it cannot be told; {} where it can."""
    try:
        async with Client(await configure(access)) as client:
            return findings(await listed(client, SERVICES, NamingObject)), {}
    except EdgeError as error:
        return [], {"Services of the API": str(error)}


def findings(found: Iterable[NamingObject]) -> list[Finding]:
    """Pure."""
    naming = [*found]
    owners: dict[IPAddress, str] = {}
    for each in naming:
        if each.status.is_ours:
            owners |= dict.fromkeys(_in_status(each), each.named)
    return [one for each in naming for one in _of(each, owners)]


def _of(found: NamingObject, owners: dict[IPAddress, str]) -> Iterator[Finding]:
    namespace, name = found.metadata.namespace, found.metadata.name
    edit = f"kubectl -n {namespace} edit service {name}"
    for eip in sorted({*_addresses(found.spec.external_ips)} & owners.keys(), key=str):
        whose = "its own EIP" if owners[eip] == found.named else f"the EIP of {owners[eip]}"
        what = f"Service {found.named} lists {eip}, {whose}, in spec.externalIPs: kube-proxy forwards it as well"
        mend = f"{edit}   # without it; and turn on the admission plugin DenyServiceExternalIPs"
        yield Finding("external_ips", what, mend, str(eip))
    for eip in () if found.status.is_ours else sorted({*_in_status(found)} & owners.keys(), key=str):
        what = f"the status of Service {found.named} has {eip}, the EIP of {owners[eip]}, and not from the speaker"
        mend = f"{edit} --subresource=status   # without it; and see who may write services/status"
        yield Finding("external_ips", what, mend, str(eip))


def _in_status(found: NamingObject) -> Iterator[IPAddress]:
    return _addresses(each.ip for each in found.status.load_balancer.ingress)


def _addresses(texts: Iterable[str]) -> Iterator[IPAddress]:
    """As kube-proxy reads them (``ParseIPSloppy``): with leading zeros, and IPv4 that is written as IPv6."""
    for text in texts:
        try:
            address = ip_address(_ZEROS.sub("", text))
        except ValueError:
            continue
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        yield mapped or address
