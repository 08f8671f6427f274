"""What an API holds after the writes of a controller."""

from typing import Any

import msgspec

from speaker.api.kinds import ServiceObject


def written(found: ServiceObject, bodies: dict[str, Any]) -> ServiceObject:
    """The Service as the API holds it after the writes."""
    path = f"/api/v1/namespaces/{found.metadata.namespace}/services/{found.metadata.name}/status"
    data = msgspec.json.decode(msgspec.json.encode(found))
    if (body := bodies.get(path)) is not None:
        status = body.get("status", {})
        balancer = status.get("loadBalancer", {"ingress": data["status"]["loadBalancer"].get("ingress")})
        data["status"] = {
            "loadBalancer": {"ingress": balancer["ingress"] or []},
            "conditions": status.get("conditions", data["status"]["conditions"]),
        }
        for name, value in body["metadata"].get("annotations", {}).items():
            data["metadata"]["annotations"].pop(name, None)
            if value is not None:
                data["metadata"]["annotations"][name] = value
        data["metadata"]["resourceVersion"] += "1"
    return msgspec.convert(data, ServiceObject)
