"""What was given to whom: the same metrics wherever that is decided, by `speaker run` and the controller that leads."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge


class GivenMetrics:
    """``registry`` None: nothing is decided here, and nothing served."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self._services = gauge("eip_speaker_services", "Services, by what they were assigned", "outcome")
        self._refused = gauge(
            "eip_speaker_services_refused", "Services that lack something they ask for, by reason", "reason"
        )
        self._pools = (
            gauge("eip_speaker_pool_addresses", "Addresses that a pool can assign", "pool", "family"),
            gauge("eip_speaker_pool_addresses_in_use", "Addresses of a pool that are in use", "pool", "family"),
            gauge(
                "eip_speaker_pool_addresses_resting",
                "Addresses that were released and are not yet assigned to others",
                "pool",
                "family",
            ),
        )

    def count(
        self,
        services: Mapping[str, int],
        lacking: Mapping[str, int],
        pools: Mapping[tuple[str, str], tuple[int, int, int]],
    ) -> None:
        """All that there is now, as ``allocator.settle`` counts it."""
        self.clear()
        for outcome, number in services.items():
            self._services.labels(outcome).set(number)
        for reason, number in lacking.items():
            self._refused.labels(reason).set(number)
        for labels, numbers in pools.items():
            for gauge, number in zip(self._pools, numbers, strict=True):
                gauge.labels(*labels).set(number)

    def clear(self) -> None:
        """Nothing is decided here any more."""
        for gauge in (self._services, self._refused, *self._pools):
            gauge.clear()
