"""The workshop's right side: what `learn` returns, the whole section, a fragment, a change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.knowledge.learn import escape_quotes
from kbtui.text import one_line
from kbtui.tui.reader.blocks import (
    FactsBlock,
    HeadBlock,
    NoteBlock,
    make_message_blocks,
    make_source_blocks,
)
from kbtui.tui.reader.document import Document
from kbtui.tui.reader.subject_document import build_text_document
from kbtui.tui.workshop.prompt_state import Cost, cost_of

if TYPE_CHECKING:
    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.editing import TomlChange
    from kbtui.knowledge.models import PromptFragment
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block
    from kbtui.tui.workshop.pattern import PatternResult
    from kbtui.tui.workshop.prompt_state import PromptState
    from kbtui.tui.workshop.tree import TreeEntry

NO_SECTION = "There is no <knowledge> section: no topic has anything to list or pre-load."


@dataclass(frozen=True)
class WorkshopPage:
    """A document with what it costs an assistant; None for what no assistant is given.

    `line` is the line of the text to begin reading at, 1-based, if not on top.
    """

    document: Document
    cost: Cost | None = None
    line: int | None = None


def make_page(
    prompt_state: PromptState, entry: TreeEntry, view: str, trial: PatternResult | None
) -> WorkshopPage:
    """The page for what is selected or tried; called in a thread, never raises."""
    try:
        return _make(prompt_state, entry, view, trial)
    except KbtuiError as error:
        return message_page("problem", error.message, error.where, error.hint)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return message_page("problem", f"{type(error).__name__}: {error}")


def _make(
    prompt_state: PromptState, entry: TreeEntry, view: str, trial: PatternResult | None
) -> WorkshopPage:
    knowledge = prompt_state.knowledge
    if trial is not None and trial.usable:
        if trial.preloads:
            tried = knowledge.with_preloaded(trial.preloads)
            return _prompt_page(trial.call, tried.prompt())
        if view == "learn":
            return _learn_page(knowledge, trial.topic or "", trial.patterns)
    if entry.kind == "problem":
        return message_page("problem", entry.name)
    if entry.kind == "fragment":
        return _fragment_page(prompt_state, entry.number)
    if view == "prompt" or entry.kind == "whole":
        page = _prompt_page("prompt", prompt_state.prompt)
        return WorkshopPage(
            page.document, page.cost, _spot(knowledge, prompt_state.prompt or "", entry)
        )
    if entry.kind == "topic":
        return _learn_page(knowledge, entry.topic, ())
    if entry.kind == "folder":
        return _learn_page(knowledge, entry.topic, (f"{literal(entry.name)}**",))
    return _learn_page(knowledge, entry.topic, (entry.name,))


def literal(text: str) -> str:
    """Text as a glob that matches only itself."""
    return re.sub(r"[*?\[]", r"[\g<0>]", text)


def _learn_page(knowledge: Knowledge, topic: str, patterns: tuple[str, ...]) -> WorkshopPage:
    """Exactly what `learn` returns."""
    text = knowledge.learn(topic, list(patterns), has_prompt=True).text
    call = " ".join(["learn", quote(topic), *map(quote, patterns)])
    return _text_page(f"learn:{topic}:{' '.join(patterns)}", call, text)


def _prompt_page(title: str, text: str | None) -> WorkshopPage:
    if text is None:
        return message_page("prompt", NO_SECTION)
    return _text_page("prompt", title, text)


def _text_page(key: str, title: str, text: str) -> WorkshopPage:
    document = build_text_document(key, one_line(title), text, view="prompt")
    cost = cost_of(text)
    document.size = cost.long
    return WorkshopPage(document, cost)


def _spot(knowledge: Knowledge, text: str, entry: TreeEntry) -> int | None:
    """The line of the section where the selected topic or subject begins."""
    if entry.kind not in ("topic", "subject") or entry.topic not in knowledge.topics:
        return None
    name = escape_quotes(knowledge.topics[entry.topic].name)
    at = text.find(f'\n<topic "{name}">\n')
    if at >= 0 and entry.kind == "subject":
        within = text.find(f'\n<subject "{escape_quotes(entry.name)}">\n', at)
        at = within if within >= 0 else at
    return None if at < 0 else text.count("\n", 0, at + 1) + 1


def _fragment_page(prompt_state: PromptState, number: int) -> WorkshopPage:
    if number >= len(prompt_state.fragments):
        return message_page("fragment", "This fragment is gone.")
    fragment = prompt_state.fragments[number]
    blocks: list[Block] = [FactsBlock("facts", _facts(prompt_state, fragment))]
    blocks += make_source_blocks("text", fragment.content, above=1)
    cost = cost_of(fragment.content)
    key = f"fragment:{number}:{fragment.path}"
    return WorkshopPage(Document(key, one_line(fragment.name), blocks, size=cost.long), cost)


def _facts(prompt_state: PromptState, fragment: PromptFragment) -> list[tuple[str, Spans]]:
    root = prompt_state.written.workspace.root
    path = fragment.path.relative_to(root) if fragment.path.is_relative_to(root) else fragment.path
    facts: list[tuple[str, Spans]] = [("file", [(one_line(str(path)), "")])]
    if fragment.tag:
        facts.append(("tag", [(one_line(fragment.tag), "")]))
    if fragment.position is not None:
        facts.append(("position", [(str(fragment.position), "")]))
    loaders = one_line(", ".join(fragment.loaded_by))
    facts.append(("loaded by", [(loaders or "nothing", "" if loaders else "warning")]))
    return facts


def message_page(
    key: str, message: str, where: str | None = None, hint: str | None = None
) -> WorkshopPage:
    """A page of words of our own."""
    blocks = make_message_blocks([(one_line(message), "")], where, hint)
    return WorkshopPage(Document(f"message:{key}", "", blocks))


def change_page(
    change: TomlChange, head: str, words: str, error: KbtuiError | None = None
) -> WorkshopPage:
    """A change of a file as a unified diff, under what there is to say about it."""
    blocks: list[Block] = [HeadBlock("head", [(one_line(head), "h2")])]
    if error is not None:
        said = one_line(f"! {error.message}" + (f": {error.hint}" if error.hint else ""))
        blocks.append(NoteBlock("error", [(said, "error")]))
    blocks.append(NoteBlock("words", [(words, "dim")]))
    diff = change.diff
    blocks += make_source_blocks("text", diff, language="diff", above=1)
    return WorkshopPage(Document("change", "", blocks))
