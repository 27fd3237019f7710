from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

_Key = TypeVar("_Key", str, bytes)
_Value = TypeVar("_Value")
_EACH_BYTES: Final = 300
"""What one entry takes besides its key's own bytes and a large value: heads of objects, tables."""


class Remembered(Generic[_Key, _Value]):
    """What was found out about keys that come again and again; it forgets those that do not.

    There are two generations. When the younger one is full, it becomes the elder one; what has not
    come again by the time the next is full is gone.
    """

    def __init__(self, most_bytes: int, value_bytes: Callable[[_Value], int] = lambda _: 0) -> None:
        """Start with nothing.

        Args:
            most_bytes: of both generations together, about; whoever makes up keys, however long,
                gets no more of our memory.
            value_bytes: of a value, where it is large.
        """
        self._most_bytes = most_bytes // 2
        self._left_bytes = self._most_bytes
        self._value_bytes = value_bytes
        self._younger: dict[_Key, _Value] = {}
        self._elder: dict[_Key, _Value] = {}

    @property
    def younger(self) -> Mapping[_Key, _Value]:
        """What came lately, for whoever asks too often to call `find`; other calls change it."""
        return self._younger

    def find(self, key: _Key) -> _Value | None:
        """What is known of a key, which thereby stays known."""
        value = self._younger.get(key)
        if value is None and (value := self._elder.get(key)) is not None:
            self.keep(key, value)
        return value

    def keep(self, key: _Key, value: _Value) -> None:
        """Remember."""
        self.forget(key)
        size = self._size(key, value)
        if size > self._left_bytes:
            self._elder, self._younger = self._younger, {}
            self._left_bytes = self._most_bytes
        self._younger[key] = value
        self._left_bytes -= size

    def forget(self, key: _Key) -> None:
        """Know nothing of a key any more."""
        self._elder.pop(key, None)
        if (before := self._younger.pop(key, None)) is not None:
            self._left_bytes += self._size(key, before)

    def _size(self, key: _Key, value: _Value) -> int:
        return len(key) + self._value_bytes(value) + _EACH_BYTES
