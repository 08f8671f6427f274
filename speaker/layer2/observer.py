"""Who hears what layer 2 reports. ``wire/sender.py`` hands it on to the main process; this package knows no metrics
library."""

from typing import Protocol

from speaker.model.events import Announcements, Answers, Conflict, Ignorings, JoinFailed, SendFailures
from speaker.system.supervise import Supervisor


class Observer(Supervisor, Protocol):
    """Called at most a few times per batch of packets, from the event loop: must be quick and must not raise."""

    def tell(self, event: Conflict | JoinFailed) -> None: ...

    def count(self, what: Answers | Ignorings | Announcements | SendFailures, number: int) -> None: ...
