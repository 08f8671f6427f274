"""Who may do what, as docs/permissions.md has it, row by row."""

import pytest
from rights import Rights, documented, verdict

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="session")
def rights(api_server, request):
    """The default overlay is installed."""
    api_server.kubectl("apply", "-k", str(request.config.rootpath / "manifests" / "overlays" / "default"))
    names = ("crd/eips.eip-speaker.io", "crd/announcements.eip-speaker.io")
    api_server.kubectl("wait", "--for=condition=Established", "--timeout=180s", *names)
    return Rights(api_server)


def test_the_table_of_the_docs_is_what_the_api_server_says(rights):
    assert rights.table() == documented(), "run `.venv/bin/python tests/apiserver/rights.py`"


def test_nobody_else_is_bound_by_the_policies(rights):
    with rights.objects():
        refused = [write for write in rights.writes() if verdict(rights.admin, write) == "policy"]
    assert refused == []
