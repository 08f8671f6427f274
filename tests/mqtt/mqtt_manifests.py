"""What a host is asked for, in these tests."""

POOL = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [%s]}
"""
SERVICE = """---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, annotations: {eip-speaker.io/addresses: %s}}
spec: {type: LoadBalancer, loadBalancerClass: eip-speaker.io/speaker, ports: [{port: 80}]}
"""
EIP = "198.51.100.10"


def manifests(*eips: str, pool: str = "198.51.100.0/24") -> str:
    return POOL % pool + "".join(SERVICE % (f"s-{eip.replace('.', '-')}", eip) for eip in eips)
