"""``speaker capture`` of files: pcap and pcapng by whoever wrote them, and what it cannot read."""

import io
import json
import resource
import sys
import tomllib
from pathlib import Path

import pytest
import replies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.utils import RawPcapNgWriter, RawPcapWriter

from speaker.cli import main
from speaker.errors import EdgeError
from speaker.model import Mac
from speaker.ownership.hello import EVERYTHING, Digest, Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Key, Keys, generate
from speaker.packets import arp
from speaker.tools.capture import capture as tap
from speaker.tools.capture.capture import CaptureSettings, capture

SECRET = b"k" * 32
MAC = Mac(b"\x02\x00\x00\x00\x00\x02")
HELLO = Hello("node2", Incarnation(1), 1, 1, Digest(), covers=EVERYTHING)


@pytest.fixture
def frame():
    (made,) = frames.encode(HELLO, Keys(Key(SECRET)), MAC)
    return made


def write_pcap(path, *captured, linktype=1, nano=False):
    with path.open("wb") as file:
        writer = RawPcapWriter(file, linktype=linktype, nano=nano)
        writer.write_header(None)
        for number, frame in enumerate(captured):
            writer.write_packet(frame, sec=1000 + number, usec=5)


def write_pcapng(path, *captured):
    writer = RawPcapNgWriter(str(path))
    writer.linktype = 1
    writer.write_header(None)
    for number, frame in enumerate(captured):
        writer.write_packet(frame, sec=1000 + number, usec=5)
    writer.close()


@pytest.mark.parametrize("written", [write_pcap, write_pcapng])
def test_both_kinds_of_files_are_read_with_their_times(written, tmp_path, frame, capsys):
    written(tmp_path / "seen", frame, replies.gratuitous_request(MAC, arp.IPv4Address("192.0.2.10")).pack())
    assert main(["capture", str(tmp_path / "seen"), "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["event"], round(each["time"])) for each in told] == [
        ("hello", 1000),
        ("silent", 1001),
        ("announces", 1001),
    ]


def test_people_read_seconds_since_the_first_event_and_how_much_there_was(tmp_path, frame, capsys):
    write_pcap(tmp_path / "seen.pcap", frame)
    assert main(["capture", str(tmp_path / "seen.pcap")]) == 0
    assert capsys.readouterr().out == (
        "    0.000    node2 sends a hello: it holds no EIP and hears no other node [unverified]\n"
        "events: 1, alarms: none\n"
    )


def test_with_the_key_hellos_are_verified_and_the_key_is_never_shown(tmp_path, frame, capsys):
    write_pcap(tmp_path / "seen.pcap", frame, frame[:-1] + b"?")
    (tmp_path / "key").write_text(generate(SECRET))
    (tmp_path / "key").chmod(0o600)
    assert main(["capture", str(tmp_path / "seen.pcap"), "--key", str(tmp_path / "key"), "--json"]) == 0
    told = capsys.readouterr().out
    assert '"verified": true' in told
    assert "forged" in told
    assert generate(SECRET).strip() not in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere: is neither a link of this host (lo"),
        (["FILE", "--seconds", "2"], "--seconds: "),
        (["FILE", "--write", "x"], "--write: "),
        (["lo", "--seconds", "0"], "--seconds 0: must be seconds above 0"),
        (["lo", "--ethertype", "ARP"], "--ethertype"),
    ],
)
def test_a_command_line_that_cannot_work_ends_with_2_and_says_why(arguments, says, tmp_path, frame, capsys):
    write_pcap(tmp_path / "seen.pcap", frame)
    named = [str(tmp_path / "seen.pcap") if word == "FILE" else word for word in arguments]
    assert main(["capture", *named]) == 2
    assert says in capsys.readouterr().err


def test_what_was_written_before_is_not_written_over(tmp_path):
    (tmp_path / "kept.pcap").write_bytes(b"dear to somebody")
    with pytest.raises(Exception, match="exists: must be a new file"), tap.into(tmp_path / "kept.pcap"):
        pass
    assert (tmp_path / "kept.pcap").read_bytes() == b"dear to somebody"


def test_frames_of_another_kind_of_link_are_refused_by_name(tmp_path, frame, capsys):
    write_pcap(tmp_path / "any.pcap", frame, linktype=113)
    assert main(["capture", str(tmp_path / "any.pcap")]) == 1
    assert "not Ethernet (link type 113)" in capsys.readouterr().err


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_file_of_any_bytes_is_read_or_refused(tmp_path, frame, data):
    written = data.draw(st.sampled_from([write_pcap, write_pcapng]))
    path = tmp_path / "seen"
    written(path, frame, frame)
    spoilt = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(spoilt) - 1), max_size=6)):
        spoilt[at] = data.draw(st.integers(0, 255))
    path.write_bytes(spoilt[: data.draw(st.integers(0, len(spoilt)))])
    try:
        assert all(isinstance(at, float) and isinstance(raw, bytes) for at, raw in tap.of_file(path))
    except EdgeError as error:
        assert str(path) in str(error)  # noqa: PT017 -- either is right


def test_without_scapy_the_command_that_installs_it_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "scapy.config", None)
    monkeypatch.setitem(sys.modules, "scapy", None)
    assert main(["capture", "lo"]) == 2
    pyproject = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    (wanted,) = pyproject["project"]["optional-dependencies"]["tools"]
    assert capsys.readouterr().err.endswith(f"pip install '{wanted}'\n")


def test_a_file_that_nobody_may_look_at_is_named(tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    assert main(["capture", str(tmp_path / "loop" / "seen.pcap")]) == 1
    assert capsys.readouterr().err.startswith(f"speaker: cannot look at {tmp_path}/loop/seen.pcap: ")


def test_ctrl_c_ends_a_capture_with_how_much_there_was(tmp_path, frame):
    class Terminal(io.StringIO):
        """Where Ctrl-C is pressed as the first line is there."""

        def flush(self):
            if self.getvalue().count("\n") == 1:
                raise KeyboardInterrupt

    write_pcap(tmp_path / "seen.pcap", frame, frame)
    terminal = Terminal()
    with pytest.raises(KeyboardInterrupt):
        capture(CaptureSettings(str(tmp_path / "seen.pcap")), terminal)
    assert terminal.getvalue().splitlines()[1:] == ["events: 1, alarms: none"]


def test_a_stdout_that_is_gone_is_not_the_files_trouble(tmp_path, frame):
    def tell(write):
        write(1.0, frame)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError), tap.into(tmp_path / "kept.pcap") as write:
        tell(write)
    assert [each for _, each in tap.of_file(tmp_path / "kept.pcap")] == [frame]


def test_a_file_that_takes_no_more_is_named(tmp_path, frame):
    def keep():
        with tap.into(tmp_path / "kept.pcap") as write:
            for number in range(1000):
                write(number, frame)

    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(EdgeError, match=f"--write {tmp_path}/kept.pcap: File too large"):
            keep()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
