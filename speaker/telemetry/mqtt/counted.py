"""What is counted of a broker; by hosts and controllers alike."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class MqttMetrics:
    """Registered where a broker is to be told."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connected = Gauge(
            "eip_speaker_mqtt_connected", "1 while the MQTT broker accepts messages", registry=registry
        )
        self.published = Counter(
            "eip_speaker_mqtt_published", "Messages that the MQTT broker accepted, by kind", ["kind"], registry=registry
        )
        self.dropped = Counter(
            "eip_speaker_mqtt_events_dropped",
            "Events that were dropped because too many waited for the MQTT broker",
            registry=registry,
        )
        self.waiting = Gauge("eip_speaker_mqtt_waiting", "Messages that wait for the MQTT broker", registry=registry)
