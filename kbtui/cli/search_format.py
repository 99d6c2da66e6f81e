"""A serialized answer as `kbtui search` prints it: one JSON document, or lines for a person."""

from __future__ import annotations

from kbtui.text import cut, one_line, safe, safe_marked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

BEFORE, SHOWN = 60, 240
"""Characters shown of a hit's text, and of them those before its first match."""
TERMS_SHOWN = 12
LEGS = {"lexical": "keywords", "semantic": "meaning"}


def format_answer(answer: dict[str, Any], *, plain: bool) -> str:
    """Two lines a hit, best first, with the explanations that were asked for."""
    parts: list[str] = []
    for hit in answer["hits"]:
        parts.append(format_hit(hit, plain=plain))
        if explained := hit.get("explanation"):
            parts.append(format_explanation(explained))
    if why := answer.get("why"):
        heading = f"{why['ref']}  {why['title']}".rstrip()
        parts.append(f"{safe(heading)}\n{format_explanation(why)}")
    return "".join(f"{part}\n" for part in parts)


def format_notices(answer: dict[str, Any], query: str) -> list[str]:
    """What is to be said beside the hits, on stderr."""
    lines = [answer["degraded"]] if answer["degraded"] else []
    if answer["hits"] or answer.get("why"):
        return lines
    details = answer["details"]
    if details["empty"]:
        from kbtui.notices import NOTHING_INDEXED

        lines.append(NOTHING_INDEXED)
    elif not any(code == "nothing_to_look_for" for code, _ in details["notices"]):
        lines.append(f"nothing found for {cut(query, 60)!r}")
    return lines


def format_hit(hit: dict[str, Any], *, plain: bool) -> str:
    """Reference and title, then the text around the first match; `plain` without colours."""
    text, matches = safe_marked(hit["text"], [(first, last) for first, last in hit["matches"]])
    bold, mark, dim, off = (
        ("", "", "", "") if plain else ("\x1b[1m", "\x1b[33m", "\x1b[2m", "\x1b[0m")
    )
    role = f" · {hit['role']}" if hit.get("role") else ""
    head = f"{bold}{safe(hit['ref'])}{off}  {one_line(hit['title'])}{dim}{role}{off}"
    start = max(0, (matches[0][0] if matches else 0) - BEFORE)
    end = start + SHOWN
    parts, at = [], start
    for first, last in matches:
        if first >= end or first < at:
            continue
        parts += [_join_lines(text[at:first]), mark, _join_lines(text[first:last]), off]
        at = last
    parts.append(_join_lines(text[at:end]))
    body = "".join(parts).strip()
    return f"{head}\n    {'…' if start else ''}{body}{'…' if len(text) > end else ''}"


def _join_lines(text: str) -> str:
    return " ".join(text.replace("\t", " ").split("\n"))


def format_explanation(explained: dict[str, Any]) -> str:
    """Where a passage stands in each leg, by which terms, and what keeps it out."""
    return "\n".join(safe(line) for line in _explanation_lines(explained))


def _explanation_lines(explained: dict[str, Any]) -> Iterator[str]:
    if explained["rank"] is not None:
        yield f"    stands at {explained['rank']}, score {explained['score']:.4f}"
    for leg, name in LEGS.items():
        if explained["chunk_id"] is not None and explained[leg]["note"] != "not asked":
            yield f"    {name}: {_format_leg(explained[leg])}"
    matches = explained["matches"]
    terms = [
        f"{match['term']} in {match['field']} {match['score']:.2f} (weight {match['weight']:g})"
        for match in matches[:TERMS_SHOWN]
    ]
    if terms:
        more = len(matches) - len(terms)
        yield f"    terms: {', '.join(terms)}{f', {more} more' if more else ''}"
    if explained["missing"]:
        yield f"    not in it: {', '.join(explained['missing'])}"
    if explained["embedded"] is not None:
        yield from _embedded_lines(explained["embedded"])
    for reason in explained["kept_out"]:
        yield f"    kept out: {reason}"


def _format_leg(leg: dict[str, Any]) -> str:
    if leg["rank"] is None:
        found = leg["note"] or "not found"
    else:
        found = f"rank {leg['rank']}, {leg['score']:.4f}"
    return f"{found}; gives {leg['gives']:.4f}" if leg["gives"] else found


def _embedded_lines(embedded: dict[str, Any]) -> Iterator[str]:
    yield (
        f"    embedded: {len(embedded['text'])} characters, + {embedded['neighbour_weight']:g} × "
        f"{len(embedded['neighbours'])} neighbours, + {embedded['title_weight']:g} × the title "
        f"“{one_line(embedded['title'])}”"
    )
    yield f"      {one_line(embedded['text'])}"
    for text in embedded["neighbours"]:
        yield f"      + {one_line(text)}"
