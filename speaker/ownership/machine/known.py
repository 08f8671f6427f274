"""What a node knows about its EIPs, its links, its peers and the API: the basis for the rules. Pure."""

from collections import defaultdict

from speaker.model import IPAddress
from speaker.ownership.hello import Incarnation
from speaker.ownership.machine.agenda import Agenda
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.segment import Returns, Segment
from speaker.ownership.parameters import NEVER, Parameters
from speaker.ownership.score import score


class Api:
    """The API server as last seen. ``configured`` is False if there is none at all."""

    def __init__(self, configured: bool) -> None:
        self.configured = configured
        self.up = self.listed = False

    def came_up(self) -> bool:
        """Returns whether that is news."""
        news = not self.up
        self.up = self.listed = True
        return news


class Known:
    """Read by ``Rules``, changed only by the machine. ``per_hello``: claims in one hello before a window rotates."""

    def __init__(self, node: str, now: float, times: Parameters, api: bool, revision: int, per_hello: int = 64) -> None:
        self.node = node
        self.incarnation = Incarnation(0)
        self.revision = revision
        self.times = times
        self.draining_since: float | None = None
        self.api = Api(api)
        self.agenda = Agenda(now, times)
        self.eips: dict[IPAddress, Eip] = {}
        self.segments: dict[int, Segment] = {}
        self.owners: defaultdict[IPAddress, set[tuple[int, str]]] = defaultdict(set)
        """Peers' own addresses → link and peer that say so."""
        self.boot = now
        self.sent_at = now
        """When the last hello was sent: all answering depends on it."""
        self.away_at = NEVER
        """When we came back after more than a hello interval without a step."""
        self.headless = False
        """Nobody keeps what may be held here up to date."""
        self.ready_at = NEVER
        """When that, or a drain, last ended."""
        self.standstills = Returns()
        """When we came back after more than the self-lease."""
        self.silent_until: float | None = None
        """Another host keeps our name; it counts as gone at this time."""
        self.peers_changed = 0
        """Counts each time that a peer came, fell silent, or began to leave or to be deaf, or that a link changed."""
        self.claims_heard = 0
        """Counts hellos that changed anything about others' claims."""
        self._per_hello = per_hello

    @property
    def silent(self) -> bool:
        """Another host has our name: nothing is said, claimed or written."""
        return self.silent_until is not None

    def segment(self, link: int, now: float) -> Segment:
        if link not in self.segments:
            self.segments[link] = Segment(self.node, link, self.times, self._per_hello, now)
        return self.segments[link]

    def at(self, x: Eip) -> Segment:
        """Where this node holds ``x``, or may hold it."""
        assert x.link is not None
        return self.segments[x.link]

    def eip(self, address: IPAddress) -> Eip:
        x = self.eips.get(address)
        if x is None:
            x = self.eips[address] = Eip(address)
            x.owner = self.owner(address)
        return x

    def owner(self, address: IPAddress) -> str | None:
        """The peer that says ``address`` is its own, or one of several. A group that holds it comes first, since peers
        only repeat that; it is recognised by a space, which no node's name has."""
        owners = (node for _, node in self.owners.get(address, ()))
        return min(owners, key=lambda node: (" " not in node, node), default=None)

    def eips_on(self, link: int) -> list[IPAddress]:
        """Those that this node may hold there."""
        return [address for address, x in self.eips.items() if x.link == link]

    def peer(self, x: Eip, node: str | None) -> Peer | None:
        if x.link is None or node is None:
            return None
        return self.segments[x.link].peers.by_node.get(node)

    def rivals(self, x: Eip, now: float) -> list[Peer]:
        """Living peers that claim it."""
        return [peer for peer in self.claimants(x) if peer.is_alive(now, self.times)]

    def claimants(self, x: Eip) -> list[Peer]:
        """Peers that claim it on our link, as far as we heard, alive or not."""
        if x.link is None:
            return []
        by_node = self.segments[x.link].peers.by_node
        peers = (by_node.get(node) for node in x.rivals.get(x.link, ()))
        return [peer for peer in peers if peer is not None and x.address in peer.claims]

    def holder(self, eip: IPAddress, now: float) -> tuple[str, int] | None:
        """The node with the best living claim known, ours included, and its term."""
        x = self.eips.get(eip)
        if x is None:
            return None
        claims = [
            (peer.claims[eip], score(eip, node), node)
            for link, nodes in x.rivals.items()
            for node in nodes
            if (peer := self.segments[link].peers.by_node.get(node)) is not None
            and peer.is_alive(now, self.times)
            and eip in peer.claims
        ]
        if x.holding:
            claims.append((x.term, score(eip, self.node), self.node))
        term, _, node = max(claims, default=(0, 0, ""))
        return (node, term) if node else None
