"""The key file on disk: read at the start and whenever it changes, refused where others could read it too."""

import stat
from pathlib import Path

from speaker.errors import SettingError
from speaker.ownership.hellos.keys import Keys, parse
from speaker.system.files import read_regular, shown

MAX_BYTES = 64 * 1024
"""Two keys take a hundred."""


def read_keys(path: Path) -> Keys:
    """The keys in ``path``; may be called again at any time, as a rotation replaces the file.

    Raises SettingError, which names the file and what would have been right, but shows nothing of the content.
    """
    return parse(read_private(path), shown(path))


def read_private(path: Path) -> bytes:
    """The content of ``path``, which only its owner may read. Raises SettingError as ``read_keys`` does."""
    name = shown(path)
    try:
        content, found = read_regular(path, MAX_BYTES)
    except PermissionError as error:
        raise SettingError(
            f"{name}: cannot be read: {error.strerror}: must belong to the user that the speaker runs as"
        ) from error
    except OSError as error:
        raise SettingError(
            f"{name}: cannot be read: {error.strerror}: make one with `speaker keygen {name}` and copy it to every host"
        ) from error
    if (mode := stat.S_IMODE(found.st_mode)) & 0o077:
        raise SettingError(
            f"{name}: has mode {mode:04o}: must be for its owner alone, as 0600 is: whoever reads it can "
            f"take every EIP. If somebody may have read it, make a new one"
        )
    if len(content) > MAX_BYTES:
        raise SettingError(f"{name}: is larger than {MAX_BYTES} bytes: must be a file that `speaker keygen` wrote")
    return content
