"""The sources as rows and pages: how each stands, and what exactly an approval agrees to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kbtui.dates import format_time
from kbtui.sources.config import find_approval_time, format_block, load_sources
from kbtui.sources.schedule import find_due_time
from kbtui.text import one_line
from kbtui.tui.framework.row_list import ListRow
from kbtui.tui.framework.styled_text import Span, StyledLine, TextMatches, wrap_spans
from kbtui.tui.reader.blocks import FactsBlock, HeadBlock, NoteBlock, SourceBlock
from kbtui.tui.reader.document import Document, format_count
from kbtui.userdata import UserData

if TYPE_CHECKING:
    from kbtui.knowledge.models import Problem
    from kbtui.library import Library
    from kbtui.sources.config import Source, SourceProgress
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block
    from kbtui.userdata.userdata import Run

STATES = {"ok": ("✓", "inserted"), "partial": ("◐", "warning"), "error": ("!", "error")}
BAR = 10


@dataclass(slots=True, eq=False)
class ItemBlock(NoteBlock):
    """A paragraph with a sign before its first line."""

    sign: Span = ("• ", "")

    def layout(self, width: int, found: TextMatches | None, opened: bool) -> list[StyledLine]:
        """Wrapped beside the sign."""
        return wrap_spans(self.spans, width, [self.sign], [("  ", "")])


@dataclass(frozen=True)
class SourceState:
    """A source with its last run, when it was approved and when it runs next (Unix seconds)."""

    source: Source
    folder: str
    run: Run | None
    approved: float | None
    due: float | None


@dataclass(frozen=True)
class SourceStates:
    """All sources, and what is wrong with others."""

    sources: list[SourceState]
    problems: list[Problem]


def read_source_states(library: Library) -> SourceStates:
    """How every source stands; called in a thread."""
    workspace = library.workspace
    journal = UserData(workspace)
    found, runs = load_sources(workspace), journal.last_runs()
    topics = library.knowledge().topics
    states = []
    for name, source in found.sources.items():
        topic = topics.get(source.topic)
        folder = f"{topic.subjects}/{name}/" if topic else f"(there is no topic {source.topic!r})"
        states.append(
            SourceState(
                source,
                folder,
                runs.get(name),
                find_approval_time(workspace, journal, source),
                find_due_time(workspace, journal, source),
            )
        )
    return SourceStates(states, found.problems)


def rows_of(
    states: SourceStates,
    running: dict[str, SourceProgress | None],
    present: datetime,
    approve: str,
) -> list[ListRow]:
    """Two lines a source, those that cannot be read below; `approve` is the key that shows more."""
    rows = [_row(one, one.source.name in running, running.get(one.source.name), present, approve)
            for one in states.sources]  # fmt: skip
    for number, problem in enumerate(states.problems):
        left: Spans = [("! ", "error"), (one_line(problem.key or problem.where or "?"), "")]
        below: Spans = [("  ", ""), (one_line(problem.message), "error")]
        rows.append(ListRow(f"problem:{number}", left, below=[below], data=problem))
    return rows


def _row(
    one: SourceState, runs: bool, progress: SourceProgress | None, present: datetime, approve: str
) -> ListRow:
    source = one.source
    left: Spans = [(source.name, "strong"), (f"  {one_line(source.what)}", "dim")]
    right: Spans = [(f"{source.kind} → {one_line(source.topic)}", "dim")]
    below: Spans = [("  ", "")]
    if runs:
        below += _progress(progress)
    elif one.approved is None:
        below.append((f"not approved: {approve} shows what it would do", "warning"))
    elif one.run is None:
        below.append(("never run", "dim"))
    else:
        below += _last(one.run, present)
    if one.due is not None and not runs:
        due = datetime.fromtimestamp(one.due).astimezone()
        when = "due now" if due <= present else f"next {format_time(due, present)}"
        below.append((f"  {when}", "key"))
    return ListRow(source.name, left, right, [below], data=one)


def _last(run: Run, present: datetime) -> Spans:
    sign, role = STATES[run.status]
    when = format_time(datetime.fromtimestamp(run.began).astimezone(), present)
    spans: Spans = [
        (f"{sign} {run.status}", role),
        (f"  {when}, {format_count(run.entries, 'document')}", "dim"),
    ]
    if run.error:
        spans.append((f"  {one_line(run.error)}", role))
    return spans


def _progress(progress: SourceProgress | None) -> Spans:
    if progress is None:
        return [("▸ starting …", "key")]
    filled = BAR * progress.done // max(1, progress.total)
    return [
        ("█" * filled + "░" * (BAR - filled), "key"),
        (f"  {progress.done:,} of {progress.total:,}", ""),
        (f"  {one_line(progress.now)}", "dim"),
    ]


def problem_page(problem: Problem) -> Document:
    """What is wrong with a block of the file."""
    blocks: list[Block] = [
        HeadBlock("head", [("Cannot be read", "h2")]),
        NoteBlock("what", [(one_line(str(problem)), "error")]),
        NoteBlock("how", [("Mend .jp/kb-sources.toml; e edits nothing here.", "dim")], above=1),
    ]
    return Document(f"problem:{problem.key}", problem.key or problem.where or "A problem", blocks)


def source_page(one: SourceState, present: datetime) -> Document:
    """What a source is, how it ran, and its block."""
    source = one.source
    blocks: list[Block] = [
        NoteBlock("name", [(source.name, "h1")]),
        FactsBlock("facts", _facts(one, present)),
    ]
    blocks += _run_blocks(one.run, present)
    blocks += _block(source)
    return Document(f"source:{source.name}", source.name, blocks)


def _facts(one: SourceState, present: datetime) -> list[tuple[str, Spans]]:
    source = one.source

    def when(seconds: float | None) -> str:
        return format_time(datetime.fromtimestamp(seconds).astimezone(), present) if seconds else ""

    approved: Spans = [(when(one.approved), "")] if one.approved else [("not yet", "warning")]
    schedule: Spans = [(source.cron, "code-inline")] if source.cron else [("by hand only", "dim")]
    if one.due:
        schedule.append((f"  next {when(one.due)}", "key"))
    return [
        ("kind", [(source.kind, "")]),
        ("fetches", [(one_line(source.what), "")]),
        ("into", [(one_line(one.folder), "")]),
        ("runs", schedule),
        ("approved", approved),
    ]


def _run_blocks(run: Run | None, present: datetime) -> list[Block]:
    heading = HeadBlock("run", [("Last run", "h2")], above=1)
    if run is None:
        return [heading, NoteBlock("none", [("It never ran.", "dim")])]
    sign, role = STATES[run.status]
    began = datetime.fromtimestamp(run.began).astimezone()
    facts: list[tuple[str, Spans]] = [
        ("status", [(f"{sign} {run.status}", role)]),
        ("began", [(f"{format_time(began, present)}, took {run.ended - run.began:.1f} s", "")]),
        ("documents", [(f"{run.entries:,}", "")]),
        ("changes", [(run.counts, "")]),
    ]  # fmt: skip
    blocks: list[Block] = [heading, FactsBlock("runs", facts)]
    for number, problem in enumerate(run.problems):
        blocks.append(ItemBlock(f"problem:{number}", [(one_line(problem), role)], ("! ", role)))
    for number, text in enumerate(run.edited):
        blocks.append(ItemBlock(f"edited:{number}", [(one_line(text), "")], ("• ", "marker")))
    for number, (reason, skipped) in enumerate(run.skips_by_reason.items()):
        spans: Spans = [
            (f"skipped, {one_line(reason)}:", ""),
            (f" {one_line(' '.join(skipped))}", "dim"),
        ]
        blocks.append(ItemBlock(f"skip:{number}", spans, ("• ", "marker")))
    if run.skipped > len(run.skips):
        more = f"and {run.skipped - len(run.skips):,} more skipped"
        blocks.append(NoteBlock("skips", [(more, "dim")]))
    return blocks


def _block(source: Source) -> list[Block]:
    return [
        HeadBlock(
            "block", [("As it is declared", "h2")], [(".jp/kb-sources.toml", "dim")], above=1
        ),
        SourceBlock("toml", format_block(source), language="toml", panel=True, first_line=1),
    ]


def approval_page(one: SourceState, agree: str, back: str) -> Document:
    """Exactly what a source would do, and the keys that approve it or go back."""
    source = one.source
    blocks: list[Block] = [
        NoteBlock("ask", [(f"Approve {source.name}?", "h1")]),
        NoteBlock(
            "what",
            [("Whenever it runs, kbtui would do this on this machine, as you:", "")],
            above=1,
        ),
    ]
    for number, line in enumerate(_doings(one)):
        blocks.append(ItemBlock(f"doing:{number}", [(line, "strong")], ("• ", "marker")))
    blocks += _block(source)
    text = f"{agree} approves exactly this; a later change of it asks again. {back} leaves it as it is."
    blocks.append(NoteBlock("answers", [(text, "key")], above=1))
    return Document(f"approve:{source.name}", f"Approve {source.name}", blocks)


def _doings(one: SourceState) -> list[str]:
    import shlex

    from kbtui.sources.url_policy import CrawlBounds

    source = one.source
    lines: list[str] = []
    if source.kind == "url_crawl":
        lines.append(f"fetch {one_line(source.url or '')}")
        if source.depth:
            links = "link" if source.depth == 1 else "links"
            inside = CrawlBounds(source.url or "", source.prefixes).description
            lines.append(f"and what it leads to, up to {source.depth} {links} away, below {inside}")
        private = "lies in a private network"
        lines += [f"also when {one_line(host)} {private}" for host in source.allow_hosts]
    elif source.kind == "mcp":
        lines.append(f"run the program: {one_line(shlex.join(source.server))}")
        lines.append("in the workspace's directory, with your rights; it may do anything you may")
        lines += [f"give it your variable ${one_line(name)}" for name in source.env]
        lines.append(
            f"take its resources{f' that match {one_line(source.pattern)}' if source.pattern else ''}"
        )
    else:
        lines.append(f"read {one_line(source.file or '')}")
    lines.append(f"write what comes of it as Markdown files below {one_line(one.folder)}")
    alone = f"by itself while the engine runs, at {source.cron} (cron)"
    lines.append(alone if source.cron else "only when you say so")
    return lines
