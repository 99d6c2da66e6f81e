"""`NamedTuple` for kbtui's records: the same to a type checker as `typing.NamedTuple`, but cheaper to define.

`typing.NamedTuple` compiles and checks every annotation when the class is defined, although a type
checker does this anyway. It also compiles a constructor, and creates five methods and a property for
each field. Here, the methods are inherited, the properties are shared by all records, and the
constructor is compiled when it is first called: few of the records that a command defines are made
before its first output. `docs/performance.md` says what all this costs.
"""

from __future__ import annotations

from collections import _tuplegetter, namedtuple  # type: ignore[attr-defined]

__all__ = ["NamedTuple"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    _field_properties = []
    """The properties that read a field, by the position of the field. All records share them."""

    class _ConstructorCompiledOnFirstUse:
        def __get__(self, record, cls):
            """Give the class a constructor that `namedtuple` has compiled, and return it."""
            defaults = cls._field_defaults.values()
            constructor = namedtuple(cls.__name__, cls._fields, defaults=defaults).__new__
            cls.__new__ = staticmethod(constructor)
            return constructor

    class _Record(tuple):
        __slots__ = ()
        __new__ = _ConstructorCompiledOnFirstUse()

        @classmethod
        def _make(cls, values):
            """Return a record with these values of its fields."""
            record = tuple.__new__(cls, values)
            if len(record) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(record)}")
            return record

        def _replace(self, /, **values):
            """Return a copy in which some fields have new values."""
            record = self._make(map(values.pop, self._fields, self))
            if values:
                raise ValueError(f"Got unexpected field names: {list(values)!r}")
            return record

        def _asdict(self):
            """Return the values of the fields by their names."""
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            values = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{self.__class__.__name__}({', '.join(values)})"

        def __getnewargs__(self):
            """Return the arguments with which `copy` and `pickle` construct the record."""
            return tuple(self)

    class _NamedTupleMeta(type):
        def __new__(cls, name, bases, body):
            """Return a subclass of `tuple` with the annotated names as fields."""
            fields = tuple(body["__annotations__"])
            while len(_field_properties) < len(fields):
                number = len(_field_properties)
                _field_properties.append(_tuplegetter(number, f"Alias for field number {number}"))
            defaults = {field: body.pop(field) for field in fields if field in body}
            body |= zip(fields, _field_properties, strict=False)
            body |= {
                "__slots__": (),
                "__match_args__": fields,
                "_fields": fields,
                "_field_defaults": defaults,
            }
            return type(name, (_Record,), body)

    NamedTuple = type.__new__(_NamedTupleMeta, "NamedTuple", (), {})
