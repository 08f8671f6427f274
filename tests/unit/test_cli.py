"""Exit codes are an interface: 0 done, 1 it did not work out, 2 the command line cannot work."""

import pytest

from speaker import __version__
from speaker.cli import main


def test_the_version_is_the_packages_own(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"speaker {__version__}\n"


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--metrics", "localhost:9900"], "localhost:9900"),
        (["--node", "Not_A_Name"], "Not_A_Name"),
        (["--node-labels", "=x"], "--node-labels"),
    ],
)
def test_a_setting_that_cannot_work_is_named_and_ends_with_2(flags, names, tmp_path, capsys):
    assert main(["run", str(tmp_path), *flags]) == 2
    assert names in capsys.readouterr().err


def test_a_forwarder_that_does_not_exist_ends_with_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["run", str(tmp_path), "--forwarder", "iptables"])
    assert left.value.code == 2
    assert "nftables" in capsys.readouterr().err


def test_validate_ends_with_1_where_something_is_wrong_and_0_where_nothing_is(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("apiVersion: eip-speaker.io/v1alpha1\nkind: Eip\nmetadata: {name: a}\nspec: {}\n")
    assert main(["validate", str(tmp_path)]) == 1
    assert "a.yaml:4: Eip/a: spec.addresses" in capsys.readouterr().out
    (tmp_path / "a.yaml").unlink()
    assert main(["validate", str(tmp_path)]) == 0
