"""``speaker control-plane`` as an operator gives it, on a host with addresses of its own."""

import subprocess
import sys

import pytest
from alert_lan import eventually

pytestmark = pytest.mark.netns

SERVERS = {4: "198.51.100.1,198.51.100.2", 6: "2001:db8::1,2001:db8::2"}
ADDRESS = {4: "198.51.100.10", 6: "2001:db8::10"}


@pytest.fixture
def give(lan, sh, tmp_path):
    """``give(version, *flags)`` on the first of two hosts, with files below ``tmp_path``."""
    node, client = lan
    for place, last in ((node, 1), (client, 2)):
        sh(place, f"ip addr add 2001:db8::{last}/64 dev eth0 nodad")

    def run(version, *flags, address=None):
        asked = address or ADDRESS[version]
        words = ("control-plane", asked, "--servers", SERVERS[version], "--output", str(tmp_path), *flags)
        with node.entered():
            return subprocess.run(
                [sys.executable, "-m", "speaker", *words], capture_output=True, text=True, check=False
            )

    return run


def files_in(directory):
    return {str(file) for file in directory.rglob("*") if file.is_file()}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(
    ("flags", "starter"),
    [
        ((), "etc/kubernetes/manifests/eip-speaker-control-plane.yaml"),
        (("--systemd",), "etc/systemd/system/eip-speaker-control-plane.service"),
    ],
)
def test_it_finds_out_which_server_it_is_and_says_each_file_that_it_writes(give, tmp_path, version, flags, starter):
    done = give(version, "--bootstrap", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    configured = tmp_path / "etc" / "eip-speaker-control-plane"
    assert files_in(tmp_path) == {
        *(str(configured / name) for name in ("control-plane.yaml", "key")),
        str(tmp_path / starter),
    }
    assert all(f"{file}: " in done.stdout for file in files_in(tmp_path))
    assert (
        f"--node={SERVERS[version].split(',')[0].replace('.', '-').split(':')[0]}" in (tmp_path / starter).read_text()
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--servers", "198.51.100.2,198.51.100.10", "--bootstrap"), "--servers 198.51.100.10: is the address itself"),
        (("--servers", "198.51.100.2", "--bootstrap"), "--servers: none of them is this host's, which has "),
        ((), "key: is missing: copy it from the node that was the first"),
        (("--port", "api", "--bootstrap"), "--port api: must be a whole number from 1 to 65535"),
    ],
)
def test_a_command_line_that_cannot_work_ends_with_2_and_writes_nothing(give, tmp_path, flags, message):
    done = give(4, *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("address", "flags", "message"),
    [
        ("203.0.113.9", (), "no link has an address in a subnet that holds 203.0.113.9"),
        (ADDRESS[4], ("--interface", "eth7"), "eth7: there is no such link"),
        (ADDRESS[4], ("--interface", "eth7,eth0"), ""),
    ],
)
def test_that_no_link_of_this_host_can_have_the_address_is_said(give, address, flags, message):
    done = give(4, "--bootstrap", *flags, address=address)
    assert (done.returncode, done.stderr) == (0, "")
    told = f"Attention: this host cannot hold {address}: {message}. See --interface" if message else ""
    assert (told in done.stdout, "Attention" in done.stdout) == (True, bool(message)), done.stdout


@pytest.mark.parametrize("first", [0, 1])
def test_while_no_api_server_is_well_the_node_that_was_bootstrapped_is_preferred(lan, sh, start, tmp_path, first):
    servers = SERVERS[4].split(",")
    words = (
        "control-plane",
        ADDRESS[4],
        "--servers",
        SERVERS[4],
        "--bootstrap",
        "--systemd",
        "--output",
        str(tmp_path),
    )
    with lan[first].entered():
        subprocess.run([sys.executable, "-m", "speaker", *words], check=True)
    configured = tmp_path / "etc" / "eip-speaker-control-plane"
    configured.rename(tmp_path / "manifests")
    unit = next(tmp_path.rglob("*.service")).read_text()
    (label,) = (word for word in unit.split() if word.startswith("--node-labels="))
    shared = ("--with-peers", "--key", str(tmp_path / "manifests" / "key"))
    speakers = [
        start(node, *shared, *([label] if number == first else []), name=server.replace(".", "-"))
        for number, (node, server) in enumerate(zip(lan, servers, strict=True))
    ]
    for speaker in speakers:
        speaker.until("ready")

    def holders():
        subprocess.run(
            [sys.executable, "-m", "speaker", "rebalance", "--runtime-dir", str(speakers[0].directory / "run")],
            capture_output=True,
            check=False,
        )
        return {eip["holder"] for speaker in speakers for eip in speaker.status()["eips"]}

    eventually(lambda: holders() == {speakers[first].name}, holders)
