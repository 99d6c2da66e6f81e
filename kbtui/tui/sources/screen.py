"""The sources screen: a list with a page for each source, its runs and its form."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on

from kbtui.errors import KbtuiError, UsageError
from kbtui.text import one_line
from kbtui.tui.commands import bindings
from kbtui.tui.feature_screen import SplitScreen
from kbtui.tui.framework.dialogs import FormDialog, FormField, FormValues
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.framework.styled_widget import ALWAYS_AVAILABLE_ACTIONS
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.reader.document import Document, format_count
from kbtui.tui.sources.pages import (
    SourceState,
    SourceStates,
    approval_page,
    problem_page,
    read_source_states,
    rows_of,
    source_page,
)
from kbtui.userdata.userdata import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.message_pump import MessagePump

    from kbtui.library import Library
    from kbtui.sources.config import Source, SourceProgress

    Ended = Callable[[str, "Run | Exception"], None]
    from textual.binding import BindingType
    from textual.widget import Widget

    from kbtui.dates import Clock


KINDS = ("url_crawl", "file_upload", "mcp")
_LISTS = ("prefixes", "allow_hosts", "env")


def fields_of(topics: Sequence[str], source: Source | None = None) -> list[FormField]:
    """The lines of the form; with a source, filled with what it is."""
    block: dict[str, Any] = dict(source.block) if source else {}

    def text(key: str, default: str = "") -> str:
        value = block.get(key, default)
        return " ".join(value) if isinstance(value, list) else str(value)

    def kind(wanted: str) -> Any:
        if source is not None:
            return lambda values: source.kind == wanted
        return lambda values: values.get("kind") == wanted

    fields = [
        FormField("url", "address", text("url"), "Where to begin, such as https://docs.example.org/guide/.", when=kind("url_crawl")),
        FormField("file", "file", text("file"), "A file or directory: text, Markdown, HTML, PDF, Word, source code.", when=kind("file_upload")),
        FormField("server", "command", text("server"), "The MCP server's command line.", when=kind("mcp")),
        FormField("topic", "topic", text("topic"), "The topic that it feeds: ← and → choose.", tuple(topics)),
        FormField("depth", "depth", text("depth", "1"), "Follow links so many times; 0: this page alone.", when=kind("url_crawl")),
        FormField("prefixes", "only below", text("prefixes"), "Addresses with spaces between them; empty: the directory of the first.", when=kind("url_crawl")),
        FormField("allow_hosts", "private hosts", text("allow_hosts"), "Hosts that may lie in a private network; usually none.", when=kind("url_crawl")),
        FormField("pattern", "pattern", text("pattern"), "Only resources whose address matches this glob.", when=kind("mcp")),
        FormField("env", "variables", text("env"), "Names of your variables that the server gets.", when=kind("mcp")),
        FormField("cron", "cron", text("cron"), "When the engine runs it, such as 0 4 * * 1; empty: by hand only."),
    ]  # fmt: skip
    if source is not None:
        return fields
    first = FormField(
        "kind", "kind", "url_crawl", "Web pages, files, or an MCP server's resources.", KINDS
    )
    name = FormField("name", "name", "", "Its name and directory; empty: made of what it fetches.")
    return [first, *fields, name]


def block_of(values: FormValues, kind: str) -> dict[str, Any]:
    """The block that a filled form means; what is empty is left out. Raises `UsageError`."""
    block: dict[str, Any] = {"kind": kind}
    for key, value in values.items():
        if key in ("kind", "name") or not value:
            continue
        if key in _LISTS:
            block[key] = value.split()
        elif key == "depth":
            if not value.isdecimal():
                raise UsageError("must be a whole number", where="depth")
            block[key] = int(value)
        else:
            block[key] = value
    return block


def declare(library: Library, values: FormValues) -> Source:
    """Write a new source, approved by filling in the form; raises `KbtuiError`."""
    from kbtui.sources.config import MAIN_KEY, add_source, approve_source, suggest_source_name
    from kbtui.userdata import UserData

    kind = values["kind"]
    what = values.get(MAIN_KEY[kind], "")
    if not what:
        raise UsageError("say what to fetch")
    source = add_source(
        library.workspace, values["name"] or suggest_source_name(kind, what), block_of(values, kind)
    )
    approve_source(library.workspace, UserData(library.workspace), source)
    return source


def change(library: Library, before: Source, values: FormValues) -> tuple[Source, bool]:
    """Change a source; says whether it is approved: one that was not has to be looked at first.

    Raises `KbtuiError`, also when it was changed meanwhile.
    """
    from kbtui.sources.config import approve_source, edit_source, find_approval_time, load_sources
    from kbtui.userdata import UserData

    workspace, journal = library.workspace, UserData(library.workspace)
    now = load_sources(workspace).find(before.name)
    if now.block != before.block:
        raise UsageError("the file was changed meanwhile", where=before.name, hint="begin again")
    approved = find_approval_time(workspace, journal, now) is not None
    block = block_of(values, before.kind)
    changes = {**dict.fromkeys(before.block), **block}
    changed = {key: value for key, value in changes.items() if before.block.get(key) != value}
    if changed.get("depth") == 1 and "depth" not in before.block:
        del changed["depth"]
    if not changed:
        return now, approved
    after = edit_source(workspace, before.name, changed)
    if approved:
        approve_source(workspace, journal, after)
    return after, approved


@dataclass
class _Job:
    stop: threading.Event = field(default_factory=threading.Event)
    progress: SourceProgress | None = None


class Runs:
    """Runs each source in a thread of its own; `moved` and `ended` are called on the owner's loop."""

    def __init__(
        self, owner: MessagePump, library: Library, moved: Callable[[], None], ended: Ended
    ) -> None:
        self._owner, self._library = owner, library
        self._moved, self._ended = moved, ended
        self._jobs: dict[str, _Job] = {}

    @property
    def progress(self) -> dict[str, SourceProgress | None]:
        """The sources that run, and how far each is."""
        return {name: job.progress for name, job in self._jobs.items()}

    def start(self, name: str) -> bool:
        """Run a source; False when it runs already."""
        if name in self._jobs:
            return False
        job = self._jobs[name] = _Job()
        thread = threading.Thread(
            target=self._run, args=(name, job), name=f"source-{name}", daemon=True
        )
        thread.start()
        return True

    def stop(self, name: str) -> bool:
        """End a run; False where there is none."""
        job = self._jobs.get(name)
        if job is not None:
            job.stop.set()
        return job is not None

    def stop_all(self) -> None:
        """End every run."""
        for job in self._jobs.values():
            job.stop.set()

    def _run(self, name: str, job: _Job) -> None:
        from kbtui.sources import run_source

        def say(progress: SourceProgress) -> None:
            job.progress = progress
            self._owner.call_later(self._moved)

        try:
            outcome: Run | Exception = run_source(
                self._library.workspace, name, on_progress=say, should_stop=job.stop.is_set
            )
        except Exception as error:
            outcome = error
        self._owner.call_later(self._end, name, outcome)

    def _end(self, name: str, outcome: Run | Exception) -> None:
        self._jobs.pop(name, None)
        self._ended(name, outcome)


LOOK_SECONDS = 5.0
"""How often the screen checks for runs started elsewhere."""
EMPTY = "There are no sources. {} adds one: web pages, files, or what an MCP server has."


class SourcesScreen(SplitScreen):
    """A list with a page for each source; nothing runs that was not approved as it is now."""

    HEADING = "Sources"
    SCOPE = "sources"
    NOTES = (
        "✓ ok, ◐ some documents failed, ! nothing could be fetched.",
        "What one adds or changes here is approved by that. What somebody else wrote into "
        ".jp/kb-sources.toml runs only after you looked at it.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("sources", "moving")]
    AUTO_FOCUS = "#sources"

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library)
        self.list = RowList("sources")
        self.list.empty = [("Reading the sources …", "dim")]
        self.runs = Runs(self, library, self._show_rows, self._ended)
        self.states: SourceStates | None = None
        self.approving: SourceState | None = None
        """What is shown to be approved; what is agreed to is this very object."""
        self._clock = clock
        self._read_lane = LatestOnlyWorker(self)
        self._select: str | None = None

    def compose_list_pane(self) -> list[Widget]:
        """The list."""
        return [self.list]

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self.call_after_refresh(self.action_reload)
        self.set_interval(LOOK_SECONDS, self.action_reload)

    def on_unmount(self) -> None:
        """Run no further."""
        self.runs.stop_all()

    @property
    def selected(self) -> SourceState | None:
        """The selected source."""
        row = self.list.selected
        return row.data if row is not None and isinstance(row.data, SourceState) else None

    @property
    def offers(self) -> frozenset[str]:
        """The actions that the selected source allows."""
        one = self.selected
        found = {
            "approving": self.approving is not None,
            "source": one is not None and self.approving is None,
            "running": one is not None and one.source.name in self.runs.progress,
            "unapproved": one is not None and one.approved is None and self.approving is None,
        }
        return frozenset(name for name, has in found.items() if has)

    def is_unsettled(self, key: str) -> bool:
        """Until the sources are read, there is nothing for a key to be about."""
        return self.states is None and self._meant_by(key)[1] not in ALWAYS_AVAILABLE_ACTIONS

    # reading

    def action_reload(self) -> None:
        """Read everything again."""
        self._read_lane.submit(
            lambda: read_source_states(self.library), self._set_states, self.show_error
        )

    def files_changed(self, event: dict[str, Any]) -> None:
        """Reload when files change."""
        self.action_reload()

    def _set_states(self, states: SourceStates) -> None:
        if states == self.states and not self._select:
            return
        self.states = states
        self._show_rows()
        self._look()

    def _show_rows(self) -> None:
        if self.states is None:
            return
        rows = rows_of(self.states, self.runs.progress, self._clock(), self.key_hint("approve"))
        select, self._select = self._select, None
        self.list.set_rows(rows, [(EMPTY.format(self.key_hint("new")), "dim")], select)
        found = self.states.sources
        text = format_count(len(found), "source")
        waiting = sum(one.approved is None for one in found)
        left = [(text, "strong")]
        left += [(f"  {waiting:,} not approved", "warning")] if waiting else []
        broken = len(self.states.problems)
        left += [(f"  {format_count(broken, 'block')} cannot be read", "error")] if broken else []
        right = [(f"{len(self.runs.progress)} running", "key")] if self.runs.progress else []
        self.show_totals(left, right)
        self.show_keys()

    @on(RowList.Moved)
    def _moved(self, event: RowList.Moved) -> None:
        event.stop()
        self.approving = None
        self._look()

    def _look(self) -> None:
        self.show_keys()
        if self.approving is not None:
            return
        row = self.list.selected
        if row is None:
            self.show_document(Document("source:", "", []))
        elif isinstance(row.data, SourceState):
            self.show_document(source_page(row.data, self._clock()))
        else:
            self.show_document(problem_page(row.data))

    @on(RowList.Opened)
    def _clicked(self, event: RowList.Opened) -> None:
        event.stop()
        self.action_enter()

    def action_enter(self) -> None:
        """Go to the page."""
        if self.list.selected is not None:
            self.focus_detail()

    # running

    def action_run(self) -> None:
        """Run it now."""
        one = self.selected
        if one is None or self.approving is not None:
            return
        if one.approved is None:
            self.show_message(
                f"{one.source.name} is not approved: {self.key_hint('approve')} shows what it would do",
                "warning",
            )
        elif self.runs.start(one.source.name):
            self.show_message(f"{one.source.name} runs", "dim")
            self._show_rows()

    def action_stop(self) -> None:
        """End the run."""
        if (one := self.selected) is not None and self.runs.stop(one.source.name):
            self.show_message(f"ending {one.source.name} …", "dim")

    def _ended(self, name: str, outcome: Run | Exception) -> None:
        if isinstance(outcome, Run):
            documents = format_count(outcome.entries, "document")
            words = f"{name}: {outcome.status}, {documents} ({outcome.counts})"
            if outcome.error:
                words += f". {one_line(outcome.error)}"
            roles = {"ok": "inserted", "partial": "warning", "error": "error"}
            self.show_message(words, roles[outcome.status])
        else:
            self.show_error(outcome)
        self._show_rows()
        self.action_reload()

    # approving

    def action_approve(self) -> None:
        """Show exactly what it would do."""
        one = self.selected
        if one is None:
            return
        if one.approved is not None:
            self.show_message(f"{one.source.name} is approved already", "dim")
            return
        self.approving = one
        self.show_document(approval_page(one, self.key_hint("agree"), self.key_hint("back")))
        self.focus_detail()

    def action_agree(self) -> None:
        """Approve what is shown."""
        one, self.approving = self.approving, None
        if one is None:
            return
        from kbtui.sources.config import approve_source
        from kbtui.userdata import UserData

        workspace = self.library.workspace
        self.worker.submit(
            lambda: approve_source(workspace, UserData(workspace), one.source),
            lambda _: self._done(one.source.name, f"is approved: {self.key_hint('run')} runs it"),
            self.show_error,
        )
        self.focus_list_pane(self.list)
        self._look()

    # declaring

    def action_new(self) -> None:
        """Add a source."""
        self.worker.submit(self._topics, lambda topics: self._form(topics, None), self.show_error)

    def action_edit(self) -> None:
        """Change the selected one."""
        if (one := self.selected) is not None:
            self.worker.submit(
                self._topics, lambda topics: self._form(topics, one.source), self.show_error
            )

    def _topics(self) -> list[str]:
        topics = [name for name, topic in self.library.knowledge().topics.items() if topic.enable]
        if not topics:
            hint = "declare one in .jp/kb.toml as [kb.topic.ID]"
            raise UsageError("there is no topic that a source could feed", hint=hint)
        return topics

    def _form(self, topics: list[str], source: Source | None) -> None:
        if source is None:
            form = FormDialog(
                "Add a source", fields_of(topics), lambda values: declare(self.library, values), self.describe_error, "add"
            )  # fmt: skip
            self.app.push_screen(form, self._added)
            return
        if source.topic not in topics:
            topics = [source.topic, *topics]
        form = FormDialog(
            f"Change {source.name}",
            fields_of(topics, source),
            lambda values: change(self.library, source, values),
            self.describe_error,
        )
        self.app.push_screen(form, self._changed)

    def _added(self, source: Source | None) -> None:
        if source is not None:
            self._done(source.name, f"is added: {self.key_hint('run')} runs it")

    def _changed(self, made: tuple[Source, bool] | None) -> None:
        if made is not None:
            source, approved = made
            self._done(
                source.name, "is changed" if approved else "is changed, and not approved yet"
            )

    def _done(self, name: str, what: str) -> None:
        self.show_message(f"{name} {what}", "inserted")
        self._select = name
        self.action_reload()

    # removing

    def action_remove(self) -> None:
        """Ask whether its documents stay, and remove it."""
        one = self.selected
        if one is not None:
            self.worker.submit(
                lambda: self._count(one.source),
                lambda count: self._ask(one.source, count),
                self.show_error,
            )

    def _count(self, source: Source) -> int:
        from kbtui.sources.runner import count_documents

        try:
            return count_documents(self.library.workspace, source)
        except KbtuiError:
            return 0  # why, is said when they are left alone

    def _ask(self, source: Source, count: int) -> None:
        from kbtui.sources.runner import remove_source_and_documents

        def answered(answer: str | None) -> None:
            if answer is not None:
                self.worker.submit(
                    lambda: remove_source_and_documents(
                        self.library.workspace, source.name, keep=answer in "ky"
                    ),
                    lambda problems: self._removed(source.name, problems),
                    self.show_error,
                )

        if count:
            its = format_count(count, "document")
            answers = {"k": f"remove it, keep its {its}", "d": f"remove it with its {its}"}
        else:
            answers = {"y": "remove it"}
        self.ask_question(f"Remove the source {source.name}?", answers, answered)

    def _removed(self, name: str, problems: list[str]) -> None:
        if problems:
            self.show_message(f"{name} is removed. {' '.join(problems)}", "warning")
        else:
            self.show_message(f"{name} is removed", "inserted")
        self.action_reload()

    # leaving

    def action_back(self) -> None:
        """One step back."""
        if self.approving is not None or self.is_detail_focused:
            self.approving = None
            self.focus_list_pane(self.list)
            self._look()
        else:
            self.action_leave()

    def may_leave(self) -> bool:
        """Whether nothing runs that would be ended; asks otherwise."""
        running = list(self.runs.progress)
        if not running:
            return True

        def answered(answer: str | None) -> None:
            if answer == "y":
                self.runs.stop_all()
                self.dismiss(None)

        self.ask_question(f"{', '.join(running)} is running.", {"y": "end it and leave"}, answered)
        return False
