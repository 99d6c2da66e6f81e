"""What was found when looking for what is wrong."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "note", "wrong"]


class Finding(NamedTuple):
    """One thing that was looked at: `ref` is the reference of what it is about, if it has one."""

    area: str
    state: State
    message: str
    ref: str | None = None
