"""Builds the document of a conversation: facts, then turns with messages and folded tool calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from kbtui.citations.files_read_by_tool_calls import find_path_of_file_returned_by_call
from kbtui.citations.turn_file_actions_and_commands import (
    CHANGE_ARGUMENTS,
    list_requested_file_changes,
)
from kbtui.conversations.conversation_data_types import (
    CONTENT_STATE_LABELS,
    ContentBlock,
    Conversation,
    ConversationCompaction,
    ConversationEvent,
    ConversationInfo,
    Turn,
    describe_content_block,
    format_event_text,
)
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.conversations.patch_parser import FilePatch, PatchHunk, find_unified_diffs
from kbtui.conversations.turn_decision_marks import ConversationMarks
from kbtui.dates import format_time_with_date
from kbtui.notices import format_notice
from kbtui.references import is_conversation_id
from kbtui.secret_detection import describe_secrets_in_text
from kbtui.terminal_text import (
    KNOWLEDGE_CHANGED,
    cut_to_width,
    format_counted_noun,
    format_outdated_subjects_of_turn,
    format_reference_of_outdated_subject,
    is_sanitize_policy_strip,
    sanitize_to_one_line,
    strip_escape_sequences_before_cutting,
)
from kbtui.tui.framework.styled_text import Span, Spans, truncate_text_start
from kbtui.tui.reader.reader_blocks import (
    FactTableReaderBlock,
    FoldHeadingBlock,
    LeftAndRightLineBlock,
    ParagraphReaderBlock,
    ReaderBlock,
    make_blocks_of_users_marks,
    make_markdown_blocks,
    make_source_text_blocks,
)
from kbtui.tui.reader.reader_document import (
    ReaderDocument,
    format_abbreviated_count,
    format_text_length,
    format_turn_count,
)
from kbtui.tui.reader.tool_call_blocks import (
    find_language_of_path,
    format_json_value_as_text,
    make_blocks_of_diff_hunks,
    make_changed_line_count_spans,
    make_tool_text_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from kbtui.citations.tool_call_citations import Citation
    from kbtui.citations.turn_file_actions_and_commands import TurnFileAction


# The arguments that describe a call best, in order of preference. For a call without any of them, the first
# argument with text is used.
_MAIN_ARGUMENTS = (
    "path", "file", "file_path", "query", "pattern", "command", "cmd", "url", "id", "name", "title",
    "package", "description",
)  # fmt: skip
_MAX_SUMMARY_CHARACTERS = 120


def find_argument_that_describes_tool_call(
    arguments: dict[str, Any] | None, directory: str | None = None
) -> str:
    """Return the argument value that best describes a tool call, on one line.

    If no value is suitable, return "". A path under `directory`, where the agent ran, becomes
    relative to it.
    """
    arguments = arguments or {}
    if "topic" in arguments:
        subjects = arguments.get("subjects") or ""
        slugs = ", ".join(map(str, subjects)) if isinstance(subjects, list) else str(subjects)
        summary = sanitize_to_one_line(
            f"{arguments['topic']}/{slugs}" if slugs else str(arguments["topic"])
        )
    else:
        names = [name for name in _MAIN_ARGUMENTS if name in arguments] or list(arguments)
        summary = next(
            filter(None, (_summarize_argument_value(arguments[name]) for name in names)), ""
        )
    if directory:
        # Do this before cutting the text, because a cut could remove the part below the directory.
        summary = summary.removeprefix(f"cd {directory} && ").removeprefix(f"{directory}/")
    if _looks_like_path(summary):
        return truncate_text_start(summary, _MAX_SUMMARY_CHARACTERS)
    return cut_to_width(summary, _MAX_SUMMARY_CHARACTERS)


def _list_changed_paths_on_one_line(
    changes: Iterable[TurnFileAction], directory: str | None
) -> str:
    """Return the paths of changed files on one line; those under `directory` are relative to it."""
    paths = [one.path.removeprefix(f"{directory}/") if directory else one.path for one in changes]
    summary = sanitize_to_one_line(", ".join(dict.fromkeys(paths)))
    return truncate_text_start(summary, _MAX_SUMMARY_CHARACTERS)


def _find_language_of_content_block(block: ContentBlock) -> str:
    """Return Pygments' name for the language of a block, or "".

    The language is derived from the name of the block, such as a path, or from its media type.
    """
    path = (block.name or "").partition("?")[0].partition("#")[0]
    subtype = (block.media_type or "").partition(";")[0].partition("/")[2].removeprefix("x-")
    return find_language_of_path(path) or ("" if subtype == "plain" else subtype)


def _looks_like_path(summary: str) -> bool:
    return "/" in summary and " " not in summary and "://" not in summary


def _summarize_argument_value(value: Any) -> str:
    if isinstance(value, str):
        return sanitize_to_one_line(value[: _MAX_SUMMARY_CHARACTERS * 4])
    if isinstance(value, list):
        if len(value) == 3 and value[1] in ("-c", "-lc"):
            value = value[2:]  # the script that a shell runs
        return ", ".join(filter(None, map(_summarize_list_element, value[:5])))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else ""


def _summarize_list_element(value: Any) -> str:
    if isinstance(value, dict):
        return next(filter(None, map(_summarize_argument_value, value.values())), "")
    return _summarize_argument_value(value)


@dataclass(frozen=True)
class CompactedTurnParts:
    """The parts of a turn that the model no longer sees after compaction.

    If there is a `summary`, it replaces the whole turn, and the other fields have no meaning.
    """

    summary: ConversationCompaction | None = None
    lacks_reasoning: bool = False
    lacks_calls: bool = False
    lacks_arguments: bool = False
    lacks_results: bool = False


def find_compacted_turn_parts(conversation: Conversation) -> dict[int, CompactedTurnParts]:
    """Return a mapping from turn number to the parts of the turn that compactions removed.

    Several compactions can cover a turn:

    * If some of these compactions have a summary, only the latest one with a summary applies.
    * Otherwise, the reasoning is missing if any of the compactions removes it. The parts of tool
      calls that are missing depend only on the latest compaction that changes tool calls.

    Of compactions with the same time, the last one in the file is the latest.
    """
    latest_first = sorted(
        conversation.compactions, key=lambda c: c.timestamp.timestamp() if c.timestamp else 0.0
    )[::-1]
    compacted: dict[int, CompactedTurnParts] = {}
    for turn in conversation.turns:
        covering = [c for c in latest_first if c.first <= turn.number <= c.last]
        summary = next((c for c in covering if c.summary is not None), None)
        policy = next((c.tool_calls for c in covering if c.tool_calls), "")
        compacted[turn.number] = (
            CompactedTurnParts(summary)
            if summary
            else CompactedTurnParts(
                lacks_reasoning=any(c.reasoning for c in covering),
                lacks_calls=policy == "omit",
                lacks_arguments=policy in ("strip", "strip-request"),
                lacks_results=policy in ("strip", "strip-response"),
            )
        )
    return compacted


PRESENCE_LABELS = {
    "projected": "workspace and local",
    "user_local": "local only",
    "external": "workspace only",
}
MAX_NAMED_TOOLS = 12
"""A conversation's details name at most this many tools: the most used ones."""


def list_conversation_facts(
    conversation: Conversation, present: datetime, *, brief: bool = False
) -> list[tuple[str, Spans]]:
    """Return facts about a conversation as pairs of name and value; dates are relative to `present`.

    If `brief` is true, return only the facts that are shown above the first turn.
    """
    info = conversation.info
    times = [("created", info.created_at), ("activity", info.last_event_at)]
    if not brief:
        times += [("pinned", info.pinned_at), ("archived", info.archived_at)]
        times.append(("expires", info.expires_at))
    facts = [("id", info.ref)]
    facts += [(name, format_time_with_date(when, present)) for name, when in times if when]
    if conversation.model:
        name = f"{conversation.assistant} · " if conversation.assistant else ""
        facts.append(("assistant", f"{name}{conversation.model}"))
    sizes = [format_turn_count(len(conversation.turns), _count_rewound_turns(conversation))]
    if info.events_count is not None:
        sizes.append(format_counted_noun(info.events_count, "event"))
    facts.append(("size", ", ".join([*sizes, f"{format_abbreviated_count(info.size, ' ')}B"])))
    if info.presence is not None:
        facts.append(("stored", PRESENCE_LABELS[info.presence]))
    else:
        # Only a conversation needs the formats, and importing them delays the first paint.
        from kbtui.conversations.conversation_repository import get_conversation_format

        facts.append(("agent", get_conversation_format(info).label))
    if info.parent is not None and not brief:
        facts.append(("part of", info.parent))
    if info.worktree is not None:
        facts.append(("worktree", info.worktree))
    if info.working_directory is not None and not brief:
        facts.append(("ran in", info.working_directory))
    if unknown := conversation.describe_unknown_events():
        facts.append(("also contains", unknown))
    if not brief or conversation.problems or info.problem:
        facts.append(("directory", str(info.directory)))
    if info.labels:
        labels = [f"{key}={value}" if value else key for key, value in info.labels.items()]
        facts.append(("labels", ", ".join(labels)))
    facts += [("attachment", item) for item in conversation.attachments]
    if not brief:
        facts += _list_turn_and_tool_facts(conversation)
        times = [("saved", info.updated_at), ("opened in JP", info.last_activated_at)]
        facts += [(name, format_time_with_date(when, present)) for name, when in times if when]
    return [(name, [(sanitize_to_one_line(value), "")]) for name, value in facts]


def _count_rewound_turns(conversation: Conversation) -> int:
    return sum(turn.is_rewound for turn in conversation.turns)


def _list_turn_and_tool_facts(conversation: Conversation) -> Iterator[tuple[str, str]]:
    models = Counter(turn.model for turn in conversation.turns if turn.model)
    if len(models) > 1:
        yield (
            "models",
            ", ".join(f"{name} {format_counted_noun(n, 'turn')}" for name, n in models.items()),
        )
    events = list(chain.from_iterable(turn.events for turn in conversation.turns))
    authors = Counter(event.author for event in events if event.author)
    if authors:
        yield "authors", ", ".join(f"{name} {number:,}" for name, number in authors.most_common())
    calls = [event for event in events if event.kind == "tool_call_request"]
    if calls:
        failed = sum(bool(event.result and event.result.is_error) for event in calls)
        total = format_counted_noun(len(calls), "tool call")
        yield "calls", f"{total}, {format_counted_noun(failed, 'error')}" if failed else total
        tools = Counter(event.name or "a tool" for event in calls)
        named = [f"{name} {number:,}" for name, number in tools.most_common(MAX_NAMED_TOOLS)]
        more = len(tools) - len(named)
        yield "tools", ", ".join(named) + (f", {more} more" if more > 0 else "")
    if attached := sum(turn.attachment_count for turn in conversation.turns):
        yield "attached", format_counted_noun(attached, "attachment")
    for compaction in conversation.compactions:
        yield "compacted", describe_compaction(compaction, conversation)


def format_turn_range(first: int, last: int) -> str:
    """Return "turn 3" or "turns 3–5"."""
    return f"turns {first}–{last}" if last > first else f"turn {first}"


def _format_compacted_turns(
    first: int, last: int, compaction: ConversationCompaction, conversation: Conversation
) -> str:
    """Return "turns 1–3", or "turns 1–2 and the beginning of turn 3".

    The second form is used if the last turn continued after the compaction.
    """
    turn = conversation.find_turn(last)
    is_whole = compaction.summary is None or last < compaction.last or turn is None
    if (
        is_whole
        or turn is None
        or not any(_is_event_after_compaction(event, compaction) for event in turn.events)
    ):
        return format_turn_range(first, last)
    beginning = f"the beginning of turn {last}"
    return f"{format_turn_range(first, last - 1)} and {beginning}" if last > first else beginning


def describe_compaction(compaction: ConversationCompaction, conversation: Conversation) -> str:
    """Describe a compaction: the turns that it covers, and the content that it removed from them."""
    what = []
    if compaction.summary is not None:
        what.append("replaced by a summary")
    if compaction.reasoning:
        what.append("reasoning removed")
    if compaction.tool_calls:
        omitted = compaction.tool_calls == "omit"
        what.append("tool calls removed" if omitted else "contents of tool calls removed")
    turns = _format_compacted_turns(compaction.first, compaction.last, compaction, conversation)
    return f"{turns}, {' and '.join(what) or 'nothing removed'}"


def _is_event_after_compaction(
    event: ConversationEvent, compaction: ConversationCompaction
) -> bool:
    times = event.timestamp, compaction.timestamp
    return times[0] is not None and times[1] is not None and times[0] > times[1]


def build_conversation_document(
    conversation: Conversation,
    present: datetime,
    *,
    partial: bool = False,
    titles: Mapping[str, str] | None = None,
    marks: ConversationMarks = ConversationMarks(),  # noqa: B008  (nobody changes it)
    outdated: Mapping[int, Sequence[Citation]] | None = None,
    seen_at: datetime | None = None,
) -> ReaderDocument:
    """Build the document of a conversation; dates are relative to the time `present`.

    * `partial` says whether the rest of the conversation is still loading.
    * `titles` maps the ids of related conversations to their titles, which are shown as links.
    * `marks` are the user's marks on each turn.
    * `outdated` maps a turn number to those citations of the turn whose subject has changed since
      the turn, or no longer exists.
    * `seen_at` is the time when the user last left the workspace. A line is shown before the turns
      that began later.
    """
    info = conversation.info
    outdated = outdated or {}
    builder = _ConversationReaderDocumentBuilder(
        conversation, present, titles or {}, marks, outdated, seen_at
    )
    blocks = builder.build_conversation_blocks()
    badges = make_conversation_badges(info)
    if marks.notice:
        # The note above the first turn is out of view if the reader opens another turn.
        badges.append(("marks unreadable", "error"))
    return ReaderDocument(
        key=info.ref,
        title=sanitize_to_one_line(info.name),
        blocks=blocks,
        ref=info.ref,
        badges=badges,
        record=conversation,
        marks=marks,
        outdated=outdated,
        turns_total=len(conversation.turns),
        rewound_turns=_count_rewound_turns(conversation),
        block_indices_by_kind={"request": builder.requests, "error": builder.errors},
        facts=list_conversation_facts(conversation, present),
        is_partial=partial,
    )


def make_conversation_badges(info: ConversationInfo) -> Spans:
    """Return the badges that apply to a conversation, such as "pinned", "archived" and "damaged"."""
    badges = (
        (info.pinned_at, "pinned", "accent"),
        (info.archived, "archived", "dim"),
        (info.kept_from is not None, "kept", "dim"),
        (info.parent is not None, "part of another conversation", "dim"),
        (info.worktree is not None, f"worktree {info.worktree}", "dim"),
        (info.presence == "user_local", "local only", "dim"),
        (info.problem, "damaged", "error"),
    )
    return [(text, role) for applies, text, role in badges if applies]


MAX_SCANNED_PER_TEXT, MAX_SCANNED_TOTAL = 20_000, 2_000_000
"""At most `MAX_SCANNED_PER_TEXT` characters of a text, and `MAX_SCANNED_TOTAL` characters of a whole
conversation, are searched for secrets.
"""


MAX_NOTICE_CHARACTERS = 100
"""An agent's notice is folded if it is longer than this or has several lines."""


class _ConversationReaderDocumentBuilder:
    """Builds the blocks of a conversation.

    `requests` and `errors` are indices of blocks: the first block of each request, and the block of
    each failed call.
    """

    def __init__(
        self,
        conversation: Conversation,
        present: datetime,
        titles: Mapping[str, str],
        marks: ConversationMarks,
        outdated: Mapping[int, Sequence[Citation]],
        seen_at: datetime | None,
    ) -> None:
        self.conversation = conversation
        self.marks = marks
        self.outdated = outdated
        self.present = present
        self.titles = titles
        self.blocks: list[ReaderBlock] = []
        self.requests: list[int] = []
        self.errors: list[int] = []
        self.unscanned_characters = MAX_SCANNED_TOTAL
        self.compacted_turns = find_compacted_turn_parts(conversation)
        self.compacted = CompactedTurnParts()
        events = (event for turn in conversation.turns for event in turn.events)
        self.summaries_in_turns = {event.text for event in events if event.kind == "compaction"}
        """The summaries in events of the kind "compaction". The document shows them where the events are."""
        self.seen_at = seen_at
        """The time when the user last left the workspace.

        None if this time is unknown, or if the line before the new turns has already been added.
        """
        self.speaker = ""
        self.changes_by_tool: dict[str, tuple[int | None, list[TurnFileAction]]] = {}
        """For each tool's last call in the current turn, its number and its file changes, by the name of the tool."""
        self.after_fold = False
        self.space_above = 0
        self.last_time: datetime | None = None
        # The next blocks get these values in their fields of the same names (see `ReaderBlock`).
        self.turn = 0
        self.view = ""
        self.call: int | None = None
        self.fold: str | None = None
        self.lead: Spans = []
        self.turn_fold: str | None = None
        """If the current turn is rewound, the key of the fold that contains the turn. Otherwise None."""

    def build_conversation_blocks(self) -> list[ReaderBlock]:
        """Build the blocks of the whole conversation."""
        facts = list_conversation_facts(self.conversation, self.present, brief=True)
        self.blocks.append(FactTableReaderBlock("facts", facts))
        if (parent := self.conversation.info.parent) is not None:
            self._add_conversation_link("parent", "↑ part of ", parent)
        own = self.conversation.info.problem
        problems = dict.fromkeys([*self.conversation.problems, *([own] if own else [])])
        for number, problem in enumerate(problems):
            self._add_problem_paragraph(f"problem:{number}", problem)
            self.blocks[-1].above = int(number == 0)
        if notice := self.marks.notice:
            self._add_problem_paragraph("marks:unreadable", format_notice(notice), "warning")
        for event in self.conversation.leading:
            self._add_event_blocks(event)
        for turn in self.conversation.turns:
            self._add_turn_blocks(turn)
        if not self.conversation.turns:
            self._add_note_paragraph(
                "empty", "This conversation cannot be read." if problems else "No messages.", "dim"
            )
            self.blocks[-1].above = 1
        return self.blocks

    def _add_line_before_new_turns(self, turn: Turn) -> None:
        """Add a line before the first turn that began after the last visit, unless all turns are new."""
        if self.seen_at is None or turn.started_at is None or turn.started_at <= self.seen_at:
            return
        self.seen_at = None
        if turn.number > 1:
            words: Spans = [("─ ", "rule"), ("new since your last visit ", "accent")]
            self._append_blocks(LeftAndRightLineBlock("seen", words, [], rule=True, above=1))

    def _add_turn_blocks(self, turn: Turn) -> None:
        self._add_line_before_new_turns(turn)
        self.turn, self.speaker, self.attachments_added = turn.number, "", 0
        self.changes_by_tool = {}
        for number, compaction in enumerate(self.conversation.compactions):
            if compaction.first == turn.number:
                self._add_note_before_compacted_turns(f"compaction:{number}", compaction)
        self.after_fold, self.space_above = False, 0
        self.last_time = None
        self._format_time_if_minute_changed(turn.started_at)
        before = self.compacted.summary
        self.compacted = self.compacted_turns[turn.number]
        if self.compacted.summary:
            if self.compacted.summary is not before:
                self._add_compaction_summary(self.compacted.summary)
            self.view = "user"
        model = f"{sanitize_to_one_line(turn.model).rsplit('/', 1)[-1]} · " if turn.model else ""
        count = turn.attachment_count
        attached = f"{format_counted_noun(count, 'attachment')} · " if count else ""
        when: Spans = [(f"{attached}{model}{self._format_optional_time(turn.started_at)}", "dim")]
        if turn.is_rewound:
            self._add_rewound_turn_heading(turn, when)
        else:
            head: Spans = [("─ ", "rule"), (f"turn {turn.number} ", "turn")]
            self._append_blocks(
                LeftAndRightLineBlock(f"turn:{turn.number}", head, when, rule=True, above=1)
            )
        self._append_blocks(*make_blocks_of_users_marks(self.marks.by_turn.get(turn.number, ())))
        if cites := self.outdated.get(turn.number):
            self._add_changed_subject_lines(cites)
        if not turn.events:
            self._add_note_paragraph(f"empty:{turn.number}", "Empty turn", "dim")
        summary = self.compacted.summary
        if summary and (turn.number < summary.last or turn.is_rewound):
            summary = None
        for event in turn.events:
            if event.kind != "tool_call_response" or event.request is None:
                if summary and _is_event_after_compaction(event, summary):
                    # The agent compacted in the middle of this turn, so the model sees the rest of it.
                    if summary.summary not in self.summaries_in_turns:
                        self._add_notice_paragraph(f"compacted:{turn.number}", "compacted here")
                    summary, self.view = None, ""
                self._add_event_blocks(event)
        self.view, self.turn_fold = "", None

    def _add_rewound_turn_heading(self, turn: Turn, when: Spans) -> None:
        """Add the heading of a fold that contains a rewound turn."""
        key, self.view = f"turn:{turn.number}", "user"
        requests = (event.text for event in turn.events if event.kind == "chat_request")
        request = sanitize_to_one_line(next(requests, "")[:400])
        words: Spans = [(f"turn {turn.number} ", "turn"), ("rewound  ", "warning")]
        words.append((request, "dim"))
        self._append_blocks(FoldHeadingBlock(key, words, when, kind="rewound", above=1))
        self.turn_fold = key
        text = "The user went back to an earlier turn, so the model no longer sees this turn."
        self._add_note_paragraph(f"{key}:rewound", text, "dim")

    def _add_changed_subject_lines(self, cites: Sequence[Citation]) -> None:
        """Add a line for each subject that has changed since the turn.

        Enter on the line shows how the subject has changed.
        """
        changes = [(cite.target, cite.state) for cite in cites]
        key = f"outdated:{self.turn}"
        if len(cites) == 1:
            self._add_outdated_citation_warning(
                key, f"≠ {format_outdated_subjects_of_turn(changes)}", cites[0]
            )
            return
        self._add_outdated_citation_warning(key, f"≠ {KNOWLEDGE_CHANGED}:", cites[0])
        self.lead = [("    ", "")]
        for number, cite in enumerate(cites):
            self._add_outdated_citation_warning(
                f"{key}:{number}", format_reference_of_outdated_subject(*changes[number]), cite
            )
        self.lead = []

    def _add_outdated_citation_warning(self, key: str, text: str, cite: Citation) -> None:
        """Add a line with a warning. Enter on the line shows how the cited subject has changed."""
        spans: Spans = [(sanitize_to_one_line(text), "warning")]
        self._append_blocks(ParagraphReaderBlock(key, spans, cite=cite.key))

    def _add_conversation_link(self, key: str, words: str, conversation: str) -> None:
        """Add a line with the title of another conversation, as a link if `conversation` is a valid id."""
        title = self.titles.get(conversation) or conversation
        is_id = is_conversation_id(conversation)
        spans: Spans = [(words, "dim"), (sanitize_to_one_line(title), "link" if is_id else "")]
        link = conversation if is_id else None
        self._append_blocks(ParagraphReaderBlock(key, spans, link=link))

    def _add_note_before_compacted_turns(
        self, key: str, compaction: ConversationCompaction
    ) -> None:
        """Add a note for the user before the first turn that a compaction covers."""
        self.view, self.after_fold = "user", False
        left: Spans = [("compacted ", "accent")]
        described = describe_compaction(compaction, self.conversation)
        left.append((f"for the model: {described}", "dim"))
        when: Spans = [(self._format_optional_time(compaction.timestamp), "dim")]
        if compaction.summary is None or compaction.summary in self.summaries_in_turns:
            self._append_blocks(
                LeftAndRightLineBlock(key, [("≡ ", "accent"), *left], when, above=1)
            )
        else:
            self._add_fold_heading(key, "compaction", left, when)
            self._add_markdown_blocks(key, compaction.summary)
        self._end_fold()
        self.view = ""

    def _add_compaction_summary(self, summary: ConversationCompaction) -> None:
        """Add a compaction's summary.

        The model sees the summary in place of the current turn, and possibly of later turns.
        """
        self.view = "model"
        last = self.turn
        while last in self.compacted_turns and self.compacted_turns[last].summary is summary:
            last += 1
        words: Spans = [("≡ ", "accent"), ("summary ", "accent")]
        turns = _format_compacted_turns(self.turn, last - 1, summary, self.conversation)
        words.append((f"in place of {turns}", "dim"))
        when: Spans = [(self._format_optional_time(summary.timestamp), "dim")]
        key = f"summary:{self.turn}"
        self._append_blocks(LeftAndRightLineBlock(key, words, when, rule=True, above=1))
        self._add_markdown_blocks(key, summary.summary or "")

    def _format_optional_time(self, when: datetime | None) -> str:
        return format_time_with_date(when, self.present) if when else ""

    def _format_time_if_minute_changed(self, when: datetime | None) -> str:
        """Format the time of an event. Return "" if the turn's last shown time was in the same minute."""
        if when is None:
            return ""
        local = when.astimezone(self.present.tzinfo).replace(second=0, microsecond=0)
        before, self.last_time = self.last_time, local
        if local == before:
            return ""
        is_same_day = before is not None and before.date() == local.date()
        return f"{local:%H:%M}" if is_same_day else self._format_optional_time(when)

    def _add_event_blocks(self, event: ConversationEvent) -> None:
        before, key = self.view, f"{self.turn}.{event.index}"
        kind = EVENT_KINDS[event.kind]
        if event.kind == "attachment":
            # Attachments have the index of their request.
            self.attachments_added += 1
            key = f"{key}.attachment:{self.attachments_added}"
        if (kind.role_group == "tool" and self.compacted.lacks_calls) or (
            kind.role == "reasoning" and self.compacted.lacks_reasoning
        ):
            self.view = "user"
        _BLOCK_ADDERS_BY_EVENT_KIND.get(
            event.kind, _ConversationReaderDocumentBuilder._add_event_text_fold
        )(self, key, event)
        self._end_fold()
        if event.problem:
            self._add_problem_paragraph(f"{key}:problem", event.problem)
        self._add_secret_warning(key, event.text)
        if event.result is not None:
            self._add_secret_warning(f"{key}:result", event.result.text)
        self.view = before

    def _add_secret_warning(self, key: str, text: str) -> None:
        """Add a warning if the text seems to contain a secret.

        Only the beginning of a long text is searched.
        """
        text = text[: min(MAX_SCANNED_PER_TEXT, self.unscanned_characters)]
        self.unscanned_characters -= len(text)
        if said := describe_secrets_in_text(text):
            self._add_problem_paragraph(f"{key}:secret", said, "warning")

    def _add_request_blocks(self, key: str, event: ConversationEvent) -> None:
        if self.turn_fold is None:
            self.requests.append(len(self.blocks))
        self.lead = [("▌ ", "user")]
        self._add_speaker_heading(key, event.author or "You", "user", event.timestamp)
        if event.blocks:
            self._add_content_blocks(key, event.blocks, is_markdown=True)
        else:
            self._add_markdown_blocks(key, event.text, breaks=True)

    def _add_attachment_fold(self, key: str, event: ConversationEvent) -> None:
        """Add an attachment of a request. An attachment without text becomes a line that cannot be unfolded."""
        for block in event.blocks or ():
            name = block.title or block.name or block.kind
            words: Spans = [("attachment  ", "tool")]
            if block.state:
                words.append((f"{CONTENT_STATE_LABELS[block.state]}  ", "warning"))
            words.append((sanitize_to_one_line(name), ""))
            # A narrow reader cuts the end of the line, so the size is at the right edge.
            readers = f"for {', '.join(block.recipients)}" if block.recipients else ""
            described = ", ".join(filter(None, (block.media_type, readers)))
            words.append((f"  {sanitize_to_one_line(described)}", "dim"))
            size = format_counted_noun(block.size, "byte") if block.size is not None else ""
            if not block.text:
                above = 0 if self.after_fold else 1
                self._append_blocks(LeftAndRightLineBlock(key, words, [(size, "dim")], above=above))
                self.after_fold, self.space_above = True, 0
                continue
            size = size or format_text_length(block.text)
            self._add_fold_heading(key, "tool", words, [(size, "dim")])
            if block.name and block.title:
                self._add_note_paragraph(f"{key}:name", sanitize_to_one_line(block.name), "dim")
            self._add_source_text_blocks(
                key, block.text, language=_find_language_of_content_block(block)
            )

    def _add_content_blocks(
        self,
        key: str,
        blocks: Sequence[ContentBlock],
        *,
        is_markdown: bool = False,
        path: str | None = None,
    ) -> None:
        """Add the content of an event. The form of each block depends on the block's kind.

        If the content comes from a file, `path` is the path of this file.
        """
        for number, block in enumerate(blocks):
            part = f"{key}:block:{number}"
            if block.is_plain_text:
                if is_markdown:
                    self._add_markdown_blocks(part, block.text)
                else:
                    self._add_text_with_diffs(part, block.text, path=path)
                continue
            role = "warning" if block.state else "dim"
            words: Spans = [
                (f"{sanitize_to_one_line(block.kind)}  ", "section"),
                (sanitize_to_one_line(describe_content_block(block)), role),
            ]
            self._append_blocks(LeftAndRightLineBlock(part, words, []))
            if block.kind == "question":
                self._add_markdown_blocks(f"{part}:text", block.text, breaks=True)
            elif block.text:
                language = _find_language_of_content_block(block)
                self._add_source_text_blocks(f"{part}:text", block.text, language=language)

    def _add_assistant_message_blocks(self, key: str, event: ConversationEvent) -> None:
        name = event.author or self.conversation.assistant or "Assistant"
        self._add_speaker_heading(key, name, "assistant", event.timestamp)
        if event.blocks:
            self._add_content_blocks(key, event.blocks, is_markdown=True)
        elif language := EVENT_KINDS[event.kind].language:
            self._add_source_text_blocks(key, event.text, language=language, panel=True)
        else:
            self._add_markdown_blocks(key, event.text)

    def _add_speaker_heading(self, key: str, name: str, role: str, when: datetime | None) -> None:
        who = f"{role}:{name}"
        # If the same speaker continues after tool calls, add only a blank line, without the name.
        self.space_above = int(who == self.speaker)
        self.after_fold = False
        if who != self.speaker:
            words = [(sanitize_to_one_line(name), f"{role} strong")]
            time = self._format_time_if_minute_changed(when)
            self._append_blocks(
                LeftAndRightLineBlock(f"{key}:who", words, [(time, "dim")], above=1)
            )
            self.speaker = who

    def _add_reasoning_fold(self, key: str, event: ConversationEvent) -> None:
        word, first = ("reasoning ", "emph"), sanitize_to_one_line(event.text[:400])
        first = first.replace("**", "") or "(hidden by the provider)"
        self._add_heading_of_text_fold(key, "reasoning", word, event.text, first=first)
        self._add_markdown_blocks(key, event.text)

    def _add_tool_call_fold(self, key: str, event: ConversationEvent) -> None:
        if event.call:
            key = f"call:{self.turn}.{event.call}"
        self.call = event.call
        result = event.result
        failed = bool(result and result.is_error)
        words: Spans = [("✗ ", "error")] if failed else []
        words += [
            (sanitize_to_one_line(event.name or "a tool"), "error" if failed else "tool"),
            ("  ", ""),
        ]
        directory = self.conversation.info.working_directory
        changes = list_requested_file_changes(event)
        if event.name:
            self.changes_by_tool[event.name] = (event.call, changes)
        summary = (
            _list_changed_paths_on_one_line(changes, directory)
            or find_argument_that_describes_tool_call(event.arguments, directory)
            or sanitize_to_one_line(event.text[:_MAX_SUMMARY_CHARACTERS])
        )
        words.append((summary, "dim path" if _looks_like_path(summary) else "dim"))
        counts = make_changed_line_count_spans(changes)
        right: Spans = [("no result", "warning")]
        if result:
            size = format_text_length(result.text)
            outcome = f"{sanitize_to_one_line(result.outcome)}, " if result.outcome else ""
            right = [
                (f"{outcome}error, {size}", "error") if failed else (f"{outcome}{size}", "dim")
            ]
        if counts:
            right = [*right, (", ", "dim"), *counts] if failed or not result else counts
        if failed and self.turn_fold is None:
            self.errors.append(len(self.blocks))
        kind = "diff" if counts else "tool"
        self._add_fold_heading(key, kind, words, right)
        before = self.view
        self.view = "user" if self.compacted.lacks_arguments else before
        if counts:
            self._add_changes_and_other_arguments_of_call(f"{key}:arguments", event, changes)
        elif arguments := event.text or format_json_value_as_text(event.arguments or {}):
            self._add_source_text_blocks(f"{key}:arguments", arguments)
        if result is not None:
            self.view = "user" if self.compacted.lacks_results else before
            self._add_tool_result_blocks(key, result, changes if counts else [])
            if self.compacted.lacks_results and not before:
                self.view = "model"
                outcome = "error" if failed else "success"
                text = f"[compacted] {sanitize_to_one_line(event.name or '')}: {outcome}"
                self._add_note_paragraph(f"{key}:compacted", text, "dim")

        metadata = result.metadata if result else None
        if metadata:
            self.fold, self.view = None, before
            self._add_visible_result_blocks(key, metadata)

    def _add_visible_result_blocks(self, key: str, metadata: dict[str, Any]) -> None:
        """Add the blocks that stay visible when a call is folded.

        They show a link to the conversation of the call's subagent, and the user's answers.
        """
        if type(subagent := metadata.get("subagent")) is str:
            self.lead = [("  ", "")]
            session = self.conversation.info.id.partition("~")[0]
            self._add_conversation_link(f"{key}:subagent", "↳ subagent ", f"{session}~{subagent}")
        if type(answers := metadata.get("answers")) is dict:
            self.lead = [("▌ ", "user")]
            for number, (question, answer) in enumerate(answers.items()):
                spans: Spans = [
                    (f"{sanitize_to_one_line(str(question))} ", "dim"),
                    (sanitize_to_one_line(str(answer)), ""),
                ]
                self._append_blocks(ParagraphReaderBlock(f"{key}:answer:{number}", spans))

    def _add_changes_and_other_arguments_of_call(
        self, key: str, call: ConversationEvent, changes: list[TurnFileAction]
    ) -> None:
        """Add blocks for a call: its file changes as diffs, and its other arguments as text."""
        arguments = call.arguments or {}
        others = {
            name: value
            for name, value in arguments.items()
            if name not in CHANGE_ARGUMENTS
            and value is not False
            and value not in [one.path for one in changes]
        }
        if others:
            self._add_source_text_blocks(key, format_json_value_as_text(others))
        directory = self.conversation.info.working_directory
        for number, one in enumerate(changes):
            if len(changes) > 1 or one.kind != "changed":
                name = _list_changed_paths_on_one_line([one], directory)
                moved = f" from {sanitize_to_one_line(one.old_path)}" if one.old_path else ""
                self._add_diff_heading(f"{key}:file:{number}", f"{one.kind} {name}{moved}", one)
            self._append_blocks(*make_blocks_of_diff_hunks(f"{key}:diff:{number}", one.hunks))

    def _add_diff_heading(self, key: str, text: str, change: TurnFileAction | FilePatch) -> None:
        counts = make_changed_line_count_spans([change])
        self._append_blocks(LeftAndRightLineBlock(key, [(text, "section")], counts))

    def _add_text_with_diffs(
        self,
        key: str,
        text: str,
        shown: Collection[tuple[PatchHunk, ...]] = (),
        path: str | None = None,
    ) -> None:
        """Add `text`. Unified diffs in it are shown as diffs, without their fences.

        Diffs whose hunks are in `shown` are left out. If the text is the content of a file, `path`
        is the path of the file, and the text is shown as code, even if it contains a diff.
        """
        if path is not None and find_language_of_path(path) not in ("diff", "patch"):
            self._add_tool_text_blocks(key, text, path)
            return
        position, number = 0, 0
        for number, (start, end, patch) in enumerate(find_unified_diffs(text), 1):
            if before := text[position:start].strip("\n"):
                self._add_tool_text_blocks(f"{key}:before:{number}", before)
            position = end
            if patch.hunks not in shown:
                name = sanitize_to_one_line(patch.path)
                self._add_diff_heading(f"{key}:file:{number}", name, patch)
                self._append_blocks(*make_blocks_of_diff_hunks(f"{key}:diff:{number}", patch.hunks))
        if rest := text[position:].strip("\n") if number else text:
            self._add_tool_text_blocks(key, rest)
        elif not number:
            self._add_tool_text_blocks(key, text)

    def _add_tool_text_blocks(self, key: str, text: str, path: str | None = None) -> None:
        """Add text that a tool returned. Code is highlighted, and the middle of a long text is folded."""
        has_colours = is_sanitize_policy_strip()
        if not has_colours:
            text = strip_escape_sequences_before_cutting(text)
        self._append_blocks(*make_tool_text_blocks(key, text, path=path, has_colours=has_colours))

    def _add_tool_result_blocks(
        self, key: str, result: ConversationEvent, changes: Iterable[TurnFileAction] = ()
    ) -> None:
        word = ("error", "error") if result.is_error else ("result", "strong")
        when: Spans = [(self._format_optional_time(result.timestamp), "dim")]
        self._append_blocks(LeftAndRightLineBlock(f"{key}:result", [word], when))
        shown = {one.hunks for one in changes}
        path = None
        if result.request is not None and not result.is_error:
            path = find_path_of_file_returned_by_call(result.request)
        if result.blocks:
            self._add_content_blocks(f"{key}:text", result.blocks, path=path)
        else:
            self._add_text_with_diffs(f"{key}:text", result.text, shown, path)
        if result.problem:
            self._add_problem_paragraph(f"{key}:problem", result.problem)

    def _add_fold_for_result_without_call(self, key: str, event: ConversationEvent) -> None:
        word = ("result without a call  ", "warning")
        self._add_heading_of_text_fold(key, "tool", word, event.text, first=event.text[:200])
        if event.blocks:
            self._add_content_blocks(key, event.blocks)
        else:
            self._add_text_with_diffs(key, event.text)

    def _add_notice_blocks(self, key: str, event: ConversationEvent) -> None:
        """Add a notice of the agent. A short notice is a dim line, a long one is a fold."""
        text = event.text.strip()
        if len(text) > MAX_NOTICE_CHARACTERS or "\n" in text:
            self._add_heading_of_text_fold(key, "notice", ("notice  ", "dim"), text)
            self._add_source_text_blocks(key, text)
            return
        self._add_notice_paragraph(key, sanitize_to_one_line(text))

    def _add_notice_paragraph(self, key: str, text: str) -> None:
        above, lead = int(not self.after_fold), self.lead
        self.lead = [("┊ ", "dim")]
        self._add_note_paragraph(key, text, "dim")
        self.blocks[-1].above, self.lead = above, lead
        self.after_fold, self.space_above = True, 0

    def _add_compaction_fold(self, key: str, event: ConversationEvent) -> None:
        """Add a fold with a compaction's summary, at the place where the agent wrote the summary.

        The fold is not shown in the model's view.
        """
        self.view = "user"
        word = ("compacted here  ", "accent")
        self._add_heading_of_text_fold(key, "compaction", word, event.text)
        self._add_markdown_blocks(key, event.text)

    def _add_unknown_event_fold(self, key: str, event: ConversationEvent) -> None:
        """Add, as JSON, an event of an unknown kind, for example from a newer version of the agent."""
        word = ("unknown event  ", "warning")
        self._add_heading_of_text_fold(key, "tool", word, event.text, first=event.name or "")
        self._add_source_text_blocks(key, event.text, language="json")

    def _add_tool_question_fold(self, key: str, event: ConversationEvent) -> None:
        """Add a question that a tool asked the user. A patch is left out if the tool's call above already shows it."""
        call, changes = self.changes_by_tool.get(event.name or "", (None, []))
        text = format_event_text(event, format_json_value_as_text)
        found = list(find_unified_diffs(text))
        shown = [one.hunks for one in changes]
        if not found or call is None or any(one.patch.hunks not in shown for one in found):
            self._add_event_text_fold(key, event, "asks")
            return
        said = text
        for one in reversed(found):
            said = said[: one.start] + said[one.end :]
        said = "\n".join(line for line in said.split("\n") if line.strip())
        words: Spans = [("asks  ", "tool"), (sanitize_to_one_line(said[:400]), "dim")]
        patch = "patch" if len(found) == 1 else "patches"
        self._add_fold_heading(key, "tool", words, [(f"{patch} of call {self.turn}.{call}", "dim")])
        self._add_tool_text_blocks(key, said)
        note = f"Call {self.turn}.{call} above shows the {patch}."
        self._add_note_paragraph(f"{key}:patch", note, "dim")

    def _add_event_text_fold(self, key: str, event: ConversationEvent, word: str = "") -> None:
        """Add a fold with an event's text; its heading starts with `word`, by default the event's kind."""
        text = format_event_text(event, format_json_value_as_text)
        word = word or EVENT_KINDS[event.kind].label.lower()
        patches = [found.patch for found in find_unified_diffs(text)]
        counts = make_changed_line_count_spans(patches)
        words: Spans = [(f"{word}  ", "tool"), (sanitize_to_one_line(text[:400]), "dim")]
        if patches:
            # Show the file names and the question before the patch, which alone would fill the line. The
            # names come first, because a narrow screen cuts the end, and the question is often the same.
            said = sanitize_to_one_line(text.partition("```")[0].partition("--- ")[0][:200])
            names = ", ".join(dict.fromkeys(sanitize_to_one_line(one.path) for one in patches))
            words = [words[0], (f"{names}  ", "dim"), (said, "dim")]
        self._add_fold_heading(key, "diff" if patches else "tool", words, counts)
        self._add_text_with_diffs(key, text)

    def _add_fold_heading(
        self, key: str, kind: str, left: Spans, right: Spans | None = None
    ) -> None:
        """Add the heading of a fold.

        The fold contains the blocks that are added until `_end_fold` is called.
        """
        above = 0 if self.after_fold else 1
        self._append_blocks(FoldHeadingBlock(key, left, right or [], kind=kind, above=above))
        self.after_fold, self.space_above = True, 0
        self.fold, self.lead = key, [("  │ ", "rule")]

    def _add_heading_of_text_fold(
        self, key: str, kind: str, word: Span, text: str, *, first: str | None = None
    ) -> None:
        """Add the heading of a fold that contains `text`: a word, the beginning of the text, and its length.

        If `first` is given, it is shown in place of the beginning.
        """
        beginning = sanitize_to_one_line(text[:400] if first is None else first)
        size = format_text_length(text)
        self._add_fold_heading(key, kind, [word, (beginning, "dim")], [(size, "dim")])

    def _end_fold(self) -> None:
        self.fold, self.call, self.lead = None, None, []

    def _add_markdown_blocks(self, key: str, text: str, breaks: bool = False) -> None:
        text, above = strip_escape_sequences_before_cutting(text), self.space_above
        self._append_blocks(*make_markdown_blocks(key, text, above=above, breaks=breaks))

    def _add_source_text_blocks(self, key: str, text: str, **fields: Any) -> None:
        self._append_blocks(
            *make_source_text_blocks(key, strip_escape_sequences_before_cutting(text), **fields)
        )

    def _add_note_paragraph(self, key: str, text: str, role: str) -> None:
        self._append_blocks(ParagraphReaderBlock(key, [(text, role)]))

    def _add_problem_paragraph(self, key: str, text: str, role: str = "error") -> None:
        self._add_note_paragraph(key, f"! {sanitize_to_one_line(text)}", role)

    def _append_blocks(self, *blocks: ReaderBlock) -> None:
        for block in blocks:
            block.turn, block.call, block.view = self.turn or None, self.call, self.view
            # The middle of a long text is in a fold of its own.
            block.fold = block.fold or self.fold or self.turn_fold
            block.lead = self.lead
            if self.turn_fold is not None:
                block.lead = [("  ┊ ", "rule"), *self.lead]
            self.blocks.append(block)


_BLOCK_ADDERS_BY_EVENT_KIND: dict[
    str, Callable[[_ConversationReaderDocumentBuilder, str, ConversationEvent], None]
] = {
    "chat_request": _ConversationReaderDocumentBuilder._add_request_blocks,
    "attachment": _ConversationReaderDocumentBuilder._add_attachment_fold,
    "message": _ConversationReaderDocumentBuilder._add_assistant_message_blocks,
    "structured": _ConversationReaderDocumentBuilder._add_assistant_message_blocks,
    "reasoning": _ConversationReaderDocumentBuilder._add_reasoning_fold,
    "tool_call_request": _ConversationReaderDocumentBuilder._add_tool_call_fold,
    "tool_call_response": _ConversationReaderDocumentBuilder._add_fold_for_result_without_call,
    "notice": _ConversationReaderDocumentBuilder._add_notice_blocks,
    "compaction": _ConversationReaderDocumentBuilder._add_compaction_fold,
    "inquiry_request": _ConversationReaderDocumentBuilder._add_tool_question_fold,
    "unknown": _ConversationReaderDocumentBuilder._add_unknown_event_fold,
}
"""The method that adds the blocks of an event, by event kind. Other kinds use `_add_event_text_fold`."""
