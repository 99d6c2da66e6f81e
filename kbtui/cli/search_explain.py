"""What `kbtui search --explain` and `--why` print."""

from __future__ import annotations

import sys

from kbtui.cli.output import emit_json, is_plain, note
from kbtui.cli.search import refuse
from kbtui.search.format import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from kbtui.library import Library
    from kbtui.search.explain import Embedded, Explanation, LegRank
    from kbtui.search.models import Question

TERMS_SHOWN = 12
NAMES = {"lexical": "keywords", "semantic": "meaning"}


def explain(library: Library, question: Question, args: Namespace) -> int:
    """Search and say why; 0 when there is a hit, or what `--why` names was explained."""
    explainer = library.explain(question, args.wait)
    refuse(explainer.answer)
    why = explainer.why(library.resolve(args.why)) if args.why else None
    hits = explainer.hits() if args.explain else []
    library.close()
    if args.json:
        shape = explainer.answer.as_json()
        for hit, explained in zip(shape["hits"], hits, strict=False):
            hit["explanation"] = explained.as_json()
        emit_json(shape | ({"why": why.as_json()} if why else {}))
    else:
        if explainer.answer.degraded:
            note(explainer.answer.degraded)
        plain = is_plain()
        for hit, explained in zip(explainer.answer.hits, hits, strict=False):
            sys.stdout.write(f"{shown(hit, plain=plain)}\n{_text(explained)}\n")
        if why is not None:
            sys.stdout.write(_text(why, heading=True) + "\n")
        if not explainer.answer.hits and why is None:
            note(f"nothing found for {explainer.answer.query!r}")
    return 0 if explainer.answer.hits or why is not None else 1


def _text(explained: Explanation, *, heading: bool = False) -> str:
    from kbtui.text import safe

    lines = list(_lines(explained))
    if heading:
        lines.insert(0, f"{explained.ref}  {explained.title}".rstrip())
    return "\n".join(safe(line) for line in lines)


def _lines(explained: Explanation) -> Iterator[str]:
    if explained.rank is not None:
        yield f"    stands at {explained.rank}, score {explained.score:.4f}"
    for leg, standing in (("lexical", explained.lexical), ("semantic", explained.semantic)):
        if explained.chunk_id is not None and standing.note != "not asked":
            yield f"    {NAMES[leg]}: {_standing(standing)}"
    terms = [
        f"{match.term} in {match.field} {match.score:.2f} (weight {match.weight:g})"
        for match in explained.matches[:TERMS_SHOWN]
    ]
    if terms:
        more = len(explained.matches) - len(terms)
        yield f"    terms: {', '.join(terms)}{f', {more} more' if more else ''}"
    if explained.missing:
        yield f"    not in it: {', '.join(explained.missing)}"
    if explained.embedded is not None:
        yield from _embedded(explained.embedded)
    for reason in explained.kept_out:
        yield f"    kept out: {reason}"


def _standing(standing: LegRank) -> str:
    if standing.rank is None:
        found = standing.note or "not found"
    else:
        found = f"rank {standing.rank}, {standing.score:.4f}"
    return f"{found}; gives {standing.gives:.4f}" if standing.gives else found


def _embedded(embedded: Embedded) -> Iterator[str]:
    from kbtui.text import one_line

    around = len(embedded.neighbours)
    yield (
        f"    embedded: {len(embedded.text)} characters, + {embedded.neighbour_weight:g} × "
        f"{around} neighbours, + {embedded.title_weight:g} × the title “{one_line(embedded.title)}”"
    )
    yield f"      {one_line(embedded.text)}"
    for text in embedded.neighbours:
        yield f"      + {one_line(text)}"
