"""What a node knows of its EIPs, its links, its peers and the API: what the rules judge by. Pure."""

from speaker.model import IPAddress
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.peers import NEVER, Peer
from speaker.ownership.machine.segment import Returns, Segment
from speaker.ownership.parameters import Parameters


class Api:
    """The API server as last seen. ``configured`` is False where there is none at all."""

    def __init__(self, configured: bool) -> None:
        self.configured = configured
        self.up = self.listed = False

    def came_up(self) -> bool:
        """Whether that is news."""
        news = not self.up
        self.up = self.listed = True
        return news


class Known:
    """Read by ``Rules``, changed by the machine alone."""

    def __init__(self, node: str, now: float, times: Parameters, api: bool, revision: int) -> None:
        self.node = node
        self.revision = revision
        self.times = times
        self.draining_since: float | None = None
        self.api = Api(api)
        self.eips: dict[IPAddress, Eip] = {}
        self.segments: dict[int, Segment] = {}
        self.boot = now
        self.sent_at = now
        """When the last hello left: all that is answered hangs on it."""
        self.away_at = NEVER
        """When we came back after more than a hello interval without a step."""
        self.standstills = Returns()
        """When we came back after more than the self-lease."""
        self.silent_until: float | None = None
        """Another host keeps our name; it counts as gone then."""

    def peer(self, x: Eip, node: str | None) -> Peer | None:
        if x.link is None or node is None:
            return None
        return self.segments[x.link].peers.by_node.get(node)

    def rivals(self, x: Eip, now: float) -> list[Peer]:
        """Living peers that claim it."""
        return [peer for peer in self.claimants(x) if peer.is_alive(now, self.times)]

    def claimants(self, x: Eip) -> list[Peer]:
        """Peers that claim it on our link, as far as we heard; alive or not."""
        if x.link is None:
            return []
        by_node = self.segments[x.link].peers.by_node
        peers = (by_node.get(node) for node in x.rivals.get(x.link, ()))
        return [peer for peer in peers if peer is not None and x.address in peer.claims]
