"""What the wire process keeps for a main process that does not read."""

from speaker.wire.process import MAX_DELAYS, MAX_WAITING, Conversation, Tally


class Unread:
    """A channel whose other end takes nothing."""

    def __init__(self):
        self.waiting, self.aborted = 0, False

    def send(self, *message):
        self.waiting += len(repr(message))

    def abort(self):
        self.aborted = True


def test_a_main_process_that_reads_nothing_is_hung_up_on():
    talk, channel = Conversation({}), Unread()
    talk._channel = channel
    talk.stop()
    assert not channel.aborted
    channel.waiting = MAX_WAITING
    talk.stop()
    assert channel.aborted


def test_of_delays_without_end_the_longest_is_kept():
    told = []
    tally = Tally(lambda *message: told.append(message))
    for number in range(5 * MAX_DELAYS):
        tally.loop_delay(number % 777, 0.0)
    tally.flush()
    ((_, _, delays),) = told
    assert len(delays) <= MAX_DELAYS
    assert max(delays) == (776, 0.0)


def test_counts_wait_while_the_main_process_does_not_keep_up():
    told, reads = [], [False]
    tally = Tally(lambda *message: told.append(message), lambda: reads[0])
    tally.hellos_sent("eth0", True, 1)
    tally.flush()
    tally.hellos_sent("eth0", True, 2)
    assert told == []
    reads[0] = True
    tally.flush()
    ((_, counts, _),) = told
    assert counts == {("hellos_sent", "eth0", True): 3}


def test_an_error_that_comes_without_end_is_told_once_and_counted_until_somebody_else_listens():
    told = []
    tally = Tally(lambda *message: told.append(message))

    def stumble(times):
        for _ in range(times):
            try:
                raise KeyError("a")
            except KeyError as error:
                tally.internal_error("hear", error)

    stumble(1000)
    assert [message[:3] for message in told] == [("wire_error", "hear", "KeyError: 'a'")]
    tally.flush()
    assert told[-1][1] == {("wire_error_again", "hear"): 999}
    tally.start_over()
    stumble(2)
    assert told[-1][0] == "wire_error"
