"""Planned moves, make before break: asked for in hellos, and claimed on request (``balance`` plans them). Pure."""

from collections.abc import Iterable

from speaker.model import IPAddress
from speaker.ownership.balance import Move, MovePlan, Rebalancing, plan
from speaker.ownership.hello import Hello, next_term
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment
from speaker.ownership.parameters import NEVER


class Moves:
    """The node that rebalances decides nothing: those it asks may claim or not, and holders yield by rule 19."""

    def __init__(self, k: Known, rules: Rules, claims: Claims) -> None:
        self._k, self._rules, self._agenda, self._claims = k, rules, k.agenda, claims
        self._plans: dict[int, MovePlan] | None = None
        """Link → the rebalance followed there last; None before the first."""

    @property
    def rebalancing(self) -> Rebalancing | None:
        """The last rebalance asked of this node; None before the first."""
        if self._plans is None:
            return None
        plans = self._plans.values()
        return Rebalancing(
            sum(move_plan.planned for move_plan in plans),
            sum(move_plan.moved for move_plan in plans),
            sum(move_plan.refused for move_plan in plans),
            all(move_plan.finished for move_plan in plans),
            sum(move_plan.preferred for move_plan in plans),
        )

    # ── Asked of others ───────────────────────────────────────────────────────────────────────────────────────

    def rebalance(self, now: float) -> None:
        if self._plans is not None and not all(move_plan.finished for move_plan in self._plans.values()):
            return
        self._plans = {
            link: MovePlan(*self._plan(segment, now))
            for link, segment in self._k.segments.items()
            if segment.up and not self._rules.listening(segment, now)
        }

    def _plan(self, segment: Segment, now: float) -> tuple[list[Move], int]:
        holdings: dict[str, list[IPAddress]] = {node: [] for node in self._fit(segment, now)}
        claimed = dict.fromkeys(segment.own.terms)
        for peer in segment.peers.living(now):
            claimed.update(dict.fromkeys(peer.claims))
        for eip in claimed:
            best = self._k.holder(eip, now)
            if best is not None and best[0] in holdings:
                holdings[best[0]].append(eip)
        may_hold = set(self._k.eips_on(segment.link))
        weights = {eip: self._weights(eip, segment, holdings) for eip in segment.weights.eips if eip in claimed}
        preferred = sum(min(each.values()) < max(each.values()) for each in weights.values())
        return plan(holdings, self._k.node, may_hold, weights), preferred

    def _weights(self, eip: IPAddress, segment: Segment, nodes: Iterable[str]) -> dict[str, int]:
        k, x, by_node = self._k, self._k.eip(eip), segment.peers.by_node
        others = {node: self._rules.weight(k, x, by_node[node]) for node in nodes if node != k.node}
        return {k.node: self._rules.own_weight(k, x), **others}

    def _fit(self, segment: Segment, now: float) -> list[str]:
        """Nodes that may be given more, or have some to give."""
        fit = [peer.node for peer in segment.peers.living(now) if self._mutual(peer, now) and not peer.draining]
        return fit if self._k.draining_since is not None else [*fit, self._k.node]

    def _mutual(self, peer: Peer, now: float) -> bool:
        return peer.is_heard(now, self._k.times) and peer.hears_us(now, self._k.times)

    # ── From a sick link ──────────────────────────────────────────────────────────────────────────────────────

    def watch_health(self, now: float) -> None:
        """Once an interval: checks whether our own links are sick (rule 40)."""
        if now < self._agenda.beat_at:
            return
        for segment in self._k.segments.values():
            if segment.up:
                self._judge_health(segment, now)

    def _judge_health(self, segment: Segment, now: float) -> None:
        before = segment.sick
        if not (before or segment.hands_over or self._k.standstills.last > NEVER or segment.losses(now)):
            return  # nearly always
        segment.judged(self._rules.sick(self._k, segment, now), now)
        segment.hands_over = self._rules.hands_over(self._k, segment, now)
        if segment.sick is not before:
            self._k.peers_changed += 1
            self._agenda.look_at(self._k.eips_on(segment.link))

    # ── Back to the preferred node ────────────────────────────────────────────────────────────────────────────

    def take_back(self, now: float) -> None:
        """Once an interval: the next few EIPs that prefer this node (rule 42)."""
        if now < self._agenda.beat_at:
            return
        for address in [*self._claims.due_back][: self._k.times.moves_a_hello]:
            del self._claims.due_back[address]
            x = self._k.eip(address)
            if self._rules.moves_here_at(self._k, x, now) <= now:
                self._claim_on_request(x, now)
            self._agenda.look_at([address])

    # ── Plans ─────────────────────────────────────────────────────────────────────────────────────────────────

    def guide_plans(self, now: float) -> None:
        if now < self._agenda.beat_at:
            return
        try:
            self._follow(now)
        except Exception as error:
            self._agenda.contain("rebalance", "the moves under way", error)
            self.abandon_all()

    def _follow(self, now: float) -> None:
        """Once an interval: the results so far, and the next few moves."""
        for link, move_plan in (self._plans or {}).items():
            if move_plan.finished:
                continue
            segment = self._k.segments[link]
            holders = {eip: best[0] for eip in move_plan.asked if (best := self._k.holder(eip, now)) is not None}
            move_plan.follow(holders, self._fit(segment, now), now, self._k.times.move_patience)
            move_plan.ask(self._k.times.moves_a_hello, now)
            segment.moves = {eip: move.target for eip, (move, _) in move_plan.asked.items()}
            for eip, target in segment.moves.items():
                if target == self._k.node:
                    self._claim_on_request(self._k.eip(eip), now)

    def abandon_all(self) -> None:
        for link, move_plan in (self._plans or {}).items():
            self._abandon(self._k.segments[link], move_plan)

    def _abandon(self, segment: Segment, move_plan: MovePlan) -> None:
        move_plan.abandon()
        segment.moves = {}

    # ── Asked of us ───────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        if not hello.moves:
            return
        move_plan = (self._plans or {}).get(segment.link)
        if move_plan is not None and peer.node < self._k.node:
            self._abandon(segment, move_plan)  # two plans at once: one is enough
        for eip, node in hello.moves.items():
            x = self._k.eips.get(eip)
            if node == self._k.node and x is not None and x.link == segment.link:
                self._claim_on_request(x, now)

    def _claim_on_request(self, x: Eip, now: float) -> None:
        """Claims what others hold, by rule 18, but only from holders that will hear it. What nobody holds is claimed by
        the rules anyway. What was taken from us a moment ago is not taken back, as that would never end."""
        if x.holding or not self._rules.may_claim(self._k, x, now) or self._k.at(x).sick:
            return
        rivals = self._k.rivals(x, now)
        if not rivals or not all(self._mutual(peer, now) for peer in rivals):
            return
        if any(self._rules.keeps(self._k, x, peer) for peer in rivals):
            return
        if now < x.yielded_at + 2 * self._k.times.move_patience:
            return
        self._claims.claim(x, next_term(x.maxterm), now)
