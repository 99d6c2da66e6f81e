"""The sources screen: a list of sources, details of one source, and a form to add or change one."""

from __future__ import annotations

import shlex
import threading
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on

from kbtui.dates import Clock, format_time_with_date
from kbtui.errors import KbtuiError, UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.sources.document_source_definitions import (
    MAIN_KEY,
    add_source_definition,
    change_source_definition_keys,
    find_source_approval_time,
    format_source_as_toml,
    load_source_definitions,
    record_source_approval,
    suggest_source_name,
)
from kbtui.sources.document_source_scheduler import find_source_due_time
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.dialogs import ConfirmDialog, FormDialog, FormField, FormValues
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import HighlightPattern, Span, Spans, StyledLines, wrap_spans
from kbtui.tui.reader.reader_blocks import (
    FactTableReaderBlock,
    ParagraphReaderBlock,
    VerbatimTextReaderBlock,
    make_heading_block_with_note,
)
from kbtui.tui.reader.reader_document import ReaderDocument
from kbtui.tui.secondary_screen import ListDetailScreen
from kbtui.userdata.user_data_store import SourceRunRecord, UserData
from kbtui.workspace.paths import SOURCES_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.knowledge.knowledge_data_types import KnowledgeProblem
    from kbtui.library import Library
    from kbtui.sources.document_source_definitions import (
        DocumentSourceDefinition,
        SourceRunProgress,
    )
    from kbtui.tui.reader.reader_blocks import ReaderBlock

STATUS_SIGNS = {"ok": ("✓", "inserted"), "partial": ("◐", "warning"), "error": ("!", "error")}
PROGRESS_CELLS = 10


@dataclass(slots=True, eq=False)
class BulletItemBlock(ParagraphReaderBlock):
    """A paragraph with a sign, such as a bullet, before its first line."""

    sign: Span = ("• ", "marker")

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        return wrap_spans(self.spans, width, [self.sign], [("  ", "")])


class SourceWithLastRun(NamedTuple):
    """A source with its last run, the time of its approval, and the time of its next run.

    Times are in Unix seconds, and paths are relative to the workspace.

    * `approved` is the time of the approval; None if the source is not approved.
    * `due` is the time of the next scheduled run; None if no run is scheduled.
    * `folder` is the directory of the source's documents.
    * `file` is the file that declares the source.
    """

    source: DocumentSourceDefinition
    folder: str
    file: str
    run: SourceRunRecord | None
    approved: float | None
    due: float | None


class SourceStatusesAndProblems(NamedTuple):
    """Each valid source with its last run, and the problems with declarations that cannot be read."""

    sources: list[SourceWithLastRun]
    problems: list[KnowledgeProblem]


def load_sources_with_last_runs_and_approvals(library: Library) -> SourceStatusesAndProblems:
    """Load every source with its last run, and the problems with declarations. Called in a background thread."""
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
        states.append(SourceWithLastRun(source, folder, file, runs.get(name), approved, due))
    return SourceStatusesAndProblems(states, found.problems)


def make_source_rows(
    states: SourceStatusesAndProblems,
    running: dict[str, SourceRunProgress | None],
    now: datetime,
    review_key: str,
) -> list[ListRow]:
    """Return a row of two lines for each source, followed by a row for each problem.

    `running` contains the progress of each running source, by name; the progress is None before the first
    report. `review_key` is the label of the key for reviewing a source.
    """
    rows = []
    for state in states.sources:
        source = state.source
        left: Spans = [
            (source.name, "strong"),
            (f"  {sanitize_to_one_line(source.url_path_or_command)}", "dim"),
        ]
        right: Spans = [(f"{source.kind} → {sanitize_to_one_line(source.topic)}", "dim")]
        if source.name in running:
            below = _format_progress_bar(running[source.name])
        elif state.approved is None:
            below = [(f"not approved – {review_key} to review", "warning")]
        elif state.run is None:
            below = [("never run", "dim")]
        else:
            below = _format_last_source_run(state.run, now)
        if state.due is not None and source.name not in running:
            is_due = _convert_to_local_time(state.due) <= now
            when = "due now" if is_due else f"next run {_format_unix_time(state.due, now)}"
            below.append((f"  {when}", "key"))
        rows.append(ListRow(source.name, left, right, [[("  ", ""), *below]], data=state))
    for number, problem in enumerate(states.problems):
        left = [("! ", "error"), (sanitize_to_one_line(problem.key or problem.where or "?"), "")]
        below = [("  ", ""), (sanitize_to_one_line(problem.message), "error")]
        rows.append(ListRow(f"problem:{number}", left, below=[below], data=problem))
    return rows


def _convert_to_local_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds).astimezone()


def _format_unix_time(seconds: float, now: datetime) -> str:
    return format_time_with_date(_convert_to_local_time(seconds), now)


def _format_last_source_run(run: SourceRunRecord, now: datetime) -> Spans:
    sign, role = STATUS_SIGNS[run.status]
    documents = format_counted_noun(run.entries, "document")
    details = f"  {_format_unix_time(run.began, now)}, {documents}"
    error: Spans = [(f"  {sanitize_to_one_line(run.error)}", role)] if run.error else []
    return [(f"{sign} {run.status}", role), (details, "dim"), *error]


def _format_progress_bar(progress: SourceRunProgress | None) -> Spans:
    if progress is None:
        return [("▸ starting …", "key")]
    filled = PROGRESS_CELLS * progress.done // max(1, progress.total)
    return [
        ("█" * filled + "░" * (PROGRESS_CELLS - filled), "key"),
        (f"  {progress.done:,} of {progress.total:,}", ""),
        (f"  {sanitize_to_one_line(progress.now)}", "dim"),
    ]


def make_details_of_unreadable_source_declaration(problem: KnowledgeProblem) -> ReaderDocument:
    """Return the details of a declaration that cannot be read."""
    file = problem.where or SOURCES_FILE
    hint = f"Correct {sanitize_to_one_line(file)} in your editor; this screen cannot change an invalid source."
    blocks: list[ReaderBlock] = [
        make_heading_block_with_note("head", "Cannot be read", above=0),
        ParagraphReaderBlock("what", [(sanitize_to_one_line(str(problem)), "error")]),
        ParagraphReaderBlock("how", [(hint, "dim")], above=1),
    ]
    return ReaderDocument(
        f"problem:{problem.key}", problem.key or problem.where or "A problem", blocks
    )


def make_source_details(state: SourceWithLastRun, now: datetime) -> ReaderDocument:
    """Return a document that describes a source, its last run and its declaration."""
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
        ("fetches", [(sanitize_to_one_line(source.url_path_or_command), "")]),
        ("into", [(sanitize_to_one_line(state.folder), "")]),
        ("runs", schedule),
        ("approved", approved),
    ]
    blocks: list[ReaderBlock] = [
        ParagraphReaderBlock("name", [(source.name, "h1")]),
        FactTableReaderBlock("facts", facts),
        make_heading_block_with_note("run", "Last run"),
        *_make_last_run_blocks(state.run, now),
        *_make_source_declaration_blocks(state),
    ]
    return ReaderDocument(f"source:{source.name}", source.name, blocks)


def _make_last_run_blocks(run: SourceRunRecord | None, now: datetime) -> list[ReaderBlock]:
    if run is None:
        return [ParagraphReaderBlock("none", [("Never run.", "dim")])]
    sign, role = STATUS_SIGNS[run.status]
    began = f"{_format_unix_time(run.began, now)}, took {run.ended - run.began:.1f} s"
    facts: list[tuple[str, Spans]] = [
        ("status", [(f"{sign} {run.status}", role)]),
        ("started", [(began, "")]),
        ("documents", [(f"{run.entries:,}", "")]),
        ("changes", [(run.document_counts_text, "")]),
    ]
    blocks: list[ReaderBlock] = [FactTableReaderBlock("runs", facts)]
    for n, problem in enumerate(run.problems):
        blocks.append(
            BulletItemBlock(f"problem:{n}", [(sanitize_to_one_line(problem), role)], ("! ", role))
        )
    for n, text in enumerate(run.edited):
        blocks.append(BulletItemBlock(f"edited:{n}", [(sanitize_to_one_line(text), "")]))
    for n, (reason, skipped) in enumerate(run.skipped_documents_by_reason.items()):
        names = f" {sanitize_to_one_line(' '.join(skipped))}"
        spans: Spans = [(f"skipped, {sanitize_to_one_line(reason)}:", ""), (names, "dim")]
        blocks.append(BulletItemBlock(f"skip:{n}", spans))
    if run.skipped > len(run.skips):
        more = f"and {run.skipped - len(run.skips):,} more skipped"
        blocks.append(ParagraphReaderBlock("skips", [(more, "dim")]))
    return blocks


def _make_source_declaration_blocks(state: SourceWithLastRun) -> list[ReaderBlock]:
    toml = format_source_as_toml(state.source)
    return [
        make_heading_block_with_note("block", "Declaration", state.file),
        VerbatimTextReaderBlock("toml", toml, language="toml", panel=True, first_line=1),
    ]


def make_source_approval_details(
    state: SourceWithLastRun, approve_key: str, back_key: str
) -> ReaderDocument:
    """Return the page on which the user reviews the actions of a source and approves the source.

    The page shows the keys for approving the source and for going back.
    """
    source = state.source
    intro = (
        "Once approved, this source will do the following on this computer, with your permissions:"
    )
    answers = f"Press {approve_key} to approve exactly this (any later change needs a new approval), or {back_key} to go back without approving."
    blocks: list[ReaderBlock] = [
        ParagraphReaderBlock("ask", [(f"Approve {source.name}?", "h1")]),
        ParagraphReaderBlock("what", [(intro, "")], above=1),
    ]
    for number, line in enumerate(describe_what_approved_source_may_do(state)):
        blocks.append(BulletItemBlock(f"action:{number}", [(line, "strong")]))
    blocks += _make_source_declaration_blocks(state)
    blocks.append(ParagraphReaderBlock("answers", [(answers, "key")], above=1))
    return ReaderDocument(f"approve:{source.name}", f"Approve {source.name}", blocks)


def describe_what_approved_source_may_do(state: SourceWithLastRun) -> list[str]:
    """Return a description of each action that the source may perform after its approval."""
    from kbtui.sources.crawl_url_policy import AllowedUrlPrefixes

    source = state.source
    lines: list[str] = []
    if source.kind == "url_crawl":
        lines.append(f"fetch {sanitize_to_one_line(source.url or '')}")
        if source.depth:
            links = "link" if source.depth == 1 else "links"
            inside = AllowedUrlPrefixes(source.url or "", source.prefixes).description
            lines.append(f"fetch pages up to {source.depth} {links} away, but only below {inside}")
        hosts = map(sanitize_to_one_line, source.allow_hosts)
        lines += [f"fetch from {host} even if it is in a private network" for host in hosts]
    elif source.kind == "mcp":
        power = "the program can do anything that you can do"
        lines.append(f"run the program: {sanitize_to_one_line(shlex.join(source.server))}")
        lines.append(f"run it in the workspace's directory; {power}")
        lines += [
            f"pass it your environment variable ${sanitize_to_one_line(name)}"
            for name in source.env
        ]
        matching = f" that match {sanitize_to_one_line(source.pattern)}" if source.pattern else ""
        lines.append(f"read the program's resources{matching}")
    else:
        lines.append(f"read {sanitize_to_one_line(source.file or '')}")
    lines.append(f"write the results as Markdown files below {sanitize_to_one_line(state.folder)}")
    schedule = f"run automatically on the cron schedule {source.cron} while the engine is running"
    lines.append(schedule if source.cron else "run only manually, without a schedule")
    return lines


RELOAD_SECONDS = 5.0
"""The interval in seconds at which the screen looks for runs that another process started."""
NO_SOURCES = "No sources yet. Press {} to add web pages, files or an MCP server."
KINDS = ("url_crawl", "file_upload", "mcp")
LIST_KEYS = {"prefixes", "allow_hosts", "env"}
"""The keys whose values are lists. In the form, the items of a list are separated by spaces."""


# the form of a source


def make_source_form_fields(
    topics: Sequence[str], source: DocumentSourceDefinition | None = None
) -> list[FormField]:
    """Return the fields of the form that changes `source`, or adds a source if `source` is None."""
    if source and source.topic not in topics:
        topics = [source.topic, *topics]
    block = source.block if source else {}

    def get_text_value(key: str, default: str = "") -> str:
        value = block.get(key, default)
        return " ".join(value) if isinstance(value, list) else str(value)

    def make_source_kind_predicate(wanted: str) -> Callable[[FormValues], bool]:
        return lambda values: (source.kind if source else values.get("kind")) == wanted

    web, file, mcp = map(make_source_kind_predicate, KINDS)
    fields = [
        FormField("url", "URL", get_text_value("url"), "The first page, such as https://docs.example.org/guide/.", is_shown=web),
        FormField("file", "file", get_text_value("file"), "A file or directory: text, Markdown, HTML, PDF, Word, source code.", is_shown=file),
        FormField("server", "command", get_text_value("server"), "The command line of the MCP server.", is_shown=mcp),
        FormField("topic", "topic", get_text_value("topic"), "The topic that the documents are added to; choose it with ← and →.", tuple(topics)),
        FormField("depth", "depth", get_text_value("depth", "1"), "How far to follow links: 0 = only the first page, 1 = also the pages it links to.", is_shown=web),
        FormField("prefixes", "only below", get_text_value("prefixes"), "Fetch only pages with these URL prefixes, separated by spaces; empty = the first page's directory.", is_shown=web),
        FormField("allow_hosts", "private hosts", get_text_value("allow_hosts"), "Hosts in a private network that kbtui may fetch from; usually empty.", is_shown=web),
        FormField("pattern", "pattern", get_text_value("pattern"), "Fetch only resources whose URI matches this glob.", is_shown=mcp),
        FormField("env", "variables", get_text_value("env"), "Names of your environment variables to pass to the server.", is_shown=mcp),
        FormField("cron", "cron", get_text_value("cron"), "Schedule in cron format: 0 4 * * 1 = every Monday at 4:00; empty = run only manually."),
    ]  # fmt: skip
    if source is not None:
        return fields
    kind_help = "Web pages, files, or the resources of an MCP server."
    name_help = "The name of the source, also used for its directory; empty = kbtui chooses it."
    kind = FormField("kind", "kind", "url_crawl", kind_help, KINDS)
    return [kind, *fields, FormField("name", "name", "", name_help)]


def make_source_toml_table(values: FormValues, kind: str) -> dict[str, object]:
    """Make the TOML table of a source from the form's values. Empty values are left out.

    Raises `UsageError` if a value is invalid.
    """
    block: dict[str, Any] = {"kind": kind}
    block |= {key: value for key, value in values.items() if value and key not in ("kind", "name")}
    for key in block.keys() & LIST_KEYS:
        block[key] = block[key].split()
    if "depth" in block:
        if not block["depth"].isdecimal():
            raise UsageError("must be a whole number", where="depth")
        block["depth"] = int(block["depth"])
    return block


def add_and_approve_source_from_form(
    library: Library, values: FormValues
) -> DocumentSourceDefinition:
    """Add a source to the sources file. Also approve it, because the user has just entered it.

    Raises `KbtuiError` if the source is invalid or cannot be written.
    """
    kind, workspace = values["kind"], library.workspace
    what = values.get(MAIN_KEY[kind], "")
    if not what:
        raise UsageError("enter what the source should fetch")
    name = values["name"] or suggest_source_name(kind, what)
    source = add_source_definition(workspace, name, make_source_toml_table(values, kind))
    record_source_approval(workspace, UserData(workspace), source)
    return source


def change_source_from_form(
    library: Library, before: DocumentSourceDefinition, values: FormValues
) -> tuple[DocumentSourceDefinition, bool]:
    """Change a source. Return the changed source, and whether it is approved.

    `before` is the source as it was when the form was opened. An approved source stays approved,
    because the user made the change. Raises `KbtuiError` if the source in the file now differs from
    `before`, or if the source cannot be changed.
    """
    workspace, userdata = library.workspace, UserData(library.workspace)
    current = load_source_definitions(workspace).find_source(before.name)
    if current.block != before.block:
        message = "the source was changed in the file while the form was open"
        raise UsageError(message, where=before.name, hint="open the form again")
    approved = find_source_approval_time(workspace, userdata, current) is not None
    wanted = {**dict.fromkeys(before.block), **make_source_toml_table(values, before.kind)}
    changes = {key: value for key, value in wanted.items() if before.block.get(key) != value}
    if changes.get("depth") == 1 and "depth" not in before.block:
        del changes["depth"]  # 1 is the default
    if not changes:
        return current, approved
    source = change_source_definition_keys(workspace, before.name, changes)
    if approved:
        record_source_approval(workspace, userdata, source)
    return source, approved


@dataclass
class ActiveSourceRun:
    """A run that this screen has started. `progress` is None before the first report."""

    stop: threading.Event = field(default_factory=threading.Event)
    progress: SourceRunProgress | None = None


class SourcesScreen(ListDetailScreen):
    """A screen with a list of sources and the details of the selected source.

    Only a source whose current declaration is approved can run.
    """

    HEADING = "Sources"
    SCOPE = "sources"
    NOTES = (
        "✓ ok, ◐ partial (some documents failed), ! error (nothing could be fetched).",
        "Sources that you add here are approved. A source that another user wrote into "
        "kb-sources.toml runs only after you approve it.",
    )

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library, RowList("sources"))
        self.list.empty_text = [("Reading the sources …", "dim")]
        self.runs: dict[str, ActiveSourceRun] = {}
        self.states: SourceStatusesAndProblems | None = None
        self.approving: SourceWithLastRun | None = None
        """The source that the screen shows for approval, or None.

        Even if the file changes, only the shown declaration is approved.
        """
        self._clock = clock
        self._reload_worker = LatestOnlyWorker(self)
        self._key_to_select: str | None = None

    def on_mount(self) -> None:
        self.set_interval(RELOAD_SECONDS, self.action_reload)

    def on_unmount(self) -> None:
        for run in self.runs.values():
            run.stop.set()

    @property
    def selected_source(self) -> SourceWithLastRun | None:
        """The selected source; None if the selected row is a declaration that cannot be read."""
        row = self.list.selected_row
        return row.data if row and isinstance(row.data, SourceWithLastRun) else None

    @property
    def command_condition_states(self) -> dict[str, bool]:
        state, is_approving = self.selected_source, self.approving is not None
        return {
            "approving": is_approving,
            "source": state is not None and not is_approving,
            "running": state is not None and state.source.name in self.runs,
            "unapproved": state is not None and state.approved is None and not is_approving,
        }

    @property
    def has_loaded_content(self) -> bool:
        return self.states is not None

    def action_reload(self) -> None:
        def show_statuses(states: SourceStatusesAndProblems) -> None:
            if states != self.states or self._key_to_select:
                self.states = states
                self._show_source_rows()
                self._show_selected_source()

        read_statuses = partial(load_sources_with_last_runs_and_approvals, self.library)
        self.run_in_thread(read_statuses, show_statuses, self._reload_worker)

    def _show_source_rows(self) -> None:
        if self.states is None:
            return
        running = {name: run.progress for name, run in self.runs.items()}
        rows = make_source_rows(self.states, running, self._clock(), self.get_key_label("approve"))
        select, self._key_to_select = self._key_to_select, None
        self.list.set_rows(rows, [(NO_SOURCES.format(self.get_key_label("new")), "dim")], select)
        sources, problems = self.states.sources, self.states.problems
        left = [(format_counted_noun(len(sources), "source"), "strong")]
        if unapproved := sum(state.approved is None for state in sources):
            left.append((f"  {unapproved:,} not approved", "warning"))
        if problems:
            count = format_counted_noun(len(problems), "declaration")
            left.append((f"  {count} cannot be read", "error"))
        self.show_totals_line((left, [(f"{len(running)} running", "key")] if running else []))
        self.show_key_hints()

    @on(RowList.SelectedRowChanged)
    def _on_row_selected(self) -> None:
        self.approving = None
        self._show_selected_source()

    def _show_selected_source(self) -> None:
        self.show_key_hints()
        if self.approving is not None:
            return
        row = self.list.selected_row
        if row is None:
            self.show_document(ReaderDocument("source:", "", []))
        elif isinstance(row.data, SourceWithLastRun):
            self.show_document(make_source_details(row.data, self._clock()))
        else:
            self.show_document(make_details_of_unreadable_source_declaration(row.data))

    @on(RowList.RowClicked)
    def action_focus_details(self) -> None:
        if self.list.selected_row is not None:
            self.focus_detail_pane()

    def action_run_source(self) -> None:
        state = self.selected_source
        if state is None or self.approving is not None:
            return
        name = state.source.name
        if state.approved is None:
            review = f"press {self.get_key_label('approve')} to review what it would do"
            self.show_unavailable_key_message(f"Source {name} is not approved: {review}")
        elif name not in self.runs:
            run = self.runs[name] = ActiveSourceRun()
            start_run = partial(self._run_source_in_thread, name, run)
            threading.Thread(target=start_run, name=f"source-{name}", daemon=True).start()
            self.show_message(f"running {name} …", "dim")
            self._show_source_rows()

    def _run_source_in_thread(self, name: str, run: ActiveSourceRun) -> None:
        from kbtui.sources.document_source_runner import run_document_source

        def show_run_progress(progress: SourceRunProgress) -> None:
            run.progress = progress
            self.call_later(self._show_source_rows)

        workspace, should_stop = self.library.workspace, run.stop.is_set
        outcome: SourceRunRecord | Exception
        try:
            outcome = run_document_source(
                workspace, name, on_progress=show_run_progress, should_stop=should_stop
            )
        except Exception as error:
            outcome = error
        self.call_later(self._on_source_run_end, name, outcome)

    def action_stop_source(self) -> None:
        name = state.source.name if (state := self.selected_source) else ""
        if name in self.runs:
            self.runs[name].stop.set()
            self.show_message(f"stopping {name} …", "dim")

    def _on_source_run_end(self, name: str, outcome: SourceRunRecord | Exception) -> None:
        del self.runs[name]
        if isinstance(outcome, SourceRunRecord):
            documents = format_counted_noun(outcome.entries, "document")
            error = f". {sanitize_to_one_line(outcome.error)}" if outcome.error else ""
            text = f"{name}: {outcome.status}, {documents} ({outcome.document_counts_text}){error}"
            self.show_message(text, STATUS_SIGNS[outcome.status][1])
        else:
            self.show_error(outcome)
        self._show_source_rows()
        self.action_reload()

    def action_review_source(self) -> None:
        state = self.selected_source
        if state is None:
            return
        if state.approved is not None:
            self.show_unavailable_key_message(f"Source {state.source.name} is already approved")
            return
        self.approving = state
        agree, back = self.get_key_label("agree"), self.get_key_label("back")
        self.show_document(make_source_approval_details(state, agree, back))
        self.focus_detail_pane()

    def action_approve_shown_source(self) -> None:
        """Approve the source exactly as it is shown."""
        state, self.approving = self.approving, None
        if state is None:
            return
        workspace = self.library.workspace
        message = f"approved {state.source.name}; press {self.get_key_label('run')} to run it"
        self.run_in_thread(
            lambda: record_source_approval(workspace, UserData(workspace), state.source),
            lambda _: self._reload_with_message(state.source.name, message),
        )
        self.focus_list_pane()
        self._show_selected_source()

    def action_add_source(self) -> None:
        self._open_source_form(None)

    def action_edit_source(self) -> None:
        if (state := self.selected_source) is not None:
            self._open_source_form(state.source)

    def _open_source_form(self, before: DocumentSourceDefinition | None) -> None:
        """Open the form that changes the source `before`, or adds a source if `before` is None."""
        run_key = self.get_key_label("run")

        def save_source(values: FormValues) -> tuple[str, str]:
            """Save the source, and return its name and a message. Called in a background thread."""
            if before is None:
                source = add_and_approve_source_from_form(self.library, values)
                return source.name, f"added {source.name}; press {run_key} to run it"
            source, is_approved = change_source_from_form(self.library, before, values)
            note = "" if is_approved else "; the source is not approved yet"
            return source.name, f"changed {source.name}{note}"

        def show_source_form(topics: list[str]) -> None:
            title, label = (f"Change {before.name}", "save") if before else ("Add a source", "add")
            fields = make_source_form_fields(topics, before)
            form = FormDialog(title, fields, save_source, self.format_error_on_one_line, label)
            self.app.push_screen(
                form, lambda saved: self._reload_with_message(*saved) if saved else None
            )

        self.run_in_thread(self._list_enabled_topic_ids, show_source_form)

    def _list_enabled_topic_ids(self) -> list[str]:
        knowledge = self.library.load_knowledge()
        names = [name for name, topic in knowledge.topics.items() if topic.enable]
        if not names:
            hint = knowledge.hint_to_declare_topic
            raise UsageError("there is no topic to add documents to", hint=hint)
        return names

    def _reload_with_message(self, name: str, message: str) -> None:
        self.show_message(message, "inserted")
        self._key_to_select = name
        self.action_reload()

    def action_remove_source(self) -> None:
        if (state := self.selected_source) is not None:
            source = state.source
            self.run_in_thread(
                lambda: self._count_documents_of_source_to_remove(source),
                lambda count: self._ask_to_remove_source(source.name, count),
            )

    def _count_documents_of_source_to_remove(self, source: DocumentSourceDefinition) -> int:
        from kbtui.sources.document_source_runner import count_source_documents

        try:
            return count_source_documents(self.library.workspace, source)
        except KbtuiError:
            return 0  # A message after the removal says why the documents stay.

    def _ask_to_remove_source(self, name: str, count: int) -> None:
        from kbtui.sources.document_source_runner import remove_source_and_fetched_files

        def report_source_removal(problems: list[str]) -> None:
            if problems:
                self.show_message(f"removed {name}. {' '.join(problems)}", "warning")
            else:
                self.show_message(f"removed {name}", "inserted")
            self.action_reload()

        def remove_source_if_confirmed(answer: str | None) -> None:
            if answer is not None:
                workspace, keep = self.library.workspace, answer in "ky"
                self.run_in_thread(
                    lambda: remove_source_and_fetched_files(workspace, name, keep=keep),
                    report_source_removal,
                )

        answers = {"y": "remove it"}
        if count:
            documents = format_counted_noun(count, "document")
            keep, delete = f"remove it, but keep its {documents}", f"remove it and its {documents}"
            answers = {"k": keep, "d": delete}
        dialog = ConfirmDialog(f"Remove the source {name}?", answers)
        self.app.push_screen(dialog, remove_source_if_confirmed)

    def action_back(self) -> None:
        if self.approving is not None or self.is_detail_pane_focused:
            self.approving = None
            self.focus_list_pane()
            self._show_selected_source()
        else:
            self.action_leave()

    def can_close_or_ask_first(self) -> bool:
        """Return whether no source is running.

        If a source is running, also ask the user whether to stop all runs and leave the screen.
        """
        if not self.runs:
            return True

        def leave_if_confirmed(answer: str | None) -> None:
            if answer is not None:
                self.dismiss(None)

        pattern = "Source {} is running." if len(self.runs) == 1 else "Sources {} are running."
        question = pattern.format(", ".join(self.runs))
        self.app.push_screen(ConfirmDialog(question, {"y": "stop and leave"}), leave_if_confirmed)
        return False
