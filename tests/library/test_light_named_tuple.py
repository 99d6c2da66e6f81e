"""Records behave as those of `typing.NamedTuple`."""

from __future__ import annotations

import pickle
import typing

import pytest

from kbtui.light_named_tuple import NamedTuple


class Place(NamedTuple):
    """A place."""

    path: str
    line: int = 1

    @property
    def shown(self) -> str:
        """The place as text."""
        return f"{self.path}:{self.line}"

    def move(self, lines: int) -> Place:
        """Return a lower place."""
        return self._replace(line=self.line + lines)


class TypingPlace(typing.NamedTuple):
    """A place."""

    path: str
    line: int = 1


def test_a_record_is_a_tuple_with_named_fields_defaults_and_methods() -> None:
    place = Place("a.md")
    assert (place, place.line, place.shown) == (("a.md", 1), 1, "a.md:1")
    assert place.move(2) == Place("a.md", 3) == Place(line=3, path="a.md")
    assert repr(place) == "Place(path='a.md', line=1)"
    assert pickle.loads(pickle.dumps(place)) == place
    assert Place.__doc__ == "A place."


def test_a_record_has_the_fields_of_typings() -> None:
    for name in ("_fields", "_field_defaults", "__module__", "__doc__", "__match_args__"):
        assert getattr(Place, name) == getattr(TypingPlace, name)
    assert typing.get_type_hints(Place) == typing.get_type_hints(TypingPlace)
    with pytest.raises(TypeError):
        Place()  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Place("a.md").other = 1  # type: ignore[attr-defined]
