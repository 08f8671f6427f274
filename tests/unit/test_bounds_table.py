"""Every input has a bound: the table in the documentation says what the code says, and each row has its test."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "operations.md").read_text().split("\n## Bounds\n")[1].split("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("|") and not line.startswith(("| what", "|---"))
]
LIMIT = re.compile(r"^(_?MAX_[A-Z_]+)(?:: [\w\[\]]+)? = ", re.MULTILINE)
ELSEWHERE = {
    # A bound on what a field may say, not on how much there may be: named in messages, and in the CRDs.
    "api.eip.MAX_BURST",
    # Numbers of a format: what travels is cut to them.
    "ownership.hello.MAX_AGE",
    "ownership.hello.MAX_INCARNATION",
    # Of files that the speaker or the kubelet wrote: what is there instead, a device say, is not read without end.
    "cluster.access.MAX_FILE",
    "forwarding.ipvs.settings._MAX_BYTES",
    "standalone.state.MAX_BYTES",
    "tools.connections.MAX_STATUS",
    # Of another program on this host's loopback.
    "kubeproxy.sight.MAX_BODY",
}


def limits_in_the_code():
    for file in (ROOT / "speaker").rglob("*.py"):
        name = ".".join(file.relative_to(ROOT / "speaker").with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith("lab."):
            yield from (f"{name}.{limit}" for limit in LIMIT.findall(file.read_text()))


@pytest.mark.parametrize(("what", "bound", "beyond", "where", "test"), ROWS, ids=[row[3] for row in ROWS])
def test_a_row_says_what_the_code_says_and_its_test_is_there(what, bound, beyond, where, test):
    assert what
    assert beyond
    module, name = where.strip("`").rsplit(".", 1)
    constant = getattr(importlib.import_module(module if module == "crds" else f"speaker.{module}"), name)
    assert float(bound.split(",")[0]) == constant
    file, test_name = test.strip("`").split("::")
    assert re.search(rf"^(async )?def {test_name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)


def test_every_limit_of_the_code_has_a_row():
    listed = {row[3].strip("`") for row in ROWS}
    assert set(limits_in_the_code()) - ELSEWHERE - listed == set()
