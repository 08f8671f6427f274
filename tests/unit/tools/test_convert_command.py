"""``speaker convert``: manifests to stdout or a directory, the report to stderr, and the exit code."""

import io
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from speaker.cli import main
from speaker.tools.validate import validate

FIXTURES = Path(__file__).parents[1] / "convert" / "fixtures"
WHOLE = FIXTURES / "metallb-pool-and-l2.yaml"
PARTLY = FIXTURES / "metallb-bgp.yaml"


@pytest.fixture
def stdin(monkeypatch):
    def put(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return put


def test_what_is_converted_whole_ends_with_0_and_manifests_on_stdout(capsys):
    assert main(["convert", str(WHOLE)]) == 0
    told = capsys.readouterr()
    assert [each["kind"] for each in yaml.safe_load_all(told.out)] == ["Eip", "Service"]
    assert told.err.splitlines()[-1] == "converted: pools 1, Services 1; to decide 0, notes 3"


def test_what_needs_a_decision_ends_with_1_and_has_a_line_of_its_own(capsys):
    assert main(["convert", str(PARTLY)]) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(f"{PARTLY}:1: IPAddressPool/metallb-system/routed: no L2Advertisement in the input selects")


@pytest.mark.parametrize("content", [b"a: [", b"\xff", b"", b"# nothing\n"])
def test_input_that_cannot_be_read_ends_with_2_and_writes_nothing(content, stdin, tmp_path, capsys):
    stdin(content)
    assert main(["convert", "-", "-o", str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert (told.out, bool(told.err)) == ("", True)
    assert not (tmp_path / "out").exists()


def test_what_is_not_utf8_on_stdin_is_told_with_its_line(stdin, capsys):
    stdin(b"kind: IPAddressPool\nmetadata: {name: caf\xe9}\n")
    assert main(["convert"]) == 2
    assert capsys.readouterr().err == "stdin:2: b'\\xe9': must be UTF-8\n"


def test_a_path_that_leads_nowhere_ends_with_2(tmp_path, capsys):
    assert main(["convert", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_an_empty_word_is_no_path(capsys):
    assert main(["convert", ""]) == 2
    assert 'PATH "": must be a path' in capsys.readouterr().err


def test_a_peer_that_is_none_ends_with_2(capsys):
    assert main(["convert", "--from", "f5"]) == 2
    assert "openelb, metallb, kube-vip, purelb, cilium" in capsys.readouterr().err


def test_stdin_may_hold_yaml_or_what_kubectl_writes_as_json(stdin, capsys):
    stdin(WHOLE.read_bytes())
    assert main(["convert"]) == 0
    from_yaml = capsys.readouterr().out
    items = list(yaml.safe_load_all(WHOLE.read_text()))
    stdin(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode())
    assert main(["convert", "-"]) == 0
    assert capsys.readouterr().out == from_yaml


def test_a_directory_is_read_and_another_one_written(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for name in ("metallb-pool-and-l2", "cilium-pools"):
        (tmp_path / "in" / f"{name}.yaml").write_text((FIXTURES / f"{name}.yaml").read_text())
    out = tmp_path / "out"
    main(["convert", str(tmp_path / "in"), "-o", str(out)])
    assert sorted(path.name for path in out.iterdir()) == ["back", "pools.yaml", "services.yaml"]
    assert capsys.readouterr().out == ""


def test_a_file_whose_name_is_in_capitals_is_never_left_out_in_silence(tmp_path, capsys):
    for name in ("a.yaml", "b.YAML"):
        (tmp_path / name).write_text(WHOLE.read_text())
    assert main(["convert", str(tmp_path)]) == 2
    told = "b.YAML: is not read: its name must end in .yaml, .yml or .json, in small letters\n"
    assert capsys.readouterr() == ("", f"{tmp_path}/{told}")


def test_the_json_report_has_every_value_with_its_place(capsys):
    assert main(["convert", "--json", str(PARTLY)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["objects"]) == (False, [])
    peer = next(each for each in told["listed"] if each["document"] == "BGPPeer/metallb-system/leaf")
    assert (peer["file"], peer["line"], peer["field"]) == (str(PARTLY), 15, "")
    assert peer["why"]
    assert peer["decide"]


@pytest.mark.parametrize("name", ["x.yaml", "x.conf"])
def test_what_cannot_be_read_is_in_the_json_report_too(name, tmp_path, capsys):
    (tmp_path / name).write_text("a: [\nb {\n")
    assert main(["convert", "--json", str(tmp_path / name), "-o", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["ok"], told["pools"], told["services"], told["listed"]) == (False, 0, 0, [])
    [problem] = told["problems"]
    assert err.startswith(f"{problem['file']}:{problem['line']}: ")
    assert err.endswith(f"{problem['rule']}\n")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_written_ends_with_2_and_is_told(tmp_path, capsys):
    (tmp_path / "out").touch()
    assert main(["convert", "--json", str(WHOLE), "-o", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    [problem] = json.loads(out)["problems"]
    assert f"{problem['rule']}\n" == err
    assert f"cannot write {tmp_path}/out/pools.yaml" in err


def test_a_wrong_flag_is_in_the_json_report_too(capsys):
    assert main(["convert", "--json", "--from", "f5"]) == 2
    out, err = capsys.readouterr()
    [problem] = json.loads(out)["problems"]
    assert problem["rule"] in err


def test_a_directory_inside_is_told_if_it_holds_manifests(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(WHOLE.read_text())
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "b.yaml").touch()
    assert main(["convert", str(tmp_path)]) == 0
    (tmp_path / "empty" / "inner" / "b.yaml").touch()
    assert main(["convert", str(tmp_path)]) == 1
    assert f"{tmp_path}/empty: is a directory, whose files are not read; name it" in capsys.readouterr().err


WHOLE_TEXT = WHOLE.read_text()


@pytest.mark.usefixtures("closed_off")  # not as root, whom nothing stops
def test_a_directory_inside_that_cannot_be_read_is_told(capsys):
    with TemporaryDirectory() as directory:
        (Path(directory) / "a.yaml").write_text(WHOLE_TEXT)
        locked = Path(directory) / "inner" / "locked"
        locked.mkdir(parents=True)
        assert main(["convert", directory]) == 0
        locked.chmod(0)
        code = main(["convert", directory])
        alone = main(["convert", str(locked)])
        locked.chmod(0o700)
    told = capsys.readouterr().err
    assert (code, alone) == (1, 2)
    assert f"{locked}: is a directory, whose files are not read; name it" in told
    assert f"'{locked}': must be a directory that can be read: Permission denied" in told


def test_a_directory_in_capitals_is_no_file_that_is_misnamed(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(WHOLE.read_text())
    (tmp_path / "D.Yaml").mkdir()
    assert main(["convert", str(tmp_path)]) == 0


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("flags", [[], ["--adopt"], ["--default-class", "--adopt"]], ids="-".join)
def test_what_is_written_passes_validate_but_for_services_that_were_listed(path, flags, tmp_path, capsys):
    main(["convert", str(path), "-o", str(tmp_path), *flags])
    listed = capsys.readouterr().err
    out = io.StringIO()
    code = validate(tmp_path, out, as_json=True)
    told = json.loads(out.getvalue())
    refused = [key for key, fate in told["services"].items() if fate["refused"]]
    assert (told["problems"], code) == ([], 1 if refused else 0)
    assert len(refused) == listed.count("once converted, the Service would be refused")


@pytest.mark.parametrize(
    "text", ["12e4", "1e3", "0o17", "y", "N", "1_000", "12", "1.5", "true", "12:34", "~", "", "abc"]
)
def test_text_that_looks_like_something_else_stays_text_to_kubectl(text, tmp_path, capsys):
    service = list(yaml.safe_load_all(WHOLE.read_text()))[-1]
    service["metadata"]["annotations"] = {"example.com/build": text}
    (tmp_path / "in.yaml").write_text(
        f"{WHOLE.read_text()}---\n{json.dumps(service | {'metadata': service['metadata'] | {'name': 'b'}})}"
    )
    main(["convert", str(tmp_path / "in.yaml")])
    out = capsys.readouterr().out
    assert list(yaml.safe_load_all(out))[-1]["metadata"]["annotations"] == {"example.com/build": text}
    assert ("build: abc" in out) == (text == "abc")
    assert text in ("abc", "") or f'"{text}"' in out or f"'{text}'" in out


def test_what_the_peer_was_asked_for_is_written_for_the_way_back_and_not_applied_with_the_rest(tmp_path):
    assert main(["convert", str(FIXTURES / "metallb-services.yaml"), "-o", str(tmp_path), "--default-class"]) in (0, 1)
    back = {
        each["metadata"]["name"]: each for each in yaml.safe_load_all((tmp_path / "back/services.yaml").read_text())
    }
    given = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {})
        for each in yaml.safe_load_all((FIXTURES / "metallb-services.yaml").read_text())
    }
    assert {name: each["metadata"]["annotations"] for name, each in back.items()} == {
        name: theirs for name in given if (theirs := {k: v for k, v in given[name].items() if "metallb" in k})
    }
    assert all({*each} <= {"apiVersion", "kind", "metadata", "spec"} for each in back.values())
    assert "back" not in {path.parent.name for path in tmp_path.glob("*.yaml")}


# ── keepalived.conf ───────────────────────────────────────────────────────────────────────────────────────────

KEEPALIVED = """
vrrp_instance web {
    interface eth0
    include addresses/*.conf
}
virtual_server 192.0.2.200 80 {
    protocol TCP
    lb_algo rr
    real_server 192.0.2.11 80 {
    }
}
"""


@pytest.fixture
def keepalived(tmp_path):
    (tmp_path / "addresses").mkdir()
    (tmp_path / "addresses" / "one.conf").write_text("virtual_ipaddress {\n 192.0.2.200\n}\n")
    (tmp_path / "keepalived.conf").write_text(KEEPALIVED)
    return tmp_path


def test_keepalived_conf_becomes_files_that_speaker_run_reads(keepalived, capsys):
    out = keepalived / "out"
    assert main(["convert", str(keepalived / "keepalived.conf"), "-o", str(out)]) == 0
    assert capsys.readouterr().err == "converted: pools 1, Services 1; to decide 0, notes 0\n"
    told = io.StringIO()
    assert validate(out, told, as_json=False) == 0
    assert "Service/default/vip-192-0-2-200-80: 192.0.2.200 from web" in told.getvalue()
    assert "endpoints 1" in told.getvalue()


def test_the_directory_of_keepalived_and_stdin_are_read_where_it_is_named(keepalived, stdin, capsys):
    assert main(["convert", str(keepalived), "--from", "keepalived", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in told["objects"]] == ["Eip", "Service", "EndpointSlice"]
    stdin(b"vrrp_instance a {\n virtual_ipaddress {\n 192.0.2.1\n }\n @lb2 x\n}\n\xff # Latin-1\n")
    assert main(["convert", "--from", "keepalived", "--config-id", "lb2"]) == 1
    assert "stdin:5: vrrp_instance/a: is not a known keyword" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b""], ids=["a byte order mark", "none"])
def test_a_directory_with_keepalived_conf_needs_no_flag_and_braces_are_expanded(content, tmp_path, capsys):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.conf").write_bytes(content + b"192.0.2.%d\n" % ord(name))
    conf = b"vrrp_instance a {\n virtual_ipaddress {\n include {a,{b,a}}.conf\n }\n}\n"
    (tmp_path / "keepalived.conf").write_bytes(content + conf)
    assert main(["convert", str(tmp_path), "--json"]) == 1
    [pool] = json.loads(capsys.readouterr().out)["objects"]
    assert pool["spec"]["addresses"] == ["192.0.2.97", "192.0.2.98"]


def test_a_directory_of_manifests_stays_one_beside_a_keepalived_conf(keepalived, capsys):
    (keepalived / "pools.yaml").write_text(WHOLE.read_text())
    assert main(["convert", str(keepalived)]) == 0
    assert main(["convert", "x" * 5000]) == 2
    assert "converted: pools 1, Services 1" in capsys.readouterr().err


def test_braces_without_end_are_not_expanded_for_ever(tmp_path, capsys):
    (tmp_path / "keepalived.conf").write_text(f"include {'{a,b}' * 1000}\n")
    assert main(["convert", str(tmp_path)]) == 1
    assert "includes no file that can be read here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"a {\n", "x.conf:1: opens a block that is not closed\n"),
        (b"", "x.conf: there is nothing to convert\n"),
        (b"include x.conf\n", "x.conf:1: expands to too much"),
        (None, "x.conf: must be a file that can be read: No such file or directory\n"),
    ],
)
def test_a_configuration_that_cannot_be_read_ends_with_2_and_nothing_is_written(text, told, tmp_path, capsys):
    if text is not None:
        (tmp_path / "x.conf").write_bytes(text)
    assert main(["convert", str(tmp_path / "x.conf"), "-o", str(tmp_path / "out")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--adopt", "--default-class", "--class=x"])
def test_flags_of_services_are_refused_with_keepalived_conf(flag, keepalived, capsys):
    assert main(["convert", str(keepalived / "keepalived.conf"), flag]) == 2
    assert "which keepalived.conf does not have" in capsys.readouterr().err
