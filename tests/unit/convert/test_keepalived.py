"""``keepalived.conf`` → ours: no address is lost, nobody new reaches anything, every line is accounted for, no secret
is printed."""

import io
import json
import re
import shutil
import subprocess
from ipaddress import ip_address

import pytest
from conversions import pools_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from keepalived_shapes import FILE, SECRETS, SHAPES, conf_of, converted, expected, read_text

from speaker.api.fields import ApiObject
from speaker.api.reading import read_world
from speaker.convert.conversion import of_keepalived
from speaker.convert.ranges import joined, less, parse_block
from speaker.model import AddressRange
from speaker.tools.convert import _report
from speaker.tools.validate import validate


def endpoints_of(found, name):
    for each in found.endpoints:
        if each["metadata"]["labels"]["kubernetes.io/service-name"] == name:
            for endpoint in each["endpoints"]:
                address, port = endpoint["addresses"][0], each["ports"][0]["port"]
                ready = endpoint.get("conditions", {}).get("ready", True)
                yield f"{f'[{address}]' if ':' in address else address}:{port}{'' if ready else '~'}"


def objects_of(found):
    return [*found.pools, *found.services, *found.endpoints]


def outcome(found):
    return objects_of(found), [(each.path, each.value, each.why, each.do) for each in found.listed]


def test_there_are_five_shapes_and_more():
    assert len(SHAPES) >= 5


@pytest.mark.parametrize("title", SHAPES)
def test_pools_and_services_are_those_that_were_there(title):
    found = converted(conf_of(title))
    pools = dict(each.split(" ", 1) for each in expected(title, "pool"))
    came = {each["metadata"]["name"]: joined(map(parse_block, each["spec"]["addresses"])) for each in found.pools}
    assert came.keys() == pools.keys()
    for name, addresses in pools.items():
        wanted = joined(map(parse_block, addresses.split()))
        assert less(wanted, came[name]) == less(came[name], wanted) == []
    services = {name: sorted(rest) for name, *rest in map(str.split, expected(title, "service"))}
    names = [each["metadata"]["name"] for each in found.services]
    assert {name: sorted(endpoints_of(found, name)) for name in names} == services


@pytest.mark.parametrize("title", SHAPES)
def test_what_has_no_equal_is_a_line_that_somebody_decides(title):
    lines = [line for line in _report(converted(conf_of(title))) if not line.startswith(("note: ", "converted: "))]
    numbered = conf_of(title).splitlines()
    for text in expected(title, "left"):
        told = [f"{line} {numbered[int(line.split(':')[1]) - 1]}" for line in lines]
        assert any(text in line for line in told), (text, told)
    assert all(re.match(rf"{FILE}:\d+: ", line) for line in lines)


@pytest.mark.parametrize("title", SHAPES)
def test_no_secret_is_printed(title):
    told = "\n".join(_report(converted(conf_of(title))))
    assert not [secret for secret in SECRETS if secret in told]
    assert not [secret for secret in SECRETS if secret in repr(converted(conf_of(title)).listed)]


@pytest.mark.parametrize("title", SHAPES)
def test_what_comes_out_is_valid_and_every_service_has_its_address(title, tmp_path):
    found = converted(conf_of(title))
    (tmp_path / "out.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects_of(found)}))
    out = io.StringIO()
    code = validate(tmp_path, out, as_json=True) if found.pools else 0
    told = json.loads(out.getvalue())
    assert (code, told["problems"], told["notices"]) == (0, [], [])
    assert all(fate["addresses"] for fate in told["services"].values())


@pytest.mark.parametrize("title", SHAPES)
def test_keepalived_itself_reads_the_shape(title, tmp_path):
    if (program := shutil.which("keepalived")) is None:
        pytest.skip("keepalived is not installed")
    conf = tmp_path / FILE
    conf.write_text(conf_of(title))
    done = subprocess.run(
        [program, f"--config-test={tmp_path / 'log'}", "--config-id=lb1", f"--use-file={conf}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    said = done.stdout + done.stderr + (tmp_path / "log").read_text()
    odd = ("Unknown keyword", "Unexpected", "Missing '{'", "Extra '}'", "Unterminated", "Unmatched")
    allowed = ("net_mask",)
    assert not [
        line
        for line in said.splitlines()
        if any(each in line for each in odd) and not any(each in line for each in allowed)
    ]


@pytest.mark.parametrize("title", SHAPES)
def test_a_line_that_is_not_listed_makes_a_difference(title):
    lines = conf_of(title).splitlines()
    before = converted(conf_of(title))
    listed = {each.place.line for each in before.listed}
    for number, line in enumerate(lines, 1):
        text = re.sub(r"\s*[#!].*", "", line).strip()
        opens = text.endswith("{") or text.rstrip("\\ ").endswith("{")
        if not text or text.strip("\\ {}") == "" or opens or number in listed or _within_listed(before, lines, number):
            continue
        changed = [lines[: number - 1] + put + lines[number:] for put in ([], *([each] for each in _others(line)))]
        outcomes = [_outcome("\n".join(each)) for each in changed]
        assert any(each != _outcome(conf_of(title)) for each in outcomes), line


def _others(line):
    last = re.compile(r"[\w/]+(?=\s*(\\|#.*)?$)")
    return last.sub(lambda found: f"{found[0]}9", line), last.sub("0", line)


def _outcome(text):
    found = read_text(text)
    return "refused" if found.problems else outcome(of_keepalived(found))


def _within_listed(found, lines, number):
    """Of a block that is listed as a whole."""
    for each in found.listed:
        depth, at = 0, each.place.line
        while at <= len(lines):
            depth += lines[at - 1].count("{") - lines[at - 1].count("}")
            if depth <= 0:
                break
            at += 1
        if each.place.line <= number <= at and "{" in lines[each.place.line - 1]:
            return True
    return False


BASE = """
vrrp_instance a {
    interface eth0
    virtual_ipaddress {
        192.0.2.200
    }
%s
}
virtual_server 192.0.2.200 80 {
    protocol TCP
%s
    real_server 192.0.2.11 80 {
%s
    }
}
"""


def base(instance="", server="", real="", before=""):
    return converted(before + BASE % (instance, server, real))


@pytest.mark.parametrize(
    ("said", "annotation"),
    [("", "wlc"), ("lb_algo rr", "rr"), ("lvs_sched mh\n mh-port", "mh-port"), ("lb_algo nonsense", "wlc")],
)
def test_the_scheduler_is_the_one_that_is_said_or_keepalived_s_own(said, annotation):
    [service] = base(server=said).services
    assert service["metadata"]["annotations"]["eip-speaker.io/scheduler"] == annotation


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("", None), ("persistence_timeout", 360), ("persistence_timeout 50", 50), ("persistence_timeout 0", None)],
)
def test_persistence_is_affinity(said, seconds):
    [service] = base(server=said).services
    config = service["spec"].get("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": None}})
    assert config["clientIP"]["timeoutSeconds"] == seconds


@pytest.mark.parametrize(
    ("said", "weights", "failback"),
    [
        ("@lb1 priority 150\n@lb2 priority 100", {"lb1": 100, "lb2": 95}, "preferred-after 5s"),
        ("@lb1 priority 50\n@lb2 priority 100\npreempt_delay 60", {"lb1": 95, "lb2": 100}, "preferred-after 60s"),
        ("@lb1 priority 1\n@lb2 priority 1\n@lb3 priority 2\nnopreempt", {"lb1": 95, "lb2": 95, "lb3": 100}, None),
        ("priority 150", None, None),
        ("@lb2 priority 100", None, None),
        ("priority 150\n@^lb1 priority 100", None, None),
        ("priority 150\n@LB_2 priority 100", None, None),
        ("priority 150\n@lb2 priority x", None, None),
        ("priority 150\n" + "\n".join(f"@h{n} priority 100" for n in range(20)), None, None),
    ],
)
def test_priorities_of_all_hosts_are_a_preference(said, weights, failback):
    found = base(instance=said)
    [pool] = found.pools
    terms = pool["spec"].get("nodePreference", [])
    assert {each["matchLabels"]["kubernetes.io/hostname"]: each["weight"] for each in terms} == (weights or {})
    assert pool["spec"].get("failback") == failback
    assert weights is not None or any(each.path == "priority" for each in found.listed)
    assert pools_of(found)["a"].failback == (float(failback.split()[1][:-1]) if failback else None)


TCP = "interval=60s timeout=5s rise=1 fall=2"


@pytest.mark.parametrize(
    ("server", "real", "check"),
    [
        ("", "", None),
        ("", "TCP_CHECK {\n}", f"tcp {TCP}"),
        ("delay_loop 6\nconnect_timeout 2.5\nretry 3", "TCP_CHECK {\n}", "tcp interval=6s timeout=2.5s rise=1 fall=4"),
        ("delay_loop 6", "delay_loop 5\nTCP_CHECK {\ndelay_loop 4\n}", "tcp interval=4s timeout=5s rise=1 fall=2"),
        ("", "TCP_CHECK {\nconnect_port 81\n}", f"tcp port=81 {TCP}"),
        ("protocol UDP", "TCP_CHECK {\n}", f"tcp port=80 {TCP}"),
        ("", "HTTP_GET {\nurl {\npath /a\n}\n}", f"http:/a {TCP} status=200-299"),
        (
            "virtualhost a.example",
            "SSL_GET {\nurl {\npath /a\nstatus_code 200 301-302\nvirtualhost b.example\n}\nnb_get_retry 2\n}",
            "https:/a interval=60s timeout=5s rise=1 fall=3 status=200,301-302 server-name=b.example",
        ),
        ("", "SSL_GET {\nenable_sni\nsni_name c.example\n}", f"https:/ {TCP} status=200-299 server-name=c.example"),
        ("delay_loop 0", "TCP_CHECK {\n}", f"tcp {TCP}"),
        ("", "HTTP_GET {\nurl {\npath a b\n}\n}", None),
        ("", "HTTP_GET {\nurl {\npath /\nstatus_code 99\n}\n}", None),
        ("", 'MISC_CHECK {\nmisc_path "/bin/x hunter2"\n}', None),
        ("", "TCP_CHECK {\nhunter2\n}", None),
    ],
)
def test_a_checker_is_a_health_check(server, real, check):
    found = base(server=server, real=real)
    [service] = found.services
    assert service["metadata"]["annotations"].get("eip-speaker.io/health-check") == check
    assert "hunter2" not in "\n".join(_report(found))
    assert check is not None or not real or found.decisions


def test_of_different_checkers_the_one_of_most_endpoints_counts_and_the_others_are_told():
    more = "".join(f"real_server 192.0.2.{n} 80 {{\n TCP_CHECK {{\n }}\n}}\n" for n in (12, 13))
    found = base(server=more, real="HTTP_GET {\nurl {\npath /\n}\n}")
    assert found.services[0]["metadata"]["annotations"]["eip-speaker.io/health-check"] == f"tcp {TCP}"
    assert [each.value for each in found.decisions if "one check" in each.why] == ["192.0.2.11 80"]


@pytest.mark.parametrize(
    ("instance", "before"),
    [("no_accept", ""), ("strict_mode", ""), ("strict_mode on", ""), ("", "global_defs {\n vrrp_strict\n}\n")],
)
def test_what_took_nothing_in_gets_no_service(instance, before):
    found = base(instance=instance, before=before)
    assert found.pools
    assert not found.services
    assert any("accept no packets" in each.why for each in found.decisions)


@pytest.mark.parametrize("instance", ["no_accept\n priority 255", "strict_mode\n accept", "strict_mode off", "accept"])
def test_what_took_packets_in_gets_its_service(instance):
    assert base(instance=instance).services


@pytest.mark.parametrize("where", ["instance", "server", "real"])
def test_a_keyword_that_nobody_knows_leaves_its_block_out_and_is_not_printed(where):
    found = base(**{where: "hunter2 yes"})
    assert len(found.services) == 0
    assert bool(found.pools) is (where != "instance")
    assert "hunter2" not in "\n".join(_report(found))


@pytest.mark.parametrize(
    "said",
    ["real_server 127.0.0.1 80 { }", "real_server 2001:db8::1 80 { }", "real_server x 80 { }", "real_server { }"],
)
def test_a_real_server_that_cannot_be_one_is_left_out_alone(said):
    found = base(server=said)
    assert [*endpoints_of(found, "vip-192-0-2-200-80")] == ["192.0.2.11:80"]
    assert any("is left out" in each.why for each in found.decisions)


def test_an_address_of_two_instances_is_in_the_pool_of_the_first():
    found = converted(
        "vrrp_instance b {\n interface eth0\n virtual_ipaddress {\n 192.0.2.200\n }\n}\n"
        "vrrp_instance c {\n interface eth0\n virtual_ipaddress {\n 192.0.2.200\n 192.0.2.201\n }\n}\n"
    )
    assert {each["metadata"]["name"]: each["spec"]["addresses"] for each in found.pools} == {
        "b": ["192.0.2.200"],
        "c": ["192.0.2.201"],
    }
    assert any("already appears at keepalived.conf:4" in each.why for each in found.listed)


def test_nobody_gets_an_address_without_asking_for_it():
    for title in SHAPES:
        assert not any(pool.auto_assign for pool in pools_of(converted(conf_of(title))).values())


def test_of_an_address_line_with_more_only_the_address_is_read_and_somebody_decides():
    found = converted("vrrp_instance a {\n virtual_ipaddress {\n 192.0.2.1 192.0.2.2 dev eth1\n }\n}\n")
    assert [each["spec"]["addresses"] for each in found.pools] == [["192.0.2.1"]]
    assert any("only 192.0.2.1 is read" in each.why for each in found.decisions)


@pytest.mark.parametrize(
    "line",
    [
        "192.0.2.9 dev eth0 dev eth1",
        "192.0.2.9 label bond0.1234:floating",
        "192.0.2.9/24 label",
        "192.0.2.9 dev",
        "2001:db8::9/64 brd +",
        "2001:db8::9/64 broadcast 192.0.2.255",
        "2001:db8::9/64",
    ],
)
def test_an_address_that_keepalived_skips_is_left_out_and_decides_no_family(line):
    found = converted(f"vrrp_instance a {{\n virtual_ipaddress {{\n x\n {line}\n 192.0.2.1\n}}\n}}\n")
    skipped = "keepalived skips it" in found.decisions[1].why
    assert [each["spec"]["addresses"] for each in found.pools] == [["192.0.2.1" if skipped else "2001:db8::9"]]
    assert skipped is (line != "2001:db8::9/64")


def test_a_group_that_no_virtual_server_uses_is_listed_as_that():
    found = converted("virtual_server_group spare {\n 192.0.2.1 80\n}\n" + BASE % ("", "", ""))
    assert [each.why for each in found.listed] == ["no virtual_server uses it"]


def test_an_instance_that_keepalived_skips_is_left_out():
    one = "vrrp_instance %s {\n interface eth0\n virtual_ipaddress {\n 192.0.2.%d\n }\n}\n"
    found = converted(one % ("a", 1) + one % ("a", 2) + one % ("", 3) + one % ("b c", 4) + one % ("A", 5))
    assert [each["spec"]["addresses"] for each in found.pools] == [["192.0.2.1"], ["192.0.2.5"]]
    assert [each.place.line for each in found.decisions if "skips it" in each.why] == [7, 13, 19]


def test_of_two_groups_of_one_name_the_first_counts_as_in_keepalived():
    groups = "".join(f"virtual_server_group g {{\n 192.0.2.200 {port}\n}}\n" for port in (81, 82))
    found = converted(
        BASE % ("", "", "") + groups + "virtual_server group g {\n protocol TCP\n real_server 192.0.2.11 80 { }\n}\n"
    )
    assert [each["spec"]["ports"][0]["port"] for each in found.services] == [80, 81]


def test_services_at_one_address_share_it():
    more = "virtual_server 192.0.2.200 81 {\n real_server 192.0.2.11 81 { }\n}\n"
    found = converted(BASE % ("", "", "") + more)
    keys = [each["metadata"]["annotations"]["eip-speaker.io/share"] for each in found.services]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_two_virtual_servers_at_one_place_are_told():
    found = converted(
        BASE % ("", "", "") + "virtual_server 192.0.2.200 80 {\n protocol TCP\n real_server 192.0.2.12 80 { }\n}\n"
    )
    assert len(found.services) == 1
    assert any("twice" in each.why for each in found.decisions)
    assert [*endpoints_of(found, "vip-192-0-2-200-80")] == ["192.0.2.11:80"]


WORDS = st.sampled_from(
    [
        *(
            "{",
            "}",
            "}",
            "\n",
            "\n",
            "#",
            "!",
            "@lb1",
            "@lb2",
            "@^lb1",
            "$A=",
            "$A",
            "${A}",
            "~SEQ(N,1,3)",
            "~LST(N,a,b)",
        ),
        *(
            "\\",
            '"',
            "include",
            "global_defs",
            "vrrp_instance",
            "virtual_server",
            "virtual_server_group",
            "real_server",
        ),
        *("group", "fwmark", "virtual_ipaddress", "virtual_ipaddress_excluded", "interface", "priority", "nopreempt"),
        *("no_accept", "vrrp_strict", "dev", "eth0", "weight", "lb_algo", "lb_kind", "DR", "NAT", "sh", "sh-port"),
        *("persistence_timeout", "protocol", "UDP", "TCP_CHECK", "HTTP_GET", "url", "path", "/", "status_code", "200"),
        *("connect_port", "192.0.2.200", "192.0.2.11", "2001:db8::1", "192.0.2.200-210", "80", "0", "-1", "99999"),
        *("vrrp_sync_group", "VI_1", "auth_pass hunter2", "password hunter2"),
    ]
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(WORDS, max_size=60), st.sampled_from([*SHAPES]), st.data())
def test_whatever_is_written_every_line_is_accounted_for_and_what_comes_out_is_read(said, title, data):
    lines = conf_of(title).splitlines()
    at = data.draw(st.integers(0, len(lines)))
    dropped = data.draw(st.integers(0, 3))
    text = "\n".join([*lines[:at], " ".join(said), *lines[at + dropped :]])
    found = read_text(text)
    if found.problems:
        assert all(each.place.line and each.rule for each in found.problems)
        return
    conversion = of_keepalived(found)
    assert all(each.done for each in everything(found.top))
    assert all(each.place.line and each.why for each in conversion.listed if each.place.file)
    read_world([ApiObject(each) for each in objects_of(conversion)], default_class=True, named=True)
    told = "\n".join(_report(conversion))
    assert "hunter2" not in told
    carried = {ip_address(each) for each in re.findall(r"[\da-fA-F:.]+", text) if _is_address(each)}
    for pool in conversion.pools:
        blocks = joined(map(parse_block, pool["spec"]["addresses"]))
        assert not less(blocks, [AddressRange(each, each) for each in carried | _counted(text)])


def everything(statements):
    for each in statements:
        yield each
        yield from everything(each.block or [])


def _is_address(text):
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _counted(text):
    """What sequences of the shapes lead to."""
    return {ip_address(f"192.0.2.{n}") for n in range(1, 255)} if "~" in text or "$" in text else set()


@settings(max_examples=examples(300), deadline=None)
@given(st.text(max_size=200))
def test_any_text_at_all_is_read_or_refused_with_its_place(text):
    found = read_text(text)
    assert all(each.place.line for each in found.problems)
    if not found.problems:
        of_keepalived(found)
