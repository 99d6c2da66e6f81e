"""Navigation targets: a document that the reader can open, and a position in the document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from textual.message import Message

from kbtui.light_named_tuple import NamedTuple
from kbtui.references import Ref, is_other_agents_conversation_ref, make_subject_ref

if TYPE_CHECKING:
    from kbtui.citations.tool_call_citations import CitationKey
    from kbtui.search.search_request_and_answer import Hit

_REFERENCE = r"jp-c\d+(-[0-9a-z]+)?(:\d+(\.\d+)?)?|jp://\S+|chunk:\S+|[^\s/]+/\S+"


class EnteredReferenceText(NamedTuple):
    """A reference as the user typed it; its target may not exist."""

    text: str


def looks_like_reference(text: str) -> bool:
    """Return whether the whole `text` looks like a reference. A topic id alone does not count as one."""
    return bool(re.fullmatch(_REFERENCE, text)) or is_other_agents_conversation_ref(text)


class ReadingPosition(NamedTuple):
    """A position in a document that stays valid after a resize or a reload.

    * `key` and `block` are the key and the index of a block.
    * `line` is the index of a line in this block.
    * `letters` is the number of letters and digits in the block before this line. Unlike `line`, it
      stays the same after a resize.
    * `top` is the position of the first visible line, or None if it is unknown.
    * `folds` lists the folds that the user has opened or closed, if they are known.
    """

    key: str
    block: int
    line: int
    letters: int
    top: ReadingPosition | None = None
    folds: frozenset[str] = frozenset()


class NavigationTarget(NamedTuple):
    """A place to open in the reader: a document and a position in it.

    * `key` identifies the document: `home`, `prompt`, `topic:ID`, `topic/slug`, the id of a
      conversation, `difference:…` for the changes since a citation, `passage:…` for a hit in
      another workspace, or `no hits` for a search without hits.
    * `view` is the view of the document, such as `read`.
    * `ref` is the document's reference, which may include lines, a turn or a call.
    * `text` is the text of a passage to go to.
    * `words` are the words to highlight.
    * `mark` is the position at which the user stopped reading.
    * `cite` identifies the citation, if `key` is `difference:…`.
    """

    key: str
    view: str = "read"
    ref: Ref | None = None
    words: tuple[str, ...] = ()
    text: str = ""
    mark: ReadingPosition | None = None
    cite: CitationKey | None = None

    def shows_same_document(self, other: NavigationTarget | None) -> bool:
        """Return whether both targets show the same view of the same document."""
        return other is not None and (self.key, self.view) == (other.key, other.view)


class OpenTargetRequested(Message):
    """The user wants to open the place `target` in the reader."""

    def __init__(self, target: NavigationTarget) -> None:
        super().__init__()
        self.target = target


HOME = NavigationTarget("home")
PROMPT = NavigationTarget("prompt", "prompt")


def make_navigation_target(ref: Ref) -> NavigationTarget:
    """Return the place in the reader to which a reference refers.

    References to chunks are not allowed.
    """
    if ref.kind == "topic":
        return NavigationTarget(f"topic:{ref.topic}", ref=ref)
    if ref.kind == "subject":
        return NavigationTarget(str(ref._replace(lines=None)), ref=ref)
    return NavigationTarget(ref.conversation or "", ref=ref)


def make_difference_target(key: CitationKey) -> NavigationTarget:
    """Return the target of the page that shows how a subject has changed since it was cited."""
    topic, _, slug = key.target.partition("/")
    name = " ".join(str(part) for part in key if part is not None)
    ref = make_subject_ref(topic, slug) if slug else None
    return NavigationTarget(f"difference:{name}", "difference", ref, cite=key)


def make_hit_target(hit: Hit) -> NavigationTarget:
    """Return the place in the reader that shows a hit and highlights its matches."""
    target = make_navigation_target(hit.target)
    return target._replace(words=list_matched_words_of_hit(hit), text=hit.text)


def list_matched_words_of_hit(hit: Hit) -> tuple[str, ...]:
    """Return the distinct words of a hit that match the query."""
    return tuple(dict.fromkeys(hit.text[start:end] for start, end in hit.matches))
