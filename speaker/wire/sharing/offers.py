"""What this node may hold, and why others go first: as the ownership machine hears of each EIP."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from speaker.model import IPAddress, Placement
from speaker.ownership.events import EligibilityChanged
from speaker.system.supervise import Supervisor, contained


class Offers:
    """``tell`` hears of every EIP that may be held, or may not. ``informed``: a peer goes by what it reads in the API,
    and knows better whose an EIP is than an offer that is ``recalled``. ``links``: those that EIPs are announced on.
    ``tasks``: what takes longer is done there; a bug in it ends none of the others."""

    def __init__(
        self,
        tell: Callable[[EligibilityChanged], None],
        informed: Callable[[], bool],
        links: Callable[[], Collection[int]],
        tasks: asyncio.TaskGroup,
        supervisor: Supervisor,
    ) -> None:
        self._tell, self._informed, self._links = tell, informed, links
        self._tasks, self._supervisor = tasks, supervisor
        self._placements: dict[IPAddress, Placement] = {}
        self._silent_gateways: set[int] = set()
        self._demoted = self._recalled = False
        """For a reason that concerns the whole node."""
        self.headless = False
        """No main process keeps all this up to date."""

    @property
    def placements(self) -> Mapping[IPAddress, Placement]:
        """Where each EIP may be held. The main process decides it; this is the copy that goes on without it."""
        return self._placements

    @property
    def recalled(self) -> bool:
        """What is offered is what the API said before our start."""
        return self._recalled

    def add(self, placements: Mapping[IPAddress, Placement]) -> None:
        self._placements.update(placements)
        for address in placements:
            self._offer(address)

    def withdraw(self, addresses: Iterable[IPAddress]) -> None:
        for address in addresses:
            if self._placements.pop(address, None) is not None:
                self._tell(EligibilityChanged(address, None))

    def gateway(self, link: int, answers: bool) -> None:
        """A node whose gateway is silent claims behind the others (rule 13)."""
        (self._silent_gateways.discard if answers else self._silent_gateways.add)(link)
        self._offer_soon({link})

    def demote(self, on: bool) -> None:
        """So does one that is not Ready."""
        self._demoted = on
        self.offer_again()

    def recall(self, on: bool) -> None:
        """And one that does not read the API: who does knows better."""
        self._recalled = on
        self.offer_again()

    def offer_again(self) -> None:
        """Everything, soon."""
        self._offer_soon(self._links())

    def _offer_soon(self, links: Collection[int]) -> None:
        self._tasks.create_task(self._offer_again(links), name="offer again")

    async def _offer_again(self, links: Collection[int]) -> None:
        placed: list[IPAddress] = []
        with contained("offer again", self._supervisor):
            placed += (address for address, placement in self._placements.items() if placement.link.index in links)
        for address in placed:
            with contained("offer again", self._supervisor):
                if address in self._placements:
                    self._offer(address)
            await asyncio.sleep(0)

    def _offer(self, address: IPAddress) -> None:
        link = self._placements[address].link.index
        if self._recalled and self._informed():
            self._tell(EligibilityChanged(address, None))  # a peer knows better whose it is
            return
        demoted = self._demoted or self._recalled or link in self._silent_gateways
        self._tell(EligibilityChanged(address, link, demoted=demoted))
