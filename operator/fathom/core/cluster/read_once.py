"""Objects of a cluster as models, each read once: most have not moved since the last look."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fathom.core.cluster.manifest import Manifest
from fathom.core.cluster.metadata import Meta, ObservedModel

_Model = TypeVar("_Model", bound=BaseModel)
_Read = dict[tuple[int, type[BaseModel]], tuple[Manifest, BaseModel | None]]
"""By the object itself: what has changed is another one. It stays here, so that its id stays its
own."""


class Named(ObservedModel):
    """An object of whatever kind."""

    metadata: Meta


class ReadOnce:
    """What one look has read, for the next look at the same resource. One look at a time."""

    def __init__(self) -> None:
        self._before: _Read = {}
        self._now: _Read = {}

    @contextmanager
    def look(self) -> Iterator[None]:
        """For the length of a look; what the whole of it has not met again is forgotten."""
        self._before, self._now = {**self._before, **self._now}, {}
        try:
            yield
        except BaseException:
            # Looks that fail again and again must not keep what each of them has read.
            self._now = {}
            raise
        self._before = {}

    def model(self, model: type[_Model], manifest: Manifest) -> _Model | None:
        """An object as a model; None: it is none, as when a person mangled it."""
        key = id(manifest), model
        known = self._now.get(key) or self._before.get(key)
        if known is None:
            try:
                read = model.model_validate(manifest)
                known = manifest, self._shared(read)
            except ValidationError:
                known = manifest, None
        self._now[key] = known
        return known[1]  # type: ignore[return-value]  # its class is part of the key

    def _shared(self, read: _Model) -> _Model:
        """With those parts that are equal in the last one of its class, such as pods' specs."""
        read_last = (each for _, each in reversed(self._now.values()) if type(each) is type(read))
        like = next(read_last, None)
        if like is None:
            return read
        fields = type(read).model_fields
        parts = {name: getattr(like, name) for name in fields}
        return read.model_copy(
            update={name: part for name, part in parts.items() if part == getattr(read, name)}
        )
