"""The files by which a speaker is let in: what is no file is named, and never waited for."""

import os
from pathlib import Path

import pytest

from speaker.cluster.access import TOKEN_AGE, Access, Server, TokenFile, configure
from speaker.cluster.client import Client
from speaker.errors import EdgeError, SettingError

IRREGULAR = {
    "a directory": (lambda path: path.mkdir(), "Is a directory"),
    "a FIFO": (os.mkfifo, "Is a FIFO"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "Is a device"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "Is a link to nowhere, which does not exist"),
    "nothing": (lambda path: None, "No such file or directory"),
}
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "https://192.0.2.1:6443", certificate-authority: ca.crt}}]
users: [{name: x, user: {token: t}}]
"""

irregular = pytest.mark.parametrize(("make", "said"), IRREGULAR.values(), ids=IRREGULAR.keys())


@irregular
@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_a_file_of_the_service_account_that_is_none_is_named(tmp_path, name, make, said):
    for each in {"token", "ca.crt"} - {name}:
        (tmp_path / each).write_text("t")
    make(tmp_path / name)
    with pytest.raises(EdgeError, match=f"{name}: .*{said}"):
        await configure(Access(server="https://192.0.2.1:6443", service_account=tmp_path))


@irregular
async def test_a_namespace_that_cannot_be_read_is_the_usual_one(tmp_path, make, said):
    make(tmp_path / "namespace")
    assert Access(service_account=tmp_path).namespace("eip-speaker") == "eip-speaker"


@irregular
async def test_a_kubeconfig_that_is_no_file_is_named(tmp_path, make, said):
    make(tmp_path / "config")
    with pytest.raises(SettingError, match=f"kubeconfig {tmp_path}/config: .*{said}"):
        await configure(Access(tmp_path / "config"))


@irregular
async def test_certificates_that_a_kubeconfig_names_and_that_are_no_file_are_refused(tmp_path, make, said):
    (tmp_path / "config").write_text(KUBECONFIG)
    make(tmp_path / "ca.crt")
    with pytest.raises(SettingError, match=f"kubeconfig {tmp_path}/config: .*{tmp_path}/ca.crt"):
        await configure(Access(tmp_path / "config"))


CLUSTER = """
apiVersion: v1
kind: Config
clusters: [{name: x, cluster: {server: "https://192.0.2.1:6443"}}]
"""
WAY = """
apiVersion: v1
kind: Config
current-context: y
contexts: [{name: x, context: {cluster: x, user: x}}, {name: y, context: {cluster: y, user: x}}]
users: [{name: x, user: {token: t}}]
"""


async def test_several_kubeconfigs_are_one_as_for_kubectl(tmp_path):
    for name, text in (("a", CLUSTER), ("b", WAY)):
        (tmp_path / name).write_text(text)
    named = Path(os.pathsep.join(str(tmp_path / name) for name in ("nowhere", "a", "b")))
    server = await configure(Access(named, "x"))
    assert server.url == "https://192.0.2.1:6443"
    assert await server.authorization() == "Bearer t"


async def test_a_fifo_among_several_kubeconfigs_is_not_waited_for(tmp_path):
    (tmp_path / "a").write_text(CLUSTER)
    os.mkfifo(tmp_path / "b")
    with pytest.raises(SettingError, match="Is a FIFO"):
        await configure(Access(Path(f"{tmp_path}/a{os.pathsep}{tmp_path}/b")))


async def test_a_token_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "token").write_bytes(b"\xff")
    with pytest.raises(EdgeError, match="token: must be UTF-8"):
        await configure(Access(server="https://192.0.2.1:6443", service_account=tmp_path))


@pytest.mark.parametrize("text", ["", " \n", "two\nlines", "a\r\nX-Remote-User: b", "nul\0"])
async def test_a_token_that_no_header_can_hold_is_refused(tmp_path, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(EdgeError, match="token: must be one line with a token"):
        await configure(Access(server="https://192.0.2.1:6443", service_account=tmp_path))


async def test_a_token_of_a_kubeconfig_that_no_header_can_hold_is_an_edge_error():
    async def authorization():
        return "Bearer two\nlines"

    async with Client(Server("http://127.0.0.1:1", authorization=authorization)) as client:
        with pytest.raises(EdgeError, match="must be one line"):
            await client.get("/version")


SPOILT = {
    "gone": Path.unlink,
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "empty": lambda path: path.write_text(""),
    "no text": lambda path: path.write_bytes(b"\xff"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
async def test_while_a_token_cannot_be_read_the_last_one_counts_until_the_api_refuses_it(tmp_path, spoil):
    now, path = [100.0], tmp_path / "token"
    path.write_text("first")
    token = TokenFile(path, clock=lambda: now[0])
    token.read()
    spoil(path)
    now[0] += TOKEN_AGE
    assert await token() == "Bearer first"
    token.expire()
    with pytest.raises(EdgeError, match=str(path)):
        await token()
    if path.is_dir():
        path.rmdir()
    path.write_text("second")
    assert await token() == "Bearer second"
