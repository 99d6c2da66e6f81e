"""The sources screen: a list of sources, a page for each source, and a form to add or change one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on

from kbtui.errors import KbtuiError, UsageError
from kbtui.text import one_line
from kbtui.tui.commands import make_scope_bindings
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.dialogs import FormDialog, FormField, FormValues
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.reader.document import Document, format_count
from kbtui.tui.secondary_screen import ListDetailScreen
from kbtui.tui.sources.source_pages import (
    STATUS_SIGNS,
    SourceStatus,
    SourceStatuses,
    make_approval_page,
    make_problem_page,
    make_source_page,
    make_source_rows,
    read_source_statuses,
)
from kbtui.userdata.userdata import SourceRunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.binding import BindingType
    from textual.message_pump import MessagePump
    from textual.widget import Widget

    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.sources.config import SourceDefinition, SourceProgress

RELOAD_SECONDS = 5.0
"""How many seconds pass before the screen looks again for runs started elsewhere."""
EMPTY = "No sources yet. Press {} to add web pages, files or an MCP server."
KINDS = ("url_crawl", "file_upload", "mcp")
LIST_KEYS = ("prefixes", "allow_hosts", "env")
"""The keys whose values are lists; in the form, spaces separate the items."""


# the form of a source


def make_form_fields(
    topics: Sequence[str], source: SourceDefinition | None = None
) -> list[FormField]:
    """Return the fields of the form that adds a source, or that changes `source`."""
    block: dict[str, Any] = dict(source.block) if source else {}

    def get_text_value(key: str, default: str = "") -> str:
        value = block.get(key, default)
        return " ".join(value) if isinstance(value, list) else str(value)

    def make_kind_condition(wanted: str) -> Callable[[FormValues], bool]:
        return lambda values: (source.kind if source else values.get("kind")) == wanted

    web, file, mcp = map(make_kind_condition, KINDS)
    fields = [
        FormField("url", "address", get_text_value("url"), "The first page, such as https://docs.example.org/guide/.", is_shown=web),
        FormField("file", "file", get_text_value("file"), "A file or directory: text, Markdown, HTML, PDF, Word, source code.", is_shown=file),
        FormField("server", "command", get_text_value("server"), "The command line of the MCP server.", is_shown=mcp),
        FormField("topic", "topic", get_text_value("topic"), "The topic that the documents are added to; choose it with ← and →.", tuple(topics)),
        FormField("depth", "depth", get_text_value("depth", "1"), "How many links to follow from the first page; 0 = only the first page.", is_shown=web),
        FormField("prefixes", "only below", get_text_value("prefixes"), "Fetch only pages with these URL prefixes, separated by spaces; empty = the first page's directory.", is_shown=web),
        FormField("allow_hosts", "private hosts", get_text_value("allow_hosts"), "Hosts in a private network that may be fetched from; usually empty.", is_shown=web),
        FormField("pattern", "pattern", get_text_value("pattern"), "Fetch only resources whose address matches this glob.", is_shown=mcp),
        FormField("env", "variables", get_text_value("env"), "Names of your environment variables to pass to the server.", is_shown=mcp),
        FormField("cron", "cron", get_text_value("cron"), "When the engine runs the source, such as 0 4 * * 1; empty = only when you start it."),
    ]  # fmt: skip
    if source is not None:
        return fields
    kind_help = "Web pages, files, or the resources of an MCP server."
    kind = FormField("kind", "kind", "url_crawl", kind_help, KINDS)
    name_help = "Name of the source and of its directory; leave empty to let kbtui choose it."
    return [kind, *fields, FormField("name", "name", "", name_help)]


def make_source_table(values: FormValues, kind: str) -> dict[str, Any]:
    """Convert the values of the form to a table for the sources file, without empty values.

    Raises `UsageError` if a value is invalid.
    """
    block: dict[str, Any] = {"kind": kind}
    for key, value in values.items():
        if key in ("kind", "name") or not value:
            continue
        if key in LIST_KEYS:
            block[key] = value.split()
        elif key == "depth":
            if not value.isdecimal():
                raise UsageError("must be a whole number", where="depth")
            block[key] = int(value)
        else:
            block[key] = value
    return block


def add_source_from_form(library: Library, values: FormValues) -> SourceDefinition:
    """Add a source to the file and approve it, because the user wrote it in the form. Raises `KbtuiError`."""
    from kbtui.sources.config import MAIN_KEY, add_source, approve_source, suggest_source_name
    from kbtui.userdata import UserData

    kind, workspace = values["kind"], library.workspace
    what = values.get(MAIN_KEY[kind], "")
    if not what:
        raise UsageError("enter what the source should fetch")
    name = values["name"] or suggest_source_name(kind, what)
    source = add_source(workspace, name, make_source_table(values, kind))
    approve_source(workspace, UserData(workspace), source)
    return source


def change_source_from_form(
    library: Library, before: SourceDefinition, values: FormValues
) -> tuple[SourceDefinition, bool]:
    """Change a source; return the changed source, and whether it is approved.

    An approved source stays approved, because the user made the change. Raises `KbtuiError` if the
    change fails, or if the source is no longer the same in the file as in `before`.
    """
    from kbtui.sources.config import approve_source, edit_source, find_approval_time, load_sources
    from kbtui.userdata import UserData

    workspace, userdata = library.workspace, UserData(library.workspace)
    current = load_sources(workspace).find_source(before.name)
    if current.block != before.block:
        raise UsageError(
            "the source was changed in the file while the form was open",
            where=before.name,
            hint="open the form again",
        )
    approved = find_approval_time(workspace, userdata, current) is not None
    wanted = {**dict.fromkeys(before.block), **make_source_table(values, before.kind)}
    changes = {key: value for key, value in wanted.items() if before.block.get(key) != value}
    if changes.get("depth") == 1 and "depth" not in before.block:
        del changes["depth"]  # 1 is the default
    if not changes:
        return current, approved
    source = edit_source(workspace, before.name, changes)
    if approved:
        approve_source(workspace, userdata, source)
    return source, approved


# runs


@dataclass
class _ActiveSourceRun:
    stop: threading.Event = field(default_factory=threading.Event)
    progress: SourceProgress | None = None


class ActiveSourceRuns:
    """The runs started from the screen, each in its own thread.

    `on_progress` and `on_end` are called through the message queue of `owner`. `on_end` gets the name
    of the source, and its finished run or the error that prevented the run.
    """

    def __init__(
        self,
        owner: MessagePump,
        library: Library,
        on_progress: Callable[[], None],
        on_end: Callable[[str, SourceRunRecord | Exception], None],
    ) -> None:
        self._owner, self._library = owner, library
        self._on_progress, self._on_end = on_progress, on_end
        self._runs: dict[str, _ActiveSourceRun] = {}

    @property
    def progress(self) -> dict[str, SourceProgress | None]:
        """The progress of each running source; None before the first report."""
        return {name: run.progress for name, run in self._runs.items()}

    def start_run(self, name: str) -> bool:
        """Start a run; return False if the source is already running."""
        if name in self._runs:
            return False
        run = self._runs[name] = _ActiveSourceRun()
        thread_name = f"source-{name}"
        threading.Thread(
            target=self._run_in_thread, args=(name, run), name=thread_name, daemon=True
        ).start()
        return True

    def stop_run(self, name: str) -> bool:
        """Ask a run to stop; return False if the source is not running."""
        run = self._runs.get(name)
        if run is not None:
            run.stop.set()
        return run is not None

    def stop_all(self) -> None:
        """Ask every run to stop."""
        for run in self._runs.values():
            run.stop.set()

    def _run_in_thread(self, name: str, run: _ActiveSourceRun) -> None:
        from kbtui.sources import run_source

        def report_progress(progress: SourceProgress) -> None:
            run.progress = progress
            self._owner.call_later(self._on_progress)

        try:
            outcome: SourceRunRecord | Exception = run_source(
                self._library.workspace, name, on_progress=report_progress, should_stop=run.stop.is_set
            )  # fmt: skip
        except Exception as error:
            outcome = error
        self._owner.call_later(self._report_run_end, name, outcome)

    def _report_run_end(self, name: str, outcome: SourceRunRecord | Exception) -> None:
        self._runs.pop(name, None)
        self._on_end(name, outcome)


class SourcesScreen(ListDetailScreen):
    """A list of sources with a page for each; a source runs only if its current declaration is approved."""

    HEADING = "Sources"
    SCOPE = "sources"
    NOTES = (
        "✓ ok, ◐ some documents failed, ! nothing could be fetched.",
        "Sources that you add here are approved. A source that somebody else wrote into "
        ".jp/kb-sources.toml runs only after you approve it.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [*make_scope_bindings("sources", "moving")]
    AUTO_FOCUS = "#sources"

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library)
        self.list = RowList("sources")
        self.list.empty_text = [("Reading the sources …", "dim")]
        self.runs = ActiveSourceRuns(self, library, self._show_rows, self._on_run_end)
        self.states: SourceStatuses | None = None
        self.approving: SourceStatus | None = None
        """The source on the approval page; approving applies to exactly this state, even if the file changes."""
        self._clock = clock
        self._reload_worker = LatestOnlyWorker(self)
        self._key_to_select: str | None = None

    def compose_list_pane(self) -> list[Widget]:
        """Return the list."""
        return [self.list]

    def on_mount(self) -> None:
        """Look regularly for runs started elsewhere."""
        self.set_interval(RELOAD_SECONDS, self.action_reload)

    def on_unmount(self) -> None:
        """Stop all runs."""
        self.runs.stop_all()

    @property
    def selected_source(self) -> SourceStatus | None:
        """The selected source; None if the selected row is a declaration that cannot be read."""
        row = self.list.selected_row
        return row.data if row is not None and isinstance(row.data, SourceStatus) else None

    @property
    def command_needs(self) -> dict[str, bool]:
        """Whether an approval is open, and otherwise what can be done with the selected source."""
        state, is_approving = self.selected_source, self.approving is not None
        return {
            "approving": is_approving,
            "source": state is not None and not is_approving,
            "running": state is not None and state.source.name in self.runs.progress,
            "unapproved": state is not None and state.approved is None and not is_approving,
        }

    @property
    def is_loaded(self) -> bool:
        """Whether the sources have been loaded."""
        return self.states is not None

    # reading

    def action_reload(self) -> None:
        """Read everything again."""
        self._reload_worker.submit(
            lambda: read_source_statuses(self.library),
            self._receive_source_statuses,
            self.show_error,
        )

    def _receive_source_statuses(self, states: SourceStatuses) -> None:
        if states == self.states and not self._key_to_select:
            return
        self.states = states
        self._show_rows()
        self._show_selected()

    def _show_rows(self) -> None:
        if self.states is None:
            return
        running = self.runs.progress
        rows = make_source_rows(self.states, running, self._clock(), self.get_key_hint("approve"))
        select, self._key_to_select = self._key_to_select, None
        self.list.set_rows(rows, [(EMPTY.format(self.get_key_hint("new")), "dim")], select)
        sources, problems = self.states.sources, self.states.problems
        left = [(format_count(len(sources), "source"), "strong")]
        if unapproved := sum(state.approved is None for state in sources):
            left.append((f"  {unapproved:,} not approved", "warning"))
        if problems:
            left.append((f"  {format_count(len(problems), 'declaration')} cannot be read", "error"))
        self.show_totals(left, [(f"{len(running)} running", "key")] if running else [])
        self.show_key_hints()

    @on(RowList.SelectionChanged)
    def _on_row_selected(self, event: RowList.SelectionChanged) -> None:
        event.stop()
        self.approving = None
        self._show_selected()

    def _show_selected(self) -> None:
        self.show_key_hints()
        if self.approving is not None:
            return
        row = self.list.selected_row
        if row is None:
            self.show_document(Document("source:", "", []))
        elif isinstance(row.data, SourceStatus):
            self.show_document(make_source_page(row.data, self._clock()))
        else:
            self.show_document(make_problem_page(row.data))

    @on(RowList.RowClicked)
    def _on_row_clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        self.action_enter()

    def action_enter(self) -> None:
        """Go to the page of the selected source."""
        if self.list.selected_row is not None:
            self.focus_detail()

    # running

    def action_run(self) -> None:
        """Run the selected source now."""
        state = self.selected_source
        if state is None or self.approving is not None:
            return
        name = state.source.name
        if state.approved is None:
            review = f"press {self.get_key_hint('approve')} to review what it would do"
            self.refuse_key(f"Source {name} is not approved: {review}")
        elif self.runs.start_run(name):
            self.show_message(f"running {name} …", "dim")
            self._show_rows()

    def action_stop(self) -> None:
        """Stop the run of the selected source."""
        if (state := self.selected_source) is not None and self.runs.stop_run(state.source.name):
            self.show_message(f"stopping {state.source.name} …", "dim")

    def _on_run_end(self, name: str, outcome: SourceRunRecord | Exception) -> None:
        if isinstance(outcome, SourceRunRecord):
            documents = format_count(outcome.entries, "document")
            error = f". {one_line(outcome.error)}" if outcome.error else ""
            text = f"{name}: {outcome.status}, {documents} ({outcome.counts}){error}"
            self.show_message(text, STATUS_SIGNS[outcome.status][1])
        else:
            self.show_error(outcome)
        self._show_rows()
        self.action_reload()

    # approving

    def action_approve(self) -> None:
        """Show exactly what the selected source would do, and offer to approve it."""
        state = self.selected_source
        if state is None:
            return
        if state.approved is not None:
            self.refuse_key(f"Source {state.source.name} is already approved")
            return
        self.approving = state
        self.show_document(
            make_approval_page(state, self.get_key_hint("agree"), self.get_key_hint("back"))
        )
        self.focus_detail()

    def action_agree(self) -> None:
        """Approve the source exactly as it is shown."""
        state, self.approving = self.approving, None
        if state is None:
            return
        from kbtui.sources.config import approve_source
        from kbtui.userdata import UserData

        workspace = self.library.workspace
        message = f"approved {state.source.name}; press {self.get_key_hint('run')} to run it"
        self.worker.submit(
            lambda: approve_source(workspace, UserData(workspace), state.source),
            lambda _: self._reload_with_message(state.source.name, message),
            self.show_error,
        )
        self.focus_list_pane(self.list)
        self._show_selected()

    # adding and changing

    def action_new(self) -> None:
        """Add a source."""
        self.worker.submit(
            self._list_topic_names, lambda topics: self._open_form(topics, None), self.show_error
        )

    def action_edit(self) -> None:
        """Change the selected source."""
        if (state := self.selected_source) is not None:
            self.worker.submit(
                self._list_topic_names, lambda topics: self._open_form(topics, state.source), self.show_error
            )  # fmt: skip

    def _list_topic_names(self) -> list[str]:
        topics = [
            name for name, topic in self.library.load_knowledge().topics.items() if topic.enable
        ]
        if not topics:
            raise UsageError(
                "there is no topic to add documents to",
                hint="declare one in .jp/kb.toml as [kb.topic.ID]",
            )
        return topics

    def _open_form(self, topics: list[str], source: SourceDefinition | None) -> None:
        if source is None:
            fields = make_form_fields(topics)
            form: FormDialog = FormDialog(
                "Add a source", fields, lambda values: add_source_from_form(self.library, values), self.describe_error, "add"
            )  # fmt: skip
            self.app.push_screen(form, self._on_source_added)
            return
        if source.topic not in topics:
            topics = [source.topic, *topics]
        form = FormDialog(
            f"Change {source.name}",
            make_form_fields(topics, source),
            lambda values: change_source_from_form(self.library, source, values),
            self.describe_error,
        )
        self.app.push_screen(form, self._on_source_changed)

    def _on_source_added(self, source: SourceDefinition | None) -> None:
        if source is not None:
            run_key = self.get_key_hint("run")
            self._reload_with_message(
                source.name, f"added {source.name}; press {run_key} to run it"
            )

    def _on_source_changed(self, result: tuple[SourceDefinition, bool] | None) -> None:
        if result is not None:
            source, approved = result
            note = "" if approved else "; it is not approved yet"
            self._reload_with_message(source.name, f"changed {source.name}{note}")

    def _reload_with_message(self, name: str, message: str) -> None:
        self.show_message(message, "inserted")
        self._key_to_select = name
        self.action_reload()

    # removing

    def action_remove(self) -> None:
        """Ask whether to keep the source's documents, then remove it."""
        state = self.selected_source
        if state is not None:
            self.worker.submit(
                lambda: self._count_documents(state.source),
                lambda count: self._ask_to_remove(state.source.name, count),
                self.show_error,
            )

    def _count_documents(self, source: SourceDefinition) -> int:
        from kbtui.sources.source_runner import count_documents

        try:
            return count_documents(self.library.workspace, source)
        except KbtuiError:
            return 0  # when the source is removed, a message says why the documents stay

    def _ask_to_remove(self, name: str, count: int) -> None:
        from kbtui.sources.source_runner import remove_source_and_documents

        def remove_if_confirmed(answer: str | None) -> None:
            if answer is not None:
                keep = answer in "ky"
                self.worker.submit(
                    lambda: remove_source_and_documents(self.library.workspace, name, keep=keep),
                    lambda problems: self._report_removed_item(name, problems),
                    self.show_error,
                )

        answers = {"y": "remove it"}
        if count:
            documents = format_count(count, "document")
            answers = {"k": f"remove it, keep its {documents}", "d": f"remove it with its {documents}"}  # fmt: skip
        self.ask_question(f"Remove the source {name}?", answers, remove_if_confirmed)

    def _report_removed_item(self, name: str, problems: list[str]) -> None:
        if problems:
            self.show_message(f"removed {name}. {' '.join(problems)}", "warning")
        else:
            self.show_message(f"removed {name}", "inserted")
        self.action_reload()

    # leaving

    def action_back(self) -> None:
        """Go back to the list, or leave the screen."""
        if self.approving is not None or self.is_detail_focused:
            self.approving = None
            self.focus_list_pane(self.list)
            self._show_selected()
        else:
            self.action_leave()

    def can_leave(self) -> bool:
        """Return True if no source is running; otherwise ask whether to stop the runs."""
        running = list(self.runs.progress)
        if not running:
            return True

        def stop_runs_and_leave(answer: str | None) -> None:
            if answer == "y":
                self.runs.stop_all()
                self.dismiss(None)

        verb = "is" if len(running) == 1 else "are"
        noun = "Source" if len(running) == 1 else "Sources"
        self.ask_question(
            f"{noun} {', '.join(running)} {verb} running.",
            {"y": "stop and leave"},
            stop_runs_and_leave,
        )
        return False
