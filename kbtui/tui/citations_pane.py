"""The citations pane: the citations of the current turn, and the turns that cite the open document."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from textual import on
from textual.containers import Vertical
from textual.message import Message

from kbtui.dates import Clock, format_time_or_date
from kbtui.errors import IndexUnavailable, UsageError
from kbtui.references import Ref, make_conversation_ref, make_subject_ref, parse_ref
from kbtui.terminal_text import NO_LONGER_THERE, format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import PaneCoveredByChildren
from kbtui.tui.framework.row_list import ListRow, RowList, make_heading_row
from kbtui.tui.framework.styled_text import (
    Span,
    Spans,
    wrap_spans,
)
from kbtui.tui.navigation_target import (
    NavigationTarget,
    OpenTargetRequested,
    make_difference_target,
    make_navigation_target,
)
from kbtui.tui.tui_command_table import make_key_bindings_of_scopes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.app import ComposeResult
    from textual.timer import Timer

    from kbtui.citations.cited_text_comparison import UnknownStateReason
    from kbtui.citations.tool_call_citations import Citation
    from kbtui.citations.turn_file_actions_and_commands import TurnActionsAndCommands
    from kbtui.conversations.conversation_data_types import Conversation
    from kbtui.conversations.turn_decision_marks import PlacedMark
    from kbtui.library import Library
    from kbtui.tui.reader.document_view import DocumentView
    from kbtui.tui.reader.reader_document import ReaderDocument
    from kbtui.userdata.turn_mark_lookup import MarksOfTurns


USE_NAMES = {"learn": "learned", "search": "found", "grep": "found", "file": "read"}
LOOKUP_TOOLS = {
    "learn",
    "knowledge_search",
    "conversation_list",
    "conversation_grep",
    "conversation_read",
}
UNKNOWN_STATE_NAMES: dict[UnknownStateReason, str] = {
    "cut": "turn was given a shortened text",
    "masked": "turn was given masked secrets",
    "part": "turn was given only part of it",
    "tool": "turn was given an unknown text",
    "unreadable": "cannot be read",
}
"""A short description of each reason why kbtui cannot find out whether a subject has changed."""
MAX_COUNTED_NAMES = 20
"""If the citation summary line does not name all cited entries, it names at most this many and counts the others."""
WAITING = "looking up citations …"
TURN_DELAY_SECONDS = 0.06
"""The number of seconds that the cursor must stay on a turn before the pane shows the turn's citations."""


class CitationsPane(PaneCoveredByChildren, Vertical):
    """The pane with the citations of a turn, and with the turns that cite the open document.

    The first list contains the citations of the turn at the cursor. The second contains the turns
    that cite the open document.
    """

    BINDINGS = make_key_bindings_of_scopes("citations")

    class CopyRequested(Message):
        """The user asks to copy `text`. The status line shows `name` instead of the text."""

        def __init__(self, text: str, name: str) -> None:
            super().__init__()
            self.text, self.name = text, name

    class TurnCitationSummaryLineChanged(Message):
        """The line that lists the citations of the turn at the cursor has changed.

        `forms` are variants of the line, longest first. `forms` is empty while the pane is visible,
        or if the open document is not a conversation.
        """

        def __init__(self, forms: list[Spans]) -> None:
            super().__init__()
            self.forms = forms

    class ActionsOfAllTurnsLoaded(Message):
        """The pane's attribute `activities` now contains the activity of each turn."""

    def __init__(self, library: Library, clock: Clock, reader: DocumentView) -> None:
        super().__init__(id="citations", classes="pane")
        self.border_title = "Citations"
        self.list = RowList("citations-list")
        self.list.empty_text = [("Open a conversation or a subject to see its citations.", "dim")]
        self._library = library
        self._clock = clock
        self._reader = reader
        self._used_worker = LatestOnlyWorker(self)
        self._using_worker = LatestOnlyWorker(self)
        self._target: Ref | None = None
        """The reference of the open subject or conversation; None if the open document is neither."""
        self._conversation: Conversation | None = None
        """The open conversation; None if the open document is not a conversation."""
        self._used: dict[int, list[Citation]] | None = None
        """The citations in each turn, by turn number; None until they are loaded."""
        self._short_refs: dict[str, str] = {}
        """The short form of each target of a citation in `_used`, by target."""
        self._using: list[Citation] = []
        """The citations of the open document in all conversations."""
        self._marks_of_using: MarksOfTurns | None = None
        """The user's marks on the turns of `_using`; None until they are loaded."""
        self._cites_of_rows: dict[str, Citation] = {}
        """One citation for each row, by row key.

        If the subject of one of the row's citations has changed or disappeared, it is the first such
        citation, otherwise the first of all.
        """
        self._why_not_used = ""
        self.activities: dict[int, TurnActionsAndCommands] = {}
        """The activity of each turn, by turn number; empty until the citations are loaded."""
        self._turn: int | None = None
        """The number of the turn for which the rows were made."""
        self._turn_timer: Timer | None = None
        self._is_visible = False
        self._turn_citation_summary_forms: list[Spans] = []
        """The variants of the citation summary line, which the reader shows while this pane is hidden."""

    def compose(self) -> ComposeResult:
        yield self.list

    @property
    def met_command_conditions(self) -> frozenset[str]:
        """The command conditions that the selected row meets.

        The set contains "file" if the row opens a tool call, and "difference" if it cites a
        subject.
        """
        row = self.list.selected_row
        cite = self._cites_of_rows.get(row.key) if row else None
        features = set()
        if row and isinstance(row.data, NavigationTarget) and row.data.ref and row.data.ref.call:
            features.add("file")
        if cite is not None and cite.kind == "subject":
            features.add("difference")
        return frozenset(features)

    @property
    def is_loading_citations(self) -> bool:
        """Whether the citations of the current turn or document are still being loaded."""
        if self._turn_timer is not None:
            return True
        unknown = self._used is None and self._conversation is not None
        return self._target is not None and (unknown or self._why_not_used == WAITING)

    def show_citations_of_document(self, document: ReaderDocument, place: NavigationTarget) -> None:
        """Show the citations of a document.

        After a reload, the old citations stay until the new ones are loaded.
        """
        before, known = self._target, self._conversation
        ref, record = place.ref, document.record
        self._target = self._conversation = None
        if ref and record and ref.kind == "conversation":
            self._conversation = record
            self._target = make_conversation_ref(record.info.id)
        elif ref and record and ref.kind == "subject":
            self._target = make_subject_ref(record.topic, record.slug)
        if self._target is None or self._target != before:
            self._used_worker.discard_pending_results()
            self._using_worker.discard_pending_results()
            self._used, self._using, self._why_not_used = None, [], WAITING
            self.activities = {}
        if self._conversation is not known:
            self._load_used_citations()
        self._load_citing_turns()
        self._update_citation_rows()

    def reload_citations(self) -> None:
        """Look up the open document's citations and citing turns again, after files have changed."""
        self._load_used_citations()
        self._load_citing_turns()

    def _load_used_citations(self) -> None:
        conversation = self._conversation
        if conversation is not None:
            self._used_worker.submit_call(
                lambda: self._extract_citations_and_turn_activities(conversation),
                self._show_loaded_citations,
                lambda error: self._show_loaded_citations(([], {}, {})),
            )

    def _load_citing_turns(self) -> None:
        """Look up in the index which turns cite the open document."""
        target = self._target
        if target is None:
            return

        def find_citing_turns() -> tuple[list[Citation], MarksOfTurns]:
            found = self._library.find_citing_turns(target)
            return found, self._library.find_all_marks_in_conversations_of_turns(
                cite.source for cite in found
            )

        def show_citing_turns(
            found: tuple[list[Citation], MarksOfTurns | None], why_not_used: str
        ) -> None:
            (self._using, self._marks_of_using), self._why_not_used = found, why_not_used
            self._update_citation_rows()

        known = self._using, self._marks_of_using
        self._using_worker.submit_call(
            find_citing_turns,
            lambda found: show_citing_turns(found, "No turn cites this yet."),
            lambda error: show_citing_turns(known, f"Cannot find the citing turns: {error}"),
        )

    def show_citations_at_cursor(self) -> None:
        """Show the citations of the turn at the cursor, after a short delay."""
        if self._turn_timer is not None:
            self._turn_timer.stop()
            self._turn_timer = None
        if self._reader.viewport.current_turn_number != self._turn:
            self._turn_timer = self.set_timer(TURN_DELAY_SECONDS, self._update_citation_rows)

    def _extract_citations_and_turn_activities(
        self, conversation: Conversation
    ) -> tuple[list[Citation], dict[str, str], dict[int, TurnActionsAndCommands]]:
        """Return a conversation's citations, and two mappings.

        The first mapping contains a short form of each citation's target, by target. The second
        contains the activity of each turn, by turn number. Called in a background thread.
        """
        from kbtui.library.file_turn_history import map_turns_to_actions_and_commands

        activities = map_turns_to_actions_and_commands(self._library.workspace, conversation)
        found = self._library.extract_citations_from_tool_calls(conversation)
        try:
            reader = self._library.open_index_reader()
            return (
                found,
                reader.map_references_to_short_forms(cite.target for cite in found),
                activities,
            )
        except IndexUnavailable:
            return found, {}, activities

    def _show_loaded_citations(
        self, found: tuple[list[Citation], dict[str, str], dict[int, TurnActionsAndCommands]]
    ) -> None:
        citations, self._short_refs, self.activities = found
        self.post_message(self.ActionsOfAllTurnsLoaded())
        self._used = {}
        for cite in citations:
            self._used.setdefault(cite.turn, []).append(cite)
        self._update_citation_rows()

    @property
    def _shown_turn_number(self) -> int:
        """The number of the turn whose citations are shown, or 0 if there is none."""
        if self._conversation is None:
            return 0
        return self._turn or (1 if self._conversation.turns else 0)

    @property
    def _citations_in_shown_turn(self) -> list[Citation]:
        """The citations of the shown turn, in the order in which the pane numbers them.

        Citations of files come last.
        """
        found = (self._used or {}).get(self._shown_turn_number, [])
        return sorted(found, key=lambda cite: cite.how == "file")

    def on_resize(self) -> None:
        self._update_citation_rows()

    def on_show(self) -> None:
        self._is_visible = True
        self._update_turn_citation_summary_line()

    def on_hide(self) -> None:
        self._is_visible = False
        self._update_turn_citation_summary_line()

    def _update_citation_rows(self) -> None:
        self._turn_timer = None
        self._turn = self._reader.viewport.current_turn_number
        rows: list[ListRow] = []
        self._cites_of_rows.clear()
        if self._conversation is not None and self._conversation.turns:
            turn, used = self._shown_turn_number, self._citations_in_shown_turn
            rows.append(make_heading_row("used", f"CITED IN TURN {turn}"))
            for number, cite in enumerate(used, 1):
                if cite.how == "file" and (number == 1 or used[number - 2].how != "file"):
                    how = [("read with file tools", "dim")]
                    rows.append(ListRow("files", how, selectable=False))
                rows.append(self._make_row_of_citation_in_turn(number, cite))
            if not used:
                why = _explain_turn_without_citations(self._conversation, turn)
                rows += self._make_explanation_rows("used", WAITING if self._used is None else why)
            rows.append(ListRow("blank", [], selectable=False))
            if activity := self.activities.get(turn):
                rows += self._make_rows_of_agent_actions_in_turn(
                    self._conversation.info.id, turn, activity
                )
            self._show_citation_numbers_at_tool_calls(turn, used)
        if self._target is not None:
            turns: dict[str, list[Citation]] = {}
            for cite in self._using:
                turns.setdefault(cite.source, []).append(cite)
            rows.append(make_heading_row("using", "CITING TURNS", str(len(turns) or "")))
            rows += map(self._make_citing_turn_row, count(), turns.values())
            if not turns:
                rows += self._make_explanation_rows("using", self._why_not_used)
        self.list.set_rows(rows)
        self._update_turn_citation_summary_line()

    def _update_turn_citation_summary_line(self) -> None:
        forms: list[Spans] = []
        if self._conversation and self._conversation.turns and not self._is_visible:
            forms = self._make_turn_citation_summary_forms(self._conversation)
        if forms != self._turn_citation_summary_forms:
            self._turn_citation_summary_forms = forms
            self.post_message(self.TurnCitationSummaryLineChanged(forms))

    def _make_turn_citation_summary_forms(self, conversation: Conversation) -> list[Spans]:
        """Return variants of a line such as "cited: learned api/errors", longest first.

        Each cited subject, conversation and file is listed once. Files come last, without their
        directories. Shorter variants show the sign `≠` instead of the state, and omit topics and
        folders. The shortest variants only count the last names, as in "+9".
        """
        turn, used = self._shown_turn_number, self._citations_in_shown_turn
        # If the cursor is in a turn, the header already shows the number of the turn.
        cited = "cited" if self._turn else f"turn {turn} cited"
        if self._used is None:
            return [[(WAITING, "dim")]]
        if not used:
            why = _explain_turn_without_citations(conversation, turn).replace(" in this turn", "")
            return [[(f"{cited} nothing: {why[0].lower()}{why[1:].rstrip('.')}", "dim")]]
        by_target: dict[str, Citation] = {}
        for cite in sorted(used, key=lambda cite: cite.kind == "file"):
            by_target.setdefault(cite.target, cite)
        # Count the targets for which the line would show the same use, name and state.
        counts: Counter[tuple[str, str, str]] = Counter()
        for target, cite in by_target.items():
            name = sanitize_to_one_line(self._short_refs.get(target, target))
            state = _describe_citation_state(cite)
            must_warn = cite.kind != "file" and state is not None and state[1] == "warning"
            name = name.rpartition("/")[2] if cite.kind == "file" else name
            change = state[0] if must_warn and state else ""
            counts[USE_NAMES.get(cite.how, cite.how), name, change] += 1
        texts = [
            (how, f"{name} ×{number}" if number > 1 else name, change)
            for (how, name, change), number in counts.items()
        ]
        forms = [
            _make_turn_citation_summary_line(
                cited, texts, has_words=has_words, has_folders=has_folders
            )
            for has_words, has_folders in ((True, True), (False, True), (False, False))
        ]
        for named in range(min(len(texts) - 1, MAX_COUNTED_NAMES), 0, -1):
            line = _make_turn_citation_summary_line(
                cited, texts[:named], has_words=False, has_folders=False
            )
            left = sum([*counts.values()][named:])
            forms.append([*line, (f" +{left:,}", "dim")])
        return forms

    def _show_citation_numbers_at_tool_calls(self, turn: int, used: list[Citation]) -> None:
        """Show the number of each citation next to its tool call in the reader."""
        numbers = {
            f"call:{turn}.{cite.call}": number
            for number, cite in reversed(list(enumerate(used, 1)))
            if cite.call is not None
        }
        if numbers and self._reader.viewport.set_citation_numbers_of_calls(numbers):
            self._reader._repaint_changed_lines()

    def _make_explanation_rows(self, key: str, text: str) -> list[ListRow]:
        width = max(12, self.list.scrollable_content_region.width - 2)
        lines = enumerate(wrap_spans([(text, "dim")], width))
        return [ListRow(f"note:{key}:{n}", line.spans, selectable=False) for n, line in lines]

    def _make_rows_of_agent_actions_in_turn(
        self, conversation: str, turn: int, activity: TurnActionsAndCommands
    ) -> Iterator[ListRow]:
        """Yield rows that show what the agent did in a turn.

        They show counts, changed files, commands, and other calls that failed. Files that were only
        read are counted but not listed, because the list of citations already contains them.
        """
        from kbtui.tui.reader.tool_call_blocks import make_changed_line_count_spans

        summary = ", ".join(_summarize_turn_actions(activity))
        if not summary:
            return

        def make_target_of_call(call: int | None) -> NavigationTarget:
            return make_navigation_target(make_conversation_ref(conversation, turn, call))

        yield make_heading_row("done", f"DONE IN TURN {turn}")
        yield from self._make_explanation_rows("done", summary)
        for path, actions in activity.group_changes_by_path().items():
            counts = make_changed_line_count_spans(actions)
            name = sanitize_to_one_line(path)
            kinds = ", ".join(dict.fromkeys(one.kind for one in actions))
            below: Spans = [("  ", ""), (kinds, "dim")]
            if len(actions) > 1:
                below.append((f" · {len(actions)} times", "dim"))
            place = make_target_of_call(actions[0].call)
            yield ListRow(f"done:file:{path}", [(name, "path")], counts, [below], data=place)
        commands = {one.call for one in activity.commands}
        for number, run in enumerate(activity.commands):
            role = "error" if run.has_failed else "dim"
            text = sanitize_to_one_line(run.text[:300])
            spans: Spans = [("✗ " if run.has_failed else "$ ", role), (text, role)]
            yield ListRow(f"done:command:{number}", spans, data=make_target_of_call(run.call))
        for number, event in enumerate(activity.failures):
            if event.call not in commands:
                spans = [("✗ ", "error"), (sanitize_to_one_line(event.name or "a tool"), "error")]
                yield ListRow(f"done:failure:{number}", spans, data=make_target_of_call(event.call))
        yield ListRow("blank:done", [], selectable=False)

    def _make_row_of_citation_in_turn(self, number: int, cite: Citation) -> ListRow:
        place = _find_citation_target(cite)
        if place is not None and cite.quote:
            # Find the passage by its text, because its chunk may have been deleted from the index.
            place = place._replace(text=cite.quote, words=_choose_phrase_to_highlight(cite.quote))
        role = "path" if cite.kind == "file" or not cite.title else ""
        role = f"{role} dim struck" if cite.gone else role
        name: Span = (sanitize_to_one_line(cite.title or cite.target), role)
        # The heading of the group says which entries were read with file tools.
        words: Spans = [] if cite.how == "file" else [(USE_NAMES.get(cite.how, cite.how), "dim")]
        if cite.title and cite.title != cite.target:
            target = sanitize_to_one_line(self._short_refs.get(cite.target, cite.target))
            words += [(" · " if words else "", "dim"), (target, "dim path")]
        state = _describe_citation_state(cite)
        lines = [*([words] if words else []), *([[state]] if state else [])]
        key = f"used:{cite.target}:{cite.how}:{cite.call}:{cite.chunk}"
        self._cites_of_rows[key] = cite
        below = [[("    ", ""), *line] for line in lines]
        return ListRow(key, [(f"[{number}] ", "note"), name], [], below, data=place)

    def _make_citing_turn_row(self, number: int, cites: list[Citation]) -> ListRow:
        """Return the row of a turn that cites the open document one or more times."""
        from kbtui.tui.reader.reader_blocks import make_spans_of_users_mark

        cite = cites[0]
        parts = [f"turn {cite.turn}"]
        if cite.timestamp:
            # Show the date on the second line, so that the title can use the whole width.
            parts.append(format_time_or_date(cite.timestamp, self._clock()))
        parts.append(", ".join(dict.fromkeys(USE_NAMES.get(one.how, one.how) for one in cites)))
        name: Spans = [(sanitize_to_one_line(cite.source_title or cite.source), "")]
        below: Spans = [("  ", ""), (" · ".join(parts), "dim")]
        outdated = next((one for one in cites if one.state in ("changed", "gone")), cite)
        described = map(_describe_citation_state, [outdated, *cites])
        state = next(filter(None, described), None)
        states: list[Spans] = [[("  ", ""), state]] if state else []
        marks = self._marks_of_using.get_marks_of_turn(cite.source) if self._marks_of_using else ()
        states += [[("  ", ""), *make_spans_of_users_mark(mark)] for mark in marks]
        place = make_navigation_target(parse_ref(cite.source))
        key = f"using:{number}:{cite.source}"
        self._cites_of_rows[key] = outdated
        return ListRow(key, name, below=[below, *states], data=place)

    def action_copy_citations_as(self, form: str) -> None:
        """Copy the citations in both lists in the format `form` ("markdown" or "json")."""
        from kbtui.citations.citation_formatting_and_markdown_export import (
            format_uses_and_used_by_json,
            format_uses_and_used_by_markdown,
        )
        from kbtui.conversations.turn_decision_marks import make_marks_json_field_of_turn

        if self._target is not None:
            used, turn = self._citations_in_shown_turn, self._shown_turn_number
            ref = f"{self._target}:{turn}" if turn else str(self._target)
            if form == "json":
                form_name = "JSON"
                text = format_uses_and_used_by_json(
                    ref,
                    used,
                    self._using,
                    lambda one: make_marks_json_field_of_turn(self._list_marks_of_turn(one)),
                )
            else:
                form_name = "Markdown"
                text = format_uses_and_used_by_markdown(
                    ref,
                    used,
                    self._using,
                    lambda one: [mark.label_in_turn for mark in self._list_marks_of_turn(one)],
                )
            name = f"the citations of {ref} as {form_name}"
            self.post_message(self.CopyRequested(text, name))

    def _list_marks_of_turn(self, ref: str) -> Sequence[PlacedMark]:
        """Return the marks on a citing turn, or on a turn of the open conversation."""
        if self._marks_of_using and (found := self._marks_of_using.get_marks_of_turn(ref)):
            return found
        turn, own = parse_ref(ref).turn, self._reader.document.marks
        if own is None or turn is None or self._conversation is None:
            return ()
        is_own = ref == str(make_conversation_ref(self._conversation.info.id, turn))
        return own.by_turn.get(turn, ()) if is_own else ()

    def action_show_difference(self) -> None:
        """Show how the subject of the selected citation has changed since the turn that cites it."""
        row = self.list.selected_row
        cite = self._cites_of_rows.get(row.key) if row else None
        if cite is not None and cite.kind == "subject":
            self.post_message(OpenTargetRequested(make_difference_target(cite.key)))

    @on(RowList.RowClicked)
    def action_open_selected_row(self) -> None:
        """Open the target of the selected citation, or the selected citing turn."""
        row = self.list.selected_row
        if row and isinstance(row.data, NavigationTarget):
            self.post_message(OpenTargetRequested(row.data))


def _make_turn_citation_summary_line(
    cited: str, texts: list[tuple[str, str, str]], *, has_words: bool, has_folders: bool
) -> Spans:
    line: Spans = []
    before = ""
    for how, name, state in texts:
        space = ", " if how == before else f"{' · ' if before else f'{cited}: '}{how} "
        before = how
        line.append((space, "dim"))
        if state and not has_words:
            line.append(("≠ ", "warning"))
        line.append((name if has_folders else name.rpartition("/")[2], ""))
        if state and has_words:
            line.append((f" ({state})", "warning"))
    return line


def _summarize_turn_actions(activity: TurnActionsAndCommands) -> Iterator[str]:
    """Yield phrases such as "2 files changed", "3 commands" and "1 failure"."""
    for kind in ("changed", "created", "moved", "deleted", "read"):
        if paths := activity.list_paths(kind):
            yield f"{format_counted_noun(len(paths), 'file')} {kind}"
    if activity.commands:
        yield format_counted_noun(len(activity.commands), "command")
    if activity.failures:
        yield format_counted_noun(len(activity.failures), "failure")


def _describe_citation_state(cite: Citation) -> Span | None:
    """Return whether the cited subject has changed, or why this is unknown, in a few words.

    Return None if neither the state nor the reason is known.
    """
    if cite.gone or cite.state == "gone":
        return NO_LONGER_THERE, "warning"
    if cite.state == "changed":
        return "changed since", "warning"
    if cite.state == "unchanged":
        return "unchanged", "dim"
    if cite.state_reason is not None:
        return UNKNOWN_STATE_NAMES[cite.state_reason], "dim"
    return None


def _choose_phrase_to_highlight(quote: str) -> tuple[str, ...]:
    """Return a tuple with one phrase of the quote, which the reader highlights.

    The tuple is empty if no phrase is suitable.
    """
    for pattern in (r"\w+(?: \w+){2,7}", r"\w{5,20}"):
        for line in quote.split("\n"):
            # Skip headings, because the same heading often occurs several times.
            if not line.startswith("#") and (found := re.search(pattern, line)):
                return (found[0],)
    return ()


def _find_citation_target(cite: Citation) -> NavigationTarget | None:
    """Return the place that the reader opens for a citation.

    Return None if the cited entry was deleted.
    """
    if cite.kind != "file":
        if cite.gone:
            return None
        with suppress(UsageError):
            ref = parse_ref(cite.target)
            if ref.kind != "chunk":
                return make_navigation_target(ref)
    # The reader cannot open a cited file or passage itself, so open the tool call that read it.
    return make_navigation_target(make_conversation_ref(cite.conversation, cite.turn, cite.call))


def _explain_turn_without_citations(conversation: Conversation, turn: int) -> str:
    found = conversation.find_turn(turn)
    events = found.events if found else ()
    calls = [event.name for event in events if event.kind == "tool_call_request"]
    if not LOOKUP_TOOLS.isdisjoint(calls):
        return "The tool calls in this turn found nothing."
    if len(calls) > 1:
        return f"None of the {len(calls):,} tool calls read a subject, file or conversation."
    if calls:
        return "The tool call in this turn did not read a subject, file or conversation."
    return "No tool calls in this turn."
