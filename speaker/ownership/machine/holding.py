"""An EIP is claimed when it is free and this node's turn, held, and yielded (rules 9 to 31). Pure."""

from speaker.model import IPAddress
from speaker.ownership.events import Claim, EligibilityChanged, PeersAddress, Withdraw, Yielded
from speaker.ownership.hello import next_term
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.records import Records
from speaker.ownership.machine.rules import Rules
from speaker.ownership.parameters import FOREVER, NEVER

_ASIDE_MAX = 60.0
"""The most seconds until an EIP that a bug of ours concerns is tried again."""


class Claims:
    """This node's claims. ``judge`` decides about each EIP, by what ``Rules`` says: above all ``beats``, ``held_until``
    and ``claim_at``. ``take_over``: a stranger may answer for what peers hold in name (rule 18)."""

    def __init__(self, k: Known, rules: Rules, records: Records, take_over: bool) -> None:
        self._k, self._rules, self._agenda, self._records = k, rules, k.agenda, records
        self.take_over = take_over
        self.due_back: dict[IPAddress, None] = {}
        """EIPs that prefer this node, and may move to it now (rule 42)."""
        self.waiting: set[IPAddress] = set()
        """EIPs neither held nor known to be somebody else's: a change among the peers may affect them."""

    def judge(self, x: Eip, now: float) -> None:
        if x.aside and now < x.aside_until:
            self._agenda.wake_at(x, x.aside_until)
            return
        x.aside = False
        self._records.expire(x, now)
        wake = self._judge_held(x, now) if x.holding else FOREVER
        if not x.holding:
            wake = self._judge_free(x, now)
        wake = min(wake, self._records.due(x))
        self._records.go_on()
        self._agenda.wake_at(x, wake)

    # ── Free ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _judge_free(self, x: Eip, now: float) -> float:
        """Returns when to look again."""
        k, rules = self._k, self._rules
        if not rules.eligible(k, x):
            self._set_vacant(x, None)
            return self._records.release(x, now)
        if not rules.may_claim(k, x, now):
            self._set_vacant(x, None)
            return FOREVER
        held_until = rules.held_until(k, x, now)
        if held_until > now:
            self._set_vacant(x, None)
            return min(held_until, self._moves_here(x, now)) if x.preference is not None else held_until
        if x.vacant_since is None:
            self._set_vacant(x, now)
        claim_at = rules.claim_at(k, x, x.vacant_since if x.vacant_since is not None else now, now)
        if now < claim_at:
            return claim_at
        self.claim(x, 0 if k.times.alone else next_term(x.maxterm), now)
        return FOREVER

    def _moves_here(self, x: Eip, now: float) -> float:
        """Rule 42. Returns when to look again."""
        at = self._rules.moves_here_at(self._k, x, now)
        if at > now:
            return at
        self.due_back[x.address] = None
        return FOREVER

    def _set_vacant(self, x: Eip, since: float | None) -> None:
        x.vacant_since = since
        if since is None:
            self.waiting.discard(x.address)
        else:
            self.waiting.add(x.address)

    def claim(self, x: Eip, term: int, now: float) -> None:
        """Rule 18."""
        k, segment = self._k, self._k.at(x)
        # The node that answered for it a moment ago may go on, and its claim was never heard.
        first = not self._rules.knows_holder(k, x) or x.served_until > NEVER or self._held_in_name(x)
        silent_since = self._silent_since(x, now)
        self._records.end(x)
        x.weak = self._rules.taken_unheard(k, x, now)
        x.holding, x.held_since = True, now
        x.served_until = NEVER
        x.unknowing_since.clear()
        x.disputed_until = NEVER
        x.probed_until = now + k.times.hello if first else NEVER
        self._set_vacant(x, None)
        self.raise_term(x, term, now)
        self._agenda.orders.append(Claim(x.address, segment.link, term, first, silent_since))
        self.announce(x)
        self._agenda.look_at([x.address])

    def _held_in_name(self, x: Eip) -> bool:
        """Rule 18: its holder may not answer, because a stranger does."""
        return self.take_over and any(x.address in peer.weak for peer in self._k.claimants(x))

    def _silent_since(self, x: Eip, now: float) -> float | None:
        """The last sign of the peer that held it last, if that peer died holding it."""
        peer = self._k.peer(x, x.held_by[1])
        if peer is None or x.address not in peer.claims or peer.is_alive(now, self._k.times):
            return None
        return max(peer.heard_at, peer.vouched_at, peer.answered_at)

    # ── Held ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _judge_held(self, x: Eip, now: float) -> float:
        """Returns when to look again."""
        k = self._k
        if (unfit := self._rules.unfit(k, x)) is not None:
            self.yield_(x, unfit, now)
            return FOREVER
        wake, rivals = FOREVER, k.rivals(x, now)
        if x.unknowing_since:
            claim = {peer.node for peer in rivals}
            x.unknowing_since = {node: since for node, since in x.unknowing_since.items() if node in claim}
        for peer in rivals:
            if not peer.deaf:
                wake = min(wake, self._judge_rival(x, peer, now))
            if not x.holding:
                return FOREVER
        if x.weak and self._rules.sure(k, x, now):
            x.weak = False
            self._say(x, now)
        if k.draining_since is not None:
            return min(wake, self._judge_draining(x, k.draining_since, now))
        return min(wake, self._records.follow(x, now))

    def _judge_rival(self, x: Eip, peer: Peer, now: float) -> float:
        """Rules 19, 20 and 29. Returns when to look again."""
        k, rules, term = self._k, self._rules, peer.claims[x.address]
        if now < x.disputed_until and not peer.makes_way:  # who does yields to us in the same moment
            self.yield_(x, Yielded.BETTER_CLAIM, now, better=term)  # it answers, and we do not
            return FOREVER
        if not rules.beats(k, x, peer, term):
            x.unknowing_since.pop(peer.node, None)
            self._hear_worse(x, peer, term)
            return FOREVER
        if x.address in peer.weak and rules.held_on(k, x, now):
            if now >= peer.hears_us_at + k.times.suspect:  # it may not even answer, and will yield when we speak
                since = x.unknowing_since.setdefault(peer.node, now)
                if now < since + k.times.hello:
                    self._agenda.hurry()
                    return since + k.times.hello
            elif rules.unknowing(x, peer):
                self._stand(x, term, now)
                return FOREVER
        mute = rules.found_mute(k, x, now)
        self.yield_(x, Yielded.UNANSWERED if mute else Yielded.BETTER_CLAIM, now, better=term)
        return FOREVER

    def _stand(self, x: Eip, term: int, now: float) -> None:
        """Keep it, at a higher term. The other node hears this claim."""
        x.weak = False
        x.unknowing_since.clear()
        self.raise_term(x, next_term(term), now)
        self.announce(x)

    def _hear_worse(self, x: Eip, peer: Peer, term: int) -> None:
        """Rule 20. What we took from a node that was only unheard is about to go back."""
        terms = (term, x.term)
        if x.worse_claims.get(peer.node) != terms:
            x.worse_claims[peer.node] = terms
            if not x.weak:
                self.announce(x)
            self._agenda.hurry()

    def _judge_draining(self, x: Eip, since: float, now: float) -> float:
        """Rule 26: answer until a successor does."""
        drained_at = self._rules.drained_at(self._k, since)
        if now < drained_at:
            return drained_at
        self.yield_(x, Yielded.DRAINED, now)
        return FOREVER

    def raise_term(self, x: Eip, term: int, now: float) -> None:
        x.term = term
        x.raise_maxterm(term)
        self._say(x, now)

    def weaken(self, x: Eip, now: float) -> None:
        x.weak = True
        self._say(x, now)

    def _say(self, x: Eip, now: float) -> None:
        self._k.at(x).own.add(x.address, x.term, now, x.weak)
        self._agenda.hurry()

    def dispute(self, x: Eip, now: float) -> None:
        """Somebody else answers for it, so a claim that was made without knowing of that is weak."""
        x.disputed_until = now + self._k.times.disputed
        if not x.weak:
            self.weaken(x, now)
        self._agenda.look_at([x.address])

    def prove(self, x: Eip) -> None:
        """A peer answered for it, and has just yielded it."""
        x.disputed_until = x.probed_until = NEVER
        self._agenda.orders.append(Claim(x.address, self._k.at(x).link, x.term, first=False))
        self._agenda.look_at([x.address])

    def hear_yielded(self, x: Eip, peer: Peer, term: int, now: float) -> None:
        """Rule 21: neighbours that listened to the loser until now still point to it."""
        if now < max(x.disputed_until, x.probed_until) and not self.take_over:
            self.prove(x)
        if x.heard_yields.get(peer.node) != term:
            x.heard_yields[peer.node] = term
            self.announce(x)

    def announce(self, x: Eip) -> None:
        self._k.at(x).announce[x.address] = None

    # ── No longer ─────────────────────────────────────────────────────────────────────────────────────────────

    def change_eligibility(self, event: EligibilityChanged, now: float) -> None:
        k, x = self._k, self._k.eip(event.eip)
        if x.holding and event.link != x.link:
            self.yield_(x, Yielded.INELIGIBLE, now)
        self._records.end(x)
        if x.link is not None:
            k.at(x).eligible -= 1
            k.at(x).weights.put(x.address, None)
        if event.link is not None:
            segment = k.segment(event.link, now)
            segment.eligible += 1
            segment.well_at = now if segment.demoted else segment.well_at
            segment.demoted = event.demoted
            segment.weights.put(x.address, event.preference)
        if x.owner is not None and (x.link is None) is not (event.link is None):
            self._agenda.orders.append(PeersAddress(x.address, x.owner if event.link is not None else None))
        other = event.preference != x.preference or event.behind is not x.behind
        if event.link != x.link or other:
            x.offered_at = now
        x.link, x.preference, x.behind = event.link, event.preference, event.behind
        self._agenda.look_at([x.address])

    def yield_(self, x: Eip, reason: Yielded, now: float, better: int = 0) -> None:
        """``better``: the term of the claim that it is yielded to."""
        segment = self._k.at(x)
        x.holding, x.yielded_at = False, now
        self._agenda.orders.append(Withdraw(x.address, segment.link, reason, now + self._k.times.linger))
        segment.own.remove(x.address, now, better)
        self._agenda.hurry()
        self._agenda.look_at([x.address])

    def clear(self, x: Eip, reason: Yielded, now: float) -> None:
        """From now on nothing is held, written or waited for."""
        if x.holding and x.link is not None:
            self.yield_(x, reason, now)
        self._records.end(x)
        self._set_vacant(x, None)

    def set_aside(self, x: Eip, now: float) -> None:
        """Whatever state a bug left it in. It is tried again soon, then less and less often."""
        again = now < x.aside_until + _ASIDE_MAX
        x.aside_for = min(2 * x.aside_for, _ASIDE_MAX) if again else max(self._k.times.listen, self._k.times.hello)
        x.aside, x.aside_until = True, now + x.aside_for
        self._agenda.wake_at(x, x.aside_until)
        self.clear(x, Yielded.INTERNAL_ERROR, now)
        self._records.forgo(x)
