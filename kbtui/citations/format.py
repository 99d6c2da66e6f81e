"""Citations to hand on: the documented JSON shape, and a Markdown list with footnote numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kbtui.citations.markdown_export import plain, source_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.citations.models import Citation


def as_json(cite: Citation) -> dict[str, Any]:
    """The documented shape of a citation."""
    return {
        "source": cite.source,
        "source_title": cite.source_title,
        "call": cite.call,
        "how": cite.how,
        "tool": cite.tool,
        "kind": cite.kind,
        "target": cite.target,
        "title": cite.title,
        "chunk_id": cite.chunk,
        "score": cite.score,
        "timestamp": cite.timestamp.isoformat() if cite.timestamp else None,
        "gone": cite.gone,
    }


def both_ways(ref: str, uses: Sequence[Citation], used_by: Sequence[Citation]) -> dict[str, Any]:
    """What `kbtui cites --json` prints."""
    return {
        "ref": ref,
        "uses": [as_json(cite) for cite in uses],
        "used_by": [as_json(cite) for cite in used_by],
    }


def json_text(ref: str, uses: Sequence[Citation], used_by: Sequence[Citation]) -> str:
    """The same as text."""
    return json.dumps(both_ways(ref, uses, used_by), ensure_ascii=False, indent=2) + "\n"


def turn_line(cite: Citation) -> str:
    """The turn that cites in one line: its reference, date and conversation, and how."""
    from kbtui.text import one_line

    how = f"({cite.how}, {one_line(cite.tool)})"
    return f"{cite.source}  {_date(cite)}  {one_line(cite.source_title)}  {how}"


def _date(cite: Citation) -> str:
    """When, in local time; where the event has no time, when its conversation began."""
    from kbtui.refs import jp_creation_time

    time = cite.timestamp or jp_creation_time(cite.conversation)
    return f"{time.astimezone():%Y-%m-%d %H:%M}"


def markdown_text(ref: str, uses: Sequence[Citation], used_by: Sequence[Citation]) -> str:
    """What is used, numbered as in the citations pane, and who uses it."""
    parts = []
    if uses:
        lines = [f"{number}. {source_line(cite)}" for number, cite in enumerate(uses, 1)]
        parts.append("\n".join([f"Sources of `{ref}`:", "", *lines]))
    if used_by:
        turns = {cite.source: cite for cite in reversed(used_by)}
        lines = [
            f"- `{turn}` {plain(cite.source_title)} ({_date(cite)})"
            for turn, cite in reversed(turns.items())
        ]
        parts.append("\n".join([f"Turns that used `{ref}`:", "", *lines]))
    return "\n\n".join(parts) + "\n" if parts else f"`{ref}` uses nothing, and nothing uses it.\n"
