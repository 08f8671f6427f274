"""When the speaker is asked a second time: what it said before the others were looked at may be old."""

from dataclasses import replace

import pytest
from test_findings import KNOWN, N2, WELL

from speaker.diagnosis.gather import heard_meanwhile

SILENT = replace(WELL, known=replace(KNOWN, peers=(replace(N2, alive=False),)))


@pytest.mark.parametrize(
    ("facts", "again"),
    [(WELL, False), (SILENT, True), (replace(SILENT, hellos=()), False), (replace(WELL, known=None), False)],
)
def test_a_silent_peer_whose_hellos_arrive_may_have_come_back(facts, again):
    assert heard_meanwhile(facts) is again
