"""Timeouts and table sizes that cannot work are refused with the flag, the value and the rule."""

import pytest

from speaker.cli import main
from speaker.errors import SettingError, written
from speaker.model import Forwarding
from speaker.settings import AS_THEY_ARE, Limits, Timeouts

IPVS = Forwarding.IPVS


def test_limits_are_read_as_written():
    assert Limits.parse(IPVS, "3600,0,2147482", "1048576") == Limits(Timeouts(3600, 0, 2147482), 1048576)
    assert Limits.parse(Forwarding.AUTO, None, None) == Limits(AS_THEY_ARE, 0)
    assert Limits.parse(Forwarding.NONE, None, "1").conntrack_max == 1


@pytest.mark.parametrize(
    "text", ["", "900", "900,120", "900,120,300,1", "900,120,2147483", "900,-1,300", "900, 120,300", "9e2,1,1", "٣,1,1"]
)
def test_timeouts_that_cannot_be_are_refused(text):
    with pytest.raises(SettingError, match=r"TCP,TCPFIN,UDP in whole seconds from 0 .* to 2147482") as refused:
        Limits.parse(IPVS, text, None)
    assert written(text) in str(refused.value)


@pytest.mark.parametrize("forwarder", [kind for kind in Forwarding if kind is not IPVS])
def test_timeouts_are_refused_where_it_is_not_ipvs_that_forwards(forwarder):
    with pytest.raises(SettingError, match="--ipvs-timeouts 1,1,1: needs --forwarder ipvs"):
        Limits.parse(forwarder, "1,1,1", None)


@pytest.mark.parametrize("text", ["", "0", "-1", "2147483648", "1e6", "a million"])
def test_a_size_of_conntrack_that_cannot_be_is_refused(text):
    with pytest.raises(SettingError, match=r"--conntrack-max .* from 1 to 2147483647"):
        Limits.parse(IPVS, None, text)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "."], "--ipvs-timeouts 1,1,1: needs --forwarder ipvs"),
        (["run", ".", "--forwarder", "nftables"], "--ipvs-timeouts 1,1,1: needs --forwarder ipvs"),
        (["agent", "--kubeconfig", "/nowhere"], "--ipvs-timeouts 1,1,1: needs --forwarder ipvs"),
    ],
)
def test_the_commands_refuse_them_with_2(arguments, named, capsys):
    assert main([*arguments, "--ipvs-timeouts", "1,1,1"]) == 2
    assert named in capsys.readouterr().err
