"""The pool, the Services and the endpoints that most sites of the tests have, as YAML."""


def pool(addresses):
    return f"""\
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {{name: lan}}
spec: {{addresses: [{addresses}], interface: eth0}}
"""


POOL = pool("198.51.100.10-198.51.100.19")


def service(name, extra="", eip=None):
    """``extra``: more lines of its spec. ``eip``: the one that it asks for."""
    annotations = f", annotations: {{eip-speaker.io/addresses: {eip}}}" if eip is not None else ""
    return f"""\
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default{annotations}}}
spec:
  type: LoadBalancer
  ports: [{{port: 80}}]
  {extra}
"""


def endpoint(service, fields):
    """One endpoint of the Service, on port 8080; ``fields`` as in YAML."""
    return f"""\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {service}-4, namespace: default, labels: {{kubernetes.io/service-name: {service}}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints: [{{{fields}}}]
"""
