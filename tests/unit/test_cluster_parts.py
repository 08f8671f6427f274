"""What `make cluster` keeps between runs, and how its clients count; the cluster itself is in tests/cluster."""

import asyncio
import json
import socket
import tarfile
from pathlib import Path

import pytest
import real_api
from cluster_kernel import MACHINE, check
from cluster_lan import dummies
from cluster_parts import POD, PROGRAMS, ROOT, SOURCES, _join, _pack_pod, digest, kept, layers, version
from knock import ESTABLISHED, SLOW, Fates, Knocked, Tally, Told, once, port_of, told


def write(text, made):
    def make(target):
        made.append(text)
        target.write_text(text)

    return make


def test_what_was_made_from_the_same_is_kept(tmp_path):
    made = []
    for _ in range(2):
        assert kept(tmp_path / "it", "key", write("first", made)).read_text() == "first"
    assert made == ["first"]


def test_what_was_made_from_something_else_is_made_anew(tmp_path):
    made = []
    kept(tmp_path / "it", "key", write("first", made))
    assert kept(tmp_path / "it", "other key", write("second", made)).read_text() == "second"


def test_a_kernel_that_has_not_taken_what_a_cluster_needs_is_not_built():
    """An option that Linux has renamed, or that wants another one, is left out without a word."""
    wanted = (MACHINE / "config").read_text().splitlines()
    check(wanted, wanted)
    without = [line for line in wanted if line != "CONFIG_IP_VS=y"]
    with pytest.raises(RuntimeError, match=r"machine/config: this Linux has not taken CONFIG_IP_VS=y$"):
        check(wanted, without)
    check(without, wanted)


def test_links_are_found_by_their_kind_where_the_kernel_does_not_know_it_too():
    """iproute2 asks it for all links then, and prints `{}` for those of other kinds."""

    class Stub:
        def run(self, *_, place):
            assert place == "node1"
            return '[{},{"ifname":"eip-speaker0"},{}]'

    assert dummies(Stub(), "node1") == {"eip-speaker0"}


def test_what_was_not_made_to_its_end_does_not_count(tmp_path):
    def broken(target):
        target.write_text("half")
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError):
        kept(tmp_path / "it", "key", broken)
    assert list(tmp_path.iterdir()) == []
    assert kept(tmp_path / "it", "key", write("whole", [])).read_text() == "whole"


def test_a_directory_is_replaced_as_a_whole(tmp_path):
    def make(name):
        def furnish(target):
            target.mkdir()
            (target / name).touch()

        return furnish

    kept(tmp_path / "it", "key", make("old"))
    assert [path.name for path in kept(tmp_path / "it", "other key", make("new")).iterdir()] == ["new"]


def test_the_key_changes_with_a_byte_a_name_and_a_word(tmp_path_factory):
    files = list(SOURCES.rglob("*.go"))
    assert digest(files) == digest(reversed(files))
    assert len({digest(files), digest(files[1:]), digest(files, "arm64")}) == 3


def test_an_image_of_one_program_names_its_layer_by_what_it_holds(tmp_path):
    program = tmp_path / "pod"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    _pack_pod(program, tmp_path / "pod.tar")
    with tarfile.open(tmp_path / "pod.tar") as tar:
        (image,) = json.load(tar.extractfile("manifest.json"))
        assert image["RepoTags"] == [POD]
        layer = tar.extractfile(image["Layers"][0])
        with tarfile.open(fileobj=layer) as files:
            assert files.getmember("pause").mode & 0o111
            assert files.getmember("web").linkname == "pause"


def test_images_that_share_a_layer_have_it_once_in_their_archive(tmp_path):
    shared, own = "a" * 64, {"dev": "b" * 64, "next": "c" * 64}
    for tag, layer in own.items():
        with tarfile.open(tmp_path / tag, "w") as tar:
            for name, content in {
                f"{shared}.tar": "",
                f"{layer}.tar": "",
                "manifest.json": json.dumps([{"RepoTags": [tag], "Layers": [f"{shared}.tar", f"{layer}.tar"]}]),
            }.items():
                (tmp_path / "entry").write_text(content)
                tar.add(tmp_path / "entry", name)
    _join([tmp_path / tag for tag in own], tmp_path / "both")
    with tarfile.open(tmp_path / "both") as tar:
        assert sorted(tar.getnames()) == sorted([f"{each}.tar" for each in (shared, *own.values())] + ["manifest.json"])
        assert [image["RepoTags"] for image in json.load(tar.extractfile("manifest.json"))] == [["dev"], ["next"]]
    assert len(layers("next", tmp_path / "both")) == 2


def test_the_documentation_names_the_version_that_is_built():
    assert f"kubectl {version()}" in (ROOT / "docs" / "cluster.md").read_text()


def test_the_modules_of_kubernetes_fit_its_version():
    modules = (SOURCES / "go.mod").read_text()
    wanted = version().replace("1.", "v0.", 1)
    replaced = [line.split() for line in modules.splitlines() if "=>" in line]
    assert replaced
    assert {words[-1] for words in replaced} == {wanted}


def test_tests_of_the_api_find_what_the_cluster_built():
    assert real_api.BUILT == PROGRAMS


# ── Counting ──


def test_an_outage_lasts_from_the_first_failure_to_the_first_connection_that_is_answered_after():
    tally = Tally()
    tally.answered(0.0, 0.1)
    tally.refused(1.0)
    tally.refused(1.5)
    tally.answered(2.5, 2.6)
    tally.answered(3.0, 3.1)
    assert (tally.asked, tally.failed, tally.slow, tally.longest()) == (5, 2, 0, 1.5)


def test_an_answer_to_an_older_connection_does_not_end_an_outage():
    tally = Tally()
    tally.refused(1.0)
    tally.answered(0.5, 1.2)
    tally.answered(2.0, 2.1)
    assert tally.longest() == 1.0


@pytest.mark.parametrize(
    ("seconds", "again", "sent_again", "slow"),
    [(0.1, False, 0, 0), (SLOW + 0.2, False, 0, 1), (SLOW + 0.2, True, 1, 0), (0.3, True, 1, 0)],
)
def test_what_was_sent_again_is_told_apart_from_a_machine_that_was_slow(seconds, again, sent_again, slow):
    tally = Tally()
    tally.answered(0.0, seconds, again=again)
    assert (tally.failed, tally.again, tally.slow) == (0, sent_again, slow)


async def reset(_, writer):
    writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1] + [0] * 7))
    writer.close()


async def answer(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
    writer.close()


@pytest.mark.parametrize(("behaves", "counted"), [(answer, (1, 0, 0)), (reset, (1, 0, 1)), (None, (1, 1, 0))])
async def test_a_connection_is_answered_or_cut_or_nobody_takes_it(behaves, counted):
    server = await asyncio.start_server(behaves or answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if behaves is None:
        server.close()
    tally = Tally()
    await once(f"127.0.0.1,{port}", 0, tally, Fates())
    server.close()
    assert (tally.asked, tally.failed, tally.cut) == counted


def test_the_kernel_knows_whether_a_connection_was_taken_and_what_was_sent_again():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        assert told(client).state != ESTABLISHED
        client.connect(server.getsockname())
        assert told(client) == Told(ESTABLISHED, 0)


async def test_clients_ask_from_a_port_of_their_own_and_say_which():
    fates = Fates()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    await once(f"127.0.0.1,{port}", 7, Tally(), fates)
    ((target, used, _, _),) = fates.harmed
    assert (target, used) == (f"127.0.0.1,{port}", port_of(7))


@pytest.mark.parametrize("answered", [True, False])
async def test_a_datagram_is_answered_or_has_failed(answered):
    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, addr):
            self.transport.sendto(data, addr)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    _, port = transport.get_extra_info("sockname")
    if not answered:
        transport.abort()
        await asyncio.sleep(0)
    tally, fates = Tally(), Fates()
    await once(f"127.0.0.1,{port},udp", 0, tally, fates)
    transport.close()
    assert (tally.asked, tally.failed) == (1, int(not answered)), fates.why


def test_what_clients_met_is_summed_over_targets():
    one, other = ({"asked": n, "failed": 1, "cut": 0, "again": 0, "slow": 0, "longest": n / 10} for n in (10, 20))
    knocked = Knocked({"a": one, "b": other}, {})
    assert (knocked.all("asked"), knocked.all("asked", ["b"]), knocked.longest(), knocked.longest(["a"])) == (
        30,
        20,
        2,
        1,
    )


def test_every_program_that_stands_alone_needs_the_standard_library_only():
    for name in ("knock.py", "witness.py", "cluster_node.py", "cluster_world.py"):
        source = (Path(SOURCES).parent / name).read_text()
        assert "import cluster" not in source
        assert "from cluster" not in source
