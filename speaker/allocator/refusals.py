"""Why a Service does not get what it asks for."""

from dataclasses import dataclass
from enum import Enum

from speaker.model import IPAddress, ServiceKey


class RefusalReason(Enum):
    """The value is the metric label."""

    NO_SUCH_POOL = "no_such_pool"
    NO_POOL_FITS = "no_pool_fits"
    POOL_NOT_ALLOWED = "pool_not_allowed"
    POOL_DISABLED = "pool_disabled"
    POOL_FULL = "pool_full"
    NO_ADDRESS_OF_FAMILY = "no_address_of_family"
    ADDRESS_OF_OTHER_FAMILY = "address_of_other_family"
    ADDRESS_NOT_IN_POOL = "address_not_in_pool"
    ADDRESS_EXCLUDED = "address_excluded"
    ADDRESS_AVOIDED = "address_avoided"
    ADDRESS_IN_USE = "address_in_use"
    HOST_ADDRESS = "host_address"
    SHARED_PORT_CLASH = "shared_port_clash"
    SHARED_NAMESPACE = "shared_namespace"
    SHARED_BACKENDS = "shared_backends"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was not given. ``told`` is a sentence for the Service's owner that names what to change: of other tenants,
    and of pools and nodes that are not for it, it says nothing. ``more`` does, for who runs the cluster."""

    service: ServiceKey
    reason: RefusalReason
    told: str
    more: str = ""

    @property
    def message(self) -> str:
        """All of it: not for tenants."""
        return f"{self.told} ({self.more})" if self.more else self.told


def in_use(service: ServiceKey, other: ServiceKey, address: IPAddress, how: str, then: str) -> tuple[str, str]:
    """What a Refusal says of an address that ``other`` has: ``told`` and ``more``."""
    if other.namespace == service.namespace:
        return f"{address} is {how} Service {other}{then}", ""
    return f"{address} is {how} a Service of another namespace{then}", f"by {other}"
