"""The sources: how each stands; running, approving, adding, changing, removing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on

from kbtui.errors import KbtuiError, UsageError
from kbtui.text import one_line
from kbtui.tui.commands import bindings
from kbtui.tui.feature_screen import SplitScreen
from kbtui.tui.framework.dialogs import FormDialog
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.framework.styled_widget import LEAVING
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.reader.document import Document, counted
from kbtui.tui.sources.form import change, declare, fields_of
from kbtui.tui.sources.pages import (
    SourceState,
    SourceStates,
    approval_page,
    problem_page,
    read_source_states,
    rows_of,
    source_page,
)
from kbtui.tui.sources.runs import Runs
from kbtui.userdata.models import Run

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.widget import Widget

    from kbtui.library import Library
    from kbtui.sources.models import Source
    from kbtui.tui.clock import Clock

LOOK_SECONDS = 5.0
"""How often the screen checks for runs started elsewhere."""
EMPTY = "There are no sources. {} adds one: web pages, files, or what an MCP server has."


class SourcesScreen(SplitScreen):
    """A list with a page for each source; nothing runs that was not approved as it is now."""

    TITLE_WORDS = "Sources"
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

    def left_side(self) -> list[Widget]:
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
        return self.states is None and self._meant_by(key)[1] not in LEAVING

    # reading

    def action_reload(self) -> None:
        """Read everything again."""
        self._read_lane.submit(
            lambda: read_source_states(self.library), self._set_states, self.failed
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
        rows = rows_of(self.states, self.runs.progress, self._clock(), self.key_of("approve"))
        select, self._select = self._select, None
        self.list.set_rows(rows, [(EMPTY.format(self.key_of("new")), "dim")], select)
        found = self.states.sources
        text = counted(len(found), "source")
        waiting = sum(one.approved is None for one in found)
        left = [(text, "strong")]
        left += [(f"  {waiting:,} not approved", "warning")] if waiting else []
        broken = len(self.states.problems)
        left += [(f"  {counted(broken, 'block')} cannot be read", "error")] if broken else []
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
            self.show(Document("source:", "", []))
        elif isinstance(row.data, SourceState):
            self.show(source_page(row.data, self._clock()))
        else:
            self.show(problem_page(row.data))

    @on(RowList.Opened)
    def _clicked(self, event: RowList.Opened) -> None:
        event.stop()
        self.action_enter()

    def action_enter(self) -> None:
        """Go to the page."""
        if self.list.selected is not None:
            self.go_right()

    # running

    def action_run(self) -> None:
        """Run it now."""
        one = self.selected
        if one is None or self.approving is not None:
            return
        if one.approved is None:
            self.say(
                f"{one.source.name} is not approved: {self.key_of('approve')} shows what it would do",
                "warning",
            )
        elif self.runs.start(one.source.name):
            self.say(f"{one.source.name} runs", "dim")
            self._show_rows()

    def action_stop(self) -> None:
        """End the run."""
        if (one := self.selected) is not None and self.runs.stop(one.source.name):
            self.say(f"ending {one.source.name} …", "dim")

    def _ended(self, name: str, outcome: Run | Exception) -> None:
        if isinstance(outcome, Run):
            documents = counted(outcome.entries, "document")
            words = f"{name}: {outcome.status}, {documents} ({outcome.counts})"
            if outcome.error:
                words += f". {one_line(outcome.error)}"
            roles = {"ok": "inserted", "partial": "warning", "error": "error"}
            self.say(words, roles[outcome.status])
        else:
            self.failed(outcome)
        self._show_rows()
        self.action_reload()

    # approving

    def action_approve(self) -> None:
        """Show exactly what it would do."""
        one = self.selected
        if one is None:
            return
        if one.approved is not None:
            self.say(f"{one.source.name} is approved already", "dim")
            return
        self.approving = one
        self.show(approval_page(one, self.key_of("agree"), self.key_of("back")))
        self.go_right()

    def action_agree(self) -> None:
        """Approve what is shown."""
        one, self.approving = self.approving, None
        if one is None:
            return
        from kbtui.sources.approval import approve
        from kbtui.userdata import UserData

        workspace = self.library.workspace
        self.worker.submit(
            lambda: approve(workspace, UserData(workspace), one.source),
            lambda _: self._done(one.source.name, f"is approved: {self.key_of('run')} runs it"),
            self.failed,
        )
        self.go_left(self.list)
        self._look()

    # declaring

    def action_new(self) -> None:
        """Add a source."""
        self.worker.submit(self._topics, lambda topics: self._form(topics, None), self.failed)

    def action_edit(self) -> None:
        """Change the selected one."""
        if (one := self.selected) is not None:
            self.worker.submit(
                self._topics, lambda topics: self._form(topics, one.source), self.failed
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
            self._done(source.name, f"is added: {self.key_of('run')} runs it")

    def _changed(self, made: tuple[Source, bool] | None) -> None:
        if made is not None:
            source, approved = made
            self._done(
                source.name, "is changed" if approved else "is changed, and not approved yet"
            )

    def _done(self, name: str, what: str) -> None:
        self.say(f"{name} {what}", "inserted")
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
                self.failed,
            )

    def _count(self, source: Source) -> int:
        from kbtui.sources.runner import count_documents

        try:
            return count_documents(self.library.workspace, source)
        except KbtuiError:
            return 0  # why, is said when they are left alone

    def _ask(self, source: Source, count: int) -> None:
        from kbtui.sources.runner import remove_with_documents

        def answered(answer: str | None) -> None:
            if answer is not None:
                self.worker.submit(
                    lambda: remove_with_documents(
                        self.library.workspace, source.name, keep=answer in "ky"
                    ),
                    lambda problems: self._removed(source.name, problems),
                    self.failed,
                )

        if count:
            its = counted(count, "document")
            answers = {"k": f"remove it, keep its {its}", "d": f"remove it with its {its}"}
        else:
            answers = {"y": "remove it"}
        self.ask(f"Remove the source {source.name}?", answers, answered)

    def _removed(self, name: str, problems: list[str]) -> None:
        if problems:
            self.say(f"{name} is removed. {' '.join(problems)}", "warning")
        else:
            self.say(f"{name} is removed", "inserted")
        self.action_reload()

    # leaving

    def action_back(self) -> None:
        """One step back."""
        if self.approving is not None or self.detailed:
            self.approving = None
            self.go_left(self.list)
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

        self.ask(f"{', '.join(running)} is running.", {"y": "end it and leave"}, answered)
        return False
