"""An answer as `kbtui search` prints it: one JSON document, or lines for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.text import cut

if TYPE_CHECKING:
    from kbtui.search.models import Answer, Hit

BEFORE, SHOWN = 60, 240
"""So many characters are shown of a hit's text, of them so many before its first match."""


def as_document(answer: Answer, *, ascii_only: bool) -> str:
    """The documented JSON, with a newline; ASCII escapes keep it safe on any terminal."""
    import json

    return json.dumps(answer.as_json(), indent=2, ensure_ascii=ascii_only) + "\n"


def as_lines(answer: Answer, *, plain: bool) -> str:
    """Two lines a hit, best first; `plain` without colours."""
    return "".join(shown(hit, plain=plain) + "\n" for hit in answer.hits)


def remarks(answer: Answer, asked: str) -> list[str]:
    """What is to be said beside the hits, on stderr."""
    from kbtui.search.models import NOTHING

    said = [answer.degraded] if answer.degraded else []
    if not answer.hits and not answer.has_notice("nothing_to_look_for"):
        said.append(NOTHING if answer.empty else f"nothing found for {cut(asked, 60)!r}")
    return said


def shown(hit: Hit, *, plain: bool) -> str:
    """Reference and title, then the text around the first match."""
    from kbtui.text import one_line, safe, safe_marked

    text, matches = safe_marked(hit.text, list(hit.matches))
    bold, mark, dim, off = (
        ("", "", "", "") if plain else ("\x1b[1m", "\x1b[33m", "\x1b[2m", "\x1b[0m")
    )
    who = f" · {hit.role}" if hit.role else ""
    head = f"{bold}{safe(hit.ref)}{off}  {one_line(hit.title)}{dim}{who}{off}"
    start = max(0, (matches[0][0] if matches else 0) - BEFORE)
    end = start + SHOWN
    parts, at = [], start
    for first, last in matches:
        if first >= end or first < at:
            continue
        parts += [_flat(text[at:first]), mark, _flat(text[first:last]), off]
        at = last
    parts.append(_flat(text[at:end]))
    body = "".join(parts).strip()
    return f"{head}\n    {'…' if start else ''}{body}{'…' if len(text) > end else ''}"


def _flat(text: str) -> str:
    return " ".join(text.replace("\t", " ").split("\n"))
