"""Find and explain what is wrong with workspace, knowledge, conversations, index, model and engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.cli.output import emit, emit_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from kbtui.library import Library

Finding = tuple[str, str, str]
"""Area, "ok" / "note" / "wrong", and what there is to say."""


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui doctor`."""
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    """Look at everything; 1 when something is wrong. Starts no engine."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    findings = [*_knowledge(library), *_conversations(library), *_index(library), *_model(library)]
    if args.json:
        emit_json([dict(zip(("area", "state", "message"), row, strict=True)) for row in findings])
    else:
        emit("".join(f"{state:<6} {area:<14} {text}\n" for area, state, text in findings))
    return 1 if any(state == "wrong" for _, state, _ in findings) else 0


def _knowledge(library: Library) -> Iterator[Finding]:
    from kbtui.knowledge import hygiene

    knowledge = library.knowledge()
    count = sum(len(knowledge.subjects(topic)) for topic in knowledge.topics)
    yield "knowledge", "ok", f"{len(knowledge.topics)} topics, {count} subjects"
    for problem in knowledge.problems:
        yield "knowledge", "wrong", str(problem)
    for problem in hygiene.check(knowledge):
        yield "knowledge", "note", str(problem)


def _conversations(library: Library) -> Iterator[Finding]:
    infos = library.conversations()
    yield "conversations", "ok", f"{len(infos)}, {sum(info.archived for info in infos)} archived"
    for info in infos:
        if info.problem:
            yield "conversations", "wrong", f"{info.ref}: {info.problem}"


def _index(library: Library) -> Iterator[Finding]:
    from kbtui.errors import EngineUnavailable, KbtuiError
    from kbtui.index import IndexReader

    try:
        reader = IndexReader(library.workspace.cache_dir)
        counts = reader.counts()
        yield "index", "ok", ", ".join(f"{number} {name}" for name, number in counts.items())
        reader.close()
    except KbtuiError as error:
        yield "index", "note", str(error)
    try:
        state = library.engine(start=False).request("status")
        yield "engine", "ok", f"running as process {state['pid']}"
        if state["error"]:
            yield "engine", "wrong", f"the last refresh failed: {state['error']}"
        if state["reason"]:
            yield "engine", "note", f"no semantic search: {state['reason']}"
    except EngineUnavailable:
        yield "engine", "note", "not running; a search or the TUI starts it"


def _model(library: Library) -> Iterator[Finding]:
    from kbtui.index.embedding import ModelUnavailable, find_model, verify

    try:
        verify(find_model(library.settings.model))
        yield "model", "ok", library.settings.model or "all-MiniLM-L6-v2, packaged, verified"
    except ModelUnavailable as error:
        yield "model", "wrong", f"keyword search only: {error}"
