"""What ``speaker status|drain|undrain|rebalance`` print, and how they end, against a real control socket."""

import asyncio
import json
import subprocess
import sys

import pytest

from speaker.cli import main
from speaker.node.control import serving_control
from speaker.tools.ask import describe, troubles

STATUS = {
    "node": "n1",
    "draining": False,
    "eips": [
        {
            "address": "192.0.2.201",
            "services": ["shop/web", "shop/api"],
            "pool": "lan",
            "claimed": True,
            "holder": "n1",
            "term": 7,
            "since": 1767323045.9,
            "link": "eth0",
            "mac": "02:00:00:00:00:01",
        },
        {
            "address": "2001:db8::201",
            "services": ["shop/web"],
            "pool": "lan",
            "claimed": False,
            "holder": "n2",
            "term": 12,
            "link": "eth0",
            "mac": "02:00:00:00:00:01",
        },
        {
            "address": "198.51.100.9",
            "services": ["shop/far"],
            "pool": "far",
            "claimed": False,
            "holder": None,
            "term": 0,
            "reason": "no_such_link",
            "message": "this node has no link eth7",
        },
    ],
    "peers": [
        {"node": "n2", "link": "eth0", "alive": True, "draining": False, "loss": 9, "loses": 48},
        {"node": "n3", "link": "eth0", "alive": False, "draining": True},
    ],
    "refused": [{"service": "shop/late", "reason": "pool_full", "message": "pool has no free IPv4 address: lan"}],
    "problems": ["net.ipv4.ip_forward is off"],
}


class Supervisor:
    """Fails the test where anything unforeseen is told."""

    def internal_error(self, task, error):
        raise AssertionError(task) from error


def test_a_status_is_tables_and_then_what_is_not_as_asked_for():
    assert "\n".join(describe(STATUS)) == (
        "node n1\n"
        "\n"
        "EIP            HOLDER  TERM  LINK  SINCE (UTC)          SERVICES\n"
        "192.0.2.201    n1      7     eth0  2026-01-02 03:04:05  shop/web, shop/api\n"
        "2001:db8::201  n2      12    eth0  -                    shop/web\n"
        "198.51.100.9   nobody  -     -     -                    shop/far\n"
        "\n"
        "PEER  LINK  STATE             HELLOS LOST\n"
        "n2    eth0  alive             9 %, of ours 48 %\n"
        "n3    eth0  silent, draining  -\n"
        "\n"
        "net.ipv4.ip_forward is off"
    )


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"ready": False}, "not ready: not everything requested has been in force yet"),
        ({"problems": ["lan.yaml:3: must be addresses"]}, "lan.yaml:3: must be addresses"),
    ],
)
def test_what_health_knows_a_status_says(told, sentence):
    assert [*troubles({"eips": [], "peers": []} | told)] == [sentence]


@pytest.mark.parametrize(
    "told",
    [
        {"ready": True, "alone": True},
    ],
)
def test_on_a_node_that_is_well_a_status_names_no_trouble(told):
    assert [*troubles({"eips": [], "peers": []} | told)] == []


def test_who_else_implements_services_stands_at_the_top():
    found = {"mode": "nftables", "evidence": ["its port 10249 says so"], "notes": ["cannot tell"]}
    lines = [*describe(STATUS | {"kube_proxy": found})]
    assert lines[:3] == ["node n1", "kube-proxy: nftables (its port 10249 says so)", "  cannot tell"]
    assert [*describe(STATUS | {"kube_proxy": {"mode": "none", "evidence": [], "notes": []}})][1] == "kube-proxy: none"


def test_how_full_the_kernels_tables_of_connections_are_is_told():
    tables = {"conntrack": {"connections": 12, "size": 8192}, "ipvs": {"connections": 7, "size": 4096}}
    lines = [*describe(STATUS | {"tables": tables})]
    assert "connections that the kernel tracks: 12, at most 8192" in lines
    assert "connections of IPVS: 7, in 4096 buckets (conn_tab_bits 12)" in lines


def test_to_whom_unknown_flows_are_handed_over_is_told():
    lines = [*describe(STATUS | {"handed_over": [{"address": "192.0.2.2", "link": "eth0", "eips": 3}]})]
    assert "packets of unknown flows of 3 EIPs go to 192.0.2.2 on eth0, which held them before" in lines


def test_past_whose_endpoints_kube_proxy_is_assisted_is_told():
    lines = [*describe(STATUS | {"assisting": [{"node": "n2", "since": 1767225600.5}]})]
    told = "kube-proxy is assisted since 2026-01-01 00:00:00 UTC: no new connections to the dead node n2"
    assert told in lines


def test_a_speaker_alone_that_has_just_begun_has_a_short_status():
    told = {"node": "n1", "draining": True, "eips": [], "peers": []}
    assert [*describe(told)] == ["node n1: draining", "", "EIP  HOLDER  TERM  LINK  SINCE (UTC)  SERVICES"]


def test_a_peers_name_cannot_speak_to_the_terminal():
    told = STATUS | {"peers": [{"node": "\x1b[2Jn2", "link": "eth0", "alive": True, "draining": False}]}
    assert "\x1b" not in "".join(describe(told))


@pytest.fixture
def said(tmp_path, capsys):
    """``await said([command, flags], answers)``: exit code and output of the command, where the speaker answers so."""

    async def run(command, answers):
        async def handler(_):
            for answer in answers:
                yield answer

        async with serving_control(tmp_path / "control", {command[0]: handler}, Supervisor()):
            code = await asyncio.to_thread(main, [*command, "--runtime-dir", str(tmp_path)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


async def test_status_comes_as_tables_or_as_one_object(said):
    answer = [STATUS | {"done": True}]
    code, out, _ = await said(["status"], answer)
    assert (code, out.splitlines()) == (0, [*describe(STATUS)])
    code, out, _ = await said(["status", "--json"], answer)
    assert (code, json.loads(out)) == (0, STATUS)


async def test_a_drain_names_every_new_holder_and_ends_with_0_when_nothing_is_held(said):
    answers = [{"eip": "192.0.2.201", "to": "n2"}, {"eip": "2001:db8::1", "to": "n3"}, {"done": True, "left": []}]
    assert await said(["drain"], answers) == (
        0,
        "192.0.2.201 → n2\n2001:db8::1 → n3\ndrained: this host answers for nothing\n",
        "",
    )


async def test_a_drain_that_leaves_an_eip_without_a_taker_ends_with_1_and_names_it(said):
    answers = [
        {"eip": "192.0.2.201", "to": "n2"},
        {"eip": "192.0.2.202", "to": None},
        {"eip": "192.0.2.203", "to": None},
        {"done": True, "left": ["192.0.2.202", "192.0.2.203"]},
    ]
    code, out, _ = await said(["drain"], answers)
    assert code == 1
    assert out.splitlines()[1] == "192.0.2.202 → nobody"
    assert out.splitlines()[-1] == "no other host took 192.0.2.202, 192.0.2.203: nobody answers for them now"


async def test_a_speaker_that_cannot_do_it_says_why_and_the_command_ends_with_1(said):
    assert await said(["drain"], [{"error": "there is nobody to hand over to"}]) == (
        1,
        "",
        "speaker: there is nobody to hand over to\n",
    )


async def test_undrain_says_that_it_is_done(said):
    assert await said(["undrain"], [{"done": True}]) == (0, "takes EIPs again\n", "")


@pytest.mark.parametrize(("refused", "code"), [(0, 0), (1, 1)])
async def test_a_rebalancing_is_followed_by_its_numbers_each_told_once(said, refused, code):
    begun, ended = ({"planned": 3, "moved": moved, "refused": refused} for moved in (0, 3 - refused))
    assert await said(["rebalance"], [begun, begun, ended, {"done": True}]) == (
        code,
        f"planned 3, moved 0, refused {refused}\nplanned 3, moved {3 - refused}, refused {refused}\n",
        "",
    )


async def test_the_last_numbers_of_a_rebalancing_come_with_its_end_and_are_told_once(said):
    ended = {"planned": 1, "moved": 1, "refused": 0}
    assert await said(["rebalance"], [ended, ended | {"done": True}]) == (0, "planned 1, moved 1, refused 0\n", "")


@pytest.mark.parametrize(
    ("command", "answer", "lacks"),
    [
        ("status", {}, "missing required field `node`"),
        ("status", STATUS | {"eips": [{"address": "192.0.2.201"}]}, "`services` - at `$.eips[0]`"),
        ("status", STATUS | {"peers": ["n2"]}, "got `str` - at `$.peers[0]`"),
        ("status", STATUS | {"eips": [STATUS["eips"][0] | {"since": 1e300}]}, "`float` <= 253402300799"),
        ("drain", {}, "missing required field `left`"),
        ("rebalance", {"planned": 1}, "missing required field `moved`"),
    ],
)
async def test_an_answer_of_another_release_is_told_to_be_one_with_what_it_lacks(said, command, answer, lacks):
    code, _, err = await said([command], [answer | {"done": True}])
    assert code == 1
    assert err.startswith("speaker: the speaker has another version than this program: ")
    assert lacks in err


@pytest.mark.parametrize("command", ["status", "drain", "undrain", "rebalance"])
def test_without_a_speaker_every_command_ends_with_1_and_says_where_it_looked(command, tmp_path, capsys):
    assert main([command, "--runtime-dir", str(tmp_path)]) == 1
    assert f"no speaker runs here: cannot connect to {tmp_path}/control" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_drain_that_would_not_wait_is_refused(seconds, tmp_path, capsys):
    assert main(["drain", "--runtime-dir", str(tmp_path), "--timeout", seconds]) == 2
    assert f"--timeout {seconds}: must be" in capsys.readouterr().err


async def test_one_eip_is_told_with_all_that_is_known_of_it(said):
    code, out, _ = await said(["status", "192.0.2.201"], [STATUS | {"done": True}])
    assert (code, out) == (
        0,
        "192.0.2.201\n"
        "  holder: n1 (this node)\n"
        "  since: 2026-01-02 03:04:05 UTC\n"
        "  term: 7\n"
        "  link: eth0 02:00:00:00:00:01\n"
        "  pool: lan\n"
        "  services: shop/web, shop/api\n",
    )
    code, out, _ = await said(["status", "2001:DB8:0::201", "--json"], [STATUS | {"done": True}])
    assert [each["address"] for each in json.loads(out)["eips"]] == ["2001:db8::201"]


async def test_one_that_is_not_in_use_is_named_with_what_explains_that(said):
    code, _, err = await said(["status", "192.0.2.1"], [STATUS | {"done": True}])
    assert (code, err) == (1, "speaker: 192.0.2.1 is not an EIP in use here: ask `speaker explain 192.0.2.1`\n")


async def test_what_can_be_no_eip_is_refused(said):
    code, _, err = await said(["status", "web"], [STATUS | {"done": True}])
    assert (code, err) == (2, "speaker: 'web': must be an EIP\n")


async def test_a_summary_counts_the_eips(said):
    _, out, _ = await said(["status", "--summary"], [STATUS | {"done": True}])
    assert out.splitlines()[:3] == ["node n1", "", "3 EIPs: held 1 by n1, 1 by n2, 1 by nobody"]


async def test_a_status_fits_a_terminal_and_breaks_no_word(said):
    long = "a firewall drops " + "what arrives for it " * 9
    _, out, _ = await said(["status"], [STATUS | {"problems": [long], "done": True}])
    assert all(len(line) <= 80 for line in out.splitlines())
    assert " ".join(out.split()).endswith(long.strip())


def test_without_a_speaker_a_machine_gets_json(tmp_path, capsys):
    assert main(["status", "--json", "--runtime-dir", str(tmp_path)]) == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith("no speaker runs here: ")


def test_without_a_speaker_nothing_is_loaded_that_only_a_cluster_needs():
    code = "import sys; import speaker.tools.ask; sys.exit('aiohttp' in sys.modules or 'pyroute2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
