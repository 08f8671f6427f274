"""Removes empty values from every document, everywhere, before anything else looks at it. Pure.

Templates write ``{}``, ``[]`` and null for a value that nobody set. An API server drops a null, and to Go an empty list
or an empty selector is the same as none: a selector without conditions selects everything.
"""

from collections.abc import Callable

from speaker.api.fields import ApiObject, Path
from speaker.errors import Place

_KEPT = frozenset(
    {
        ("IPAddressPool", "spec", "serviceAllocation"),
        ("Eip", "spec", "namespaceSelector"),
        *(("ServiceGroup", "spec", kind) for kind in ("local", "remote", "external", "netbox")),
    }
)
"""Empty mappings that differ from none for the peer: a MetalLB pool that is given only by name, an OpenELB pool for all
namespaces, a kind of PureLB group."""
_TEXTS = frozenset({("ConfigMap", "data"), ("Service", "spec", "selector")})
"""Mappings of text that peers read by key, where Go reads null as ''."""


def without_empties(source: ApiObject) -> ApiObject:
    """The same object without them; the remaining values keep their original places."""
    former: dict[Path, list[int]] = {}
    data = _without(source.data, (), source.kind, former)
    return ApiObject(data, _placed(source, former))


def _without(value: object, path: Path, kind: str, former: dict[Path, list[int]]) -> object:
    if isinstance(value, dict):
        blank = "" if (kind, *path) in _TEXTS else None
        found = {
            key: blank if each is None else _without(each, (*path, key), kind, former) for key, each in value.items()
        }
        return {key: each for key, each in found.items() if not _is_empty(each) or _is_kept(each, (kind, *path, key))}
    if isinstance(value, list | tuple):
        return _said(value, path, kind, former)
    return value


def _said(items: list[object] | tuple[object, ...], path: Path, kind: str, former: dict[Path, list[int]]) -> object:
    """Without empty entries, unless all are empty: a list of names must not become a list of all names. A mapping
    stays: as a selector it means "all"."""
    said = [i for i, each in enumerate(items) if each is not None and each != []] or [*range(len(items))]
    if len(said) < len(items):
        former[path] = said
    return [_without(items[i], (*path, new), kind, former) for new, i in enumerate(said)]


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, dict | list) and not value)


def _is_kept(value: object, path: tuple[object, ...]) -> bool:
    return value == {} and path in _KEPT


def _placed(source: ApiObject, former: dict[Path, list[int]]) -> Callable[[Path], Place]:
    def locate(path: Path) -> Place:
        steps = [
            former[path[:i]][step] if isinstance(step, int) and step < len(former.get(path[:i], ())) else step
            for i, step in enumerate(path)
        ]
        return source.locate(tuple(steps))

    return locate if former else source.locate
