"""A candidate and an API that refuses it, in virtual time."""

import asyncio

from speaker.cluster.lease import Election, LeaseName, Timing
from speaker.errors import ApiRefused


class NoNamespace:
    """A ``Client`` of an API that does not know the Lease's namespace; ``asked`` counts."""

    def __init__(self):
        self.asked = 0

    async def get(self, path, *, within):
        self.asked += 1
        raise ApiRefused(404, "NotFound", 'leases "one" not found')

    async def create(self, path, body, *, within):
        self.asked += 1
        raise ApiRefused(404, "NotFound", 'namespaces "nowhere" not found')


def test_a_lease_whose_namespace_there_is_not_is_told_and_asked_for_no_more_often_than_any(in_virtual_time):
    client, told, timing = NoNamespace(), [], Timing()

    async def minute():
        clock = asyncio.get_running_loop().time
        election = Election(client, LeaseName("nowhere", "one"), "me", timing, told=told.append, clock=clock)
        keeping = asyncio.create_task(election.lead(lambda _: asyncio.Event().wait()))
        await asyncio.sleep(60)
        keeping.cancel()
        await asyncio.wait([keeping])

    in_virtual_time(minute())
    assert {str(error) for error in told} == {'the API answered 404 NotFound: namespaces "nowhere" not found'}
    assert client.asked <= 2 * (60 / timing.retry + 1)
