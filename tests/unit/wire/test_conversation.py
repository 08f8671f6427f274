"""What the wire process keeps for a main process that does not read."""

from speaker.wire.messages import BugMet, BugsMetAgain, HellosSent
from speaker.wire.process import MAX_WAITING, Conversation
from speaker.wire.sender import MAX_DELAYS, EventSender


class Unread:
    """A channel whose other end takes nothing."""

    def __init__(self):
        self.waiting, self.aborted = 0, False

    def send(self, message):
        self.waiting += len(repr(message))

    def abort(self):
        self.aborted = True


def test_a_main_process_that_reads_nothing_is_hung_up_on():
    talk, channel = Conversation(), Unread()
    talk._channel = channel
    talk.stop()
    assert not channel.aborted
    channel.waiting = MAX_WAITING
    talk.stop()
    assert channel.aborted


def test_of_delays_without_end_the_longest_is_kept():
    told = []
    sender = EventSender(told.append)
    for number in range(5 * MAX_DELAYS):
        sender.loop_delay(number % 777, 0.0)
    sender.flush()
    (counts,) = told
    assert len(counts.delays) <= MAX_DELAYS
    assert max(counts.delays) == (776, 0.0)


def test_counts_wait_while_the_main_process_does_not_keep_up():
    told, reads = [], [False]
    sender = EventSender(told.append, lambda: reads[0])
    sender.hellos_sent("eth0", True, 1)
    sender.flush()
    sender.hellos_sent("eth0", True, 2)
    assert told == []
    reads[0] = True
    sender.flush()
    (sent,) = told
    assert sent.counts == {HellosSent("eth0", True): 3}


def test_an_error_that_comes_without_end_is_told_once_and_counted_until_somebody_else_listens():
    told = []
    sender = EventSender(told.append)

    def stumble(times):
        for _ in range(times):
            try:
                raise KeyError("a")
            except KeyError as error:
                sender.internal_error("hear", error)

    stumble(1000)
    assert [(one.task, one.words) for one in told] == [("hear", "KeyError: 'a'")]
    sender.flush()
    assert told[-1].counts == {BugsMetAgain("hear"): 999}
    sender.start_over()
    stumble(2)
    assert isinstance(told[-1], BugMet)
