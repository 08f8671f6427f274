"""Moves that somebody planned, make before break: asked for in hellos, taken on request (``balance`` plans). Pure."""

from speaker.model import IPAddress
from speaker.ownership.balance import Move, MovePlan, Rebalancing, plan
from speaker.ownership.hello import Hello, next_term
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.holding import Holding
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.segment import Segment
from speaker.ownership.score import score


class Moving(Holding):
    """The node that rebalances decides nothing: those it asks claim or do not, holders yield by rule 19."""

    @property
    def rebalancing(self) -> Rebalancing | None:
        """The last rebalance asked of this node; None before the first."""
        if self._move_plans is None:
            return None
        plans = self._move_plans.values()
        return Rebalancing(
            sum(move_plan.planned for move_plan in plans),
            sum(move_plan.moved for move_plan in plans),
            sum(move_plan.refused for move_plan in plans),
            all(move_plan.finished for move_plan in plans),
        )

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

    def heard_on(self, eip: IPAddress, node: str) -> int | None:
        """A link on which ``node`` says that it holds it; of one that went, and is another now, it says no more."""
        x = self.eips.get(eip)
        links = x.rivals.items() if x is not None else ()
        return next((link for link, nodes in links if node in nodes and self.segments[link].up), None)

    def held_before(self, eip: IPAddress) -> str | None:
        """The other node that had it last, alive or not; None: nobody, as far as this one knows."""
        x = self.eips.get(eip)
        return x.held_by[1] or None if x is not None else None

    # ── Asked of others ───────────────────────────────────────────────────────────────────────────────────────

    def _rebalance(self, now: float) -> None:
        if self._move_plans is not None and not all(move_plan.finished for move_plan in self._move_plans.values()):
            return
        self._move_plans = {
            link: MovePlan(self._plan(segment, now))
            for link, segment in self.segments.items()
            if segment.up and not self.rules.listening(segment, now)
        }

    def _plan(self, segment: Segment, now: float) -> list[Move]:
        holdings: dict[str, list[IPAddress]] = {node: [] for node in self._fit(segment, now)}
        claimed = dict.fromkeys(segment.own.terms)
        for peer in segment.peers.living(now):
            claimed.update(dict.fromkeys(peer.claims))
        for eip in claimed:
            best = self.holder(eip, now)
            if best is not None and best[0] in holdings:
                holdings[best[0]].append(eip)
        may_hold = {x.address for x in self.eips.values() if x.link == segment.link}
        return plan(holdings, self.node, may_hold)

    def _fit(self, segment: Segment, now: float) -> list[str]:
        """Who may be given more, or has some to give."""
        fit = [peer.node for peer in segment.peers.living(now) if self._mutual(peer, now) and not peer.draining]
        return fit if self.draining_since is not None else [*fit, self.node]

    def _mutual(self, peer: Peer, now: float) -> bool:
        return peer.is_heard(now, self.times) and peer.hears_us(now, self.times)

    # ── From a sick link ──────────────────────────────────────────────────────────────────────────────────────

    def _watch_health(self, now: float) -> None:
        """Once an interval: whether our own links are sick (rule 40)."""
        if now < self._beat_at:
            return
        for segment in self.segments.values():
            if segment.up:
                self._judge_health(segment, now)

    def _judge_health(self, segment: Segment, now: float) -> None:
        before = segment.sick
        segment.judged(self.rules.sick(self, segment, now), now)
        segment.hands_over = self.rules.hands_over(self, segment, now)
        if segment.sick is not before:
            self.peers_changed += 1
            self._look_at(x.address for x in self.eips.values() if x.link == segment.link)

    # ── Plans ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _guide_plans(self, now: float) -> None:
        if now < self._beat_at:
            return
        try:
            self._follow_move_plans(now)
        except Exception as error:
            self._contain("rebalance", "the moves under way", error)
            self._abandon_plans()

    def _follow_move_plans(self, now: float) -> None:
        """Once an interval: what came of it, and the next few."""
        for link, move_plan in (self._move_plans or {}).items():
            if move_plan.finished:
                continue
            segment = self.segments[link]
            holders = {eip: best[0] for eip in move_plan.asked if (best := self.holder(eip, now)) is not None}
            move_plan.follow(holders, self._fit(segment, now), now, self.times.move_patience)
            move_plan.ask(self.times.moves_a_hello, now)
            segment.moves = {eip: move.target for eip, (move, _) in move_plan.asked.items()}
            for eip, target in segment.moves.items():
                if target == self.node:
                    self._take(self._eip(eip), now)

    def _abandon_plans(self) -> None:
        for link, move_plan in (self._move_plans or {}).items():
            self._abandon(self.segments[link], move_plan)

    def _abandon(self, segment: Segment, move_plan: MovePlan) -> None:
        move_plan.abandon()
        segment.moves = {}

    # ── Asked of us ───────────────────────────────────────────────────────────────────────────────────────────

    def _hear_moves(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        if not hello.moves:
            return
        move_plan = (self._move_plans or {}).get(segment.link)
        if move_plan is not None and peer.node < self.node:
            self._abandon(segment, move_plan)  # two plans at once: one is enough
        for eip, node in hello.moves.items():
            x = self.eips.get(eip)
            if node == self.node and x is not None and x.link == segment.link:
                self._take(x, now)

    def _take(self, x: Eip, now: float) -> None:
        """Claims what others hold, by rule 18: only from holders who will hear it. What nobody holds is claimed
        by the rules anyway, and what was taken from us a moment ago is not taken back: that would never end."""
        if x.holding or not self.rules.may_claim(self, x, now) or (x.link and self.segments[x.link].sick):
            return
        rivals = self.rivals(x, now)
        if not rivals or not all(self._mutual(peer, now) for peer in rivals):
            return
        if now < x.let_go_at + 2 * self.times.move_patience:
            return
        self._claim(x, next_term(x.maxterm), now)
