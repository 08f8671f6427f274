"""Metrics that only rise: the most that something was, and totals that somebody else counts."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


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


class Total(Collector):
    """A counter of the kernel's, as it was last read."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._name, self._documentation, self._value = name, documentation, 0.0
        registry.register(self)

    def set(self, value: float) -> None:
        self._value = value

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._documentation, value=self._value)
