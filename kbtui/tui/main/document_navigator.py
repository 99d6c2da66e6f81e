"""Reads documents in threads, shows them in the reader, and goes back and forward through them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kbtui.errors import KbtuiError, NothingFound, describe_error
from kbtui.text import one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.garbage_collection import pause_garbage_collection
from kbtui.tui.home_and_help_pages import (
    build_home_document,
    build_problem_document,
    build_topic_document,
)
from kbtui.tui.library_snapshot import TopicWithSubjects
from kbtui.tui.navigation_target import HOME, make_navigation_target
from kbtui.tui.reader.document_blocks import TextBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.framework.styled_widget import StyledScreen
    from kbtui.tui.library_snapshot import LibrarySnapshot
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.navigation_target import NavigationTarget, ScrollAnchor
    from kbtui.tui.reader.document import Document
    from kbtui.tui.reader.reader_pane import ReaderPane

BIG_CONVERSATION_BYTES = 2 << 20
"""Conversations from this size on show their beginning before the rest is read."""
WARM_BLOCKS = 20
"""Blocks laid out in the thread, so that drawing them imports no further module."""

_CERTAIN_REFERENCE = re.compile(r"jp-c\d+(?:-[0-9a-z]+)?(?::\d+(?:\.\d+)?)?|jp://\S+|chunk:\S+")
_TURN_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_POSSIBLE_REFERENCE = re.compile(r"[^\s/]+/\S+")


class NavigationHistory:
    """Back and forward history, like a browser's; `at` is the index of the current target."""

    def __init__(self, targets: list[NavigationTarget] | None = None, at: int = -1) -> None:
        self.targets = targets or []
        self.at = at

    @property
    def current_target(self) -> NavigationTarget | None:
        """The target being read, None if nothing was opened yet."""
        return self.targets[self.at] if self.targets else None

    def save_reading_position(self, mark: ScrollAnchor | None) -> None:
        """Store where the user is reading in the current target."""
        if self.targets:
            self.targets[self.at] = self.targets[self.at]._replace(mark=mark)

    def add_target(self, target: NavigationTarget) -> None:
        """Make `target` the current one, and drop the targets after the previous one."""
        del self.targets[self.at + 1 :]
        self.targets.append(target)
        self.at = len(self.targets) - 1

    def move_in_history(self, by: int) -> NavigationTarget | None:
        """Go `by` targets forward, or back if negative; return None at the end."""
        if not 0 <= self.at + by < len(self.targets):
            return None
        self.at += by
        return self.targets[self.at]


class DocumentNavigator:
    """Decides what the reader shows.

    `on_opened(document, target, is_reload)` is called with everything that is shown;
    `is_reload` means that only its files changed.
    """

    def __init__(
        self,
        library: Library,
        clock: Clock,
        pane: ReaderPane,
        status: StatusBar,
        on_opened: Callable[[Document, NavigationTarget, bool], None],
    ) -> None:
        self._library = library
        self._clock = clock
        self._pane = pane
        self._status = status
        self._on_opened = on_opened
        self._open_worker = LatestOnlyWorker(pane, drop=self._free_unwanted_document)
        self._reload_worker = LatestOnlyWorker(pane, drop=self._free_unwanted_document)
        self._reloading: NavigationTarget | None = None
        self._must_reload_again = False
        self.history = NavigationHistory()
        self.contents: LibrarySnapshot | None = None
        self.notices: list[str] = []
        """Problems with the settings, for the home page."""
        self.keymap: Mapping[str, str] = {}
        """Keys that the user chose, for the home page."""
        self._restoring: NavigationTarget | None = None
        """What was open last time, while it is opened again."""
        self._home_note = ""
        """A remark on the home page, until something else is shown."""
        self.is_opening = False
        """Whether a target is being opened of which nothing is shown yet."""
        self.shown: NavigationTarget | None = None
        """What the reader shows; differs from `history.current_target` while a hit is previewed."""

    def open_target(self, target: NavigationTarget, *, preview: bool = False) -> None:
        """Show a target; a preview is not added to the history."""
        if not preview:
            self.save_reading_position()
            current = self.history.current_target
            if not (current and current.is_same_document(target) and target.ref is None):
                self.history.add_target(target)
        self.show_target(target)
        self.is_opening = self.is_opening and not preview

    def save_reading_position(self) -> None:
        """Store where the user is reading, unless the reader shows a preview."""
        current = self.history.current_target
        if current is not None and current.is_same_document(self.shown):
            self.history.save_reading_position(self._pane.document_view.viewport.make_anchor())

    def go_through_history(self, by: int) -> bool:
        """Go back (negative) or forward in the history; return False at its end."""
        self.save_reading_position()
        target = self.history.move_in_history(by)
        if target is None:
            return False
        self.show_target(target)
        return True

    def show_document_before_preview(self) -> None:
        """Show again what was being read before a preview."""
        current = self.history.current_target
        if current and current != self.shown and not current.is_same_document(self.shown):
            self.show_target(current)

    def restore_target(self, target: NavigationTarget) -> None:
        """Show the current target of a restored history; the home page if it no longer exists."""
        self._restoring = target
        self.show_target(target)

    def _show_home_instead(self, target: NavigationTarget) -> None:
        """Show the home page in place of the current target, which no longer exists."""
        self.history.targets[self.history.at] = HOME
        self._status.set_activity("open", None)
        gone = target.ref._replace(lines=None, turn=None, call=None) if target.ref else target.key
        self._home_note = f"{gone} no longer exists; it was open last time."
        self.show_target(HOME)

    def show_target(self, target: NavigationTarget) -> None:
        """Show a target without adding it to the history."""
        self._open_worker.discard_results()
        self.is_opening = False
        if target.key.startswith("problem:"):
            self._show_document(
                target, build_problem_document(target.key, "A problem", target.text)
            )
            return
        if (
            target.is_same_document(self.shown)
            and target.ref is not None
            and target.mark is None
            and not self._pane.document_view.document.is_partial
        ):
            self.shown = target
            self._pane.go_to_place(target)
            self._on_opened(self._pane.document_view.document, target, False)
            return
        self._status.set_activity("open", f"opening {target.key} …")
        contents = self.contents
        self.is_opening = True
        self._open_worker.submit_with_progress(
            lambda tell: self._load_document(target, contents, tell),
            lambda document: self._show_document_beginning(target, document),
            lambda document: self._show_opened_document(contents, target, document),
            self._report_open_failure,
        )

    def _show_document_beginning(self, target: NavigationTarget, document: Document) -> None:
        """Show the beginning of a big document if the target is in it."""
        from kbtui.tui.reader.document import has_start_block

        if has_start_block(document, target):
            self._show_document(target, document)
        self._status.set_activity("open", f"reading the rest of {target.key} …")

    def _show_opened_document(
        self, contents: LibrarySnapshot | None, target: NavigationTarget, document: Document
    ) -> None:
        restoring, self._restoring = self._restoring, None
        if document.is_missing and target == restoring == self.history.current_target:
            self._show_home_instead(target)
            return
        if self._pane.document_view.document.is_partial and target == self.shown:
            self._status.set_activity("open", None)
            self._replace_document(target, document)
            return
        self._show_document(target, document)
        # The home page may have been made before the lists were read.
        if target.key == "home" and contents is not self.contents:
            self.reload_shown_document()

    def _show_document(self, target: NavigationTarget, document: Document) -> None:
        self._status.set_activity("open", None)
        self.is_opening = False
        self.shown = target
        if target.key != "home":
            self._home_note = ""
        self._pane.show_document(document, target)
        self._on_opened(document, target, False)

    def _report_open_failure(self, error: Exception) -> None:
        self._status.set_activity("open", None)
        self.is_opening = False
        reason = describe_error(error, self._library.workspace.root)
        self._status.flash_message(f"cannot open: {reason}", "error")

    def reload_shown_document(self) -> None:
        """Read what is shown again from its files, and stay at the line being read."""
        target = self.shown or HOME
        if target.key.startswith("problem:"):
            return
        if self._reload_worker.has_pending_result and target.is_same_document(self._reloading):
            # Finish the reload under way: restarting it with every write might never end.
            self._must_reload_again = True
            return
        self._reloading, self._must_reload_again = target, False
        contents, shown = self.contents, self._pane.document_view.document

        def replace_reloaded_document(document: Document) -> None:
            if document is not shown:
                self._replace_document(target, document)
            if self._must_reload_again:
                self.reload_shown_document()

        self._reload_worker.submit(
            lambda: self._load_document(target, contents, None, shown),
            replace_reloaded_document,
            self._report_open_failure,
        )

    def _replace_document(self, target: NavigationTarget, document: Document) -> None:
        if target.is_same_document(self.shown):
            self._pane.reload_document(document)
            self._on_opened(document, target, True)
        else:
            self._free_unwanted_document(document)

    def _free_unwanted_document(self, result: Document | Exception) -> None:
        """Free a document that is no longer wanted."""
        if not isinstance(result, Exception):
            self._pane.release_document(result)

    # loading documents, in threads

    def _load_document(
        self,
        target: NavigationTarget,
        contents: LibrarySnapshot | None,
        show_beginning: Callable[[Document], None] | None,
        shown: Document | None = None,
    ) -> Document:
        """Read a target and lay out its first blocks; never raises.

        What cannot be read becomes a page that says why. `show_beginning` is called with the
        beginning of a big conversation. `shown` is returned if its files have not changed.
        """
        try:
            made = self._make_document(target, contents, show_beginning, shown)
            return _lay_out_beginning(made)
        except KbtuiError as error:
            document = build_problem_document(
                target.key, target.key, error.message, error.where, error.hint
            )
            document.is_missing = isinstance(error, NothingFound)
            return document
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            return build_problem_document(
                target.key, target.key, f"{type(error).__name__}: {error}"
            )

    def _make_document(
        self,
        target: NavigationTarget,
        contents: LibrarySnapshot | None,
        show_beginning: Callable[[Document], None] | None,
        shown: Document | None,
    ) -> Document:
        library, ref = self._library, target.ref
        if target.key == "home":
            name, now = library.workspace.name, self._clock()
            notices, note = self.notices, self._home_note
            return build_home_document(name, contents, now, notices, self.keymap, note)
        if target.key == "prompt":
            return _make_prompt_document(library)
        if ref is None:
            raise NothingFound(f"unknown page {target.key!r}")
        if ref.kind == "conversation":
            return self._make_conversation_document(ref.conversation or "", show_beginning, shown)
        if ref.kind == "topic":
            return _make_topic_document(library, ref.topic or "")
        return _make_subject_document(library, ref, target.view)

    def _make_conversation_document(
        self,
        conversation: str,
        show_beginning: Callable[[Document], None] | None,
        shown: Document | None,
    ) -> Document:
        from kbtui.tui.reader.conversation_document import build_conversation_document

        library, clock = self._library, self._clock
        info = library.find_conversation(conversation)
        if info.size < BIG_CONVERSATION_BYTES:
            return build_conversation_document(library.load_conversation(conversation), clock())
        if shown is not None and not shown.is_partial and shown.record is not None:
            # While an index is being built, the engine reports it as changed again and again.
            known = getattr(shown.record, "info", None)
            if known is not None and (known.id, known.signature) == (info.id, info.signature):
                return shown
        with pause_garbage_collection():
            beginning = library.load_conversation_beginning(info) if show_beginning else None
            if show_beginning and beginning is not None:
                document = build_conversation_document(beginning, clock(), partial=True)
                show_beginning(_lay_out_beginning(document))
            return build_conversation_document(library.load_conversation(conversation), clock())


def _lay_out_beginning(document: Document) -> Document:
    for block in document.blocks[:WARM_BLOCKS]:
        if isinstance(block, TextBlock):
            block.make_lines(80)
    return document


def _make_prompt_document(library: Library) -> Document:
    from kbtui.tui.reader.subject_document import build_text_document

    text = library.load_knowledge().format_prompt_section()
    if text is None:
        reason = "There is no <knowledge> section: no topic has anything to list or pre-load."
        return build_problem_document("prompt", "<knowledge>", reason)
    return build_text_document("prompt", "The <knowledge> prompt", text, view="prompt")


def _make_topic_document(library: Library, name: str) -> Document:
    knowledge = library.load_knowledge()
    topic = knowledge.topics.get(name)
    if topic is None:
        raise NothingFound(f"there is no topic {name!r}")
    problems = [problem for problem in knowledge.problems if problem.topic == name]
    listing = TopicWithSubjects(topic, knowledge.list_subjects(name), problems)
    return build_topic_document(listing, knowledge.learn(name).text)


def _make_subject_document(library: Library, ref: Ref, view: str) -> Document:
    from kbtui.tui.reader.subject_document import (
        VIEWS,
        build_subject_document,
        build_text_document,
        make_subject_badges,
    )

    knowledge = library.load_knowledge()
    subject = knowledge.find(ref.topic or "", ref.slug or "")
    name = f"{ref.topic}/{ref.slug}"
    if subject is None:
        raise NothingFound(f"there is no subject {name!r}", hint="it may have been renamed")
    if view != "learn":
        return build_subject_document(subject, library.read_subject_text(subject), view)
    text = knowledge.learn(subject.topic, [subject.slug]).text
    document = build_text_document(name, name, text, ref=name)
    document.views, document.record = VIEWS, subject
    document.badges = make_subject_badges(subject)
    return document


class TypedReferenceOpener:
    """Opens what a typed reference names, after looking it up in a thread."""

    def __init__(
        self, library: Library, pane: ReaderPane, open_target: Callable[[NavigationTarget], None]
    ) -> None:
        self._library = library
        self._pane = pane
        self._open_target = open_target
        self._worker = LatestOnlyWorker(pane)

    @property
    def is_looking_up(self) -> bool:
        """Whether a reference is still being looked up."""
        return self._worker.has_pending_result

    def open_typed_reference(self, text: str, on_error: Callable[[str], None]) -> None:
        """Go to a turn or line of what is being read by its number, or to any reference."""
        if self._pane.go_to_number(text):
            return
        document = self._pane.viewport.document
        if document.is_partial and _TURN_NUMBER.fullmatch(text.strip()):
            # Opening its reference waits until the turn has been read.
            text = f"{document.ref}:{text.strip()}"

        def report_error(error: Exception) -> None:
            on_error(one_line(describe_error(error, self._library.workspace.root)))

        self._worker.submit(lambda: self._find_target(text), self._open_target, report_error)

    def open_reference(self, text: str, otherwise: Callable[[], None]) -> bool:
        """Open `text` if the whole of it is a reference; return False if it cannot be one.

        Text that only looks like a subject's reference is looked up first; `otherwise` is called
        if there is no such subject.
        """
        text = text.strip()
        if not _CERTAIN_REFERENCE.fullmatch(text) and not _POSSIBLE_REFERENCE.fullmatch(text):
            return False
        self._worker.submit(
            lambda: self._find_target(text), self._open_target, lambda error: otherwise()
        )
        return True

    def _find_target(self, text: str) -> NavigationTarget:
        """Return the target of a reference; raises `KbtuiError` if it does not exist."""
        return make_navigation_target(self._library.find_reference(text))


class MainScreenContext(NamedTuple):
    """What all controllers of the main screen use."""

    screen: StyledScreen
    library: Library
    panes: PaneLayout
    status: StatusBar
    navigator: DocumentNavigator
    references: TypedReferenceOpener
    open_target: Callable[[NavigationTarget], None]
    """Shows a target and focuses the reader."""
