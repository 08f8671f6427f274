"""keepalived's configurations of operators, and what becomes of them."""

import re
from pathlib import Path

from speaker.convert.conversion import of_keepalived
from speaker.convert.keepalived.text import read

TABLE = re.split(r"\n# (?=[a-z-]+: )", (Path(__file__).parent / "keepalived.txt").read_text())[1:]
SHAPES = {title: rest for title, _, rest in (each.partition("\n") for each in TABLE)}
SECRETS = ("hunter2", "0123456789abcdef")
FILE = "keepalived.conf"


def conf_of(title):
    return "".join(line for line in SHAPES[title].splitlines(keepends=True) if not line.startswith("=> "))


def expected(title, word):
    return re.findall(f"^=> {word} (.+)", SHAPES[title], re.MULTILINE)


def read_text(text, config_id="lb1", **files):
    return read([(FILE, text)], config_id, lambda pattern, _: [(pattern, files[pattern])] if pattern in files else [])


def converted(text, config_id="lb1", **files):
    found = read_text(text, config_id, **files)
    assert not found.problems, found.problems
    return of_keepalived(found)
