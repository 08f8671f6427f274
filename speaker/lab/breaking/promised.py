"""What clients are owed while a link is sick, and what they count as an answer. Pure."""

from dataclasses import dataclass

FAILOVER = 0.5
"""Seconds within which another node answers for an EIP."""
SETTLED = 3.0
"""Seconds within which a node that says hello and answers nobody has lost its EIPs to one that answers."""
SOON = 0.1
"""Seconds within which a client has its answer where nothing holds it up; a busy machine may take so long."""


@dataclass(frozen=True, slots=True)
class Promise:
    """``dark``: the seconds for which an EIP may be unanswered whose holder could serve the client all the time;
    ``sick_dark``: one whose holder could not. The seconds that one node stood still come on top."""

    dark: float = FAILOVER
    sick_dark: float = FAILOVER
    in_sum: bool = False
    """All the times that it is unanswered, or answered twice, count together; or else the longest does."""
    still: bool = True
    """No EIP leaves a node that could serve the client all the time."""
    patience: float = 0.0
    """Seconds within which a request is answered; 0: before the next one for the same EIP."""
    apart: float = 0.0
    """Seconds between two bursts of answers: a node that is silent for less has not stopped answering."""


AT_A_TIME = Promise()
STUTTERING = Promise(in_sum=True, still=False, patience=SOON)
BETWEEN_NODES = Promise(in_sum=True, patience=SOON)
SICK_SETTLES = Promise(sick_dark=SETTLED, in_sum=True, patience=SOON)


def in_bursts(hold: float) -> Promise:
    """A request waits for a burst, and its answer for the next one."""
    return Promise(in_sum=True, still=False, patience=2 * hold + SOON, apart=hold)
