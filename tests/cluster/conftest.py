"""One real cluster for each of kube-proxy's modes that the kernel has, with the speaker and the first Services."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster_nodes import store
from cluster_story import first_service
from knock import Knocked
from real_cluster import MODES, RealCluster, missing

_TOLD: list[str] = []


@pytest.fixture(scope="session", params=MODES)
def cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    if why := missing(request.param):
        pytest.skip(why)
    with RealCluster(store(), proxy=request.param) as cluster:
        cluster.install()
        first_service(cluster)
        yield cluster


@pytest.fixture
def eips(cluster: RealCluster) -> dict[str, list[str]]:
    return {service: cluster.eips(service) for service in ("web", "local")}


@pytest.fixture
def count(cluster: RealCluster, request: pytest.FixtureRequest) -> Callable[[Knocked], Knocked]:
    """``count(knocked)``: it is told at the end of the run."""

    def told(knocked: Knocked) -> Knocked:
        _TOLD.append(f"{cluster.proxy:9} {request.node.originalname}: {knocked}")
        return knocked

    return told


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _TOLD:
        terminalreporter.write_line(line)
