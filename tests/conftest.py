"""What every test may ask for: network namespaces that vanish, and commands run inside them."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from speaker.lab.namespaces import Namespace

Shell = Callable[..., str]


@pytest.fixture
def new_namespace() -> Iterator[Callable[[str], Namespace]]:
    """A factory of empty namespaces, gone when the test ends; skips where the machine does not let us make any."""
    with ExitStack() as stack:

        def new(label: str) -> Namespace:
            try:
                namespace = stack.enter_context(Namespace(label))
            except PermissionError as error:
                pytest.skip(f"needs the right to make network namespaces (root, or `unshare -Urnm`): {error}")
            with namespace.entered():
                subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            return namespace

        yield new


@pytest.fixture
def sh() -> Shell:
    """``sh(namespace, "ip addr add …")`` runs one command line inside and returns its output; fails loudly."""

    def run(namespace: Namespace, line: str, *, check: bool = True) -> str:
        with namespace.entered():
            done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{namespace.label}: {line}: exit {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout + done.stderr

    return run


@pytest.fixture
def wire(sh: Shell) -> Callable[[Namespace, str, Namespace, str], None]:
    """``wire(a, "eth0", b, "eth0")`` joins two namespaces with a veth pair, both ends up."""

    def join(a: Namespace, a_name: str, b: Namespace, b_name: str) -> None:
        # Both ends are made in `a` under their own names, then one moves: `netns` takes our own pid's fd path.
        with a.entered():
            subprocess.run(
                ["ip", "link", "add", a_name, "type", "veth", "peer", "name", b_name, "netns", b.path],
                check=True,
            )
        sh(a, f"ip link set {a_name} up")
        sh(b, f"ip link set {b_name} up")

    return join
