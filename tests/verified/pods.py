"""A fake of what lists pods and runs commands in them: an API server's ``pods`` and ``pods/exec``.

Commands run as processes of this machine, in place of a container's.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from aiohttp import web

TOKEN = "let-me-in"  # noqa: S105 -- of a fake

Container = Callable[[Sequence[str]], Awaitable[tuple[bytes, bytes, int]]]
"""What a command in it says, on stdout and stderr, and its exit code. Raises FileNotFoundError where it has none."""


async def processes(command: Sequence[str]) -> tuple[bytes, bytes, int]:
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        out, err = await running.communicate()
    except asyncio.CancelledError:
        running.kill()
        await running.wait()
        raise
    return out, err, running.returncode or 0


class FakePods:
    """``async with FakePods({"pod": container}) as fake``. ``phases``: of pods that do not run."""

    def __init__(
        self,
        containers: Mapping[str, Container],
        namespace: str,
        phases: Mapping[str, str] | None = None,
        services: Sequence[object] = (),
        pools: Sequence[object] = (),
    ) -> None:
        self._objects = {"/api/v1/services": services, "/apis/eip-speaker.io/v1alpha1/eips": pools}
        self._containers, self.namespace, self._phases = containers, namespace, phases or {}
        self.commands: list[tuple[str, tuple[str, ...]]] = []
        """Pod and command."""

    async def __aenter__(self) -> Self:
        app = web.Application()
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        app.router.add_get(pods, self._list)
        for path in self._objects:
            app.router.add_get(path, self._list_objects)
        app.router.add_get(f"{pods}/{{name}}/exec", self._exec)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def kubeconfig(self, token: str = TOKEN) -> str:
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "who", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "who"}}],
        })  # fmt: skip

    async def _list(self, asked: web.Request) -> web.Response:
        if refused := self._refused(asked):
            return refused
        items = [self._pod(name) for name in self._containers]
        return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": items})

    async def _list_objects(self, asked: web.Request) -> web.Response:
        items = [*self._objects[asked.path]]
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})

    def _pod(self, name: str) -> dict[str, Any]:
        metadata = {"name": f"agent-{name}", "namespace": self.namespace}
        return {
            "metadata": metadata,
            "spec": {"nodeName": name},
            "status": {"phase": self._phases.get(name, "Running")},
        }

    def _refused(self, asked: web.Request) -> web.Response | None:
        if asked.headers.get("Authorization") == f"Bearer {TOKEN}":
            return None
        status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "pods is forbidden"}
        return web.json_response(status, status=403)

    async def _exec(self, asked: web.Request) -> web.StreamResponse:
        if refused := self._refused(asked):
            return refused
        name = asked.match_info["name"].removeprefix("agent-")
        if name not in self._containers:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if asked.headers["Accept"] != "*/*":  # as a kubelet does
            return web.Response(status=406)
        command = tuple(asked.query.getall("command"))
        self.commands.append((name, command))
        answer = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"))
        await answer.prepare(asked)
        status: dict[str, Any] = {"status": "Success"}
        try:
            out, err, code = await self._containers[name](command)
        except FileNotFoundError as error:
            status = {"status": "Failure", "reason": "InternalError", "message": f"error executing command: {error}"}
        else:
            for channel, said in ((1, out), (2, err)):
                for at in range(0, len(said), 32 * 1024):
                    await answer.send_bytes(bytes([channel]) + said[at : at + 32 * 1024])
            if code:
                words = f"command terminated with non-zero exit code: exit code {code}"
                status = {"status": "Failure", "reason": "NonZeroExitCode", "message": words}
        await answer.send_bytes(b"\x03" + json.dumps(status).encode())
        await answer.close()
        return answer
