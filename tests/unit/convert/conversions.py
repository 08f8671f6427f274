"""Fixtures converted, and what our allocator gives from the result."""

from functools import cache
from pathlib import Path

from speaker.allocator.assign import Allocator
from speaker.api.eip import pool
from speaker.api.fields import ApiObject, read
from speaker.convert.conversion import Settings, convert
from speaker.model import Family, Protocol, Service, ServiceKey, ServicePort
from speaker.standalone.document import parse

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.yaml"))


@cache
def text_of(name):
    return (FIXTURES / f"{name}.yaml").read_text()


def objects_of(text):
    parsed = parse("input.yaml", text)
    assert not parsed.problems
    return parsed.objects


def inner(text):
    parsed = parse("", text)
    return [] if parsed.problems else parsed.objects


def converted(text, **settings):
    return convert(objects_of(text), Settings(**settings), inner)


def of_data(*documents, **settings):
    """Of plain data instead of YAML."""
    return convert([ApiObject(document) for document in documents], Settings(**settings), inner)


def pools_of(conversion):
    found = [read(ApiObject(manifest), pool) for manifest in conversion.pools]
    return {each.name: each for each in found}


def given(conversion, probe):
    """Every address that our allocator gives to Services like the probe, in both families."""
    found = set()
    for family in Family:
        allocator = Allocator()
        allocator.set_pools(pools_of(conversion), {probe.namespace: probe.namespace_labels})
        for i in range(1000):
            service = Service(
                ServiceKey(probe.namespace, f"probe-{i}"),
                (ServicePort(Protocol.TCP, 80),),
                labels=probe.labels,
                families=(family,),
                pools=(probe.pool,) if probe.pool is not None else (),
            )
            if (assignment := allocator.assign(service, 0.0).assignment) is None:
                break
            found |= set(assignment.addresses)
    return found
