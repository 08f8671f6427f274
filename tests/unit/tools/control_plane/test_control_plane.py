"""``speaker control-plane``: files that a speaker reads and a kubelet or systemd starts, written in kubeadm's order."""

import shlex
import stat
import subprocess
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml

from speaker.errors import EdgeError, SettingError
from speaker.ownership.hellos.keyfile import read_keys
from speaker.standalone.manifests import load
from speaker.tools.control_plane.site import (
    CONFIGURED,
    KEY,
    STATIC_POD,
    UNIT,
    Site,
    control_plane,
    manifests,
    node_name,
    starter,
    static_pod,
    unit,
    was_first,
)

GOLDEN = Path(__file__).parent / "golden"
ADDRESS, SERVERS = "192.0.2.10", "192.0.2.11,192.0.2.12,192.0.2.13"
ADDRESS6, SERVERS6 = "2001:db8::10", "2001:db8::11,2001:db8::12,2001:db8::13"
HERE = ip_address("192.0.2.12")
OWN = (ip_address("127.0.0.1"), HERE)
MANIFESTS = CONFIGURED / "control-plane.yaml"


def site(own=OWN, **flags):
    return Site.parse(ADDRESS, SERVERS, own, **flags)


def below(root, path):
    return root / path.relative_to("/")


def told(root, of=None, bootstrap=False, systemd=False):
    of = of or site()
    starts = starter(of, "registry.example.com/eip-speaker:1", "/opt/eip-speaker/bin/speaker", systemd)
    return list(control_plane(of, root, bootstrap, starts))


def everything(root):
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in root.rglob("*") if file.is_file()}


# ── What is written ──

SIX = Site.parse(ADDRESS6, SERVERS6, [ip_address("2001:db8::13")], "8443", "bond0,eth1", Path("/var/lib/ca/ca.crt"))


@pytest.mark.parametrize(
    ("golden", "made"),
    [
        ("manifests.yaml", manifests(site())),
        ("manifests6.yaml", manifests(SIX)),
        ("static-pod.yaml", static_pod(site(), "registry.example.com/eip-speaker:1")),
        ("unit.service", unit(SIX, "/opt/eip-speaker/bin/speaker")),
    ],
)
def test_the_files_are_byte_for_byte_what_was_last_looked_at(golden, made):
    assert made == (GOLDEN / golden).read_text()


@pytest.mark.parametrize("of", [site(), SIX, site(interface="can_reach:192.0.2.1")], ids=["4", "6", "can_reach"])
def test_a_speaker_reads_what_is_written_and_every_node_reads_the_same(tmp_path, of):
    (tmp_path / "control-plane.yaml").write_text(manifests(of))
    world = load(tmp_path, named=True).world
    ((key, service),) = world.services.items()
    assert service.ports[0].port == of.port
    assert {endpoint.address: endpoint.node for endpoint in world.endpoints[key]} == {
        server: node_name(server) for server in of.servers
    }
    assert f"--node={node_name(of.here)}" in of.flags
    assert {manifests(of._replace(here=server)) for server in of.servers} == {manifests(of)}


def test_the_pod_and_the_unit_start_the_same_speaker():
    pod = yaml.safe_load(static_pod(site(), "speaker"))
    started = unit(site(), "/speaker").split("ExecStart=")[1].split("Restart=")[0].replace("\\\n", " ")
    assert ["/speaker", *pod["spec"]["containers"][0]["args"]] == shlex.split(started)


def test_the_pod_sees_the_configuration_the_ca_and_nothing_else_of_the_hosts_and_may_only_answer_and_forward():
    pod = yaml.safe_load(static_pod(site(), "speaker"))["spec"]
    paths = {volume["hostPath"]["path"] for volume in pod["volumes"]}
    assert paths == {
        *("/etc/eip-speaker-control-plane", "/etc/kubernetes/pki/ca.crt"),
        *("/var/lib/eip-speaker-control-plane", "/run/eip-speaker-control-plane"),
    }
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_RAW", "NET_ADMIN"]}


# ── In kubeadm's order ──


def test_the_first_node_makes_a_key_and_the_others_take_a_copy(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    said = told(first, site([ip_address("192.0.2.11")]), bootstrap=True)
    assert said[-1] == "Next: kubeadm init --control-plane-endpoint 192.0.2.10:6443 --upload-certs"
    with pytest.raises(SettingError, match=r"key: is missing: copy it from the node that was the first.*--bootstrap"):
        told(second)
    assert not second.exists()
    copies = [line.strip() for line in said if line.startswith("  ssh")]
    assert [copy.split()[1] for copy in copies] == ["root@192.0.2.12", "root@192.0.2.13"]
    remotely = shlex.split(copies[0].split(" < ")[0])[2].replace(str(KEY), str(below(second, KEY)))
    with below(first, KEY).open("rb") as key:
        subprocess.run(remotely.split(), stdin=key, check=True)
    said = told(second)
    assert said[-1] == "Then run the `kubeadm join 192.0.2.10:6443 … --control-plane` that `kubeadm init` printed."
    keys = [read_keys(below(root, KEY)) for root in (first, second)]
    assert keys[0] == keys[1]
    assert below(first, MANIFESTS).read_bytes() == below(second, MANIFESTS).read_bytes()


def test_the_key_is_its_owners_alone_and_is_never_said(tmp_path):
    said = "\n".join(told(tmp_path, bootstrap=True) + told(tmp_path, bootstrap=True))
    key = below(tmp_path, KEY)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().strip() not in said
    assert said.count(f"key {read_keys(key).signing.id.hex()} signs") == 2


@pytest.mark.parametrize("systemd", [False, True])
def test_run_twice_it_changes_nothing(tmp_path, systemd):
    told(tmp_path, bootstrap=True, systemd=systemd)
    before = everything(tmp_path)
    said = told(tmp_path, bootstrap=True, systemd=systemd) + told(tmp_path, systemd=systemd)
    assert everything(tmp_path) == before
    assert sum(line.endswith(": unchanged") for line in said) == 4


@pytest.mark.parametrize("systemd", [False, True])
def test_the_first_node_stays_it_without_the_flag_and_no_other_becomes_it(tmp_path, systemd):
    first, second = tmp_path / "first", tmp_path / "second"
    for root, of in ((first, site(first=True)), (second, site())):
        told(root, of, bootstrap=True, systemd=systemd)
    assert [was_first(root) for root in (first, second, tmp_path / "none")] == [True, False, False]
    before = everything(first)
    told(first, site(first=was_first(first)), systemd=systemd)
    assert everything(first) == before


def test_while_no_server_is_well_the_first_node_is_preferred_by_all_and_nothing_moves_back_for_that():
    (pool,) = (each for each in yaml.safe_load_all(manifests(site())) if each["kind"] == "Eip")
    (term,) = pool["spec"]["nodePreference"]
    ((label, value),) = term["matchLabels"].items()
    assert f"--node-labels={label}={value}" in site(first=True).flags
    assert not any("label" in flag for flag in site().flags)
    assert "failback" not in pool["spec"]


def test_another_server_changes_the_manifests_alone_and_keeps_the_key(tmp_path):
    told(tmp_path, bootstrap=True)
    before = everything(tmp_path)
    said = told(tmp_path, Site.parse(ADDRESS, f"{SERVERS},192.0.2.14", OWN))
    changed = {file for file, found in everything(tmp_path).items() if before.get(file) != found}
    assert changed == {below(tmp_path, MANIFESTS)}
    assert f"{below(tmp_path, MANIFESTS)}: replaced" in said


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path):
    told(tmp_path, bootstrap=True)
    directory = below(tmp_path, STATIC_POD).parent
    below(tmp_path, STATIC_POD).unlink()
    directory.rmdir()
    directory.write_text("")
    before = everything(tmp_path)
    with pytest.raises(EdgeError, match="cannot write "):
        told(tmp_path)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("file", [MANIFESTS, STATIC_POD])
def test_a_directory_in_the_place_of_a_file_is_found_before_anything_is_written(tmp_path, file):
    below(tmp_path, file).mkdir(parents=True)
    with pytest.raises(EdgeError, match=f"cannot read .*{file.name}: Is a directory"):
        told(tmp_path, bootstrap=True)
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(("systemd", "other"), [(False, UNIT), (True, STATIC_POD)])
def test_two_that_would_start_one_speaker_each_are_refused_before_anything_is_written(tmp_path, systemd, other):
    told(tmp_path, bootstrap=True, systemd=not systemd)
    before = everything(tmp_path)
    with pytest.raises(SettingError, match=f"{other.name}: would start a second speaker: remove it first"):
        told(tmp_path, systemd=systemd)
    assert everything(tmp_path) == before


def test_a_key_that_others_can_read_is_refused(tmp_path):
    told(tmp_path, bootstrap=True)
    below(tmp_path, KEY).chmod(0o644)
    with pytest.raises(SettingError, match="has mode 0644"):
        told(tmp_path)


# ── What is refused ──


@pytest.mark.parametrize(
    ("address", "servers", "message"),
    [
        ("", SERVERS, 'ADDRESS "": must be a single address'),
        ("api.example.com", SERVERS, "ADDRESS api.example.com: must be a single address"),
        ("192.0.2.0/24", SERVERS, "ADDRESS 192.0.2.0/24: must be a single address"),
        ("127.0.0.1", SERVERS, "is loopback"),
        ("fe80::1", SERVERS6, "is link-local"),
        (ADDRESS, "", '--servers "": must be an IP address'),
        (ADDRESS, "192.0.2.11,", '--servers "": must be an IP address'),
        (ADDRESS, "node1,node2", "--servers node1: must be an IP address"),
        (ADDRESS, "192.0.2.11, 192.0.2.12", '--servers " 192.0.2.12": must be an IP address'),
        (ADDRESS, f"{SERVERS},{ADDRESS}", "--servers 192.0.2.10: is the address itself"),
        (ADDRESS, "192.0.2.12,2001:db8::12", "--servers 2001:db8::12: must be IPv4, as 192.0.2.10 is: one family"),
        (ADDRESS6, SERVERS, "--servers 192.0.2.11: must be IPv6, as 2001:db8::10 is"),
        (ADDRESS, "192.0.2.12,192.0.2.12", "--servers 192.0.2.12: must be named once"),
        (ADDRESS, "192.0.2.12,127.0.0.1", "is loopback"),
        (ADDRESS, "192.0.2.21,192.0.2.22", "--servers: none of them is this host's, which has 127.0.0.1, 192.0.2.12"),
        (ADDRESS, ",".join(f"192.0.2.{12 + i}" for i in range(17)), "--servers: 17 addresses: must be at most 16"),
    ],
)
def test_addresses_that_cannot_work_are_refused_with_the_rule(address, servers, message):
    with pytest.raises(SettingError) as refused:
        Site.parse(address, servers, OWN)
    assert message in str(refused.value)


def test_a_host_with_two_of_the_servers_is_refused():
    with pytest.raises(SettingError, match=r"192\.0\.2\.11,192\.0\.2\.12: all belong to this host"):
        site([ip_address("192.0.2.11"), HERE])


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *[("port", value) for value in ("0", "65536", "https", "-1", " 6443", "")],
        *[("interface", value) for value in ("lo", "a b", "eth0\n", "x" * 16, "reach:1", "can_reach:here")],
        *[("ca", Path(value)) for value in ("ca.crt", "/etc/my pki/ca.crt", '/a"b', "/a\nb", "/a:b", "/" + "x" * 300)],
    ],
)
def test_flags_that_cannot_work_are_refused_by_name(flag, value):
    with pytest.raises(SettingError, match=f"^--{flag} "):
        site(**{flag: value})


@pytest.mark.parametrize("image", ["", "a b", 'x"', "x\ny", "-x", "x" * 600])
def test_an_image_that_is_no_name_is_refused(image):
    with pytest.raises(SettingError, match=r"^--image "):
        static_pod(site(), image)


@pytest.mark.parametrize("program", ["speaker", "/opt/my programs/speaker", "/x\n[Service]"])
def test_a_program_that_a_unit_cannot_name_is_refused(program):
    with pytest.raises(SettingError, match="a unit needs an absolute path"):
        unit(site(), program)


@pytest.mark.parametrize("program", ["/opt/100%/speaker", "/opt/$HOME/speaker"])
def test_no_word_of_a_unit_is_expanded_by_systemd(program):
    with pytest.raises(SettingError, match="a unit needs an absolute path"):
        unit(site(), program)
