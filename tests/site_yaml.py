"""The pool and the Services that most sites of the tests have, as YAML."""

POOL = """\
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [198.51.100.10-198.51.100.19], interface: eth0}
"""


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
