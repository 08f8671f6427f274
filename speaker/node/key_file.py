"""Edge: the key file, read again when it changes, and handed to the wire process."""

from pathlib import Path

import structlog

from speaker.errors import SettingError
from speaker.node.report import Report
from speaker.ownership.hellos.keyfile import read_keys
from speaker.ownership.hellos.keys import Keys
from speaker.system.waiting import tick
from speaker.wire.remote import Wire

log = structlog.get_logger()

KEY_SECONDS = 5.0
"""How often the key file is looked at."""


class KeyFile:
    """The cluster keys as last read. Raises SettingError if they cannot be read at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = self._stamp()
        self.current: Keys = read_keys(path)

    async def follow(self, wire: Wire, report: Report) -> None:
        """Reads the file again when it changes, until that succeeds. If it cannot be read, the keys stay the same."""
        while True:
            await tick(KEY_SECONDS)
            if (stamp := self._stamp()) == self._seen:
                continue
            self._seen = None  # a failure is tried again
            try:
                self.current = read_keys(self._path)
            except SettingError as error:
                report.failed("key file", error)
            else:
                report.recovered("key file")
                await wire.keys(self.current.secrets)
                self._seen = stamp
                log.info("keys read", signing=repr(self.current.signing), accepted=len(self.current.accepted))

    def _stamp(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_mode
