"""``speaker keygen``: makes the cluster key, and replaces it in three steps, while all hosts accept each other.

Each step changes one file on one host, which is then copied to all the others before the next step:

1. ``--add``      a second key: every host accepts it, but none signs with it yet.
2. ``--promote``  the second key signs, and the first is still accepted.
3. ``--retire``   the first key is removed.

At every moment, even before all copies are made, each host accepts what any other signs.
"""

import os
import secrets
from contextlib import suppress
from enum import Enum
from pathlib import Path

from speaker.errors import SettingError
from speaker.ownership.hellos.keyfile import read_private
from speaker.ownership.hellos.keys import MIN_SECRET, Keys, generate, parse
from speaker.system.files import absolute, is_there, shown, write_atomically
from speaker.tools.terminal import following


class Step(Enum):
    """A step in a key's life; the value is the flag's name."""

    MAKE = "make"
    ADD = "add"
    PROMOTE = "promote"
    RETIRE = "retire"


def keygen(file: Path, step: Step) -> tuple[str, ...]:
    """Does the step and returns what to say about it: lines with ids, never with a key.

    Raises SettingError if the file is not ready for the step, and EdgeError if it cannot be written.
    """
    owner = None
    if step is Step.MAKE:
        content = _new(file)
    else:
        content = _changed(file, step)
        with suppress(OSError):  # it has been removed meanwhile: then it is ours
            owner = file.stat()  # root may replace a file of the user that a speaker runs as
    keys = parse(content, str(file))
    write_atomically(Path(os.path.realpath(absolute(file))), content, mode=0o600, new=step is Step.MAKE, owner=owner)
    return f"{shown(file)}: {_told(keys)}", *_next(file, step)


_FOLLOWING = {Step.ADD: Step.PROMOTE, Step.PROMOTE: Step.RETIRE}


def _next(file: Path, step: Step) -> tuple[str, ...]:
    copy = "copy it to every host, readable by its owner alone"
    if (after := _FOLLOWING.get(step)) is None:
        return (copy,)
    return f"{copy}, and when all have it:", following("keygen", f"--{after.value}", str(file))


def _told(keys: Keys) -> str:
    too = f", key {keys.other.id.hex()} is accepted too" if keys.other else ""
    return f"key {keys.signing.id.hex()} signs{too}"


def _new(file: Path) -> bytes:
    if is_there(file):
        raise SettingError(
            f"{file}: exists: a new key there would separate this host from its peers. To replace the key, "
            f"begin with `speaker keygen --add {file}`, which adds a second key that does not sign yet"
        )
    return generate(secrets.token_bytes(MIN_SECRET)).encode()


def _changed(file: Path, step: Step) -> bytes:
    content = read_private(file)
    keys = parse(content, str(file))
    if (keys.other is None) is not (step is Step.ADD):
        held = "one key: first --add a second" if keys.other is None else "two keys: first --retire the second"
        raise SettingError(f"--{step.value} {file}: holds {held}")
    lines = [line.strip() for line in content.splitlines()]
    at = [i for i, line in enumerate(lines) if line and not line.startswith(b"#")]
    match step:
        case Step.ADD:
            lines.append(generate(secrets.token_bytes(MIN_SECRET)).strip().encode())
        case Step.PROMOTE:
            lines[at[0]], lines[at[1]] = lines[at[1]], lines[at[0]]
        case _:
            del lines[at[1]]
    return b"\n".join(lines) + b"\n"
