"""A layer-2 load balancer for bare-metal Kubernetes. Start reading at docs/architecture.md."""

__version__ = "0.1.0"
