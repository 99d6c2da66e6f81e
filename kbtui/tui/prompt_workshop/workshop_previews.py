"""Build the documents of the workshop's right pane: `learn` output, prompt, prompt fragment, change."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.knowledge.learn_tool_answers import escape_quotes
from kbtui.text import one_line
from kbtui.tui.prompt_workshop.planned_prompt import PromptCost, measure_text_cost
from kbtui.tui.reader.document_blocks import (
    FactTableBlock,
    HeadingBlock,
    ParagraphBlock,
    make_message_blocks,
    make_source_text_blocks,
)
from kbtui.tui.reader.reader_document import ReaderDocument
from kbtui.tui.reader.subject_document import build_assistant_text_document

if TYPE_CHECKING:
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.toml_config_editor import TomlFileChange
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.prompt_workshop.planned_prompt import PlannedPrompt
    from kbtui.tui.prompt_workshop.subject_pattern_bar import PatternMatchResult
    from kbtui.tui.prompt_workshop.subject_tree import SubjectTreeNode
    from kbtui.tui.reader.document_blocks import DocumentBlock

NO_KNOWLEDGE_SECTION = (
    "There is no <knowledge> section, because no topic has a subject to list or pre-load."
)


@dataclass(frozen=True)
class WorkshopPreview:
    """A document for the right pane; `cost` is the cost of its text, or None if the text is not for an assistant.

    `line` is the 1-based number of the line to show first, or None for the top.
    """

    document: ReaderDocument
    cost: PromptCost | None = None
    line: int | None = None


def make_workshop_preview(
    planned_prompt: PlannedPrompt,
    node: SubjectTreeNode,
    view: str,
    result: PatternMatchResult | None,
) -> WorkshopPreview:
    """Return the preview of the selected row or of the tried pattern; if it cannot be built, a preview of the error.

    Called in a background thread.
    """
    try:
        return _make_tree_node_preview(planned_prompt, node, view, result)
    except KbtuiError as error:
        return _make_message_preview("problem", error.message, error.where, error.hint)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return _make_message_preview("problem", f"{type(error).__name__}: {error}")


def _make_tree_node_preview(
    planned_prompt: PlannedPrompt,
    node: SubjectTreeNode,
    view: str,
    result: PatternMatchResult | None,
) -> WorkshopPreview:
    knowledge = planned_prompt.knowledge
    if result is not None and result.preloads:
        tried = knowledge.copy_with_preload_options(result.preloads)
        return _make_prompt_preview(result.shell_arguments, tried.format_prompt_section())
    if result is not None and result.topic and view == "learn":
        return _make_learn_output_preview(knowledge, result.topic, result.patterns)
    if node.kind == "problem":
        return _make_message_preview("problem", node.name)
    if node.kind == "fragment":
        return _make_prompt_fragment_preview(planned_prompt, node.number)
    if view == "prompt" or node.kind == "whole":
        preview = _make_prompt_preview("prompt", planned_prompt.prompt)
        line = _find_prompt_line_of_node(knowledge, planned_prompt.prompt or "", node)
        return replace(preview, line=line)
    if node.kind == "topic":
        return _make_learn_output_preview(knowledge, node.topic, ())
    pattern = f"{escape_glob(node.name)}**" if node.kind == "folder" else node.name
    return _make_learn_output_preview(knowledge, node.topic, (pattern,))


def escape_glob(text: str) -> str:
    """Return a glob that matches only `text`."""
    return re.sub(r"[*?\[]", r"[\g<0>]", text)


def _make_learn_output_preview(
    knowledge: KnowledgeBase, topic: str, patterns: tuple[str, ...]
) -> WorkshopPreview:
    """Return a preview with the exact output of `learn`."""
    text = knowledge.learn(topic, list(patterns), has_prompt=True).text
    command = " ".join(["learn", quote(topic), *map(quote, patterns)])
    return _make_text_preview(f"learn:{topic}:{' '.join(patterns)}", command, text)


def _make_prompt_preview(title: str, text: str | None) -> WorkshopPreview:
    if text is None:
        return _make_message_preview("prompt", NO_KNOWLEDGE_SECTION)
    return _make_text_preview("prompt", title, text)


def _make_text_preview(key: str, title: str, text: str) -> WorkshopPreview:
    document = build_assistant_text_document(key, one_line(title), text, view="prompt")
    cost = measure_text_cost(text)
    document.size = cost.format_cost_with_units()
    return WorkshopPreview(document, cost)


def _find_prompt_line_of_node(
    knowledge: KnowledgeBase, text: str, node: SubjectTreeNode
) -> int | None:
    """Return the line of the prompt where a topic or subject starts, or None."""
    if node.kind not in ("topic", "subject") or node.topic not in knowledge.topics:
        return None
    name = escape_quotes(knowledge.topics[node.topic].name)
    at = text.find(f'\n<topic "{name}">\n')
    if at >= 0 and node.kind == "subject":
        within = text.find(f'\n<subject "{escape_quotes(node.name)}">\n', at)
        at = within if within >= 0 else at
    return None if at < 0 else text.count("\n", 0, at + 1) + 1


def _make_prompt_fragment_preview(planned_prompt: PlannedPrompt, number: int) -> WorkshopPreview:
    if number >= len(planned_prompt.fragments):
        return _make_message_preview("fragment", "This fragment no longer exists.")
    fragment = planned_prompt.fragments[number]
    root, path = planned_prompt.written.workspace.root, fragment.path
    path = path.relative_to(root) if path.is_relative_to(root) else path
    facts: list[tuple[str, Spans]] = [("file", [(one_line(str(path)), "")])]
    if fragment.tag:
        facts.append(("tag", [(one_line(fragment.tag), "")]))
    if fragment.position is not None:
        facts.append(("position", [(str(fragment.position), "")]))
    loaders = one_line(", ".join(fragment.loaded_by))
    facts.append(("loaded by", [(loaders or "nothing", "" if loaders else "warning")]))
    blocks: list[DocumentBlock] = [FactTableBlock("facts", facts)]
    blocks += make_source_text_blocks("text", fragment.content, above=1)
    cost = measure_text_cost(fragment.content)
    key, size = f"fragment:{number}:{fragment.path}", cost.format_cost_with_units()
    return WorkshopPreview(ReaderDocument(key, one_line(fragment.name), blocks, size=size), cost)


def _make_message_preview(
    key: str, message: str, where: str | None = None, hint: str | None = None
) -> WorkshopPreview:
    blocks = make_message_blocks([(one_line(message), "")], where, hint)
    return WorkshopPreview(ReaderDocument(f"message:{key}", "", blocks))


def make_toml_change_preview(change: TomlFileChange, heading: str, note: str) -> WorkshopPreview:
    """Return a preview with a heading, a note, and the unified diff of a change."""
    blocks: list[DocumentBlock] = [
        HeadingBlock("head", [(one_line(heading), "h2")]),
        ParagraphBlock("words", [(note, "dim")]),
        *make_source_text_blocks("text", change.diff, language="diff", above=1),
    ]
    return WorkshopPreview(ReaderDocument("change", "", blocks))
