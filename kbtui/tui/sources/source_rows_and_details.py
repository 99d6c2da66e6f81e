"""The row and the details of each source: its status, its last run, and the actions that it may do."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from kbtui.dates import format_time_with_date
from kbtui.sources.source_definitions import (
    find_source_approval_time,
    format_source_as_toml,
    load_source_definitions,
)
from kbtui.sources.source_scheduler import find_source_due_time
from kbtui.text import one_line
from kbtui.tui.framework.row_list import ListRow
from kbtui.tui.framework.styled_text import MatchHighlight, Span, StyledLine, wrap_spans
from kbtui.tui.reader.document_blocks import (
    FactTableBlock,
    HeadingBlock,
    ParagraphBlock,
    SourceTextBlock,
)
from kbtui.tui.reader.reader_document import ReaderDocument, format_counted_noun
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace.paths import SOURCES_FILE

if TYPE_CHECKING:
    from kbtui.knowledge.models import KnowledgeProblem
    from kbtui.library import Library
    from kbtui.sources.source_definitions import SourceDefinition, SourceRunProgress
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.document_blocks import DocumentBlock
    from kbtui.userdata.user_data_store import SourceRunRecord

STATUS_SIGNS = {"ok": ("✓", "inserted"), "partial": ("◐", "warning"), "error": ("!", "error")}
PROGRESS_CELLS = 10


@dataclass(slots=True, eq=False)
class BulletItemBlock(ParagraphBlock):
    """A paragraph with a sign, such as a bullet, before its first line."""

    sign: Span = ("• ", "marker")

    def lay_out_block_content(
        self, width: int, found: MatchHighlight | None, opened: bool
    ) -> list[StyledLine]:
        return wrap_spans(self.spans, width, [self.sign], [("  ", "")])


class SourceStatus(NamedTuple):
    """A source with its last run, the time of its approval, and the time of its next run.

    Times are Unix seconds; they are None if the source has no approval or no schedule. `folder` is the
    directory of its documents, and `file` the file that declares it, both relative to the workspace.
    """

    source: SourceDefinition
    folder: str
    file: str
    run: SourceRunRecord | None
    approved: float | None
    due: float | None


class SourceStatuses(NamedTuple):
    """The status of each valid source, and the problems with declarations that cannot be read."""

    sources: list[SourceStatus]
    problems: list[KnowledgeProblem]


def read_source_statuses(library: Library) -> SourceStatuses:
    """Read the status of every source. Called in a background thread."""
    workspace = library.workspace
    userdata = UserData(workspace)
    found, runs = load_source_definitions(workspace), userdata.load_last_source_runs()
    topics = library.load_knowledge().topics
    file = workspace.format_config_path(SOURCES_FILE)
    states = []
    for name, source in found.sources.items():
        topic = topics.get(source.topic)
        folder = f"{topic.subjects}/{name}/" if topic else f"(unknown topic {source.topic!r})"
        approved = find_source_approval_time(workspace, userdata, source)
        due = find_source_due_time(workspace, userdata, source)
        states.append(SourceStatus(source, folder, file, runs.get(name), approved, due))
    return SourceStatuses(states, found.problems)


def make_source_rows(
    states: SourceStatuses,
    running: dict[str, SourceRunProgress | None],
    now: datetime,
    review_key: str,
) -> list[ListRow]:
    """Return a row of two lines for each source, followed by a row for each problem.

    `running` maps the names of running sources to their progress, which is None before the first report.
    `review_key` is the label of the key that shows what a source would do.
    """
    rows = []
    for state in states.sources:
        source = state.source
        left: Spans = [(source.name, "strong"), (f"  {one_line(source.target_description)}", "dim")]
        right: Spans = [(f"{source.kind} → {one_line(source.topic)}", "dim")]
        if source.name in running:
            below = _format_progress_bar(running[source.name])
        elif state.approved is None:
            below = [(f"not approved – {review_key} to review", "warning")]
        elif state.run is None:
            below = [("never run", "dim")]
        else:
            below = _format_last_source_run(state.run, now)
        if state.due is not None and source.name not in running:
            is_due = _to_local_time(state.due) <= now
            when = "due now" if is_due else f"next run {_format_unix_time(state.due, now)}"
            below.append((f"  {when}", "key"))
        rows.append(ListRow(source.name, left, right, [[("  ", ""), *below]], data=state))
    for number, problem in enumerate(states.problems):
        left = [("! ", "error"), (one_line(problem.key or problem.where or "?"), "")]
        below = [("  ", ""), (one_line(problem.message), "error")]
        rows.append(ListRow(f"problem:{number}", left, below=[below], data=problem))
    return rows


def _to_local_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds).astimezone()


def _format_unix_time(seconds: float, now: datetime) -> str:
    return format_time_with_date(_to_local_time(seconds), now)


def _format_last_source_run(run: SourceRunRecord, now: datetime) -> Spans:
    sign, role = STATUS_SIGNS[run.status]
    details = (
        f"  {_format_unix_time(run.began, now)}, {format_counted_noun(run.entries, 'document')}"
    )
    error: Spans = [(f"  {one_line(run.error)}", role)] if run.error else []
    return [(f"{sign} {run.status}", role), (details, "dim"), *error]


def _format_progress_bar(progress: SourceRunProgress | None) -> Spans:
    if progress is None:
        return [("▸ starting …", "key")]
    filled = PROGRESS_CELLS * progress.done // max(1, progress.total)
    return [
        ("█" * filled + "░" * (PROGRESS_CELLS - filled), "key"),
        (f"  {progress.done:,} of {progress.total:,}", ""),
        (f"  {one_line(progress.now)}", "dim"),
    ]


def make_source_problem_details(problem: KnowledgeProblem) -> ReaderDocument:
    """Return the details of a declaration that cannot be read."""
    file = problem.where or SOURCES_FILE
    hint = f"Correct {one_line(file)} in your editor; this screen cannot change an invalid source."
    blocks: list[DocumentBlock] = [
        HeadingBlock("head", [("Cannot be read", "h2")]),
        ParagraphBlock("what", [(one_line(str(problem)), "error")]),
        ParagraphBlock("how", [(hint, "dim")], above=1),
    ]
    return ReaderDocument(
        f"problem:{problem.key}", problem.key or problem.where or "A problem", blocks
    )


def make_source_details(state: SourceStatus, now: datetime) -> ReaderDocument:
    """Return the details of a source: facts, last run, declaration."""
    source = state.source
    approved: Spans = [("not yet", "warning")]
    if state.approved:
        approved = [(_format_unix_time(state.approved, now), "")]
    schedule: Spans = [("only manually", "dim")]
    if source.cron:
        schedule = [(source.cron, "code-inline")]
    if state.due:
        schedule.append((f"  next run {_format_unix_time(state.due, now)}", "key"))
    facts: list[tuple[str, Spans]] = [
        ("kind", [(source.kind, "")]),
        ("fetches", [(one_line(source.target_description), "")]),
        ("into", [(one_line(state.folder), "")]),
        ("runs", schedule),
        ("approved", approved),
    ]
    blocks: list[DocumentBlock] = [
        ParagraphBlock("name", [(source.name, "h1")]),
        FactTableBlock("facts", facts),
        HeadingBlock("run", [("Last run", "h2")], above=1),
        *_make_last_run_blocks(state.run, now),
        *_make_declaration_blocks(state),
    ]
    return ReaderDocument(f"source:{source.name}", source.name, blocks)


def _make_last_run_blocks(run: SourceRunRecord | None, now: datetime) -> list[DocumentBlock]:
    if run is None:
        return [ParagraphBlock("none", [("Never run.", "dim")])]
    sign, role = STATUS_SIGNS[run.status]
    began = f"{_format_unix_time(run.began, now)}, took {run.ended - run.began:.1f} s"
    facts: list[tuple[str, Spans]] = [
        ("status", [(f"{sign} {run.status}", role)]),
        ("started", [(began, "")]),
        ("documents", [(f"{run.entries:,}", "")]),
        ("changes", [(run.document_counts_text, "")]),
    ]
    blocks: list[DocumentBlock] = [FactTableBlock("runs", facts)]
    for n, problem in enumerate(run.problems):
        blocks.append(BulletItemBlock(f"problem:{n}", [(one_line(problem), role)], ("! ", role)))
    for n, text in enumerate(run.edited):
        blocks.append(BulletItemBlock(f"edited:{n}", [(one_line(text), "")]))
    for n, (reason, skipped) in enumerate(run.skipped_documents_by_reason.items()):
        names = f" {one_line(' '.join(skipped))}"
        spans: Spans = [(f"skipped, {one_line(reason)}:", ""), (names, "dim")]
        blocks.append(BulletItemBlock(f"skip:{n}", spans))
    if run.skipped > len(run.skips):
        more = f"and {run.skipped - len(run.skips):,} more skipped"
        blocks.append(ParagraphBlock("skips", [(more, "dim")]))
    return blocks


def _make_declaration_blocks(state: SourceStatus) -> list[DocumentBlock]:
    heading, file = [("Declaration", "h2")], [(state.file, "dim")]
    toml = format_source_as_toml(state.source)
    return [
        HeadingBlock("block", heading, file, above=1),
        SourceTextBlock("toml", toml, language="toml", panel=True, first_line=1),
    ]


def make_source_approval_details(
    state: SourceStatus, approve_key: str, back_key: str
) -> ReaderDocument:
    """Return a document that says what a source would do, and which keys approve it or go back."""
    source = state.source
    intro = (
        "Once approved, this source will do the following on this computer, with your permissions:"
    )
    answers = f"Press {approve_key} to approve exactly this (any later change needs a new approval), or {back_key} to go back without approving."
    blocks: list[DocumentBlock] = [
        ParagraphBlock("ask", [(f"Approve {source.name}?", "h1")]),
        ParagraphBlock("what", [(intro, "")], above=1),
    ]
    for number, line in enumerate(describe_source_actions(state)):
        blocks.append(BulletItemBlock(f"action:{number}", [(line, "strong")]))
    blocks += _make_declaration_blocks(state)
    blocks.append(ParagraphBlock("answers", [(answers, "key")], above=1))
    return ReaderDocument(f"approve:{source.name}", f"Approve {source.name}", blocks)


def describe_source_actions(state: SourceStatus) -> list[str]:
    """Return texts that say what the source may do after its approval, one for each action."""
    from kbtui.sources.url_policy import CrawlUrlPrefixes

    source = state.source
    lines: list[str] = []
    if source.kind == "url_crawl":
        lines.append(f"fetch {one_line(source.url or '')}")
        if source.depth:
            links = "link" if source.depth == 1 else "links"
            inside = CrawlUrlPrefixes(source.url or "", source.prefixes).description
            lines.append(f"fetch pages up to {source.depth} {links} away, but only below {inside}")
        hosts = map(one_line, source.allow_hosts)
        lines += [f"fetch from {host} even if it is in a private network" for host in hosts]
    elif source.kind == "mcp":
        power = "the program can do anything that you can do"
        lines.append(f"run the program: {one_line(shlex.join(source.server))}")
        lines.append(f"run it in the workspace's directory; {power}")
        lines += [f"pass it your environment variable ${one_line(name)}" for name in source.env]
        matching = f" that match {one_line(source.pattern)}" if source.pattern else ""
        lines.append(f"read the program's resources{matching}")
    else:
        lines.append(f"read {one_line(source.file or '')}")
    lines.append(f"write the results as Markdown files below {one_line(state.folder)}")
    schedule = f"run automatically on the cron schedule {source.cron} while the engine runs"
    lines.append(schedule if source.cron else "run only manually, without a schedule")
    return lines
