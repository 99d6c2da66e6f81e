"""`Library`: one workspace with its files, index, engine and citations.

The documented Python API is `topics`, `learn`, `search`, `read`, `cites`, `list_conversations` and
the context manager; front ends use the rest. All calls are synchronous and may come from any
thread. A front end that must not block calls from a thread of its own, inside a `Cancellation` if
it may cancel.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, overload

from kbtui.errors import (
    EngineUnavailable,
    IndexUnavailable,
    KbtuiError,
    UsageError,
)
from kbtui.library.index_access import IndexAccess, current_cancellation
from kbtui.library.references import ReferenceReader
from kbtui.notices import Notice, format_notices, make_keywords_only_notice
from kbtui.search.models import DEFAULT_LIMIT, Question, make_question
from kbtui.workspace import Settings, Workspace, find_workspace, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Self

    from kbtui.citations.models import Citations
    from kbtui.conversations.models import Conversation, ConversationInfo, ConversationSummary
    from kbtui.engine.protocol import EngineClient
    from kbtui.index import IndexReader
    from kbtui.knowledge.models import Topic
    from kbtui.refs import Ref
    from kbtui.search.models import Answer, Mode

T = TypeVar("T")

REPAIR_SECONDS = 60.0
"""How long an answer waits while a damaged index is built again."""
UPDATE_SECONDS = 10.0
"""How long a search waits for a private index to take in what has changed."""
FIRST_INDEX_SECONDS = 60.0
"""How long a search waits for an index that does not exist yet."""


def open_workspace(path: Path | str | None = None, settings: Settings | None = None) -> Library:
    """Open the workspace at or above `path` (default: the current directory).

    Reads settings, nothing else; raises `WorkspaceError` or `ConfigError`.
    """
    from pathlib import Path

    return Library(find_workspace(Path(path) if path else None), settings or load_settings())


class Library(ReferenceReader):
    """One workspace: its topics, conversations, index, engine and citations."""

    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        super().__init__(workspace)
        self.settings = settings
        self._mended: Notice | None = None
        """What was damaged and is mended, until an answer says so."""
        self._access = IndexAccess(workspace, settings, lambda: self.connect_engine())

    def close(self) -> None:
        """Let go of the index and the engine; a call after that opens them again."""
        self._access.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def index_state(self) -> str | None:
        """What is to be said of the index in one phrase, None where it is as usual."""
        return format_notices(self._access.notices)

    @property
    def is_unfinished(self) -> bool:
        """Whether answers lack what a first index, made without an engine, is still to hold."""
        return self._access.unfinished

    def topics(self) -> list[Topic]:
        """The topics that are not switched off, in the order of their declaration."""
        return [topic for topic in self.load_knowledge().topics.values() if topic.enable]

    def list_conversations(self, archived: bool | None = None) -> list[ConversationInfo]:
        """The conversations, live and archived (None), or one of the two; newest first."""
        from kbtui.conversations.repository import list_conversations

        return list_conversations(self.workspace, archived)

    def list_conversations_quickly(
        self, known: Mapping[str, ConversationInfo] | None = None
    ) -> list[ConversationInfo]:
        """All conversations without reading their events whole: `events_count` is not known, nor
        damage before the last event. Newest first by what is known. Of `known`, entries by id of
        an earlier call, only those are read again of which a file has changed.
        """
        from kbtui.conversations.repository import add_last_event, list_conversations

        infos = list_conversations(self.workspace, counts=False, known=known)
        return [add_last_event(info) for info in infos]

    def summarize_conversation(self, info: ConversationInfo) -> ConversationSummary:
        """The tools and models that a conversation used, and its turns: its file is parsed."""
        from kbtui.conversations.repository import get_format

        return get_format(info).summarize(info)

    def find_conversation(self, conversation: str) -> ConversationInfo:
        """A conversation's entry, without looking at its events; raises `NothingFound`."""
        from kbtui.conversations.repository import find_conversation

        return find_conversation(self.workspace, conversation)

    def load_conversation_beginning(self, info: ConversationInfo) -> Conversation | None:
        """The first turns of a big conversation, None where it takes the whole to know them."""
        from kbtui.conversations.repository import get_format

        return get_format(info).load_beginning(info)

    # the index

    def update_index(self, wait: float = 10.0, *, meaning: bool = False) -> None:
        """See to it that the index was compared with the files; returns at once where an engine
        that watches has done so. Without an engine, a private index is compared here, and the one
        that was left stays as it is. `meaning` says that the semantic leg will be asked.
        """
        from kbtui.engine.search_service import describe_lag

        try:
            state = self._request(
                "refresh", force=False, meaning=meaning, wait=wait, timeout=wait + 5.0
            )
        except EngineUnavailable as error:
            self._access.behind = Notice(
                "index_behind", {"cause": "engine", "detail": error.message}
            )
            self._access.follow(wait)
        else:
            self._access.behind = describe_lag(state)

    def retry_embedding(self, wait: float = 30.0) -> None:
        """Read and embed again what could not be; embedding goes on behind. Raises `EngineUnavailable`."""
        self._request("refresh", retry=True, wait=wait, timeout=wait + 5.0)

    def search_keywords(self, question: Question) -> Answer:
        """Keyword hits at once, from what is indexed; never waits for engine or model."""
        return self._answer_here(question)

    def _read(self, ask: Callable[[IndexReader], T]) -> T:
        """What `ask` finds in the index; one that proves damaged is built again first, once."""
        from kbtui.index.generations import find_damage_behind

        reader = self.open_reader()
        try:
            return ask(reader)
        except BaseException as error:
            found = find_damage_behind(error, reader.folder)
            if found is None:
                raise
            try:
                self._mend(found)
            except IndexUnavailable as unavailable:
                raise unavailable from error
        return ask(self.open_reader())

    def _mend(self, found: str) -> None:
        """Have a damaged index built again; raises `IndexUnavailable` where nobody can."""
        reason = "it is this command's own"
        if not self._access.is_private:
            try:
                self._request(
                    "refresh", check=True, wait=REPAIR_SECONDS, timeout=REPAIR_SECONDS + 5.0
                )
                self._mended = Notice("index_mended", {"detail": found})
                return
            except EngineUnavailable as unavailable:
                reason = str(unavailable)
        raise IndexUnavailable(found, hint=f"it cannot be built again now: {reason}")

    def _has_mended(self) -> bool:
        """Whether the engine, told to look for damage, found some and built the index again."""
        try:
            state = self._request(
                "refresh", check="suspicion", wait=REPAIR_SECONDS, timeout=REPAIR_SECONDS + 5.0
            )
        except EngineUnavailable:
            return False
        if state.get("mended"):
            self._mended = Notice("index_mended", {"detail": state["mended"]})
        return bool(state.get("mended"))

    @overload
    def search(
        self,
        query: str,
        wait: float = ...,
        *,
        mode: Mode = ...,
        types: Sequence[str] = ...,
        topics: Sequence[str] = ...,
        limit: int = ...,
        origin: str | None = ...,
        caller: str | None = ...,
    ) -> Answer: ...

    @overload
    def search(
        self,
        query: Question,
        wait: float = ...,
        *,
        origin: str | None = ...,
        caller: str | None = ...,
    ) -> Answer: ...

    def search(
        self,
        query: str | Question,
        wait: float = 10.0,
        *,
        mode: Mode = "hybrid",
        types: Sequence[str] = (),
        topics: Sequence[str] = (),
        limit: int = DEFAULT_LIMIT,
        origin: str | None = "sdk",
        caller: str | None = None,
    ) -> Answer:
        """The whole answer; waits up to `wait` seconds for the semantic leg.

        `types` (entry types, source kinds, `conversation`) and `topics` narrow before ranking,
        `limit` is clamped to 1 to 100; a `Question` has all of them itself, and more. `origin`
        and `caller` are for the query log; origin None logs nothing.

        Raises `IndexUnavailable` when there is nothing to ask, and, where the query is words,
        `UsageError` for a mistake in them; the answer to a `Question` has its `mistakes`.
        """
        question = (
            query
            if not isinstance(query, str)
            else make_question(query, mode=mode, types=types, topics=topics, limit=limit)
        )
        answered = self._answer(question, wait, origin, caller)
        if isinstance(query, str) and answered.mistakes:
            raise UsageError("; ".join(map(str, answered.mistakes)))
        return answered

    def find_similar(
        self, ref: Ref, question: Question | None = None, wait: float = 10.0
    ) -> Answer:
        """More like a subject, a conversation or a turn; `question` narrows and limits.

        Raises `NothingFound` for what is not indexed.
        """
        question = question or Question(per_entry=1)
        return self.search(replace(question, like=str(ref)), wait, origin=None)

    def _answer(
        self, question: Question, wait: float, origin: str | None, caller: str | None
    ) -> Answer:
        """The engine's answer, or without an engine the same made here."""
        began = time.perf_counter()
        answered, is_logged = self._ask_engine(question, wait, origin, caller)
        if answered is None:
            answered = self._answer_here(question, self._missing_leg())
        if not is_logged and origin is not None:
            self.log_search(answered, origin, caller, (time.perf_counter() - began) * 1000)
        return answered

    def _ask_engine(
        self, question: Question, wait: float, origin: str | None, caller: str | None
    ) -> tuple[Answer | None, bool]:
        """The engine's answer, None where it has none, and whether it is in the query log."""
        from kbtui.engine.protocol import make_search_request
        from kbtui.search.models import Answer

        request = make_search_request(
            question.as_json(),
            wait=wait,
            origin=origin if self.settings.query_log else None,
            caller=caller,
            uses_model=self.settings.model != "off",
        )
        for last in (False, True):
            try:
                reply = self._request("search", **request)
            except EngineUnavailable as error:
                self._access.behind = Notice(
                    "index_behind", {"cause": "engine", "detail": error.message}
                )
                self._access.follow(UPDATE_SECONDS)
                return None, False
            self._access.behind = None
            declined = reply.get("declined")
            if declined is None:
                answered = Answer.from_message(_parse_reply(reply))
                if not last and reply["suspect"] and self._has_mended():
                    continue
                behind = (one for one in answered.notices if one.code == "index_behind")
                self._access.behind = next(behind, None)
                return self._with_mended(answered), not reply["suspect"]
            detail = str(reply.get("detail"))
            if declined == "damaged" and not last:
                self._mend(detail)
            elif declined == "no_index" and not last:
                self._access.reader(FIRST_INDEX_SECONDS)
                if self._access.is_private:
                    break
            else:
                if declined == "damaged":
                    raise IndexUnavailable(detail)
                break
        return None, False

    def _answer_here(self, question: Question, missing: Notice | None = None) -> Answer:
        """The answer by keywords from the index as it is; `missing` says why by keywords only."""
        from kbtui.engine.search_service import answer_question, make_missing_leg

        leg = make_missing_leg(missing)
        answered = self._read(lambda reader: answer_question(self.workspace, reader, question, leg))
        answered.notices = [*self._access.notices, *answered.notices]
        return self._with_mended(answered)

    def _missing_leg(self) -> Notice | None:
        """Why an answer that is made here has no semantic leg."""
        if self._access.is_private:
            return None  # the notices about the private index say why
        if self.settings.model == "off":
            return make_keywords_only_notice("model_off")
        if self._access.behind is not None:
            return make_keywords_only_notice("engine")
        return make_keywords_only_notice("engine", "the engine has another time zone")

    def _with_mended(self, answered: Answer) -> Answer:
        """The answer, which says once that the index was damaged and is mended."""
        if self._mended is not None:
            answered.notices.insert(0, self._mended)
            self._mended = None
        return answered

    def log_search(
        self,
        answered: Answer,
        origin: str,
        caller: str | None = None,
        milliseconds: float | None = None,
    ) -> None:
        """Note a search in the query log, unless the settings forbid it; never fails."""
        from kbtui.userdata.query_log import log_answer

        log_answer(self.workspace, self.settings, answered, origin, caller, milliseconds)

    def open_reader(self, wait: float = FIRST_INDEX_SECONDS) -> IndexReader:
        """The index in use; the first one is waited for. Raises `IndexUnavailable`."""
        return self._access.reader(wait)

    # citations

    def cites(self, ref: str | Ref) -> Citations:
        """What a conversation or a turn used, and which turns used what `ref` names.

        `ref` is a reference, or the path of a file, from the workspace or the current directory.
        Raises `UsageError` for a topic and for what is no reference, `NothingFound` for what
        neither exists nor was ever used, and `IndexUnavailable`.
        """
        self.update_index()
        return self.find_citations(ref)

    # the engine

    def connect_engine(self, *, start: bool = True) -> EngineClient:
        """A connection of one's own to the engine; raises `EngineUnavailable`."""
        from kbtui.engine.client import connect

        return connect(self.workspace, start=start, check=current_cancellation().check)

    def _request(self, op: str, *, timeout: float, **arguments: Any) -> dict[str, Any]:
        return self._access.request(op, timeout=timeout, **arguments)

    def listen(self, hear: Callable[[dict[str, Any]], object]) -> Callable[[], None]:
        """Call `hear` from a thread with each of the engine's messages; returns how to stop.

        Starts the engine, and again when it went away. Messages have `event`:
        `changed` (`knowledge`: bool, `conversations`: ids, `subjects`: refs; lists and reader are
        to be read again), `progress` (`phase`, `done`, `total`, `seconds_left` or None),
        `ready` (`lexical`, `semantic`: bool, `reason`), `gone` (`reason`).
        """
        from kbtui.library.index_access import EventListener

        listener = EventListener(self.connect_engine, hear)
        listener.start()
        return listener.stop


def _parse_reply(reply: dict[str, Any]) -> dict[str, Any]:
    """The answer in an engine's reply; raises the error that is there instead."""
    if failed := reply.get("failed"):
        from kbtui import errors

        kind, message, where, hint = failed
        raise getattr(errors, kind, KbtuiError)(message, where=where, hint=hint)
    found: dict[str, Any] = reply["answer"]
    return found
