"""What fields of a Service and of its endpoints come to, with nftables and real connections."""

import pytest
from reach import SPREAD_BY_NFTABLES, nftables_nodes
from service_fields import *  # noqa: F403 - the tests, which are the same for every forwarder

pytestmark = pytest.mark.netns


@pytest.fixture
def spreads():
    return SPREAD_BY_NFTABLES


@pytest.fixture(scope="module")
def nodes():
    with nftables_nodes() as nodes:
        yield nodes
