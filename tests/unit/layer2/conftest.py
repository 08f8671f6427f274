"""What claims two EIPs."""

import pytest

from speaker.layer2.answer import Claims


@pytest.fixture
def claims(lan) -> Claims:
    claims = Claims(lan.mac)
    for address in (lan.eip4, lan.other4, lan.eip6, lan.other6):
        claims.add(address.packed)
    claims.deadline = 100.0
    return claims
