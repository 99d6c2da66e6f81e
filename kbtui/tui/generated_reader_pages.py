"""Builds reader pages that are not stored in a file: home, topic, error, help, rank explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.dates import format_time_or_date, format_time_with_date
from kbtui.notices import format_notice
from kbtui.references import parse_ref
from kbtui.terminal_text import (
    LEG_NAMES,
    describe_query_words_missing_from_passage,
    format_counted_noun,
    sanitize,
    sanitize_to_one_line,
)
from kbtui.tui.library_pane import ENTRY_MARKS, NEW, TURNS_SIGN
from kbtui.tui.reader.reader_blocks import (
    FactTableReaderBlock,
    LeftAndRightLineBlock,
    MarkdownReaderBlock,
    ParagraphReaderBlock,
    ReaderBlock,
    make_blocks_of_problem_and_hint,
    make_heading_block_with_note,
)
from kbtui.tui.reader.reader_document import (
    ReaderDocument,
    format_characters_and_tokens,
)
from kbtui.tui.topics_and_conversations_snapshot import (
    find_news_since_visit,
    list_running_conversations,
)
from kbtui.tui.tui_command_table import (
    SCOPES,
    SCREENS,
    find_key_label_of_command,
    group_commands_by_task,
    list_commands_of_scopes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from kbtui.search.search_request_and_answer import (
        ChunkRankAndScoreInOneRanking,
        Hit,
        RankExplanation,
    )
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.framework.tui_command_definition import TuiCommand
    from kbtui.tui.topics_and_conversations_snapshot import (
        LastVisit,
        TopicsAndConversations,
        TopicWithSubjects,
    )
    from kbtui.tui.tui_command_table import Scope

    Facts = list[tuple[str, Spans]]

FIRST_TOPIC = """\
A topic is a directory of text files. `{file}` declares it, in a few lines:

```toml
[kb.topic.project]
title = "Project Knowledge"
introduction = "what everybody here should know"
subjects = "docs"
```
"""
UNREADABLE_TOPICS = "The problems are listed below. kbtui reloads the topics after you fix them."
HOME_KEYS = (
    ("search", "search everything"),
    ("library.open", "open the selected item"),
    ("help", "help for the current pane"),
)
"""The commands that the home page shows, each with its id and a description."""
RECENT_CONVERSATIONS = 5
MAX_NEWS = 5
"""The home page lists at most `MAX_NEWS` new conversations, and at most `MAX_NEWS` new subjects."""
MAX_TERMS = 20
"""An explanation of a rank lists at most this many matching terms."""


def _make_paragraph(key: str, text: str, role: str = "", **fields: Any) -> ParagraphReaderBlock:
    return ParagraphReaderBlock(key, [(text, role)], **fields)


def build_home_document(
    name: str,
    contents: TopicsAndConversations | None,
    now: datetime,
    notices: Sequence[str],
    keymap: Mapping[str, str],
    note: str,
    visit: LastVisit | None = None,
    left_off: str | None = None,
    outdated: Mapping[str, int] | None = None,
) -> ReaderDocument:
    """Return the home page: the main keys, news, the topics, recent conversations, and problems.

    * `contents` is None while the library is being read.
    * `notices` are problems with the settings.
    * `note` says why the home page is shown although another page was requested; it is "" if no
      other page was requested.
    * `left_off` is the reference that the user read last.
    * `outdated` maps the reference of each changed subject to the number of turns that received an
      earlier version of it.
    """
    blocks: list[ReaderBlock] = [ParagraphReaderBlock("name", [(sanitize_to_one_line(name), "h1")])]
    if note:
        blocks.append(_make_paragraph("note", sanitize_to_one_line(note), "warning", above=1))
    keys: Facts = [
        (key, [(meaning, "")])
        for command, meaning in (*HOME_KEYS, *_list_home_page_creation_commands(contents))
        if (key := find_key_label_of_command(command, keymap))
    ]
    blocks.append(FactTableReaderBlock("keys", keys, above=1, name_role="key"))
    if contents is None:
        blocks.append(_make_paragraph("loading", "Reading the workspace …", "dim", above=1))
        return ReaderDocument("home", "Home", blocks)
    if not contents.is_jp_workspace:
        about = _describe_project_without_jp(contents)
        blocks.insert(1, _make_paragraph("without-jp", about, "dim"))
    blocks += _make_home_page_last_visit_and_news_blocks(
        contents, now, visit, left_off, outdated or {}
    )
    if contents.listings:
        blocks += _make_home_page_topic_blocks(contents)
    else:
        blocks += _make_home_page_hint_without_topics(
            contents, find_key_label_of_command("first", keymap)
        )
    blocks += _make_home_page_conversation_blocks(contents, now)
    failures = {"topics": contents.topics_failure, "conversations": contents.conversations_failure}
    unread = [f"{part}: {failure}" for part, failure in failures.items() if failure]
    blocks += _make_home_or_topic_problem_paragraphs([*unread, *contents.problems, *notices])
    if contents.learn_tool_problem:
        key = find_key_label_of_command("tools", keymap)
        blocks.append(_make_paragraph("tools", describe_outdated_jp_tools(key), "warning", above=1))
    return ReaderDocument("home", "Home", blocks, stops_at_links=True)


def _make_home_page_last_visit_and_news_blocks(
    contents: TopicsAndConversations,
    now: datetime,
    visit: LastVisit | None,
    left_off: str | None,
    outdated: Mapping[str, int],
) -> Iterator[ReaderBlock]:
    """Yield the home page's blocks about the user's last visit and what has happened since.

    They list the item that the user read last, the conversations that are being written now, and
    the news since the last visit.
    """
    if left_off is not None:
        yield make_heading_block_with_note("left", "Where you left off")
        title = _find_title_of_reference(contents, left_off)
        yield _make_home_page_link_row(f"left:{left_off}", title, "", left_off)
    if running := list_running_conversations(contents, now):
        yield make_heading_block_with_note("running", "Being written now")
        for info in running[:MAX_NEWS]:
            yield _make_home_page_link_row(
                f"running:{info.id}", info.name, info.short_agent_name, info.ref
            )
    if visit is None:
        return
    news = find_news_since_visit(contents, visit)
    yield make_heading_block_with_note(
        "news", "Since your last visit", format_time_with_date(visit.at, now)
    )
    if not news.conversations and not news.subjects:
        yield _make_paragraph("no-news", "Nothing has changed.", "dim", lead=[("  ", "")])
    for info in news.conversations[:MAX_NEWS]:
        if info.created_at > visit.at:
            said = "new conversation"
        elif info.id in news.turns:
            said = format_counted_noun(news.turns[info.id], "new turn")
        else:
            said = "continued"
        yield _make_home_page_link_row(f"news:{info.id}", info.name, said, info.ref)
    for subject in news.subjects[:MAX_NEWS]:
        stale = outdated.get(subject.ref, 0)
        cited = f"; earlier text given to {format_counted_noun(stale, 'turn')}" if stale else ""
        yield _make_home_page_link_row(
            f"news:{subject.ref}", subject.ref, f"changed{cited}", subject.ref
        )
    more = sum(max(0, len(found) - MAX_NEWS) for found in (news.conversations, news.subjects))
    if more:
        text = f"and {more:,} more; the library marks them with {ENTRY_MARKS[NEW][0].strip()}"
        yield _make_paragraph("more-news", text, "dim", lead=[("  ", "")])


def _make_home_page_link_row(key: str, name: str, said: str, ref: str) -> LeftAndRightLineBlock:
    left: Spans = [(sanitize_to_one_line(name), "")]
    return LeftAndRightLineBlock(key, left, [(said, "dim")], lead=[("  ", "")], link=ref)


def _find_title_of_reference(contents: TopicsAndConversations, reference: str) -> str:
    """Return the title of the conversation to which `reference` refers.

    If `reference` contains a turn, the turn's number follows the title. If `reference` refers to a
    subject or to an unknown conversation, return `reference` itself.
    """
    ref = parse_ref(reference)
    info = contents.find_conversation(ref.conversation) if ref.conversation else None
    if info is None:
        return reference
    return f"{info.name}, turn {ref.turn}" if ref.turn else info.name


def _describe_project_without_jp(contents: TopicsAndConversations) -> str:
    """Return the home page's sentence about a project without a JP workspace."""
    shown = "No JP workspace here. kbtui shows the topics that you declare"
    if not contents.agents:
        return f"{shown}."
    return f"{shown} and the sessions of other agents: {', '.join(contents.agents)}."


def _list_home_page_creation_commands(
    contents: TopicsAndConversations | None,
) -> list[tuple[str, str]]:
    """Return a list with the command that creates the first topic or the first entry.

    The command is a pair of its id and a description. The list is empty if there are entries
    already, or if the topics cannot be read.
    """
    if contents is None or _are_all_topics_unreadable(contents):
        return []
    if not contents.listings:
        return [("first", "create a first topic")]
    has_subjects = any(listing.subjects for listing in contents.listings)
    return [] if has_subjects else [("new", "create an entry")]


def _are_all_topics_unreadable(contents: TopicsAndConversations) -> bool:
    return not contents.listings and bool(contents.problems or contents.topics_failure)


def _make_home_page_topic_blocks(contents: TopicsAndConversations) -> list[ReaderBlock]:
    total = sum(listing.visible_subject_count for listing in contents.listings)
    hidden = sum(len(listing.subjects) for listing in contents.listings) - total
    count = format_counted_noun(total, "subject")
    count += f", {hidden:,} hidden" if hidden else ""
    disabled = sum(one.disabled for listing in contents.listings for one in listing.subjects)
    count += f", {disabled:,} disabled" if disabled else ""
    blocks: list[ReaderBlock] = [make_heading_block_with_note("topics", "Topics", count)]
    for listing in contents.listings:
        topic = listing.topic
        words: Spans = [(sanitize_to_one_line(topic.name), "strong")]
        if topic.introduction:
            words.append((f"  {sanitize_to_one_line(topic.introduction)}", "dim"))
        if not topic.enable:
            words.append(("  switched off", "warning"))
        blocks.append(
            ParagraphReaderBlock(f"topic:{topic.id}", words, lead=[("  ", "")], link=topic.id)
        )
    return blocks


def _make_home_page_hint_without_topics(
    contents: TopicsAndConversations, key: str
) -> list[ReaderBlock]:
    if _are_all_topics_unreadable(contents):
        heading = make_heading_block_with_note("topics", "None of the topics can be read")
        return [heading, _make_paragraph("why", UNREADABLE_TOPICS, "dim")]
    blocks = [
        make_heading_block_with_note("topics", "No topics yet"),
        MarkdownReaderBlock("first", FIRST_TOPIC.format(file=contents.topics_file)),
    ]
    if key:
        offer: Spans = [("Press ", ""), (key, "key"), (" to create one (asks first).", "")]
        blocks.append(ParagraphReaderBlock("offer", offer, above=1))
    return blocks


def _make_home_page_conversation_blocks(
    contents: TopicsAndConversations, now: datetime
) -> list[ReaderBlock]:
    if not contents.conversations:
        hint = "They appear after your first `jp query`."
        if not contents.is_jp_workspace:
            hint = (
                "They appear after your first session with one of these agents in this directory."
            )
            if not contents.agents:
                hint = "To read the sessions of other agents, add them to `agents` in the table [conversations] of config.toml."
        heading = make_heading_block_with_note("talks", "No conversations yet")
        return [heading, _make_paragraph("no-talks", hint, "dim")]
    found = contents.main_conversations
    count = format_counted_noun(len(found), "conversation")
    blocks: list[ReaderBlock] = [
        make_heading_block_with_note("talks", "Recent conversations", count)
    ]
    live = [info for info in found if not info.archived]
    for info in sorted(live, key=lambda info: info.make_time_sort_key(), reverse=True)[
        :RECENT_CONVERSATIONS
    ]:
        left: Spans = [(sanitize_to_one_line(info.name), "" if info.title else "dim")]
        day = format_time_or_date(info.last_activity_at, now)
        agent = f"{info.short_agent_name}  " if contents.has_several_agents else ""
        turns = contents.count_turns_of_conversation(info)
        size = f"{format_counted_noun(turns, 'turn')}  " if turns >= 0 else ""
        right: Spans = [(f"{agent}{size}{day}", "dim")]
        key = f"talk:{info.id}"
        blocks.append(LeftAndRightLineBlock(key, left, right, lead=[("  ", "")], link=info.ref))
    return blocks


def describe_outdated_jp_tools(key: str) -> str:
    """Return a sentence that tells the user how to update the installed tools, which are out of date.

    `key` is the label of the key that updates the tools, or "" if there is no such key.
    """
    update = f"press {key}" if key else "run `kbtui tools install`"
    return f"The topics have changed since the tools for JP were installed: {update} to update the tools."


def _make_home_or_topic_problem_paragraphs(problems: Iterable[object]) -> list[ReaderBlock]:
    return [
        _make_paragraph(
            f"problem:{n}", f"! {sanitize_to_one_line(str(problem))}", "error", above=int(n == 0)
        )
        for n, problem in enumerate(problems)
    ]


def build_topic_document(listing: TopicWithSubjects, learn_text: str) -> ReaderDocument:
    """Return the page of a topic: a table of facts, followed by the output of `learn` for the topic."""
    topic, subjects = listing.topic, listing.subjects
    counts = {
        "hidden": sum(subject.hidden for subject in subjects),
        "pre-loaded": sum(subject.learned for subject in subjects),
        "disabled": sum(subject.disabled for subject in subjects),
    }
    visible = format_counted_noun(listing.visible_subject_count, "subject")
    others = [f"{count:,} {word}" for word, count in counts.items() if count]
    texts = {
        "id": topic.id,
        "introduction": topic.introduction,
        "size": ", ".join([visible, *others]),
        "directory": topic.subjects,
        "learned": ", ".join(topic.learned),
        "disabled": ", ".join(topic.disabled),
    }
    facts: dict[str, Spans] = {
        name: [(sanitize_to_one_line(text), "")] for name, text in texts.items() if text
    }
    total = format_counted_noun(sum(subject.size for subject in subjects), "byte")
    facts["size"].append((f"  {total}", "dim"))
    blocks: list[ReaderBlock] = [FactTableReaderBlock("facts", list(facts.items()))]
    blocks += _make_home_or_topic_problem_paragraphs(listing.problems)
    if topic.enable:
        cost = format_characters_and_tokens(len(learn_text))
        blocks.append(
            make_heading_block_with_note("learn", "What `learn` returns for this topic", cost)
        )
        blocks.append(MarkdownReaderBlock("listing", learn_text, above=1, lead=[("▎ ", "rule")]))
    badges: Spans = [] if topic.enable else [("switched off", "warning")]
    name = sanitize_to_one_line(topic.name)
    return ReaderDocument(
        f"topic:{topic.id}", name, blocks, ref=topic.id, badges=badges, record=topic
    )


def build_error_document(
    key: str, title: str, message: str, where: str | None = None, hint: str | None = None
) -> ReaderDocument:
    """Return the page that is shown instead of a document that cannot be read."""
    spans: Spans = [(f"! {sanitize(message)}", "error")]
    document = ReaderDocument(
        key, sanitize_to_one_line(title), make_blocks_of_problem_and_hint(spans, where, hint)
    )
    document.problem = sanitize_to_one_line(message).rstrip(".")
    return document


def build_other_workspace_hit_preview(key: str, hit: Hit) -> ReaderDocument:
    """Return the preview of a hit in another workspace: where the hit is, and its passage."""
    where: Facts = [
        ("Project", [(sanitize_to_one_line(hit.project or ""), "")]),
        ("Workspace", [(sanitize_to_one_line(hit.workspace or ""), "")]),
        ("Passage", [(sanitize_to_one_line(hit.ref), "link")]),
    ]
    where += [("Also in", [(sanitize_to_one_line(root), "")]) for root in hit.also_in]
    title = sanitize_to_one_line(hit.title)
    text = sanitize(hit.text)
    blocks: list[ReaderBlock] = [
        FactTableReaderBlock("where", where),
        MarkdownReaderBlock("text", text, above=1)
        if hit.kind == "subject"
        else ParagraphReaderBlock("text", [(text, "")], above=1),
        _make_paragraph(
            "how", "Open the hit to read the whole text in its workspace.", "dim", above=1
        ),
    ]
    return ReaderDocument(key, title, blocks)


def build_no_hits_document(key: str, reason: Spans) -> ReaderDocument:
    """Return the page shown in place of a hit's preview if a search has no hits."""
    return ReaderDocument(key, "No hits", [ParagraphReaderBlock("reason", reason)])


def build_main_help_document(
    scopes: tuple[Scope, ...], keymap: Mapping[str, str]
) -> ReaderDocument:
    """Return the help page of the main screen, with the keys of `scopes` first."""
    first: list[Scope] = [scope for scope in scopes if scope != "everywhere"]
    blocks: list[ReaderBlock] = []
    for scope in dict.fromkeys((*first, "moving", "everywhere", *SCOPES)):
        blocks += _make_key_tables(scope, SCOPES[scope], keymap, above=int(bool(blocks)))
    marks: Facts = [(sign, [(name, "")]) for name, (sign, _) in ENTRY_MARKS.items()]
    marks.append((f"12{TURNS_SIGN}", [("number of turns in a conversation", "")]))
    text = (
        "In an input, letters are typed as text. Press Esc to leave it and use single-key commands."
    )
    blocks += [
        make_heading_block_with_note("head:marks", "Marks in the library"),
        FactTableReaderBlock("marks", marks),
        _make_paragraph("input", text, "dim", above=1),
    ]
    return ReaderDocument("help", "Help", blocks)


def build_screen_help_document(
    scope: Scope, notes: Sequence[str], keymap: Mapping[str, str], more: Sequence[ReaderBlock]
) -> ReaderDocument:
    """Return the help page of a secondary screen: its keys, the blocks in `more`, then `notes`."""
    keys = _make_key_tables(scope, SCREENS[scope], keymap, above=0)
    last = [_make_paragraph(f"note:{n}", note, "dim", above=1) for n, note in enumerate(notes)]
    return ReaderDocument("help", "Help", [*keys, *more, *last])


def _make_key_tables(
    scope: Scope, where: str, keymap: Mapping[str, str], above: int
) -> list[ReaderBlock]:
    """For each task in `scope`, return a heading and a table of keys. `where` is the scope's heading."""
    blocks: list[ReaderBlock] = []
    commands = list_commands_of_scopes(scope, keymap=keymap)
    # The keys for moving work in the same way everywhere, so treat them as one task.
    tasks = {"": commands} if scope == "moving" else group_commands_by_task(commands)
    for number, (task, members) in enumerate(tasks.items()):
        heading = task if scope == "everywhere" else f"{where}: {task}" if task else where
        blocks += [
            make_heading_block_with_note(
                f"head:{scope}:{number}", heading, above=1 if blocks else above
            ),
            _make_key_table(f"keys:{scope}:{number}", members),
        ]
    return blocks


def _make_key_table(key: str, commands: Iterable[TuiCommand]) -> FactTableReaderBlock:
    facts: Facts = [("  ".join(command.key_labels), [(command.help, "")]) for command in commands]
    return FactTableReaderBlock(key, facts, name_role="key")


def build_rank_explanation_document(explanation: RankExplanation, query: str) -> ReaderDocument:
    """Return a page that explains the rank of a passage, or the reason why the search did not find it."""
    what: Facts = [
        ("Passage", [(explanation.ref, "")]),
        ("Query", [(sanitize_to_one_line(query), "")]),
    ]
    blocks: list[ReaderBlock] = [
        ParagraphReaderBlock(
            "title", [(sanitize_to_one_line(explanation.title) or explanation.ref, "h1")]
        ),
        FactTableReaderBlock("what", what),
    ]
    if explanation.rank is not None:
        score = f", combined score {explanation.score:.3f}"
        verdict: Spans = [(f"Rank {explanation.rank}", "strong"), (score, "dim")]
        blocks.append(ParagraphReaderBlock("rank", verdict, above=1))
    for n, reason in enumerate(explanation.kept_out):
        text = f"✕ {sanitize_to_one_line(format_notice(reason))}"
        blocks.append(_make_paragraph(f"out:{n}", text, "warning", above=int(n == 0)))
    if explanation.chunk_id is not None:
        blocks += _make_ranking_blocks(explanation)
    blocks += _make_matching_term_score_blocks(explanation)
    blocks += _make_embedded_text_blocks(explanation)
    return ReaderDocument("explanation", "Why", blocks)


def _make_ranking_blocks(explanation: RankExplanation) -> list[ReaderBlock]:
    facts: Facts = []
    for leg, name in LEG_NAMES.items():
        result: ChunkRankAndScoreInOneRanking = getattr(explanation, leg)
        if result.rank is None:
            note = format_notice(result.reason) if result.reason else "not found"
            spans: Spans = [(note, "dim")]
        else:
            spans = [(f"rank {result.rank}", ""), (f", score {result.score:.4f}", "dim")]
        if result.gives:
            spans.append((f", adds {result.gives:.4f} to the combined score", "dim"))
        facts.append((name, spans))
    for name, gives in (("title", explanation.title_gives), ("length", explanation.length_gives)):
        if gives:
            facts.append((name, [(f"adds {gives:.4f} to the combined score", "dim")]))
    among_turns = {
        "words": explanation.words_gives,
        "reply": explanation.reply_gives,
        "conversation": explanation.conversation_gives,
        "reasoning": explanation.role_gives,
    }
    if any(among_turns.values()):
        given = ", ".join(f"{name} {gives:.4f}" for name, gives in among_turns.items() if gives)
        place = f", changes the combined score by {explanation.place_gives:+.4f}"
        facts.append(("among turns", [(given, ""), (place, "dim")]))
    heading = make_heading_block_with_note("head:legs", "Ranks by keywords and by meaning")
    return [heading, FactTableReaderBlock("legs", facts)]


def _make_matching_term_score_blocks(explanation: RankExplanation) -> list[ReaderBlock]:
    facts: Facts = []
    for match in explanation.matches[:MAX_TERMS]:
        detail = f" in {match.field}, weight {match.weight:g}"
        facts.append((f"{match.score:.2f}", [(match.term, "strong"), (detail, "dim")]))
    absent = describe_query_words_missing_from_passage(explanation.missing)
    blocks: list[ReaderBlock] = []
    if facts or absent:
        more = len(explanation.matches) - MAX_TERMS
        blocks.append(
            make_heading_block_with_note("head:words", "Words", f"{more} more" if more > 0 else "")
        )
        blocks.append(FactTableReaderBlock("words", facts))
    for n, line in enumerate(absent):
        text = f"{line[0].upper()}{line[1:]}"
        blocks.append(_make_paragraph(f"absent:{n}", text, above=int(n == 0)))
    return blocks


def _make_embedded_text_blocks(explanation: RankExplanation) -> list[ReaderBlock]:
    parts = explanation.embedded
    if parts is None:
        return []
    weighted = [("title", parts.title_weight, sanitize_to_one_line(parts.title))]
    weighted += [
        ("neighbour", parts.neighbour_weight, sanitize_to_one_line(text)[:200])
        for text in parts.neighbours
    ]
    facts: Facts = [
        (f"+ {weight:g} ×", [(f"{name}: ", "dim"), (text, "")]) for name, weight, text in weighted
    ]
    return [
        make_heading_block_with_note("head:made", "Embedded text"),
        _make_paragraph("text", sanitize_to_one_line(parts.text)),
        FactTableReaderBlock("made", facts, above=1),
    ]
