"""Where the API has what is read of a whole cluster."""

SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/pods"
EIPS = "/apis/eip-speaker.io/v1alpha1/eips"
ANNOUNCEMENTS = "/apis/eip-speaker.io/v1alpha1/announcements"


def slices_in(namespace: str) -> str:
    """EndpointSlices of one namespace."""
    return f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
