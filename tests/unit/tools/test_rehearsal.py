"""What is called right has been through all that a running speaker decides of it, and nothing of that is logged."""

import io
import json

import pytest
from structlog.testing import capture_logs

from speaker.errors import EdgeError, InvalidManifests
from speaker.tools.validate import foreseen, validate

SITE = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [192.0.2.0/24, "2001:db8::/64"]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ports: [{port: 80}]
  ipFamilyPolicy: RequireDualStack
  loadBalancerSourceRanges: [198.51.100.0/24, "2001:db8:1::/48"]
"""
STEPS = [
    *("tools.validate.settle", "tools.validate.decide", "tools.validate.forwarder_ruleset"),
    *("tools.validate.guard_ruleset", "tools.validate.approximations"),
]


@pytest.fixture
def site(tmp_path):
    (tmp_path / "site.yaml").write_text(SITE)
    return tmp_path


def test_a_site_that_is_right_is_told_to_nobody_but_the_asker(site, capsys):
    out = io.StringIO()
    with capture_logs() as logs:
        assert validate(site, out, as_json=False) == 0
    assert logs == []
    assert capsys.readouterr() == ("", "")
    assert "Service/default/web: 192.0.2.1 from lan, 2001:db8::1 from lan" in out.getvalue()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_step_that_would_stumble_in_a_running_speaker_is_a_mistake_in_words(site, monkeypatch, step, as_json):
    def stumble(*_, **__):
        raise TypeError("'<' not supported")

    monkeypatch.setattr(f"speaker.{step}", stumble)
    out = io.StringIO()
    assert validate(site, out, as_json) == 1
    told = json.loads(out.getvalue())["problems"][0]["rule"] if as_json else out.getvalue()
    assert "a running speaker would fail on these manifests: '<' not supported (test_rehearsal.py:" in told


def test_what_is_refused_on_purpose_stays_what_it_is(tmp_path):
    with pytest.raises(EdgeError, match="no nft"), foreseen(tmp_path):
        raise EdgeError("no nft")
    with pytest.raises(InvalidManifests, match="'KeyError': a running speaker would fail"), foreseen(tmp_path):
        {}["web"]
