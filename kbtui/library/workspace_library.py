"""`Library`: one workspace with its files, index, engine and citations.

The documented Python API is `topics`, `learn`, `search`, `read`, `cites`, `list_conversations`,
`mark`, `marks`, `unmark` and the context manager. The other methods are for kbtui's front ends. All
methods block, and any thread may call them. A call inside a `CallCancellation` can be cancelled
from another thread.
"""

from __future__ import annotations

import time
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, TypeVar, get_args

from kbtui import errors
from kbtui.errors import (
    EngineUnavailableError,
    IndexUnavailable,
    KbtuiError,
    UsageError,
    WorkspaceError,
)
from kbtui.library.index_and_engine_access import (
    FIRST_INDEX_SECONDS,
    EngineEventListener,
)
from kbtui.library.reference_and_citation_reader import ReferenceAndCitationReader
from kbtui.notices import Notice, join_notice_texts_with_semicolons, make_keywords_only_notice
from kbtui.search.search_request_and_answer import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Mode,
    SearchRequest,
)
from kbtui.workspace import (
    Settings,
    Workspace,
    find_workspace,
    load_settings,
    open_workspace_at_root,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Self

    from kbtui.citations.tool_call_citations import Citation, CitationKey, Citations
    from kbtui.conversations.conversation_data_types import (
        Conversation,
        ConversationInfo,
        ConversationToolsAndModels,
    )
    from kbtui.conversations.turn_decision_marks import (
        ConversationMarks,
        Mark,
        MarkState,
        PlacedMark,
    )
    from kbtui.engine.all_projects_search import AllProjectsSearch
    from kbtui.engine.engine_protocol import EngineEvent, EngineSearchReply
    from kbtui.index.index_reader import IndexReader
    from kbtui.knowledge.knowledge_data_types import Topic
    from kbtui.library.subject_text_versions import (
        GivenAndCurrentSubjectText,
        SubjectHistory,
    )
    from kbtui.references import Ref
    from kbtui.search.search_request_and_answer import (
        EntriesMatchingFilter,
        Hit,
        SearchAnswer,
    )
    from kbtui.userdata.turn_mark_lookup import MarksOfTurns
    from kbtui.userdata.turn_mark_store import MarkStore

T = TypeVar("T")

REPAIR_SECONDS = 60.0
"""A call waits at most this many seconds for the engine to rebuild a damaged index."""
UPDATE_SECONDS = 10.0
"""A call waits at most this many seconds for the index to catch up with the files."""


def open_workspace(path: Path | str | None = None, settings: Settings | None = None) -> Library:
    """Open the workspace that contains `path` (default: the current directory).

    Reads only the settings. Raises `WorkspaceError` or `ConfigError`.
    """
    return Library(find_workspace(path), settings or load_checked_settings())


def load_checked_settings() -> Settings:
    """Load the settings. Raises `ConfigError` if they are invalid or list an unknown agent.

    `load_settings` does not check the names of agents, because a check requires loading the conversation
    formats that other packages provide.
    """
    settings = load_settings()
    if settings.conversations:
        from kbtui.conversations.conversation_repository import check_agent_names_in_settings

        check_agent_names_in_settings()
    return settings


class Library(ReferenceAndCitationReader):
    """One workspace: its topics, conversations, index, engine and citations."""

    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        super().__init__(workspace, settings)
        self._repair_notice: Notice | None = None
        """A notice that the index was repaired, to be added to the next answer; None if there was no repair."""

    @cached_property
    def _all_projects_search(self) -> AllProjectsSearch:
        from kbtui.engine.all_projects_search import AllProjectsSearch

        return AllProjectsSearch(self.workspace, self.settings)

    def close(self) -> None:
        """Close the indexes and the connections to the engine. They are opened again when they are next needed."""
        super().close()
        if "_all_projects_search" in vars(self):
            self._all_projects_search.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open_library_of_workspace(self, root: Path) -> Self:
        """Return the library of another workspace, with the same settings. Raises `WorkspaceError`."""
        if not root.is_dir():
            hint = "`kbtui workspaces` lists the workspaces"
            raise WorkspaceError("the directory does not exist", where=str(root), hint=hint)
        return type(self)(open_workspace_at_root(root), self.settings)

    @property
    def index_notices_text(self) -> str | None:
        """The notices about the index as one line of text; None if there are none."""
        return join_notice_texts_with_semicolons(self.index_notices)

    def topics(self) -> list[Topic]:
        """Return the enabled topics in the order of their declaration."""
        return [topic for topic in self.load_knowledge().topics.values() if topic.enable]

    def list_conversations(self, archived: bool | None = None) -> list[ConversationInfo]:
        """Return the conversations, newest first.

        `archived` selects archived (True), live (False) or all conversations (None).
        """
        from kbtui.conversations import conversation_repository

        return conversation_repository.list_conversations(self.workspace, archived)

    def list_conversations_without_counts(
        self, known: Mapping[str, ConversationInfo] | None = None
    ) -> list[ConversationInfo]:
        """Return all conversations like `list_conversations`, but without `events_count`.

        `known` maps conversation ids to the results of an earlier call. A conversation whose files have
        not changed since that call is not read again. For every other conversation, only the metadata
        and the last event are read.
        """
        from kbtui.conversations import conversation_repository

        infos = conversation_repository.list_conversations(
            self.workspace, counts=False, known=known
        )
        infos = [conversation_repository.add_last_event_time_to_info(info) for info in infos]
        return sorted(infos, key=lambda info: info.make_time_sort_key(), reverse=True)

    def read_conversation_tools_and_models(
        self, info: ConversationInfo
    ) -> ConversationToolsAndModels:
        """Return the tools, models and turns of a conversation. This parses the conversation's whole file."""
        from kbtui.conversations import conversation_repository

        return conversation_repository.get_conversation_format(
            info
        ).read_conversation_tools_and_models(info)

    def list_enabled_agents_except_jp(self) -> list[str]:
        """Return the names of the agents other than JP whose conversations are enabled in the settings."""
        from kbtui.conversations import conversation_repository

        formats = conversation_repository.list_enabled_conversation_formats()
        return [one.label for one in formats if one.name != "jp"]

    def find_conversation(self, conversation: str) -> ConversationInfo:
        """Return a conversation's metadata, without its events. Raises `NothingFound`."""
        from kbtui.conversations import conversation_repository

        return conversation_repository.find_conversation(self.workspace, conversation)

    def load_conversation_beginning(self, info: ConversationInfo) -> Conversation | None:
        """Load the first turns of a long conversation. Return None if the conversation must be loaded in full."""
        from kbtui.conversations import conversation_repository

        return conversation_repository.get_conversation_format(info).load_conversation_beginning(
            info
        )

    def request_index_update_and_wait(self, wait: float = UPDATE_SECONDS) -> None:
        """Have the engine update the index, and wait at most `wait` seconds for the update.

        If no engine is available, this process updates its temporary index, if it has one.
        """
        from kbtui.engine import search_service

        try:
            state = self.request_engine_refresh(wait, force=False)
        except EngineUnavailableError as error:
            self.record_missing_engine_and_update_index(error, wait)
        else:
            self.index_behind_notice = search_service.make_index_behind_notice(state)

    def retry_failed_files_and_passages(self, wait: float = 30.0) -> None:
        """Have the engine retry the files that could not be read and the passages that could not be embedded."""
        self.request_engine_refresh(wait, retry=True)

    def prefer_entry_for_embedding(self, ref: Ref) -> None:
        """Ask the engine to embed one entry before all others.

        The entry is the subject or conversation to which `ref` refers.
        """
        from kbtui.index.entry_and_chunk_data_types import make_subject_id

        entry_id = ref.conversation or make_subject_id(ref.topic or "", ref.slug or "")
        self.call_engine(lambda client: client.send_request("prefer", entry=entry_id))

    def set_embedding_paused(self, is_paused: bool) -> None:
        """Have the engine pause or continue embedding passages. The engine remembers this choice."""
        self.call_engine(lambda client: client.send_request("pause", paused=is_paused))

    def find_entries_of_filter(self, text: str, *, hidden: bool = False) -> EntriesMatchingFilter:
        """Return the subjects and conversations (including archived ones) that a filter such as `file:main.py` selects.

        Raises `IndexUnavailable` if there is no index.
        """
        from kbtui.search.search_pipeline import find_entries_of_filter
        from kbtui.userdata.turn_mark_lookup import list_marked_turns_if_search_filters_by_marks

        request = SearchRequest(text, mode="lexical", hidden=hidden, archived=True)
        request = request._replace(
            marked=list_marked_turns_if_search_filters_by_marks(self.workspace, request)
        )
        return self._query_index_with_repair(
            lambda reader: find_entries_of_filter(self.workspace, reader, request)
        )

    def _query_index_with_repair(self, query: Callable[[IndexReader], T]) -> T:
        """Call `query` with an index reader. If the index is damaged, have the engine rebuild it, and try again."""
        from kbtui.index.index_generations import find_index_damage_behind_error

        reader = self.open_index_reader()
        try:
            return query(reader)
        except BaseException as error:
            found = find_index_damage_behind_error(error, reader.folder)
            if found is None:
                raise
            try:
                self._request_index_repair(found)
            except IndexUnavailable as unavailable:
                raise unavailable from error
        return query(self.open_index_reader())

    def _request_index_repair(self, found: str) -> None:
        """Have the engine rebuild the damaged index; `found` describes the damage. Raises `IndexUnavailable` on failure."""
        reason = "it is a temporary index of this process"
        if not self.is_index_private:
            try:
                self.request_engine_refresh(REPAIR_SECONDS, check=True)
                self._repair_notice = Notice("index_mended", {"detail": found})
                return
            except EngineUnavailableError as unavailable:
                reason = str(unavailable)
        raise IndexUnavailable(found, hint=f"the index cannot be rebuilt now: {reason}")

    def _have_engine_check_and_repair_index(self) -> bool:
        """Have the engine check the index. Return whether the engine found and repaired damage."""
        try:
            mended = self.request_engine_refresh(REPAIR_SECONDS, check="suspicion").get("mended")
        except EngineUnavailableError:
            return False
        if mended:
            self._repair_notice = Notice("index_mended", {"detail": mended})
        return bool(mended)

    def search(
        self,
        query: str | SearchRequest,
        wait: float | None = None,
        *,
        mode: Mode = "hybrid",
        types: Sequence[str] = (),
        topics: Sequence[str] = (),
        limit: int = DEFAULT_LIMIT,
        per_entry: int = 0,
        all_projects: bool = False,
        origin: str | None = "sdk",
        caller: str | None = None,
    ) -> SearchAnswer:
        """Search by keywords and by meaning; wait up to `wait` seconds for the model (default: 10).

        `types` (entry types, source kinds, `conversation`) and `topics` limit which entries are searched; an
        empty value sets no limit. `limit` is from 1 to 100. `per_entry` is the maximum number of hits from
        one entry; 0 means no maximum. With `all_projects`, all workspaces that the user has opened are
        searched, and each hit has a `project` and a `workspace`. If `query` is a `SearchRequest`, its own
        fields apply, and `mode`, `types`, `topics`, `limit`, `per_entry` and `all_projects` are ignored.
        `origin` and `caller` are recorded in the query log; if `origin` is None, the search is not logged.

        Raises `IndexUnavailable` if there is no index. Raises `UsageError` for a mistake in the query, a
        `limit` outside 1 to 100, or a `wait` below 0 or above a day. Raises `TypeError` if `limit` or
        `per_entry` is not an integer. Mistakes in the query of a `SearchRequest` raise no error; the answer
        lists them in `mistakes`.
        """
        from kbtui.engine.engine_protocol import WAIT_SECONDS, validate_wait_seconds

        wait = WAIT_SECONDS if wait is None else wait
        validate_wait_seconds(wait, "wait")
        if isinstance(query, SearchRequest):
            return self._run_search_request(query, wait, origin, caller)
        if isinstance(types, str) or isinstance(topics, str):
            raise UsageError("types and topics must be lists of strings")
        if mode not in get_args(Mode):
            raise UsageError(f"unknown mode {mode!r}", where="mode", hint=", ".join(get_args(Mode)))
        if not query.strip():
            raise UsageError("the query is empty", hint="enter words to search for")
        if not 1 <= index(limit) <= MAX_LIMIT:
            raise UsageError(f"must be from 1 to {MAX_LIMIT}, not {limit}", where="limit")
        if index(per_entry) < 0:
            raise UsageError(f"must be at least 0, not {per_entry}", where="per_entry")
        request = SearchRequest(
            query,
            mode,
            types=tuple(types),
            topics=tuple(topics),
            limit=index(limit),
            per_entry=index(per_entry),
            all_projects=all_projects,
        )
        answered = self._run_search_request(request, wait, origin, caller)
        if answered.mistakes:
            raise UsageError("; ".join(map(str, answered.mistakes)))
        return answered

    def find_similar_passages(
        self, ref: Ref, request: SearchRequest | None = None, wait: float | None = None
    ) -> SearchAnswer:
        """Find passages that are similar to the text to which `ref` refers. Raises `NothingFound`."""
        request = request or SearchRequest(per_entry=1)
        return self.search(request._replace(like=str(ref)), wait, origin=None)

    def _run_search_request(
        self, request: SearchRequest, wait: float, origin: str | None, caller: str | None
    ) -> SearchAnswer:
        """Search with the engine or, if the engine returns no answer, in this process."""
        began = time.perf_counter()
        answered, is_logged = self._search_with_engine(request, wait, origin, caller)
        if answered is None:
            answered = self.search_by_keywords(request, self._make_missing_semantic_ranking_notice)
        if not is_logged and origin is not None:
            milliseconds = (time.perf_counter() - began) * 1000
            damage = self.log_search(answered, origin, caller, milliseconds)
            if damage is not None:
                answered = answered._replace(notices=[*answered.notices, damage])
        return answered

    def _search_with_engine(
        self, request: SearchRequest, wait: float, origin: str | None, caller: str | None
    ) -> tuple[SearchAnswer | None, bool]:
        """Return the engine's answer (None if there is none), and whether the engine logged it."""
        from kbtui.engine.engine_protocol import make_engine_search_arguments
        from kbtui.search.search_request_and_answer import SearchAnswer

        arguments = make_engine_search_arguments(
            {
                "question": request.as_json(),
                "wait": wait,
                "origin": origin if self.settings.query_log else None,
                "caller": caller,
                "uses_model": self.settings.model != "off",
            }
        )
        for last in (False, True):
            try:
                reply = self.call_engine(lambda client: client.send_request("search", **arguments))
            except EngineUnavailableError as error:
                self.record_missing_engine_and_update_index(error, UPDATE_SECONDS)
                return None, False
            self.index_behind_notice = None
            declined = reply.get("declined")
            if declined is None:
                answered = SearchAnswer.from_engine_message(_get_answer_from_engine_reply(reply))
                if not last and reply["suspect"] and self._have_engine_check_and_repair_index():
                    continue
                behind = (one for one in answered.notices if one.code == "index_behind")
                self.index_behind_notice = next(behind, None)
                answered = answered.prepend_notices(*self.differing_agent_directory_notices)
                return self._add_repair_notice(answered), not reply["suspect"]
            detail = str(reply.get("detail"))
            if declined == "damaged" and not last:
                self._request_index_repair(detail)
            elif declined == "no_index" and not last:
                self.open_index_reader(FIRST_INDEX_SECONDS)
                if self.is_index_private:
                    break
            else:
                if declined == "damaged":
                    raise IndexUnavailable(detail)
                break
        return None, False

    def search_by_keywords(
        self, request: SearchRequest, explain: Callable[[], Notice | None] = lambda: None
    ) -> SearchAnswer:
        """Search by keywords in this process, fast enough to run while the user types.

        `explain` returns a notice that says why the search does not rank by meaning, or None.
        """
        from kbtui.engine.search_service import answer_search_request, make_empty_semantic_search

        def answer_from_index(reader: IndexReader) -> SearchAnswer:
            # Open the index before calling `explain`, which must know whether the index is private.
            notice = explain()
            if request.all_projects:
                answered = self._all_projects_search.search_all_projects(reader, request)
                return answered.prepend_notices(*([notice] if notice else []))
            leg = make_empty_semantic_search(notice)
            return answer_search_request(self.workspace, reader, request, leg)

        answered = self._query_index_with_repair(answer_from_index)
        return self._add_repair_notice(answered.prepend_notices(*self.index_notices))

    def _make_missing_semantic_ranking_notice(self) -> Notice | None:
        """Return the notice that says why a search in this process does not rank by meaning.

        Returns None if the notices of a temporary index already say why.
        """
        if self.is_index_private:
            return None  # the notices of the private index say why
        if self.settings.model == "off":
            return make_keywords_only_notice("model_off")
        if self.index_behind_notice is not None:
            return make_keywords_only_notice("engine")
        return make_keywords_only_notice("other_time_zone")

    def _add_repair_notice(self, answered: SearchAnswer) -> SearchAnswer:
        """Add the notice about a repair to the first answer after the repair."""
        notice, self._repair_notice = self._repair_notice, None
        return answered.prepend_notices(notice) if notice else answered

    def log_search(
        self,
        answered: SearchAnswer,
        origin: str,
        caller: str | None = None,
        milliseconds: float | None = None,
        replaces: str = "",
    ) -> Notice | None:
        """Log a search. Return a notice if the search cannot be logged.

        `replaces` is an incomplete query that was logged while the user was typing; this search
        replaces it in the log.
        """
        from kbtui.userdata.query_log import log_search_answer

        return log_search_answer(
            self.workspace, self.settings, answered, origin, caller, milliseconds, replaces
        )

    def log_opened_hit(self, answered: SearchAnswer, hit: Hit) -> None:
        """Log that the user opened a hit of an answer, if searches are logged. Never raises."""
        from kbtui.userdata.query_log import OpenedHit, QueryLog

        ranks = {one.chunk_id: rank for rank, one in enumerate(answered.hits, 1)}
        if self.settings.query_log and answered.query.strip() and hit.chunk_id in ranks:
            log = QueryLog(self.workspace.user_data_directory / "queries.sqlite")
            opened = OpenedHit(answered.query, hit.ref, hit.chunk_id, ranks[hit.chunk_id])
            log.log_opened_hit(opened)

    def cites(self, ref: str | Ref) -> Citations:
        """Find the turns that cite the target of `ref`. For a conversation or turn, also find the citations that it makes.

        `ref` can also be the path of a file, relative to the workspace or to the current directory.

        Raises `UsageError` for a topic or an invalid reference. Raises `NothingFound` for a target
        that neither exists nor was ever cited. Raises `IndexUnavailable` if there is no index.
        """
        self.request_index_update_and_wait()
        return self.find_citations_of_and_by_target(ref)

    def find_citation_by_key(self, key: CitationKey) -> Citation:
        """Return the citation with this key, extracted from its conversation. Raises `NothingFound`."""
        from kbtui.library.subject_text_versions import find_citation_by_key

        return find_citation_by_key(self, key)

    def read_given_and_current_text(self, cite: Citation) -> GivenAndCurrentSubjectText:
        """Return the subject text that a citing turn was given, and the subject's current text.

        Raises `NothingFound` if the cited target is not a subject, if the turn no longer exists, or if
        the text that the turn was given is unknown. Raises `KbtuiError` if the subject cannot be read.
        """
        from kbtui.library.subject_text_versions import read_given_and_current_text

        return read_given_and_current_text(self, cite)

    def find_renamed_subject(self, name: str) -> Ref | None:
        """Return the new reference of a missing subject if Git shows that it was renamed; otherwise None."""
        from kbtui.library.subject_text_versions import find_renamed_subject

        try:
            ref = self.parse_entered_reference(name)
        except UsageError:
            return None
        return find_renamed_subject(self, ref) if ref.kind == "subject" else None

    def read_subject_history(self, ref: Ref) -> SubjectHistory:
        """Return the versions of a subject, and the reference that the subject has now.

        Raises `NothingFound` if the subject is disabled, or if it is missing and has no known version.
        """
        from kbtui.library.subject_text_versions import read_subject_history

        return read_subject_history(self, ref)

    def mark(
        self,
        ref: str | Ref,
        state: MarkState,
        *,
        note: str = "",
        superseded_by: str | None = None,
        passage: str | None = None,
    ) -> Mark:
        """Mark a turn, a tool call or a `passage` in it as `decided`, `rejected` or `superseded`.

        An earlier mark on the same text is replaced. `superseded_by` is a reference to the
        replacement, such as a later turn or a subject; the state `superseded` requires it. Raises
        `UsageError` if `ref` does not refer to a turn, or if an argument is invalid or missing.
        Raises `NothingFound` if the turn or the target of `superseded_by` does not exist, or if the
        turn does not contain the passage.
        """
        target = self.parse_entered_reference(ref) if isinstance(ref, str) else ref
        if target.kind != "conversation":
            raise UsageError("only turns of conversations can be marked", where=str(ref))
        if superseded_by is not None:
            other = self._parse_replacement_reference_of_mark(superseded_by)
            if other.conversation == target.conversation:
                if other.turn is None:
                    message = f"{other} contains the marked turn, so it cannot supersede that turn"
                    raise UsageError(message, where=superseded_by, hint="name a turn")
                if passage is None and other == target:
                    raise UsageError("a turn cannot supersede itself", where=superseded_by)
            superseded_by = str(other)
        elif state == "superseded":
            hint = "name the turn or subject that supersedes the marked turn, such as jp-c17457886043:3 or topic/slug; if there is none, use the state `rejected`"
            raise UsageError("`superseded` needs a reference", where="superseded by", hint=hint)
        return self._turn_mark_store.mark_turn(
            target, state, note=note, superseded_by=superseded_by, passage=passage
        )

    def _parse_replacement_reference_of_mark(self, text: str) -> Ref:
        """Parse the reference to the replacement of a marked turn, and check that the replacement exists.

        Raises `UsageError` or `NothingFound`.
        """
        from kbtui.conversations.conversation_repository import check_turn_and_call_exist

        hint = "write a reference, such as jp-c17457886043:3 or topic/slug"
        if not text.strip():
            raise UsageError("the reference is empty", where="superseded by", hint=hint)
        ref = self.parse_entered_reference(text)
        # Any word has the form of a topic's name.
        if ref.kind == "topic" and ref.topic not in self.load_knowledge().topics:
            message = f"{text!r} is neither a reference nor a topic"
            raise UsageError(message, where="superseded by", hint=hint)
        ref = self.resolve_reference(text)
        if ref.kind == "conversation" and ref.turn is not None:
            check_turn_and_call_exist(self.load_conversation(ref.conversation or ""), ref)
        return ref

    def marks(self, conversation: str | None = None) -> list[PlacedMark]:
        """Return all marks, or the marks of one conversation, newest first, with the places of their texts.

        `conversation` can also be a reference to a turn or call; only the marks of that turn or
        call are then returned. A mark whose text cannot be found has no `place`; it is returned if
        the turn and call stored in it match. Raises `UsageError` for an invalid reference.
        """
        if conversation is None:
            return self._turn_mark_store.list_placed_marks()
        from kbtui.conversations.turn_decision_marks import MarkedTurnOrCall

        ref = self.parse_entered_reference(conversation)
        if ref.conversation is None:
            raise UsageError(f"{conversation!r} is not a conversation", where="conversation")
        marks = self._turn_mark_store.list_placed_marks(ref.conversation)
        places = [one.place or MarkedTurnOrCall(one.mark.turn, one.mark.call) for one in marks]
        return [
            one
            for one, place in zip(marks, places, strict=True)
            if ref.turn in (None, place.turn) and ref.call in (None, place.call)
        ]

    def unmark(self, mark_id: str) -> bool:
        """Remove the mark with this id. Return False if there is no such mark."""
        return self._turn_mark_store.remove_mark(mark_id)

    def find_marks_by_id_or_reference(self, text: str) -> list[PlacedMark]:
        """Return the mark whose id is `text`, or the marks on the turn or call to which the reference `text` refers.

        A mark whose text cannot be found belongs to no turn, so it is found only by its id. Raises
        `NothingFound` if there is no mark.
        """
        return self._turn_mark_store.find_marks_by_id_or_reference(text)

    def find_all_marks_in_conversations_of_turns(self, refs: Iterable[str]) -> MarksOfTurns:
        """Return all marks in the conversations that contain the turns and calls in `refs`.

        References to anything else are ignored. If the marks cannot be read, the result has a
        notice.
        """
        from kbtui.userdata.turn_mark_lookup import find_all_marks_in_conversations_of_turns

        return find_all_marks_in_conversations_of_turns(self.workspace, refs)

    def map_marks_by_turn(self, conversation: Conversation) -> ConversationMarks:
        """Return the marks on each turn of a loaded conversation, or a notice that the marks cannot be read."""
        return self._turn_mark_store.map_marks_by_turn(conversation)

    @cached_property
    def _turn_mark_store(self) -> MarkStore:
        from kbtui.userdata.turn_mark_store import MarkStore

        return MarkStore(self.workspace)

    def listen_to_engine_events(
        self, on_event: Callable[[EngineEvent], object]
    ) -> Callable[[], None]:
        """Call `on_event` from a new thread with each event from the engine.

        Returns a function that stops the thread. The thread starts the engine, and restarts the
        engine whenever it has exited. `EngineEvent` describes the events.
        """
        return EngineEventListener(self.connect_engine, on_event).stop_listening


def _get_answer_from_engine_reply(reply: EngineSearchReply) -> dict[str, Any]:
    """Return the answer in the engine's reply. If the reply contains an error, raise the error."""
    if failed := reply.get("failed"):
        kind, message, where, hint = failed
        raise getattr(errors, kind, KbtuiError)(message, where=where, hint=hint)
    return reply["answer"]
