"""A layer-2 load balancer for bare-metal Kubernetes. Start reading at ``cli.py``, then ``run.py``."""

__version__ = "0.1.0"
