"""For unit tests: Hypothesis without deadlines, as a busy machine breaks no rule; objects as the API writes them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings

from speaker.cluster.kinds import EipObject, ServiceObject

settings.register_profile("unit", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")

Json = dict[str, Any]


@pytest.fixture
def service_object() -> Callable[..., ServiceObject]:
    """``service_object("web", age=3, ingress=["192.0.2.10"])``; ``age`` in hours."""

    def made(name: str, *, age: int = 0, ingress: Any = (), conditions: Any = (), **parts: Any) -> ServiceObject:
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": "7",
            "creationTimestamp": f"2026-01-01T{23 - age:02}:00:00Z",
            "annotations": {f"eip-speaker.io/{key}": value for key, value in parts.pop("annotations", {}).items()},
        }
        spec = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ports": [{"port": 80}], **parts}
        status = {
            "loadBalancer": {"ingress": [{"ip": each, "ipMode": "VIP"} for each in ingress]},
            "conditions": list(conditions),
        }
        return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, ServiceObject)

    return made


@pytest.fixture
def eip_object() -> Callable[..., EipObject]:
    def made(name: str, *addresses: str, age: int = 0, status: Any = None, **parts: Any) -> EipObject:
        metadata = {
            "name": name,
            "uid": name,
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": f"2026-01-01T{23 - age:02}:00:00Z",
            **parts.pop("metadata", {}),
        }
        spec = {"addresses": list(addresses), **parts}
        return msgspec.convert({"metadata": metadata, "spec": spec, "status": status or {}}, EipObject)

    return made
