"""Whether the API counts as up for this agent, and who is told."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from speaker.cluster.mirror.reflector import Resource
from speaker.errors import ApiRefused, EdgeError
from speaker.node.report import Report
from speaker.removals import Doubt
from speaker.telemetry.lines import LASTING

LOOK_SECONDS = 0.02
"""Between two looks at whether the mirrors are of now again."""


class Mirror(Protocol):
    """``cluster.mirror.reflector.Reflector``, as far as it matters here."""

    @property
    def resource(self) -> Resource[Any]: ...
    @property
    def following(self) -> bool: ...
    @property
    def resting(self) -> bool: ...
    def reconnect(self) -> None: ...


class ApiState:
    """The API counts as up when a renewal of our Lease was answered in time, and every mirror follows by a connection
    that was made since the API was away: then what mirrors say is of now. It counts as down as soon as a renewal is
    late. ``hurry`` has one come at once: it is called when anything else goes unanswered, so they can be rare.

    ``say`` hears whether it is up: each time that it was found so, changed or not.
    """

    def __init__(
        self,
        mirrors: Iterable[Mirror],
        report: Report,
        hurry: Callable[[], None],
        say: Callable[[bool], None],
    ) -> None:
        self._mirrors, self._report, self._hurry, self._say = mirrors, report, hurry, say
        self.up = False
        self._was_up = False
        """Once in this life."""
        self._answered = asyncio.Event()
        self._doubted = False
        """The API was away since the mirrors connected: what came by these connections, or did not, proves nothing."""

    async def come_up(self) -> None:
        """Endless. After a renewal that was answered: as soon as the mirrors say what is now."""
        while True:
            await self._answered.wait()
            if self._following:
                self._answered.clear()
                self.up = self._was_up = True
                self._report.api(True)
                self._say(True)
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def renewed(self, _: int) -> None:
        """Answered in time."""
        for mirror in self._mirrors:
            if mirror.following:
                self._report.recovered(mirror.resource.path)
        if self.up and self._following:
            self._say(True)  # the machine may have found that writes take too long
            return
        self.lost(dead=False)
        for mirror in self._mirrors:
            # One that is at work is let: a list may take longer than we have between two renewals.
            if self._doubted or mirror.resting:
                mirror.reconnect()
        self._doubted = False
        self._answered.set()

    def lost(self, dead: bool) -> None:
        """Again and again, as long as it lasts. ``dead``: nothing was answered at all."""
        if self._was_up:
            self._report.api(False)
        if dead:
            self._doubted = True
        self.up = False
        self._answered.clear()
        self._say(False)

    def tells(self, edge: str) -> Callable[[EdgeError | None], None]:
        """Who hears of the failures of an edge to the API, and of its successes as None."""

        def tell(error: EdgeError | None) -> None:
            if error is None:
                self._report.recovered(edge)
            else:
                self._report.failed(edge, error, patience=self._patience(error))
                if not isinstance(error, ApiRefused):
                    self._doubt()

        return tell

    def mirror_failed(self, path: str, error: EdgeError) -> None:
        # While the API does not answer, that has been said.
        self._report.failed(path, error, known=self._was_up and not self.up, patience=self._patience(error))
        self._doubt()

    def doubted(self, resource: str, doubt: Doubt | None) -> None:
        """What a list of ``resource`` lacked and stays for now; None: no more."""
        edge = f"list of {resource}"
        self._report.removals_waiting(resource, 0 if doubt is None else doubt.waiting.gone)
        if doubt is None:
            self._report.recovered(edge)
        else:
            self._report.failed(edge, EdgeError(str(doubt)))

    @property
    def _following(self) -> bool:
        return all(mirror.following for mirror in self._mirrors)

    def _doubt(self) -> None:
        """Something went unanswered: perhaps everything does."""
        if self.up:
            self._hurry()

    def _patience(self, error: EdgeError) -> float:
        """What one that was there does not answer now and then needs nobody. A refusal is for somebody to mend."""
        return LASTING if self._was_up and not isinstance(error, ApiRefused) else 0.0
