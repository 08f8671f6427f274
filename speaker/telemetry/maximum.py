"""A gauge that only rises."""

from prometheus_client import CollectorRegistry, Gauge


class Maximum:
    """The most that a value has been since the start."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._gauge = Gauge(name, documentation, registry=registry)
        self._most = 0.0

    def rise(self, value: float) -> None:
        """To ``value``, where that is more."""
        if value > self._most:
            self._most = value
            self._gauge.set(value)
