"""One real cluster for each of kube-proxy's modes that the kernel has, with the speaker and Services; and a table of
what clients met, at the end of the run."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from real_cluster import MODES, missing
from serving import Met, Serving

_TABLE: list[str] = []
_TOLD: list[str] = []


@pytest.fixture(scope="session", params=MODES)
def cluster(request: pytest.FixtureRequest) -> Iterator[Serving]:
    """For tests that leave it as it was."""
    if why := missing(request.param):
        pytest.skip(why)
    with Serving(request.param) as cluster:
        _TOLD.append(f"{cluster.proxy}: {cluster.seconds:.1f} s from `kubectl apply -f` to the first EIP that answers")
        yield cluster


@pytest.fixture
def eips(cluster: Serving) -> dict[str, list[str]]:
    return {service: cluster.eips(service) for service in ("web", "local")}


@pytest.fixture
def during(request: pytest.FixtureRequest) -> Callable[..., Met]:
    """``during(cluster, what)``: as its ``clients``, and told at the end of the run."""

    def count(cluster: Serving, what: Callable[[], object], **more: Any) -> Met:
        met = cluster.clients(what, **more)
        name = request.node.originalname.removeprefix("test_").replace("_", " ")
        _TABLE.extend((f"{cluster.forwards_by}: {name}: {met.all('failed')} of {met.all('asked')} failed", *met.rows()))
        return met

    return count


@pytest.fixture
def stranger(cluster: Serving) -> Iterator[str]:
    """Another address of the client's, which no source range lets in."""
    address = "192.0.2.103"
    cluster.world.run("ip", "address", "add", f"{address}/24", "dev", "eth0", place="client")
    yield address
    cluster.world.run("ip", "address", "delete", f"{address}/24", "dev", "eth0", place="client")


@pytest.fixture
def tell() -> Callable[[str], None]:
    """A line for the end of the run."""
    return _TOLD.append


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _TOLD:
        terminalreporter.write_line(line)
    if _TABLE:
        terminalreporter.write_line("New connections that failed:")
    for line in _TABLE:
        terminalreporter.write_line(line)
