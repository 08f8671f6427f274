"""The text that Prometheus reads of the traffic; its own parser is the oracle."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from speaker.model import Traffic
from speaker.telemetry.metrics import GOOD_SECONDS, TEXTS, Kept, exposition

WEB, SIX = ("198.51.100.1", "TCP", "80"), ("2001:db8:100::1", "UDP", "53")


def samples(text: bytes):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_every_number_is_told_with_its_labels():
    servers = {WEB: (3, 40, 50, 6000, 2**53), SIX: (1, 2, 0, 200, 0)}
    text = exposition(Traffic(servers, {(*SIX, "[fd00:1::2]:8053"): (0, 7)}))
    one = "eip_speaker_virtual_server"
    assert samples(text) == {
        (f"{one}_connections_total", *WEB): 3,
        (f"{one}_packets_total", *WEB, "in"): 40,
        (f"{one}_packets_total", *WEB, "out"): 50,
        (f"{one}_bytes_total", *WEB, "in"): 6000,
        (f"{one}_bytes_total", *WEB, "out"): 2**53,
        (f"{one}_connections_total", *SIX): 1,
        (f"{one}_packets_total", *SIX, "in"): 2,
        (f"{one}_packets_total", *SIX, "out"): 0,
        (f"{one}_bytes_total", *SIX, "in"): 200,
        (f"{one}_bytes_total", *SIX, "out"): 0,
        ("eip_speaker_real_server_connections", *SIX, "[fd00:1::2]:8053", "active"): 0,
        ("eip_speaker_real_server_connections", *SIX, "[fd00:1::2]:8053", "inactive"): 7,
    }


def test_every_metric_has_its_type_and_its_help_even_without_traffic():
    families = list(text_string_to_metric_families(exposition(Traffic({}, {})).decode()))
    assert {family.name: family.documentation for family in families} == {
        name.removesuffix("_total"): text for name, text in TEXTS.items() if "_server_" in name
    }
    assert {family.type for family in families} == {"counter", "gauge"}


async def test_a_text_is_made_once_for_all_who_ask_within_its_time():
    now, made = 0.0, []

    def make() -> bytes:
        made.append(now)
        return b"%d" % len(made)

    kept = Kept(make, lambda: now)
    assert await asyncio.gather(*(kept.text() for _ in range(3))) == [b"1"] * 3
    now = GOOD_SECONDS
    assert await kept.text() == b"2"
