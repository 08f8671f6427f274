"""What /metrics tells of single EIPs, each by the node that holds it, or that asks for it. As text, as in
``traffic.py``: there may be ten thousand."""

from collections.abc import Iterator, Mapping

SINCE = "eip_speaker_held_since_timestamp_seconds"
ENDPOINTS = "eip_speaker_endpoints_ready"
ANSWERED = "eip_speaker_answered"
METRICS = {
    SINCE: "When this node began to hold the EIP; only its holder has this",
    ENDPOINTS: "Ready endpoints of the EIP's Services, on whatever node, as its holder counts them",
    ANSWERED: "Hosts that answer for the EIP when a node that does not hold it asks by ARP or NDP",
}
"""Every metric that is made here, with its help."""


class EipMetrics:
    """By EIP. What is not known of one is left out."""

    def __init__(self) -> None:
        self.since: Mapping[str, float] = {}
        self.endpoints: Mapping[str, int] = {}
        self.answered: Mapping[str, int] = {}

    def text(self) -> bytes:
        return "".join(self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        for metric, values in ((SINCE, self.since), (ENDPOINTS, self.endpoints), (ANSWERED, self.answered)):
            yield f"# HELP {metric} {METRICS[metric]}\n# TYPE {metric} gauge\n"
            for eip, value in values.items():
                yield f'{metric}{{eip="{eip}"}} {value}\n'
