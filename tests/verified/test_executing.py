"""A command in a pod, through the API server's door: by a fake, and by the cluster that $EXEC_POD is in, as
``tests/cluster/test_asked_from_afar.py`` sets it."""

import os
from pathlib import Path

import pytest
from pods import FakePods, processes

from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client, execute
from speaker.errors import ApiRefused, EdgeError

REAL = os.environ.get("EXEC_POD")
MOST = 2**20


@pytest.fixture(params=["fake", "real"] if REAL else ["fake"])
async def run(request, tmp_path):
    """``await run("sh", "-c", …)`` in the pod."""
    kubeconfig = tmp_path / "kubeconfig"
    async with FakePods({"n1": processes}, "agents") as fake:
        kubeconfig.write_text(fake.kubeconfig())
        namespace, pod, container = "agents", "agent-n1", "agent"
        if request.param == "real":
            kubeconfig, namespace, pod = Path(os.environ["KUBECONFIG"]), os.environ["EXEC_NAMESPACE"], REAL
        async with Client(await configure(Access(kubeconfig))) as client:

            async def execute_it(*command, within=20.0, most=MOST, pod=pod):
                return await execute(client, namespace, pod, container, command, within=within, most=most)

            yield execute_it


async def test_what_a_command_says_comes_back_whole_and_apart(run):
    said = await run("sh", "-c", "head -c 500000 /dev/zero; echo oh no >&2")
    assert (len(said.out), set(said.out), said.err, said.failed) == (500_000, {0}, "oh no\n", "")


async def test_a_command_that_says_nothing_is_no_failure(run):
    assert await run("true") == (b"", "", "")


async def test_words_stay_words_whatever_is_in_them(run):
    words = "a b", "--", "&c=d", "ü", "'\"$HOME"
    assert (await run("printf", "%s|", *words)).out.decode() == "".join(f"{word}|" for word in words)


async def test_how_it_ended_is_told(run):
    said = await run("sh", "-c", "echo half; exit 3")
    assert (said.out, "exit code 3" in said.failed) == (b"half\n", True)


async def test_a_program_that_is_not_there_is_told_of(run):
    said = await run("no-such-program")
    assert said.out == b""
    assert "no-such-program" in said.failed


async def test_one_that_says_too_much_is_no_answer(run):
    with pytest.raises(EdgeError, match="exceeds 1000 bytes"):
        await run("head", "-c", "100000", "/dev/zero", most=1000)


async def test_one_that_takes_too_long_is_given_up(run):
    with pytest.raises(EdgeError, match=r"no answer within 0\.5 s"):
        await run("sleep", "30", within=0.5)


async def test_a_pod_that_is_not_there_is_refused(run):
    with pytest.raises(ApiRefused) as raised:
        await run("true", pod="agent-nowhere")
    assert raised.value.code == 404


@pytest.mark.apiserver
@pytest.mark.parametrize(("user", "code"), [("admin", 404), ("nobody", 403)])
async def test_a_real_api_server_lets_in_who_may(user, code, api_server):
    async with Client(await configure(Access(api_server.kubeconfig(user)))) as client:
        with pytest.raises(ApiRefused) as raised:
            await execute(client, "default", "nowhere", "agent", ["true"], within=10.0, most=MOST)
    assert raised.value.code == code
