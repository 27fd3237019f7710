"""What watches have told of the children of all resources, so that a pass need not ask.

Only what is known to be current is answered from here; what is not, the pass reads itself. What it
then decides to do to pods and their workloads rests on a look at the API server anyway: see
docs/design/0033-children-from-watches.md.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, cast

from fathom.adapters.ports import Clock
from fathom.api import names
from fathom.cluster.kinds import CHILD_KINDS, OPTIONAL_KINDS, SPANNING_KINDS, Kind, ObjectKey
from fathom.cluster.manifest import Manifest, place_of, sharing
from fathom.times import is_over

KINDS: Final = (*CHILD_KINDS, *OPTIONAL_KINDS, *SPANNING_KINDS)
"""What is watched: all children."""
SILENT_S: Final = 150.0
"""After which a feed is not trusted: a stream that is silent is opened again after 75 s."""

Place = tuple[str, str]
"""Namespace and name."""
Moved = Collection[ObjectKey]
"""Resources whose children are not as they were."""


class Feed:
    """The children of one kind, in one namespace or in all, as one informer keeps them."""

    def __init__(self, kind: Kind, namespace: str, clock: Clock) -> None:
        """Start without anything.

        Args:
            kind: of the objects.
            namespace: where they are; empty: anywhere.
            clock: tells how long nothing was heard.
        """
        self.kind = kind
        self.namespace = namespace
        self._clock = clock
        self._children: defaultdict[ObjectKey, dict[str, Manifest]] = defaultdict(dict)
        self._whose: dict[Place, ObjectKey] = {}
        self._patterns: dict[str, Manifest] = {}
        """By component: the last one that came."""
        self._version = 0
        """Everything up to here has been told."""
        self._heard_s: float | None = None

    @property
    def current(self) -> bool:
        """Whether it was listed, and heard of lately."""
        return self._heard_s is not None and not is_over(
            self._heard_s, SILENT_S, self._clock.now_s()
        )

    def of(self, resource: ObjectKey) -> tuple[Manifest, ...]:
        """What bears the resource's label, by name. Never to be changed by who reads it."""
        found = self._children.get(resource, {})
        return tuple(found[name] for name in sorted(found))

    def begin_list(self, version: str) -> None:
        """A list begins.

        If it shows an older state than was told before, as after etcd was restored from a backup,
        nothing that is known counts: versions do not say any more what is new.
        """
        if _number(version) < self._version:
            self._children.clear()
            self._whose.clear()
            self._version, self._heard_s = 0, None

    def listed(self, found: Iterable[Place], version: str) -> Moved:
        """Everything was listed, and each object handed to `put`: what was not found is gone."""
        newest, there = _number(version), set(found)
        missing = [place for place in self._whose if place not in there]
        gone = [place for place in missing if _version(self._at(place)) <= newest]
        self._version, self._heard_s = newest, self._clock.now_s()
        return {self._remove(place) for place in gone}

    def put(self, manifest: Manifest) -> Moved:
        """Keep an object as a list or a watch shows it, unless it is known as new as that."""
        place, moved, before = place_of(manifest), set[ObjectKey](), None
        if place in self._whose:
            before = self._at(place)
            if not _is_newer(manifest, before):
                return moved
            moved.add(self._remove(place))
        owner = owner_of(manifest)
        # Half of an object in bytes, and nobody here asks who has written which field.
        _metadata(manifest).pop("managedFields", None)
        self._whose[place] = owner
        self._children[owner][place[1]] = self._shared(manifest, owner, before)
        return {*moved, owner}

    def gone(self, manifest: Manifest) -> Moved:
        """Forget an object, as it was last, unless a newer state of it is known."""
        place = place_of(manifest)
        if place not in self._whose or _is_newer(self._at(place), manifest):
            return set[ObjectKey]()
        return {self._remove(place)}

    def told(self, version: str) -> None:
        """A watch has told everything up to this version."""
        self._version, self._heard_s = _number(version), self._clock.now_s()

    def note(self, manifest: Manifest) -> None:
        """An object as a request has found or left it, of which the watch may not know yet.

        Up to where the watch has told everything, it knows better: the object may be gone since.
        """
        if _version(manifest) > self._version:
            self.put(manifest)

    def _shared(self, manifest: Manifest, owner: ObjectKey, before: Manifest | None) -> Manifest:
        """With as much as can be of what is there already."""
        component = str(_labels(manifest).get(names.LABEL_COMPONENT, ""))
        siblings = self._children.get(owner, {}).values()
        like = before or next(
            (
                each
                for each in siblings
                if _labels(each).get(names.LABEL_COMPONENT, "") == component
            ),
            self._patterns.get(component),
        )
        shared = manifest if like is None else cast("Manifest", sharing(manifest, like))
        self._patterns[component] = shared
        return shared

    def _at(self, place: Place) -> Manifest:
        return self._children[self._whose[place]][place[1]]

    def _remove(self, place: Place) -> ObjectKey:
        owner = self._whose.pop(place)
        children = self._children[owner]
        del children[place[1]]
        if not children:
            del self._children[owner]
        return owner


class ChildCache:
    """All feeds."""

    def __init__(
        self, clock: Clock, namespaces: Sequence[str] = (), kinds: Sequence[Kind] = KINDS
    ) -> None:
        """Start without anything: nothing is known until informers have listed it.

        Args:
            clock: tells how long nothing was heard.
            namespaces: that are served; empty: all.
            kinds: of children; none where no resource has any.
        """
        self._feeds = {
            (kind, namespace): Feed(kind, namespace, clock)
            for kind in kinds
            for namespace in namespaces or ("",)
        }

    def __iter__(self) -> Iterator[Feed]:
        return iter(self._feeds.values())

    def __len__(self) -> int:
        return len(self._feeds)

    def of(self, kind: Kind, resource: ObjectKey) -> tuple[Manifest, ...] | None:
        """What bears the resource's label; None: that is not known now, ask the API server."""
        feed = self._feed(kind, resource.namespace)
        return feed.of(resource) if feed is not None and feed.current else None

    def note(self, kind: Kind, manifest: Manifest) -> None:
        """An object as a request of ours has found or left it."""
        feed = self._feed(kind, place_of(manifest)[0])
        if feed is not None and owner_of(manifest).name:
            feed.note(manifest)

    def _feed(self, kind: Kind, namespace: str) -> Feed | None:
        return self._feeds.get((kind, ""), self._feeds.get((kind, namespace)))


def _metadata(manifest: Manifest) -> Manifest:
    return cast("Manifest", manifest["metadata"])


def _labels(manifest: Manifest) -> Manifest:
    return cast("Manifest", _metadata(manifest).get("labels") or {})


def owner_of(manifest: Manifest) -> ObjectKey:
    """The resource whose label an object bears; whether it is its own is another question."""
    return ObjectKey(place_of(manifest)[0], str(_labels(manifest).get(names.LABEL_NAME, "")))


def _is_newer(manifest: Manifest, than: Manifest) -> bool:
    version = _version(manifest)
    return not version or version > _version(than)


def _version(manifest: Manifest) -> int:
    return _number(str(_metadata(manifest).get("resourceVersion", "")))


def _number(version: str) -> int:
    """Versions of one kind grow (Kubernetes 1.35 says so; all that keep them in etcd do it).

    What is no number is as old as can be, so that everything is believed.
    """
    return int(version) if version.isascii() and version.isdigit() else 0
