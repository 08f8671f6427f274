"""What the wire process refuses of an offer is not offered, and is asked for again with the next."""

from ipaddress import ip_address

from speaker.layer2.links import Placement
from speaker.model import Gratuitous, Link, Mac
from speaker.wire.remote import Wire

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
HERE = Placement(ETH0, Gratuitous())
A, B = ip_address("192.0.2.10"), ip_address("192.0.2.11")


class Refusing(Wire):
    """Its wire process takes everything but ``refused``."""

    refused = (A,)

    async def _ask(self, *_):
        return self.refused


async def test_what_is_refused_is_not_offered_until_it_was_taken():
    wire = Refusing(None, None, None)
    await wire.offer({A: HERE, B: HERE}, [ETH0], frozenset())
    assert (wire.offered(A), wire.offered(B)) == (None, HERE)
    wire.refused = ()
    await wire.offer({A: HERE, B: HERE}, [ETH0], frozenset())
    assert (wire.offered(A), wire.offered(B)) == (HERE, HERE)
