"""`NamedTuple` for kbtui's records: the same to a type checker as `typing.NamedTuple`, but cheaper to define.

`typing.NamedTuple` compiles and checks every annotation when the class is defined, although a type
checker does this anyway. `docs/performance.md` says what this costs.
"""

from __future__ import annotations

from collections import namedtuple

__all__ = ["NamedTuple"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _NamedTupleMeta(type):
        def __new__(cls, name, bases, body):
            """Return a subclass of `tuple` with the annotated names as fields."""
            fields = body.pop("__annotations__")
            record = namedtuple(
                name,
                fields,
                defaults=[body.pop(field) for field in fields if field in body],
                module=body.pop("__module__"),
            )
            record.__annotations__ = fields
            for attribute, value in body.items():
                setattr(record, attribute, value)
            return record

    NamedTuple = type.__new__(_NamedTupleMeta, "NamedTuple", (), {})
