"""Opens places in the reader, and goes back and forward through them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, NothingFound
from kbtui.text import one_line
from kbtui.tui.framework.gc_tuning import pause_gc
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.library_snapshot import TopicListing
from kbtui.tui.navigation_target import HOME, NavigationHistory, place_of
from kbtui.tui.pages import home_document, problem_document, topic_document
from kbtui.tui.reader.blocks import TextBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.library_snapshot import LibrarySnapshot
    from kbtui.tui.main.status_bar import StatusBar
    from kbtui.tui.navigation_target import NavigationTarget
    from kbtui.tui.reader.document import Document
    from kbtui.tui.reader.reader_pane import ReaderPane

    Home = tuple[LibrarySnapshot | None, Sequence[str], Mapping[str, str]]
    """What the home page is about: what there is, what is wrong with settings, own keys."""


_CERTAIN = re.compile(r"jp-c\d+(?:-[0-9a-z]+)?(?::\d+(?:\.\d+)?)?|jp://\S+|chunk:\S+")
_POSSIBLE = re.compile(r"[^\s/]+/\S+")


class Navigator:
    """Decides what the reader shows; documents are made in a thread."""

    def __init__(
        self,
        library: Library,
        clock: Clock,
        pane: ReaderPane,
        status: StatusBar,
        opened: Callable[[Document, NavigationTarget, bool], None],
    ) -> None:
        self._library = library
        self._clock = clock
        self._pane = pane
        self._status = status
        self._opened = opened
        """Called with each place that is shown, and whether only its files changed."""
        self._lane = LatestOnlyWorker(pane, drop=self._drop)
        self._reload_lane = LatestOnlyWorker(pane, drop=self._drop)
        self._reloading: NavigationTarget | None = None
        self._reload_again = False
        self.trail = NavigationHistory()
        self.contents: LibrarySnapshot | None = None
        self.notices: list[str] = []
        """What is wrong with settings, for the home page."""
        self.keymap: Mapping[str, str] = {}
        """The person's own keys, for the home page."""
        self.is_opening = False
        """Whether something is made ready that one wants to read, and nothing of it is shown yet."""
        self.shown: NavigationTarget | None = None
        """What the reader shows; not `trail.here` while a search hit is only looked at."""

    def open(self, place: NavigationTarget, *, preview: bool = False) -> None:
        """Show a place; a preview leaves no trace in the history."""
        if not preview:
            self.leave()
            if not (self.trail.here and self.trail.here.same_document(place) and place.ref is None):
                self.trail.go(place)
        self._show(place)
        self.is_opening = self.is_opening and not preview

    def leave(self) -> None:
        """Remember where one was reading, unless what is shown is only a preview."""
        here = self.trail.here
        if here is not None and here.same_document(self.shown):
            self.trail.leave(self._pane.reader.port.mark())

    def resume(self, place: NavigationTarget) -> None:
        """Show where one was, without another step on the way."""
        self._show(place)

    def step(self, by: int) -> bool:
        """Go back or forward; False at the end."""
        self.leave()
        place = self.trail.step(by)
        if place is None:
            return False
        self._show(place)
        return True

    def end_preview(self) -> None:
        """Show what was being read before a preview."""
        here = self.trail.here
        if here is not None and here != self.shown and not here.same_document(self.shown):
            self._show(here)

    def _show(self, place: NavigationTarget) -> None:
        self._lane.forget()
        self.is_opening = False
        if place.key.startswith("problem:"):
            from kbtui.tui.pages import problem_document

            self._made(place, problem_document(place.key, "A problem", place.text))
            return
        if (
            place.same_document(self.shown)
            and place.ref is not None
            and place.mark is None
            and not self._pane.reader.document.partial
        ):
            self.shown = place
            self._pane.go(place)
            self._opened(self._pane.reader.document, place, False)
            return
        self._status.doing("open", f"opening {place.key} …")
        contents = self.contents
        self.is_opening = True
        self._lane.submit_in_parts(
            lambda tell: self._make(place, contents, tell),
            lambda document: self._begun(place, document),
            lambda document: self._made_of(contents, place, document),
            self._failed,
        )

    def _make(
        self,
        place: NavigationTarget,
        contents: LibrarySnapshot | None,
        tell: Callable[[Document], None] | None,
        held: Document | None = None,
    ) -> Document:
        """Called in a thread."""

        home = (contents, self.notices, self.keymap)
        return make_document(self._library, place, self._clock, home, tell, held)

    def _begun(self, place: NavigationTarget, document: Document) -> None:
        """The beginning of something big is there: shown, when one is to begin to read in it."""
        from kbtui.tui.reader.document import has_start

        if has_start(document, place):
            self._made(place, document)
        self._status.doing("open", f"reading the rest of {place.key} …")

    def _made_of(
        self, contents: LibrarySnapshot | None, place: NavigationTarget, document: Document
    ) -> None:
        if self._pane.reader.document.partial and place == self.shown:
            self._status.doing("open", None)
            self._remade(place, document)
            return
        self._made(place, document)
        # The home page may have been made before the lists were read.
        if place.key == "home" and contents is not self.contents:
            self.reload()

    def _made(self, place: NavigationTarget, document: Document) -> None:
        self._status.doing("open", None)
        self.is_opening = False
        self.shown = place
        self._pane.show(document, place)
        self._opened(document, place, False)

    def _failed(self, error: Exception) -> None:
        self._status.doing("open", None)
        self.is_opening = False
        from kbtui.errors import describe_error

        words = describe_error(error, self._library.workspace.root)
        self._status.flash(f"cannot be opened: {words}", "error")

    def reload(self) -> None:
        """Make what is shown again from the files, where one is reading."""
        place = self.shown or HOME
        if place.key.startswith("problem:"):
            return
        if self._reload_lane.owes and place.same_document(self._reloading):
            # What is being made is shown first: where much is written it would never be.
            self._reload_again = True
            return
        self._reloading, self._reload_again = place, False
        contents, held = self.contents, self._pane.reader.document

        def made(document: Document) -> None:
            if document is not held:
                self._remade(place, document)
            if self._reload_again:
                self.reload()

        self._reload_lane.submit(
            lambda: self._make(place, contents, None, held), made, self._failed
        )

    def _remade(self, place: NavigationTarget, document: Document) -> None:
        if place.same_document(self.shown):
            self._pane.reload(document)
            self._opened(document, place, True)
        else:
            self._drop(document)

    def _drop(self, made: Document | Exception) -> None:
        """What was made is not wanted any more."""
        if not isinstance(made, Exception):
            self._pane.let_go(made)


class ReferenceNavigator:
    """Opens what a reference names; it is looked up in a thread."""

    def __init__(
        self, library: Library, pane: ReaderPane, open_: Callable[[NavigationTarget], None]
    ) -> None:
        self._library = library
        self._pane = pane
        self._open = open_
        self._lane = LatestOnlyWorker(pane)

    @property
    def is_looking_up(self) -> bool:
        """Whether it is still looked up where a reference leads."""
        return self._lane.owes

    def go(self, text: str, failed: Callable[[str], None]) -> None:
        """Go where `text` says; what is wrong with it goes to `failed`."""
        if self._pane.go_to_turn(text):
            return
        self._lane.submit(
            lambda: self._find(text),
            self._open,
            lambda error: failed(one_line(self._describe(error))),
        )

    def open_reference(self, text: str, otherwise: Callable[[], None]) -> bool:
        """Open a text that is a reference and nothing else; False where it cannot be one.

        One that looks like a subject's is opened where there is such a subject; where there
        is none, `otherwise` is done.
        """
        text = text.strip()
        if not _CERTAIN.fullmatch(text) and not _POSSIBLE.fullmatch(text):
            return False
        self._lane.submit(lambda: self._find(text), self._open, lambda error: otherwise())
        return True

    def _describe(self, error: Exception) -> str:
        from kbtui.errors import describe_error

        return describe_error(error, self._library.workspace.root)

    def _find(self, text: str) -> NavigationTarget:
        """Called in a thread; raises `KbtuiError` for what does not exist."""
        return place_of(self._library.located(text))


BIG = 2 << 20
"""Bytes of a conversation whose beginning is shown before the rest is read."""

WARMED = 20
"""Blocks that are laid out once in the thread."""


def make_document(
    library: Library,
    place: NavigationTarget,
    clock: Clock,
    home: Home = (None, (), {}),
    tell: Callable[[Document], None] | None = None,
    held: Document | None = None,
) -> Document:
    """Read what a place names and make its document; called in a thread, never raises.

    What cannot be read becomes a page that says why. `tell` is given the beginning of
    something big before the rest is read. `held` is what is shown: where it is big and
    its files are as they were, it is given back.
    """
    try:
        if place.ref is not None and place.ref.kind == "conversation":
            return _warm(_conversation(library, place.ref.conversation or "", clock, tell, held))
        return _warm(_make(library, place, clock, home))
    except KbtuiError as error:
        return problem_document(place.key, place.key, error.message, error.where, error.hint)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return problem_document(place.key, place.key, f"{type(error).__name__}: {error}")


def _warm(document: Document) -> Document:
    """Lay out some of it here, so that no module has to be loaded when it is drawn."""
    for block in document.blocks[:WARMED]:
        if isinstance(block, TextBlock):
            block.lines(80)
    return document


def _make(
    library: Library,
    place: NavigationTarget,
    clock: Clock,
    home: Home,
) -> Document:
    if place.key == "home":
        contents, notices, keymap = home
        return home_document(library.workspace.name, contents, clock(), notices, keymap)
    if place.key == "prompt":
        return _prompt(library)
    ref = place.ref
    if ref is None:
        raise NothingFound(f"{place.key!r} cannot be opened")
    if ref.kind == "topic":
        return _topic(library, ref.topic or "")
    return _subject(library, ref, place.view)


def _conversation(
    library: Library,
    conversation: str,
    clock: Clock,
    tell: Callable[[Document], None] | None,
    held: Document | None,
) -> Document:
    from kbtui.tui.reader.conversation_document import build_conversation_document

    info = library.conversation_info(conversation)
    if info.size < BIG:
        return build_conversation_document(library.conversation(conversation), clock())
    if held is not None and not held.partial and held.record is not None:
        # An index that is being made names it again and again.
        shown = getattr(held.record, "info", None)
        if shown is not None and (shown.id, shown.signature) == (info.id, info.signature):
            return held
    with pause_gc():
        beginning = library.conversation_beginning(info) if tell else None
        if tell and beginning is not None:
            tell(_warm(build_conversation_document(beginning, clock(), partial=True)))
        return build_conversation_document(library.conversation(conversation), clock())


def _prompt(library: Library) -> Document:
    from kbtui.tui.reader.subject_document import build_text_document

    text = library.knowledge().prompt()
    if text is None:
        reason = "There is no <knowledge> section: no topic has anything to list or pre-load."
        return problem_document("prompt", "<knowledge>", reason)
    return build_text_document("prompt", "The <knowledge> prompt", text, view="prompt")


def _topic(library: Library, name: str) -> Document:
    knowledge = library.knowledge()
    topic = knowledge.topics.get(name)
    if topic is None:
        raise NothingFound(f"there is no topic {name!r}")
    subjects = knowledge.subjects(name)
    problems = [problem for problem in knowledge.problems if problem.topic == name]
    return topic_document(TopicListing(topic, subjects, problems), knowledge.learn(name).text)


def _subject(library: Library, ref: Ref, view: str) -> Document:
    from kbtui.tui.reader.subject_document import (
        VIEWS,
        build_subject_document,
        build_text_document,
        subject_badges,
    )

    knowledge = library.knowledge()
    subject = knowledge.find(ref.topic or "", ref.slug or "")
    name = f"{ref.topic}/{ref.slug}"
    if subject is None:
        raise NothingFound(f"there is no subject {name!r}", hint="it may have been renamed")
    if view != "learn":
        return build_subject_document(subject, library.subject_text(subject), view)
    text = knowledge.learn(subject.topic, [subject.slug]).text
    document = build_text_document(name, name, text, ref=name)
    document.views, document.record = VIEWS, subject
    document.badges = subject_badges(subject)
    return document
