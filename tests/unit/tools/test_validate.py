"""``speaker validate``: one problem a line, or what the manifests come to."""

import io
import json
from ipaddress import ip_address

from speaker.tools.validate import validate

LAN = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [192.0.2.0/30]}
"""
SERVICE = """
---
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {type: LoadBalancer, ports: [{port: 80}]}
"""


def told(directory, as_json=False):
    out = io.StringIO()
    return validate(directory, out, as_json), out.getvalue().replace(f"{directory}/", "")


def test_every_problem_has_a_line_of_its_own_and_the_exit_code_says_so(tmp_path):
    (tmp_path / "a.yaml").write_text(LAN.replace("192.0.2.0/30", "192.0.2.0/33, x"))
    code, text = told(tmp_path)
    assert code == 1
    assert [line.split(": ")[:4] for line in text.splitlines()] == [
        ["a.yaml:5", "Eip/lan", "spec.addresses[0]", "'192.0.2.0/33'"],
        ["a.yaml:5", "Eip/lan", "spec.addresses[1]", "'x'"],
    ]


def test_problems_come_as_one_object_too(tmp_path):
    (tmp_path / "a.yaml").write_text(LAN.replace("]}", "], priority: [high]}"))
    (tmp_path / "b.yaml").write_bytes(b"\xff")
    code, text = told(tmp_path, as_json=True)
    answer = json.loads(text)
    assert code == 1
    assert answer["ok"] is False
    assert [problem["file"] for problem in answer["problems"]] == ["a.yaml", "b.yaml"]
    assert answer["problems"][0] == {
        "file": "a.yaml",
        "line": 5,
        "subject": "Eip/lan",
        "field": "spec.priority",
        "value": ["high"],
        "rule": "must be a whole number, not a list",
    }


def test_what_is_right_comes_with_sizes_and_who_would_get_what_and_a_refusal_ends_with_1(tmp_path):
    (tmp_path / "a.yaml").write_text(LAN + SERVICE % "one" + SERVICE % "two" + SERVICE % "three")
    code, text = told(tmp_path)
    assert code == 1
    lines = text.splitlines()
    assert lines[:3] == [
        "1 refused: pools 1, Services 3, endpoints 0",
        "Eip/lan: 2 IPv4 addresses",
        "Service/default/one: 192.0.2.1 from lan",
    ]
    assert lines[3].startswith("Service/default/two: refused (pool_full): ")


def test_what_is_right_comes_as_one_object_too(tmp_path):
    (tmp_path / "a.yaml").write_text(LAN + SERVICE % "one")
    (tmp_path / "sts.yaml").write_text("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}}")
    code, text = told(tmp_path, as_json=True)
    assert code == 0
    assert json.loads(text) == {
        "ok": True,
        "problems": [],
        "notices": [
            {
                "file": "sts.yaml",
                "line": 1,
                "subject": "StatefulSet/db",
                "sentence": "ignored: the speaker does not read this kind of apiVersion 'apps/v1'",
            }
        ],
        "pools": {"lan": {"IPv4": 2}},
        "services": {"default/one": {"addresses": ["192.0.2.1"], "pools": ["lan"], "refused": None, "message": None}},
    }


def test_a_pool_that_holds_an_address_of_this_host_is_told_and_gives_it_to_nobody(tmp_path):
    (tmp_path / "a.yaml").write_text(LAN + SERVICE % "one")
    own = {ip_address("192.0.2.1"): "eth0", ip_address("192.0.2.3"): "eth1", ip_address("::1"): "lo"}
    out = io.StringIO()
    assert validate(tmp_path, out, as_json=False, own=lambda: own) == 0
    lines = out.getvalue().splitlines()
    told = "note: Eip/lan: contains this host's own 192.0.2.1 (eth0): exclude it, because no Service gets it here"
    assert lines[0] == told
    assert "Service/default/one: 192.0.2.2 from lan" in lines
