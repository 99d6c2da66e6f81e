"""The two lines at the bottom of the main screen: the status bar, and the key hints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.reactive import reactive
from textual.suggester import SuggestionReady

from kbtui.notices import PAUSE_TEXTS, format_embedded_percentages, format_keywords_only_reason
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line, shorten_paths_to_width
from kbtui.tui.framework.base_screens_and_widgets import StyledTextWidget, press_hinted_key
from kbtui.tui.framework.styled_text import (
    align_spans_to_edges,
    capitalize_first_word_unless_name,
    measure_cell_width,
)
from kbtui.tui.framework.tui_command_definition import (
    format_fitting_key_hints,
    format_key_hints,
)
from kbtui.tui.reader.reader_document import CHANGES_VIEW_NAMES
from kbtui.tui.tui_command_table import (
    COMMANDS_BY_ID,
    Scope,
    find_key_label_for_input,
    find_key_label_of_command,
    list_commands_of_scopes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual import events
    from textual.strip import Strip
    from textual.timer import Timer
    from textual.widgets import Input

    from kbtui.engine.engine_protocol import EngineEvent, EngineReadinessEvent, IndexProgressEvent
    from kbtui.notices import EmbeddedParts
    from kbtui.search.query_completion import QueryCompletion
    from kbtui.tui.framework.styled_text import Spans

FLASH_SECONDS = 4.0
PAUSE_HINT_PASSAGES = 100
"""If at least this many passages have no vector, the key hints include the key that pauses embedding."""
PHASES = {"keywords": "indexing", "vectors": "embedding"}
"""The word on the screen for each phase of the engine's work."""


class StatusBar(StyledTextWidget):
    """A line with the current activities (left) and the state of index and search (right)."""

    problem = reactive("")
    """The text of the problem to show; "" if there is none."""
    search_mode = reactive("")
    """The search mode to show; "" in the default mode, which is not shown."""

    def __init__(self, workspace: str) -> None:
        super().__init__(id="status")
        self._workspace = sanitize_to_one_line(workspace)
        self._activities: dict[str, str] = {}
        self._phase = ""
        """The phase of the engine's work that the activity "index" shows."""
        self._flash: Spans = []
        self._is_refusal = False
        """Whether the message says why the last key did nothing. The next key removes such a message."""
        self._flash_timer: Timer | None = None
        self._sign: Spans = []
        self._index_text, self._short_text = "index: asking the engine …", "asking the engine …"
        self._index_role = "dim"
        self._first_index_by = ""
        """Who is building the first index: "engine", or "alone" for this process. "" if nobody is building it."""
        self._was_ready = False
        self._last_ready_event: EngineReadinessEvent | None = None

    @property
    def is_embedding_model_off(self) -> bool:
        """Whether the model is switched off in the settings, so that the engine embeds nothing."""
        event = self._last_ready_event
        return bool(event and (event.get("keywords_only") or {}).get("cause") == "model_off")

    @property
    def may_passages_lack_vectors(self) -> bool:
        """Whether the connected engine has a model, and may have passages without a vector."""
        event = self._last_ready_event
        return event is not None and not self.is_embedding_model_off and event.get("left") != 0

    @property
    def is_embedding_paused(self) -> bool:
        """Whether the user has paused the embedding of passages."""
        return bool(self._last_ready_event and self._last_ready_event.get("paused"))

    @property
    def embedding_key_hint_conditions(self) -> frozenset[str]:
        """The conditions currently met for key hints about embedding.

        The set contains "embedding" if many passages are not embedded yet. During a pause, it
        contains both "embedding" and "paused".
        """
        if self.is_embedding_paused:
            return frozenset({"embedding", "paused"})
        event = self._last_ready_event
        left = (event.get("left") if event else None) or 0
        return frozenset({"embedding"} if left >= PAUSE_HINT_PASSAGES else {})

    def set_activity_text(self, name: str, text: str | None) -> None:
        """Show `text` for the activity `name`. None means that the activity has ended."""
        if text is None:
            self._activities.pop(name, None)
        else:
            self._activities[name] = sanitize_to_one_line(text)
        self.refresh()

    def flash_message(self, text: str, role: str = "strong") -> None:
        """Show a message for a few seconds."""
        self._flash = [(capitalize_first_word_unless_name(sanitize_to_one_line(text)), role)]
        self._is_refusal = False
        if self._flash_timer:
            self._flash_timer.stop()
        self._flash_timer = self.set_timer(FLASH_SECONDS, self._clear_flashed_message)
        self.refresh()

    def show_unavailable_key_message(self, text: str, role: str = "warning") -> None:
        """Show why a key does nothing here.

        The message disappears with the next key, or after a few seconds.
        """
        self.flash_message(text, role)
        self._is_refusal = True

    def clear_unavailable_key_message(self) -> bool:
        """Remove the message of `show_unavailable_key_message` if it is still shown. Return whether a warning was removed."""
        if not self._is_refusal:
            return False
        was_warning = any(role == "warning" for _, role in self._flash)
        self._clear_flashed_message()
        return was_warning

    def _clear_flashed_message(self) -> None:
        self._flash, self._is_refusal = [], False
        self.refresh()

    def describe_search_wait_reason(self, has_answer: bool) -> str:
        """Return the reason why searches are waiting, or "" if they are not waiting.

        `has_answer` says whether a search has returned an answer; if so, an index exists.
        """
        if self._first_index_by == "engine":
            progress = self._activities.get("index")
            so_far = f": {progress}" if progress else ""
            return f"Building the first index{so_far}. Results appear when it is ready."
        if self._first_index_by == "alone" and not has_answer:
            return "No index yet, and no engine is running. Building a temporary keyword index …"
        return ""

    def show_engine_event(self, event: EngineEvent) -> None:
        """Show the state of the index and of search that an event from the engine reports."""
        if event["event"] == "progress":
            self._show_index_progress(event)
        elif event["event"] == "ready":
            self._last_ready_event = event
            if event.get("paused") and self._phase == "vectors":
                self._activities.pop("index", None)
            self._show_readiness_of_index_and_search(event)
        elif event["event"] == "gone":
            self._activities.pop("index", None)
            self._first_index_by = "" if self._was_ready else "alone"
            self._last_ready_event = None
            text = f"keywords only: {sanitize_to_one_line(event['reason'] or 'the engine stopped')}"
            self._set_index_status("◌", "warning", text, "keywords only")
        self.refresh()

    def _set_index_status(
        self, sign: str, sign_role: str, text: str, short: str, role: str = "dim"
    ) -> None:
        self._sign = [(f"{sign} ", sign_role)]
        self._index_text, self._short_text, self._index_role = text, short, role

    def _show_index_progress(self, event: IndexProgressEvent) -> None:
        done, total = event["done"], event["total"]
        if event["phase"] == "vectors" and self._last_ready_event:
            self._last_ready_event = {**self._last_ready_event, "left": total - done}
            self._show_readiness_of_index_and_search(
                self._last_ready_event, event.get("parts") or {}
            )
        if done >= total:
            self._activities.pop("index", None)
            return
        phase = PHASES[event["phase"]]
        if phase == "embedding" and self.is_embedding_paused:
            # The right side says that embedding is paused, and how much is left.
            self._activities.pop("index", None)
            return
        text = f"{phase} {done:,} of {total:,}"
        if reason := event.get("waits"):
            text += f"; {PAUSE_TEXTS[reason]}"
        else:
            if pace := event.get("per_second"):
                text += f", {pace:,.0f}/s"
            if left := event.get("seconds_left"):
                text += f", {_format_time_left(left)} left"
        self._activities["index"], self._phase = text, event["phase"]

    def _show_readiness_of_index_and_search(
        self, event: EngineReadinessEvent, embedded_parts: EmbeddedParts | None = None
    ) -> None:
        error, left = event.get("error"), event.get("left")
        self._was_ready = self._was_ready or bool(event.get("lexical"))
        self._first_index_by = "" if event.get("lexical") or error else "engine"
        if error:
            text = sanitize_to_one_line(f"index: {error}")
            self._set_index_status("!", "error", text, "index failed", "error")
        elif self._first_index_by:
            self._set_index_status("◌", "warning", "building the first index", "no index yet")
        elif not event.get("semantic"):
            reason = format_keywords_only_reason(event.get("keywords_only") or {}) or "no model"
            text = f"index ready · keywords only: {sanitize_to_one_line(reason)}"
            self._set_index_status("◐", "warning", text, "keywords only")
        elif event.get("paused"):
            rest = f", {format_counted_noun(left, 'passage')} left" if left else ""
            text = f"index ready · embedding paused{rest}"
            self._set_index_status("◐", "warning", text, "embedding paused")
        elif left:
            parts = format_embedded_percentages(embedded_parts or {})
            rest = f" · {format_counted_noun(left, 'passage')} not embedded yet"
            if embedded_parts is not None:
                # The progress on the left side says how many passages are left.
                rest = ""
            text = f"index ready · embedded: {parts}" if parts else f"index ready{rest}"
            self._set_index_status("◐", "warning", text, "embedding")
        else:
            text = "index ready · keywords and meaning"
            self._set_index_status("●", "inserted", text, "index ready")

    def _make_message_spans(self, width: int) -> Spans:
        # A long path would push the beginning of the message off the line.
        if self._flash:
            return [(shorten_paths_to_width(text, width), role) for text, role in self._flash]
        if self.problem:
            text = f"! {sanitize_to_one_line(self.problem)}"
            return [(shorten_paths_to_width(text, width), "error")]
        return [(" · ".join(self._activities.values()) or self._workspace, "dim")]

    def _make_index_status_spans(self, text: str) -> Spans:
        mode: Spans = [(f" · mode: {self.search_mode}", "key")] if self.search_mode else []
        return [*self._sign, (text, self._index_role), *mode]

    def render_line(self, y: int) -> Strip:
        """Draw the activities on the left and the state on the right. A long state is shortened."""
        width = self.content_size.width
        left = self._make_message_spans(width)
        room = width - measure_cell_width(left) - 2
        texts = (self._index_text, self._short_text)
        forms = (*map(self._make_index_status_spans, texts), self._sign)
        right = next((form for form in forms if measure_cell_width(form) <= room), [])
        return self.render_spans(align_spans_to_edges(left, right, width) if y == 0 else [], width)


def _format_time_left(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"


INPUT_HINTS = {
    "search": [("Enter", "open"), ("↑↓", "select / history"), ("Esc", "to results")],
    "find": [("Enter", "accept"), ("Esc", "clear")],
    "filter": [("Enter", "accept"), ("Esc", "clear")],
    "outline-filter": [("Enter", "go there"), ("↑↓", "select"), ("1…9", "turn"), ("Esc", "close")],
    "": [("Esc", "leave the input")],
}
"""The keys of each input and their effects, by input id. The id "" stands for all other inputs."""

MAX_SUGGESTIONS = 8
"""The maximum number of completions that are shown in place of the key hints."""

CONTINUE_LABEL = "continue embedding"
"""The key hint of the pause command while embedding is paused."""

FIND_LABELS = {"reader.next": "next match", "reader.previous": "previous match"}
"""While the user searches the open document, the key hints show these labels, by command id."""

STEP_LABELS = {"find": "clear find", "opened_hit": "to results"}
"""In the key hints, the command that goes back one step has the label of the first of these conditions that is met."""

CALL_HINTS = {
    "reader.fold": ("open call", 12),
    "edit": ("edit file", 11),
    "reader.view": ("view", 9),
    "reader.changes": ("conversation", 10),
    "blame": ("turns of file", 4),
}
"""Maps command ids to the labels and priorities of their key hints while the reader shows a conversation's changes."""


class KeyHintLine(StyledTextWidget):
    """A line of key hints for the focused widget, with as many hints as fit."""

    scopes: reactive[tuple[Scope, ...]] = reactive(("everywhere",))
    offers: reactive[frozenset[str]] = reactive(frozenset())
    """The features of the open document that commands may need, and "find" while the user searches in it."""
    next_view = reactive("")
    """The view that the reader would show next."""
    search_mode = reactive("both")
    """The name of the search mode."""
    input_id = reactive("")
    """The id of the focused input, or "". The hints for an input replace those for `scopes`."""
    is_query_selected = reactive(False)
    """Whether the whole query in the search input is selected, so that typing replaces it."""
    is_query_empty = reactive(True)
    """Whether the search input is empty, so that it shows suggestions and no hits."""
    suggestions: reactive[dict[str, Spans]] = reactive(dict)
    """The completions to show in place of the key hints while an input has the focus, by input id."""
    shell_command_for_screen = reactive("")
    """A shell command that prints the content of the screen, for users of a screen reader; "" to show none."""

    def __init__(self) -> None:
        super().__init__(id="hints")
        self.keymap: Mapping[str, str] = {}

    def show_completions(
        self, entry: Input, text: str, cursor: int, found: list[QueryCompletion]
    ) -> None:
        """Show the completions of the text in an input.

        The input shows the best completion, and this line shows all of them.
        """
        if entry.value != text:
            return
        spans: Spans = [("Tab", "key"), (" completes: ", "dim")]
        for number, suggestion in enumerate(found[:MAX_SUGGESTIONS]):
            spans += [
                ("  " if number else "", ""),
                (sanitize_to_one_line(suggestion.text), "strong"),
            ]
            if suggestion.note:
                spans.append((f" {sanitize_to_one_line(suggestion.note)}", "dim"))
        self.suggestions = {**self.suggestions, entry.id or "": spans if found else []}
        if cursor == len(text):
            completed = (text[: suggestion.start] + suggestion.text for suggestion in found)
            if best := next((line for line in completed if line.startswith(text)), None):
                entry.post_message(SuggestionReady(text, best))

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        return self.render_spans([] if y else self._make_key_hint_spans(width), width)

    def on_click(self, event: events.Click) -> None:
        """Press the key whose hint was clicked."""
        event.stop()
        spans = self._make_key_hint_spans(self.content_size.width)
        press_hinted_key(self, spans, event.x - self.gutter.left)

    def _make_key_hint_spans(self, width: int) -> Spans:
        if self.shell_command_for_screen:
            key = find_key_label_of_command("help", self.keymap)
            help_hint = f"  {key} help" if key else ""
            shown = (self.shell_command_for_screen, "key")
            return [("To print this: ", "dim"), shown, (help_hint, "dim")]
        if suggestions := self.suggestions.get(self.input_id):
            return suggestions
        if self.input_id:
            pairs = self._get_input_key_hints()
            while len(pairs) > 1 and measure_cell_width(format_key_hints(pairs)) > width:
                # Keep the first hint (how to accept) and the last (how to leave), which matter most.
                pairs.pop(-2)
            return format_key_hints(pairs)
        commands = list_commands_of_scopes(*self.scopes, keymap=self.keymap)
        # Append the next view and the current search mode to the labels of the commands that change
        # them.
        next_view = CHANGES_VIEW_NAMES.get(self.next_view, self.next_view)
        shown_states = {"reader.view": next_view, "results.mode": self.search_mode}
        for number, command in enumerate(commands):
            if "links" in self.offers and command.needs == "folds":
                # On a line with a link and nothing to unfold, Enter opens the link.
                commands[number] = command._replace(label="open")
            if "paused" in self.offers and command.id == "pause_embedding":
                commands[number] = command._replace(label=CONTINUE_LABEL)
            if "calls" in self.offers and command.id in CALL_HINTS:
                label, priority = CALL_HINTS[command.id]
                commands[number] = command._replace(label=label, hint=priority, needs="")
            if "matches" in self.offers and command.id in FIND_LABELS:
                commands[number] = command._replace(label=FIND_LABELS[command.id], needs="")
            if command.id == "return" and self.offers & STEP_LABELS.keys():
                label = next(STEP_LABELS[name] for name in STEP_LABELS if name in self.offers)
                commands[number] = command._replace(label=label, needs="", hint=9)
            if state := shown_states.get(command.id):
                commands[number] = commands[number]._replace(label=f"{command.label}: {state}")
        return format_fitting_key_hints(commands, width, self.offers)

    def _get_input_key_hints(self) -> list[tuple[str, str]]:
        pairs = [*INPUT_HINTS.get(self.input_id, INPUT_HINTS[""])]
        keys = [find_key_label_of_command(command_id, self.keymap) for command_id in FIND_LABELS]
        if self.input_id == "find" and all(keys) and "matches" in self.offers:
            pairs[0] = ("Enter", f"accept, then {'/'.join(keys)}")
        if self.input_id == "outline-filter" and "turns" not in self.offers:
            # Headings have no numbers.
            pairs.remove(("1…9", "turn"))
        if self.input_id == "search" and self.is_query_empty:
            pairs[-1] = ("Esc", "close")
        if self.input_id == "search" and self.is_query_selected:
            pairs[-1:-1] = [("⌫", "clear: earlier searches")]
        elif self.input_id == "search" and (
            key := find_key_label_for_input("search_all", self.keymap)
        ):
            pairs[-1:-1] = [(key, COMMANDS_BY_ID["search_all"].label)]
        return pairs
