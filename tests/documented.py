"""The command blocks of the documentation: their lines, where each of them runs, or what it needs that is not here."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "SECURITY.md"]
FILES += [ROOT / "manifests" / "README.md"]
PROGRAMS = frozenset(
    (
        *("cosign", "docker", "gh", "git", "helm", "ip", "kubectl", "make", "mkdir", "nft", "pip", "pytest", "python3"),
        *("shred", "speaker", "sysctl", "systemctl", "systemd-sysusers", "umask"),
    )
)
IN_VENVS = re.compile(r"^(?:\.venv|/opt/eip-speaker)/bin/")


class Line(NamedTuple):
    file: str
    number: int
    text: str
    """Without prompt and comment; continued lines in one."""
    block: int = 0
    """The number of its block's first line."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


def blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Indented ones, and fenced ones that say ``sh``, with the number of their first line."""
    fence: str | None = None
    block: list[str] = []
    before = ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        opened = re.match(r"^ *```(\w*)", line)
        inside = fence == "sh" and not opened
        indented = fence is None and line.startswith("    ") and (block or not before.strip())
        if inside or indented:
            block.append(line.strip())
        elif block:
            yield number - len(block), block
            block = []
        if opened:
            fence = opened.group(1) if fence is None else None
        before = line


def first_word(line: str) -> str:
    return IN_VENVS.sub("", line.removeprefix("$ ").partition(" ")[0])


def lines_of(file: Path, root: Path = ROOT) -> Iterator[Line]:
    """Of blocks that begin with a command; behind prompts only what follows them."""
    for number, block in blocks(file.read_text()):
        if first_word(block[0]) not in PROGRAMS:
            continue
        prompts = block[0].startswith("$ ")
        held = ""
        for at, line in enumerate(block):
            if prompts and not line.startswith("$ "):
                continue
            held += line.removeprefix("$ ")
            if held.endswith("\\"):
                held = held[:-1]
                continue
            yield Line(file.relative_to(root).as_posix(), number + at, re.sub(r"\s+#\s.*$", "", held).strip(), number)
            held = ""


LINES = [line for file in FILES for line in lines_of(file) if line.text]

IN_A_SHELL = "in netns/run/test_documented_commands.py, in the order of the page"
MIGRATED = "in apiserver/test_adoption.py, page by page, against a real API server; there and back in moving/"
FROM_KEEPALIVED = "in moving/test_from_keepalived.py, there and back with Debian's keepalived"
RUN = {
    FROM_KEEPALIVED: r"speaker .*|systemctl (start|stop) (keepalived|eip-speaker)",
    MIGRATED: r"mkdir in|kubectl .*|speaker (convert|validate) .*",
    IN_A_SHELL: r"speaker .*|(ip|sysctl) .*",
    "here: pytest finds what it names": r"\.venv/bin/pytest .*",
    "here: make says what it would do": r"make .*",
    "in netns/lab/test_lab_failover.py and netns/lab/test_sick_links.py": r"\.venv/bin/speaker lab --scenario .*",
    "in netns/run/test_documented_commands.py, by its short name": r"\.venv/bin/speaker (validate|run) .*",
}
"""Where, by which lines."""

NEEDS = {
    "a cluster; cluster/ applies the same files with the same flags": r"kubectl .*|speaker keygen (--add )?\./key",
    "helm and a cluster; unit/test_render.py looks into the chart": r"helm .*",
    "a cluster's Secret, on the terminal of whoever holds the key": r"umask 077|shred -u \./key",
    "a package index": r"(/opt/eip-speaker/bin/)?pip install \.",
    "a host to install on; unit/test_systemd.py reads the unit, netns/run/test_unit.py starts what it starts": (
        r"(systemctl|systemd-sysusers) .*|python3 -m venv /opt/eip-speaker"
    ),
    "hosts for a control plane; control_plane/ does the same in this order": r"(kubeadm|speaker control-plane) .*",
    "the right to push a tag": r"git tag .*",
    "a release, and GitHub: there has been none yet": r"(cosign|gh) .*",
}
"""What is not here, by which lines; what comes nearest to it."""


def where(line: Line) -> list[str]:
    if line.file == "docs/migration/keepalived.md" and re.fullmatch(RUN[FROM_KEEPALIVED], line.text):
        return [FROM_KEEPALIVED]
    if line.file.startswith("docs/migration/") and re.fullmatch(RUN[MIGRATED], line.text):
        return [MIGRATED]
    needed = [reason for reason, pattern in NEEDS.items() if re.fullmatch(pattern, line.text)]
    return needed or [
        place
        for place, pattern in RUN.items()
        if place not in (MIGRATED, FROM_KEEPALIVED) and re.fullmatch(pattern, line.text)
    ]
