"""Multicast listener reports, held to scapy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import ICMPv6MLDMultAddrRec, ICMPv6MLReport2, IPv6, IPv6ExtHdrHopByHop, RouterAlert

from speaker.layer2 import groups as mld

groups = st.lists(st.ip_addresses(v=6, network="ff00::/8"), min_size=1, max_size=mld.RECORDS)


@pytest.mark.parametrize("kind", list(mld.RecordType))
@given(joined=groups)
def test_a_report_is_byte_identical_to_scapys(kind, joined):
    records = [ICMPv6MLDMultAddrRec(rtype=int(kind), dst=str(group)) for group in joined]
    wanted = bytes(ICMPv6MLReport2(cksum=0, records=records))
    assert mld.report(kind, [group.packed for group in joined]) == wanted


def test_the_router_alert_is_scapys_and_the_largest_report_fits_the_smallest_mtu():
    headers = IPv6() / IPv6ExtHdrHopByHop(options=[RouterAlert(value=0)])
    assert bytes(headers)[41:48] == mld.ROUTER_ALERT[1:]
    assert len(headers) + len(mld.report(mld.RecordType.LISTENING, [bytes(16)] * mld.RECORDS)) <= 1280
