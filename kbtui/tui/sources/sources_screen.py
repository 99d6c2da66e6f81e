"""The sources screen: a list, the details of the selected source, and a form to add or change a source."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from textual import on

from kbtui.errors import KbtuiError, UsageError
from kbtui.sources.source_definitions import (
    MAIN_KEY,
    add_source,
    approve_source,
    edit_source,
    find_source_approval_time,
    load_source_definitions,
    suggest_source_name,
)
from kbtui.text import one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.dialogs import ConfirmDialog, FormDialog, FormField, FormValues
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.reader.reader_document import ReaderDocument, format_counted_noun
from kbtui.tui.secondary_screen import ListDetailScreen
from kbtui.tui.sources.source_rows_and_details import (
    STATUS_SIGNS,
    SourceStatus,
    SourceStatuses,
    make_source_approval_details,
    make_source_details,
    make_source_problem_details,
    make_source_rows,
    read_source_statuses,
)
from kbtui.userdata.user_data_store import SourceRunRecord, UserData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.sources.source_definitions import SourceDefinition, SourceRunProgress

T = TypeVar("T")
RELOAD_SECONDS = 5.0
"""The interval in seconds at which the screen looks for runs that another process started."""
NO_SOURCES = "No sources yet. Press {} to add web pages, files or an MCP server."
KINDS = ("url_crawl", "file_upload", "mcp")
LIST_KEYS = {"prefixes", "allow_hosts", "env"}
"""The keys whose values are lists; in the form, spaces separate the items."""


# the form of a source


def make_source_form_fields(
    topics: Sequence[str], source: SourceDefinition | None = None
) -> list[FormField]:
    """Return the fields of the form for a new source, or for changing `source` if it is given."""
    if source and source.topic not in topics:
        topics = [source.topic, *topics]
    block: dict[str, Any] = dict(source.block) if source else {}

    def get_text_value(key: str, default: str = "") -> str:
        value = block.get(key, default)
        return " ".join(value) if isinstance(value, list) else str(value)

    def make_kind_condition(wanted: str) -> Callable[[FormValues], bool]:
        return lambda values: (source.kind if source else values.get("kind")) == wanted

    web, file, mcp = map(make_kind_condition, KINDS)
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
    name_help = "Name of the source and its directory; empty = chosen by kbtui."
    kind = FormField("kind", "kind", "url_crawl", kind_help, KINDS)
    return [kind, *fields, FormField("name", "name", "", name_help)]


def make_source_toml_table(values: FormValues, kind: str) -> dict[str, Any]:
    """Return the TOML table of a source from the values of the form; empty values are left out.

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


def add_source_from_form(library: Library, values: FormValues) -> SourceDefinition:
    """Add a source to the sources file, and approve it, because the user has just entered it.

    Raises `KbtuiError` if the source is invalid or cannot be written.
    """
    kind, workspace = values["kind"], library.workspace
    what = values.get(MAIN_KEY[kind], "")
    if not what:
        raise UsageError("enter what the source should fetch")
    name = values["name"] or suggest_source_name(kind, what)
    source = add_source(workspace, name, make_source_toml_table(values, kind))
    approve_source(workspace, UserData(workspace), source)
    return source


def change_source_from_form(
    library: Library, before: SourceDefinition, values: FormValues
) -> tuple[SourceDefinition, bool]:
    """Change the source `before`; return the changed source, and whether it is approved.

    An approved source stays approved, because the user made the change. Raises `KbtuiError` if the
    change fails, or if the source in the file was changed after `before` was read.
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
    source = edit_source(workspace, before.name, changes)
    if approved:
        approve_source(workspace, userdata, source)
    return source, approved


@dataclass
class ActiveSourceRun:
    """A run that this screen started; `progress` is None before the first report."""

    stop: threading.Event = field(default_factory=threading.Event)
    progress: SourceRunProgress | None = None


class SourcesScreen(ListDetailScreen):
    """A screen with a list of sources and the details of the selected source.

    A source runs only if its current declaration is approved.
    """

    HEADING = "Sources"
    SCOPE = "sources"
    NOTES = (
        "✓ ok, ◐ partial (some documents failed), ! error (nothing could be fetched).",
        "Sources that you add here are approved. A source that somebody else wrote into "
        "kb-sources.toml runs only after you approve it.",
    )

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library, RowList("sources"))
        self.list.empty_text = [("Reading the sources …", "dim")]
        self.runs: dict[str, ActiveSourceRun] = {}
        self.states: SourceStatuses | None = None
        self.approving: SourceStatus | None = None
        """The source shown for approval. Only this declaration is approved, even if the file changes meanwhile."""
        self._clock = clock
        self._reload_worker = LatestOnlyWorker(self)
        self._key_to_select: str | None = None

    def on_mount(self) -> None:
        """Start the timer that looks for runs that another process started."""
        self.set_interval(RELOAD_SECONDS, self.action_reload)

    def on_unmount(self) -> None:
        for run in self.runs.values():
            run.stop.set()

    @property
    def selected_source(self) -> SourceStatus | None:
        """The selected source; None if the selected row is a declaration that cannot be read."""
        row = self.list.selected_row
        return row.data if row and isinstance(row.data, SourceStatus) else None

    @property
    def met_command_needs(self) -> dict[str, bool]:
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
        def show_statuses(states: SourceStatuses) -> None:
            if states != self.states or self._key_to_select:
                self.states = states
                self._show_source_rows()
                self._show_selected_source()

        read_statuses = partial(read_source_statuses, self.library)
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
            left.append(
                (f"  {format_counted_noun(len(problems), 'declaration')} cannot be read", "error")
            )
        self.show_totals_line(left, [(f"{len(running)} running", "key")] if running else [])
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
        elif isinstance(row.data, SourceStatus):
            self.show_document(make_source_details(row.data, self._clock()))
        else:
            self.show_document(make_source_problem_details(row.data))

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
            self.show_key_refusal(f"Source {name} is not approved: {review}")
        elif name not in self.runs:
            run = self.runs[name] = ActiveSourceRun()
            start_run = partial(self._run_source_in_thread, name, run)
            threading.Thread(target=start_run, name=f"source-{name}", daemon=True).start()
            self.show_message(f"running {name} …", "dim")
            self._show_source_rows()

    def _run_source_in_thread(self, name: str, run: ActiveSourceRun) -> None:
        from kbtui.sources.source_runner import run_source

        def report_progress(progress: SourceRunProgress) -> None:
            run.progress = progress
            self.call_later(self._show_source_rows)

        workspace, should_stop = self.library.workspace, run.stop.is_set
        outcome: SourceRunRecord | Exception
        try:
            outcome = run_source(
                workspace, name, on_progress=report_progress, should_stop=should_stop
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
            error = f". {one_line(outcome.error)}" if outcome.error else ""
            text = f"{name}: {outcome.status}, {documents} ({outcome.document_counts_text}){error}"
            self.show_message(text, STATUS_SIGNS[outcome.status][1])
        else:
            self.show_error(outcome)
        self._show_source_rows()
        self.action_reload()

    def action_review_source(self) -> None:
        """Show what the selected source would do, and offer to approve it."""
        state = self.selected_source
        if state is None:
            return
        if state.approved is not None:
            self.show_key_refusal(f"Source {state.source.name} is already approved")
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
            lambda: approve_source(workspace, UserData(workspace), state.source),
            lambda _: self._reload_with_message(state.source.name, message),
        )
        self.focus_list_pane()
        self._show_selected_source()

    def action_add_source(self) -> None:
        def report_new_source(source: SourceDefinition | None) -> None:
            if source is not None:
                message = f"added {source.name}; press {self.get_key_label('run')} to run it"
                self._reload_with_message(source.name, message)

        self._open_source_form("Add a source", None, add_source_from_form, report_new_source)

    def action_edit_source(self) -> None:
        state = self.selected_source
        if state is None:
            return
        before = state.source

        def save_changes(library: Library, values: FormValues) -> tuple[SourceDefinition, bool]:
            return change_source_from_form(library, before, values)

        def report_source_change(result: tuple[SourceDefinition, bool] | None) -> None:
            if result is not None:
                source, is_approved = result
                note = "" if is_approved else "; the source is not approved yet"
                self._reload_with_message(source.name, f"changed {source.name}{note}")

        self._open_source_form(f"Change {before.name}", before, save_changes, report_source_change)

    def _open_source_form(
        self,
        title: str,
        source: SourceDefinition | None,
        save: Callable[[Library, FormValues], T],
        on_closed: Callable[[T | None], None],
    ) -> None:
        def show_form(topics: list[str]) -> None:
            fields, label = make_source_form_fields(topics, source), "save" if source else "add"
            form = FormDialog(
                title,
                fields,
                lambda values: save(self.library, values),
                self.format_error_on_one_line,
                label,
            )
            self.app.push_screen(form, on_closed)

        self.run_in_thread(self._list_enabled_topic_ids, show_form)

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
                lambda: self._count_source_documents(source),
                lambda count: self._ask_to_remove_source(source.name, count),
            )

    def _count_source_documents(self, source: SourceDefinition) -> int:
        from kbtui.sources.source_runner import count_source_documents

        try:
            return count_source_documents(self.library.workspace, source)
        except KbtuiError:
            return 0  # A message after the removal says why the documents stay.

    def _ask_to_remove_source(self, name: str, count: int) -> None:
        from kbtui.sources.source_runner import remove_source_and_documents

        def report_removal(problems: list[str]) -> None:
            if problems:
                self.show_message(f"removed {name}. {' '.join(problems)}", "warning")
            else:
                self.show_message(f"removed {name}", "inserted")
            self.action_reload()

        def remove_if_confirmed(answer: str | None) -> None:
            if answer is not None:
                workspace, keep = self.library.workspace, answer in "ky"
                self.run_in_thread(
                    lambda: remove_source_and_documents(workspace, name, keep=keep), report_removal
                )

        answers = {"y": "remove it"}
        if count:
            documents = format_counted_noun(count, "document")
            keep, delete = f"remove it, but keep its {documents}", f"remove it and its {documents}"
            answers = {"k": keep, "d": delete}
        dialog = ConfirmDialog(f"Remove the source {name}?", answers)
        self.app.push_screen(dialog, remove_if_confirmed)

    def action_back(self) -> None:
        if self.approving is not None or self.is_detail_pane_focused:
            self.approving = None
            self.focus_list_pane()
            self._show_selected_source()
        else:
            self.action_leave()

    def can_close_screen(self) -> bool:
        """Return True if no run is active; otherwise ask whether to stop the runs and leave, and return False."""
        if not self.runs:
            return True

        def leave_if_confirmed(answer: str | None) -> None:
            if answer is not None:
                self.dismiss(None)

        pattern = "Source {} is running." if len(self.runs) == 1 else "Sources {} are running."
        question = pattern.format(", ".join(self.runs))
        self.app.push_screen(ConfirmDialog(question, {"y": "stop and leave"}), leave_if_confirmed)
        return False
