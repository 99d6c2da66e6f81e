"""Loads documents in background threads, shows them in the reader, and keeps the history."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError, NothingFound, format_error_on_one_line
from kbtui.light_named_tuple import NamedTuple
from kbtui.references import parse_ref
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.idle_garbage_collection import pause_garbage_collection_then_freeze_objects
from kbtui.tui.navigation_target import (
    HOME,
    NavigationTarget,
    list_matched_words_of_hit,
    looks_like_reference,
    make_navigation_target,
)
from kbtui.tui.reader.reader_document import (
    CHANGES_VIEWS,
    STEP_VIEWS,
    ReaderDocument,
    is_start_position_loaded,
)
from kbtui.tui.topics_and_conversations_snapshot import (
    TopicsAndConversations,
    TopicWithSubjects,
    find_news_since_visit,
)
from kbtui.tui.tui_command_table import find_key_label_of_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbtui.citations.tool_call_citations import CitationKey
    from kbtui.conversations.conversation_data_types import Conversation
    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.library.subject_text_versions import GivenAndCurrentSubjectText
    from kbtui.references import Ref
    from kbtui.search.search_request_and_answer import Hit
    from kbtui.tui.framework.base_screens_and_widgets import StyledScreen
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.reader.reader_pane import ReaderPane
    from kbtui.tui.topics_and_conversations_snapshot import LastVisit

BIG_CONVERSATION_BYTES = 2 << 20
"""If a conversation has at least this many bytes, its beginning is shown before the rest is read."""
FIRST_BLOCKS = 20
"""The number of blocks that are laid out while a document is loaded, so that the first paint is fast."""

_TURN_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"


class NavigationHistory:
    """The places that the user opened, oldest first. `at` is the index of the current place."""

    def __init__(self, targets: list[NavigationTarget] | None = None, at: int = -1) -> None:
        self.targets = targets or []
        self.at = at

    @property
    def current_target(self) -> NavigationTarget | None:
        """The current place, or None if nothing has been opened."""
        return self.targets[self.at] if self.targets else None

    def add_target_to_history(self, target: NavigationTarget) -> None:
        """Add `target` to the history, after the current place, and make it the current place.

        The places after the former current place are removed.
        """
        self.targets[self.at + 1 :] = [target]
        self.at = len(self.targets) - 1


class DocumentController:
    """Loads documents and shows them in the reader.

    `on_opened(document, target, is_reload)` is called after the reader has shown a document.
    `target` is the opened place, and `is_reload` says whether the document is a new version of the
    one shown before. `open_and_focus` opens a place in the reader and focuses the reader.
    """

    def __init__(
        self,
        library: Library,
        clock: Clock,
        pane: ReaderPane,
        status: StatusBar,
        on_opened: Callable[[ReaderDocument, NavigationTarget, bool], None],
        open_and_focus: Callable[[NavigationTarget], None],
    ) -> None:
        self._library = library
        self.clock = clock
        self._pane = pane
        self._status = status
        self._on_opened = on_opened
        self._open_and_focus = open_and_focus
        self._lookup_worker = LatestOnlyWorker(pane)
        self._open_worker = LatestOnlyWorker(pane, drop=self._free_document_that_is_not_shown)
        self._reload_worker = LatestOnlyWorker(pane, drop=self._free_document_that_is_not_shown)
        self._reloading: NavigationTarget | None = None
        self._must_reload_again = False
        self.history = NavigationHistory()
        self.contents: TopicsAndConversations | None = None
        self.visit: LastVisit | None = None
        """The last visit to the workspace; None if there was none, or while it is being read."""
        self.notices: list[str] = []
        """Messages about problems with the settings. The home page shows them."""
        self.keymap: Mapping[str, str] = {}
        """The keys from the settings, by command id. The home page shows the labels of these keys."""
        self._restoring: NavigationTarget | None = None
        """The place that is being restored from the saved session, or None."""
        self._home_note = ""
        """A remark that the home page shows until the reader shows another page."""
        self.is_opening = True
        """Whether a document that the user opened is still loading, with no part of it shown yet.

        Also true before the first document is shown. A preview does not count as opened.
        """
        self.shown: NavigationTarget | None = None
        """The place that the reader shows. If this place is a preview of a hit, it is not in `history`."""
        self._is_previewing = False
        """Whether the reader shows a preview of a hit."""

    def set_library_contents(self, contents: TopicsAndConversations) -> None:
        """Replace the snapshot of the library. Update the short reference of the shown document."""
        self.contents = contents
        self._shorten_reference_of_document(self._pane.document_view.document)
        self._pane.update_header()

    def _shorten_reference_of_document(self, document: ReaderDocument) -> None:
        """Set the short reference of a document that was loaded before the library was read."""
        if self.contents and document.ref and not document.short_ref:
            document.short_ref = self.contents.shorten_reference(document.ref)

    def open_target_in_reader(self, target: NavigationTarget, *, preview: bool = False) -> None:
        """Show the place `target`, and add it to the history unless it is only a preview."""
        self.save_reading_position_in_history()
        self._is_previewing = preview
        if not preview:
            current = self.history.current_target
            if not (current and current.shows_same_document(target) and target.ref is None):
                self.history.add_target_to_history(target)
        self.show_target_in_reader(target)
        self.is_opening = self.is_opening and not preview

    def preview_hit_of_other_workspace(self, hit: Hit) -> None:
        """Show a page with the passage of a hit in another workspace.

        The whole document can be opened only in that workspace.
        """
        from kbtui.tui.generated_reader_pages import build_other_workspace_hit_preview

        target = NavigationTarget(f"passage:{hit.chunk_id}", words=list_matched_words_of_hit(hit))
        if target != self.shown:
            self.save_reading_position_in_history()
            self._is_previewing = True
            self._open_worker.discard_pending_results()
            self._show_document_in_reader(
                target, build_other_workspace_hit_preview(target.key, hit)
            )

    def preview_absence_of_hits(self, reason: Spans) -> None:
        """If the reader shows a preview, replace it with the reason why there are no hits.

        Otherwise, do nothing.
        """
        from kbtui.tui.generated_reader_pages import build_no_hits_document

        target = NavigationTarget("no hits", text="".join(text for text, _ in reason))
        if self._is_previewing and target != self.shown:
            self._open_worker.discard_pending_results()
            self._show_document_in_reader(target, build_no_hits_document(target.key, reason))

    def switch_document_view(self, target: NavigationTarget) -> None:
        """Show another view of the shown document.

        Switching to a conversation's changes or a subject's versions adds a step to the history,
        and switching from them to the text goes back that step. Any other view replaces the current
        one in the history.
        """
        history, before = self.history, self.shown.view if self.shown else ""
        if self._is_previewing or (target.view in STEP_VIEWS and before not in STEP_VIEWS):
            self.open_target_in_reader(target)
            return
        if history.at > 0 and target.shows_same_document(history.targets[history.at - 1]):
            self.save_reading_position_in_history()
            history.at -= 1
        history.targets[history.at] = target
        self.show_target_in_reader(target)

    def save_reading_position_in_history(self) -> None:
        """Store the reading position in the history. During a preview, nothing is stored."""
        current, history = self.history.current_target, self.history
        if self._is_previewing or current is None:
            return
        if current.shows_same_document(self.shown):
            viewport, ref = self._pane.document_view.viewport, current.ref
            if ref and ref.kind != "topic" and current.cite is None and viewport.current_reference:
                ref = parse_ref(
                    viewport.current_reference,
                    lambda topic, slug: f"{topic}/{slug}" == current.key,
                )
            mark = viewport.make_reading_position_with_folds()
            history.targets[history.at] = current._replace(ref=ref, mark=mark)

    def go_back_or_forward(self, steps: int) -> None:
        """Go `steps` places forward in the history, or back if `steps` is negative.

        If the history has no such place, show a message.
        """
        self.save_reading_position_in_history()
        if 0 <= self.history.at + steps < len(self.history.targets):
            self._is_previewing = False
            self.history.at += steps
            self.show_target_in_reader(self.history.targets[self.history.at])
        else:
            direction = "back" if steps < 0 else "forward"
            self._status.show_unavailable_key_message(f"Nothing to go {direction} to.", "dim")

    def demote_opened_document_to_preview(self) -> None:
        """Turn the opened document into a preview, as if it had not been opened. Going forward in the history opens it again."""
        self.save_reading_position_in_history()
        self.history.at -= 1
        self._is_previewing = True

    def describe_place_gone_back_to(self) -> str:
        """Return a message with the name of the place that `go_back_or_forward(-1)` has just shown."""
        target = self.history.current_target or HOME
        name = {"home": "Home", "prompt": "the prompt"}.get(target.key, target.key)
        if target.ref:
            name = str(target.ref)
            name = self.contents.shorten_reference(name) if self.contents else name
            name = f"the changes of {name}" if target.view in STEP_VIEWS else name
        label = find_key_label_of_command("forward", self.keymap)
        return f"Back to {name}." + (f" {label} goes forward again." if label else "")

    def cancel_document_loading(self) -> None:
        """Discard the document that is still loading, and keep the shown one."""
        self._open_worker.discard_pending_results()
        self._status.set_activity_text("open", None)
        self.is_opening = False

    def return_to_document_before_preview(self) -> None:
        """End a preview: return to the document and the position that the reader showed before."""
        was_previewing, self._is_previewing = self._is_previewing, False
        current = self.history.current_target
        if was_previewing and current and current != self.shown:
            self.show_target_in_reader(current)

    def restore_last_opened_target(self, target: NavigationTarget) -> None:
        """Show the last place of the saved session. If it no longer exists, show the home page."""
        self._restoring = target
        self.show_target_in_reader(target)

    def show_target_in_reader(self, target: NavigationTarget) -> None:
        """Show the place `target` without adding it to the history."""
        self._open_worker.discard_pending_results()
        self.is_opening = False
        if target.key.startswith("problem:"):
            from kbtui.tui.generated_reader_pages import build_error_document

            document = build_error_document(target.key, "A problem", target.text)
            self._show_document_in_reader(target, document)
            return
        shown, is_position = self._pane.document_view.document, target.ref and target.mark is None
        if is_position and target.shows_same_document(self.shown) and not shown.is_partial:
            self.shown = target
            self._pane.go_to_place_in_document(target)
            self._on_opened(shown, target, False)
            return
        self._status.set_activity_text("open", f"opening {target.key} …")
        contents = self.contents
        self.is_opening = True
        self._open_worker.submit_call_with_progress(
            lambda tell: self._load_document(target, contents, tell),
            lambda document: self._show_document_beginning(target, document),
            lambda document: self._show_loaded_document(contents, target, document),
            self._report_open_failure,
        )

    def _show_document_beginning(self, target: NavigationTarget, document: ReaderDocument) -> None:
        """Show the beginning of a large document if the beginning contains the position to show."""
        if is_start_position_loaded(document, target):
            self._show_document_in_reader(target, document)
        self._status.set_activity_text("open", f"reading the rest of {target.key} …")

    def _show_loaded_document(
        self,
        contents: TopicsAndConversations | None,
        target: NavigationTarget,
        document: ReaderDocument,
    ) -> None:
        restoring, self._restoring = self._restoring, None
        if document.is_missing and target == restoring == self.history.current_target:
            self.history.targets[self.history.at] = HOME
            gone = (
                target.ref._replace(lines=None, turn=None, call=None) if target.ref else target.key
            )
            self._home_note = f"{gone} no longer exists; it was open last time."
            self.show_target_in_reader(HOME)
            return
        if self._pane.document_view.document.is_partial and target == self.shown:
            self._status.set_activity_text("open", None)
            self._show_reloaded_document_if_still_open(target, document)
            return
        self._show_document_in_reader(target, document)
        # The home page may have been built before the lists were read.
        if target.key == "home" and contents is not self.contents:
            self.reload_shown_document()

    def _show_document_in_reader(self, target: NavigationTarget, document: ReaderDocument) -> None:
        self._status.set_activity_text("open", None)
        self.is_opening = False
        self.shown = target
        if target.key != "home":
            self._home_note = ""
        self._shorten_reference_of_document(document)
        self._pane.show_document(document, target)
        self._on_opened(document, target, False)

    def _report_open_failure(self, error: Exception) -> None:
        self._status.set_activity_text("open", None)
        self.is_opening = False
        reason = format_error_on_one_line(error, self._library.workspace.root)
        self._status.flash_message(f"cannot open: {reason}", "error")

    def reload_shown_document(self) -> None:
        """Read the shown document again from disk. The reader stays at the current line."""
        target = self.shown or HOME
        if target.key.startswith(("problem:", "passage:", "no hits")):
            return
        if self._reload_worker.has_pending_result and target.shows_same_document(self._reloading):
            # Finish the current reload first: if every write restarted it, it might never end.
            self._must_reload_again = True
            return
        self._reloading, self._must_reload_again = target, False
        contents, shown = self.contents, self._pane.document_view.document

        def replace_reloaded_document(document: ReaderDocument) -> None:
            is_still_shown = shown is self._pane.document_view.document
            if document.problem and not shown.problem and is_still_shown and shown.ref:
                # The user may be reading the text, and the file may come back.
                self._pane.show_loss_of_document(_describe_lost_document(shown.ref, document))
            elif document is not shown:
                self._show_reloaded_document_if_still_open(target, document)
            elif shown.loss:
                self._pane.show_loss_of_document("")
            if self._must_reload_again:
                self.reload_shown_document()

        self._reload_worker.submit_call(
            lambda: self._load_document(target, contents, None, shown),
            replace_reloaded_document,
            self._report_open_failure,
        )

    def _show_reloaded_document_if_still_open(
        self, target: NavigationTarget, document: ReaderDocument
    ) -> None:
        if target.shows_same_document(self.shown):
            self._shorten_reference_of_document(document)
            self._pane.show_reloaded_document(document)
            self._on_opened(document, target, True)
        else:
            self._free_document_that_is_not_shown(document)

    def _free_document_that_is_not_shown(self, result: ReaderDocument | Exception) -> None:
        """Free the memory of a document that the reader will not show."""
        if not isinstance(result, Exception):
            self._pane.free_document_unless_shown(result)

    # opening references that the user typed

    @property
    def is_looking_up_reference(self) -> bool:
        """Whether a reference is still being looked up."""
        return self._lookup_worker.has_pending_result

    def open_entered_reference(self, text: str) -> None:
        """Open what the user has entered: a turn or line by its number, or a reference."""
        if self._pane.go_to_turn_or_line_number(text):
            return
        document = self._pane.document_view.document
        if document.is_partial and re.fullmatch(_TURN_NUMBER, text.strip()):
            # Opening a reference waits until the turn is loaded.
            text = f"{document.ref}:{text.strip()}"
        root = self._library.workspace.root
        self._look_up_and_open_reference(
            text,
            lambda error: self._status.show_unavailable_key_message(
                format_error_on_one_line(error, root)
            ),
        )

    def open_text_if_reference(self, text: str, otherwise: Callable[[], None]) -> None:
        """Open `text` if it is a reference to something that exists. Otherwise call `otherwise`."""
        if looks_like_reference(text.strip()):
            self._look_up_and_open_reference(text.strip(), lambda error: otherwise())
        else:
            otherwise()

    def _look_up_and_open_reference(self, text: str, on_error: Callable[[Exception], None]) -> None:
        self._lookup_worker.submit_call(
            lambda: make_navigation_target(self._library.resolve_reference(text)),
            self._open_and_focus,
            on_error,
        )

    # loading documents in background threads

    def _load_document(
        self,
        target: NavigationTarget,
        contents: TopicsAndConversations | None,
        show_beginning: Callable[[ReaderDocument], None] | None,
        shown: ReaderDocument | None = None,
    ) -> ReaderDocument:
        """Read a document, and lay out its first blocks.

        If that fails, return a page with the reason. `show_beginning` is called with the beginning
        of a large conversation. `shown` is the document in the reader. It is returned as it is if
        it is the large conversation that `target` refers to, and neither its files nor its marks
        and citations have changed.
        """
        from kbtui.tui.generated_reader_pages import build_error_document

        key, ref = target.key, target.ref
        try:
            if ref and ref.conversation and target.view in CHANGES_VIEWS:
                made = _make_file_changes_document(self._library, ref.conversation, target.view)
            elif ref and ref.conversation:
                made = self._make_conversation_document(
                    ref.conversation, contents, show_beginning, shown
                )
            else:
                made = self._make_non_conversation_document(target, contents)
            if contents and made.ref:
                made.short_ref = contents.shorten_reference(made.ref)
            return _lay_out_first_blocks(made)
        except KbtuiError as error:
            document = build_error_document(key, key, error.message, error.where, error.hint)
            document.is_missing = isinstance(error, NothingFound)
            return document
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            return build_error_document(key, key, f"{type(error).__name__}: {error}")

    def _make_non_conversation_document(
        self, target: NavigationTarget, contents: TopicsAndConversations | None
    ) -> ReaderDocument:
        library, ref = self._library, target.ref
        if target.cite is not None:
            width = self._pane.app.size.width
            return _make_given_and_current_text_comparison(library, target.key, target.cite, width)
        if target.view == "history" and ref and ref.kind == "subject":
            return _make_subject_versions_document(library, ref, self._pane.app.size.width)
        if target.key == "prompt":
            return _make_prompt_document(library)
        if ref is None:
            from kbtui.tui.generated_reader_pages import build_home_document

            name, now = library.workspace.name, self.clock()
            notices, note = self.notices, self._home_note
            left_off = self._find_last_read_reference()
            outdated = self._count_outdated_turns_by_subject(contents)
            return build_home_document(
                name, contents, now, notices, self.keymap, note, self.visit, left_off, outdated
            )
        if ref.kind == "topic":
            return _make_topic_document(library, ref.topic or "")
        return _make_subject_document(library, ref, target.view)

    def _find_last_read_reference(self) -> str | None:
        """Return the reference, with turn or line, of the subject or conversation that the user read last."""
        refs = (target.ref for target in self.history.targets[self.history.at :: -1])
        return next((str(ref) for ref in refs if ref and ref.kind != "topic"), None)

    def _count_outdated_turns_by_subject(
        self, contents: TopicsAndConversations | None
    ) -> dict[str, int]:
        """Count, for each changed subject, the turns that were given an older text of the subject.

        The keys of the result are references of subjects. Only subjects that have changed since the
        last visit are included.
        """
        from kbtui.tui.generated_reader_pages import MAX_NEWS

        if contents is None or self.visit is None:
            return {}
        counts: dict[str, int] = {}
        for subject in find_news_since_visit(contents, self.visit).subjects[:MAX_NEWS]:
            with suppress(KbtuiError, OSError):
                cites = self._library.find_citing_turns(subject.ref)
                counts[subject.ref] = len({one.source for one in cites if one.state == "changed"})
        return counts

    def _make_conversation_document(
        self,
        conversation: str,
        contents: TopicsAndConversations | None,
        show_beginning: Callable[[ReaderDocument], None] | None,
        shown: ReaderDocument | None,
    ) -> ReaderDocument:
        from kbtui.tui.reader.conversation_document_builder import build_conversation_document

        library, clock = self._library, self.clock
        seen_at = self.visit.at if self.visit else None
        info = library.find_conversation(conversation)
        titles = contents.map_titles_of_related_conversations(info) if contents else {}

        def make_document_with_marks(found: Conversation) -> ReaderDocument:
            marks = library.map_marks_by_turn(found)
            outdated = library.map_outdated_citations_by_turn(found)
            return build_conversation_document(
                found, clock(), titles=titles, marks=marks, outdated=outdated, seen_at=seen_at
            )

        if info.size < BIG_CONVERSATION_BYTES:
            return make_document_with_marks(library.load_conversation(conversation))
        # Avoid building the same document again: while the engine is building an index, it reports many times
        # that the conversation has changed.
        known = getattr(shown.record, "info", None) if shown and not shown.is_partial else None
        if (
            shown
            and known
            and (known.id, known.signature) == (info.id, info.signature)
            and library.map_marks_by_turn(shown.record) == shown.marks
            and library.map_outdated_citations_by_turn(shown.record) == shown.outdated
        ):
            return shown
        with pause_garbage_collection_then_freeze_objects():
            if show_beginning and (beginning := library.load_conversation_beginning(info)):
                document = build_conversation_document(
                    beginning, clock(), partial=True, titles=titles, seen_at=seen_at
                )
                show_beginning(_lay_out_first_blocks(document))
            return make_document_with_marks(library.load_conversation(conversation))


def _describe_lost_document(ref: str, problem: ReaderDocument) -> str:
    if problem.is_missing:
        return f"{ref} was deleted or renamed."
    return f"{ref} can no longer be read: {problem.problem}."


def _lay_out_first_blocks(document: ReaderDocument) -> ReaderDocument:
    from kbtui.tui.reader.reader_blocks import TextRangeReaderBlock

    for block in document.blocks[:FIRST_BLOCKS]:
        if isinstance(block, TextRangeReaderBlock):
            block.lay_out_with_lead_and_space_above(80)
    return document


def _make_prompt_document(library: Library) -> ReaderDocument:
    from kbtui.tui.generated_reader_pages import build_error_document
    from kbtui.tui.reader.subject_document_builder import (
        NO_KNOWLEDGE_SECTION,
        build_assistant_text_document,
    )

    text = library.load_knowledge().format_knowledge_section()
    if text is not None:
        return build_assistant_text_document(
            "prompt", "The <knowledge> prompt", text, view="prompt"
        )
    return build_error_document("prompt", "<knowledge>", NO_KNOWLEDGE_SECTION)


def _make_topic_document(library: Library, name: str) -> ReaderDocument:
    from kbtui.tui.generated_reader_pages import build_topic_document

    knowledge = library.load_knowledge()
    topic = knowledge.topics.get(name)
    if topic is None:
        raise NothingFound(f"there is no topic {name!r}")
    problems = [problem for problem in knowledge.problems if problem.topic == name]
    listing = TopicWithSubjects(topic, knowledge.list_subjects(name), problems)
    return build_topic_document(listing, knowledge.learn(name).text)


def _make_given_and_current_text_comparison(
    library: Library, key: str, cite: CitationKey, width: int
) -> ReaderDocument:
    """Return the document that compares a subject's current text with the text that a turn was given."""
    from kbtui.citations.citation_formatting_and_markdown_export import format_difference_remark
    from kbtui.tui.reader.difference_and_history_document_builder import build_difference_document
    from kbtui.tui.reader.reader_blocks import LeftAndRightLineBlock, make_blocks_of_users_marks

    texts = library.read_given_and_current_text(library.find_citation_by_key(cite))
    found = texts.cite
    when = f", {found.timestamp.astimezone():%Y-%m-%d}" if found.timestamp else ""
    names = f"given to turn {found.turn}{when}", _make_name_of_current_subject_text(texts)
    turn: Spans = [(sanitize_to_one_line(found.source_title), ""), (f"  {found.source}", "link")]
    marks = library.find_all_marks_in_conversations_of_turns([found.source]).get_marks_of_turn(
        found.source
    )
    head = [
        LeftAndRightLineBlock("turn", turn, link=found.source),
        *make_blocks_of_users_marks(marks, "  "),
    ]
    title = f"{cite.target}: given text and current text"
    remark = format_difference_remark(
        found, texts.given, texts.now, renamed_to=texts.renamed_to, is_disabled=texts.is_disabled
    )
    document = build_difference_document(
        key, title, texts.given, texts.now, names, remark, head=head, screen_width=width
    )
    document.ref = str(texts.renamed_to or cite.target) if texts.now is not None else None
    topic, _, slug = (document.ref or cite.target).partition("/")
    document.record = library.load_knowledge().find_subject(topic, slug)
    return document


def _make_name_of_current_subject_text(texts: GivenAndCurrentSubjectText) -> str:
    if texts.now is None:
        return "disabled" if texts.is_disabled else "no longer exists"
    return f"current text of {texts.renamed_to}" if texts.renamed_to else "current text"


def _make_file_changes_document(
    library: Library, conversation_id: str, view: str
) -> ReaderDocument:
    """Return the document that shows the file changes made in a conversation."""
    from kbtui.library.file_turn_history import map_turns_to_actions_and_commands
    from kbtui.references import make_conversation_ref
    from kbtui.tui.reader.difference_and_history_document_builder import build_file_changes_document

    conversation = library.load_conversation(conversation_id)
    changes = [
        (str(make_conversation_ref(conversation_id, turn, one.call)), turn, one)
        for turn, activity in map_turns_to_actions_and_commands(
            library.workspace, conversation
        ).items()
        for one in activity.files
        if one.kind != "read"
    ]
    info = conversation.info
    marks = library.map_marks_by_turn(conversation)
    title = f"Changes of {info.name}"
    problems = dict.fromkeys([*conversation.problems, *([info.problem] if info.problem else [])])
    document = build_file_changes_document(
        info.ref,
        title,
        changes,
        marks,
        is_by_file=view == CHANGES_VIEWS[1],
        problems=list(problems),
    )
    document.record = conversation
    return document


def _make_subject_versions_document(library: Library, ref: Ref, width: int) -> ReaderDocument:
    """Return the document that lists the versions of a subject."""
    from kbtui.tui.reader.difference_and_history_document_builder import build_history_document
    from kbtui.tui.reader.subject_document_builder import SUBJECT_VIEWS, make_subject_badges

    subject = library.find_subject(ref)
    history = library.read_subject_history(ref)
    marks = library.find_all_marks_in_conversations_of_turns(
        turn for one in history.versions for turn in one.given_to
    )
    document = build_history_document(
        subject.ref, history.versions, marks, history.problem, screen_width=width
    )
    document.views, document.record = (*SUBJECT_VIEWS, "history"), subject
    document.badges = [*document.badges, *make_subject_badges(subject)]
    return document


def _make_subject_document(library: Library, ref: Ref, view: str) -> ReaderDocument:
    from kbtui.tui.reader.subject_document_builder import (
        SUBJECT_VIEWS,
        build_assistant_text_document,
        build_subject_document,
        make_subject_badges,
    )

    knowledge = library.load_knowledge()
    subject = knowledge.find_subject(ref.topic or "", ref.slug or "")
    name = f"{ref.topic}/{ref.slug}"
    if subject is None:
        raise NothingFound(f"there is no subject {name!r}", hint="it may have been renamed")
    if view != "learn":
        return build_subject_document(subject, library.read_subject_text(subject), view)
    text = knowledge.learn(subject.topic, [subject.slug]).text
    document = build_assistant_text_document(name, name, text, ref=name)
    document.views, document.record = SUBJECT_VIEWS, subject
    document.badges = make_subject_badges(subject)
    return document


class MainScreenContext(NamedTuple):
    """The objects that the controllers of the main screen share."""

    screen: StyledScreen
    library: Library
    panes: PaneLayout
    status: StatusBar
    document_controller: DocumentController
    open_target_in_reader: Callable[[NavigationTarget], None]
    """A function that shows a target and focuses the reader."""
    open_hit_in_other_workspace: Callable[[Hit], None]
    """A function that visits the workspace of a hit, and shows the hit there."""

    def show_why_key_does_nothing(self, text: str, role: str = "warning") -> None:
        """Show why a key does nothing here. The next key removes the message."""
        self.status.show_unavailable_key_message(text, role)

    def open_dialog(
        self, dialog: StyledScreen, on_closed: Callable[[Any], None] | None = None
    ) -> None:
        """Open a dialog. When it closes, pass its result to `on_closed`."""
        self.screen.app.push_screen(dialog, on_closed)

    def show_error(self, error: Exception) -> None:
        """Show an error in the status line."""
        text = format_error_on_one_line(error, self.library.workspace.root)
        self.status.flash_message(text, "error")

    def is_hit_of_other_workspace(self, hit: Hit) -> bool:
        """Return whether a hit is in a workspace other than the one shown."""
        return hit.workspace not in (None, str(self.library.workspace.root))
