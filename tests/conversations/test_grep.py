"""Grep: which lines are found, in which scope, and which of them are returned."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jp_files import BASE, ID, Stream, dump, jp_id, standard, url_safe, workspace_at, write
from support import grep_answer, list_answer

from kbtui.assistant import conversation_tools
from kbtui.conversations.conversation_grep import SCOPES, cut_line_around_match
from kbtui.errors import NothingFound, UsageError


def hits(jp: Path, pattern: str, **options: Any) -> list[tuple[str, int | None, str]]:
    answer = grep_answer(workspace_at(jp.parent), pattern=pattern, **options)
    return [(hit["scope"], hit["turn"], hit["text"]) for hit in answer["hits"]]


JP_SCOPES = set(SCOPES) - {"notice", "attachment"}
"""JP writes no notices, and these requests have no attachments."""


@pytest.fixture
def rich(jp: Path) -> Path:
    question = {"text": "Apply the needle?", "answer_type": {"type": "text"}}
    stream = Stream().delta(system="needle in the configuration")
    stream.turn().ask("A Needle\nin a haystack").think("needle thoughts")
    stream.used(
        "sew", "1", "thread\nthe NEEDLE eye\r\nthimble", path="needle.txt", n=[1, {"k": "v"}]
    )
    stream.turn().say("Found the needle.").add("chat_response", data={"tool": "needle", "n": 1})
    stream.add("inquiry_request", id="q", source={"source": "user"}, question=question)
    stream.add("inquiry_response", id="q", answer="yes, needle")
    stream.add("compaction", from_turn=0, to_turn=0, summary={"summary": "needle"})
    stream.add("novelty", text="needle")
    write(jp, stream, title="Needlework")
    return jp


def test_every_scope_is_searched_over_decoded_text_line_by_line(rich: Path) -> None:
    assert hits(rich, "needle") == [
        ("title", None, "Needlework"),
        ("user", 1, "A Needle"),
        ("reasoning", 1, "needle thoughts"),
        ("tool-call", 1, '  "path": "needle.txt",'),
        ("tool-result", 1, "the NEEDLE eye"),
        ("assistant", 2, "Found the needle."),
        ("structured", 2, '  "tool": "needle",'),
        ("inquiry", 2, "Apply the needle?"),
        ("inquiry", 2, "yes, needle"),
        ("unknown", 2, '  "text": "needle"'),
    ]


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        (["title"], {"title"}),
        (["chat"], {"user", "assistant", "reasoning", "structured"}),
        (["tool"], {"tool-call", "tool-result"}),
        (["inquiry", "title"], {"inquiry", "title"}),
        (["unknown"], {"unknown"}),
        (["all"], JP_SCOPES),
        ([], JP_SCOPES),
        (None, JP_SCOPES),
    ],
)
def test_scopes_narrow_the_search(rich: Path, scopes: list[str] | None, expected: set[str]) -> None:
    assert {scope for scope, _, _ in hits(rich, "needle", scopes=scopes)} == expected


def test_a_title_search_opens_no_events(rich: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder,) = (rich / "conversations").iterdir()
    (folder / "events.json").write_bytes(b"broken")
    answer = grep_answer(workspace_at(rich.parent), pattern="needle", scopes=["title"])
    assert (answer["total"], answer["hint"]) == (1, None)


def test_an_unknown_scope_is_refused_with_the_known_ones(rich: Path) -> None:
    with pytest.raises(UsageError) as caught:
        hits(rich, "needle", scopes=["chats"])
    assert "tool-result" in str(caught.value)


def test_case_counts_when_asked(rich: Path) -> None:
    assert hits(rich, "NEEDLE", ignore_case=False) == [("tool-result", 1, "the NEEDLE eye")]
    assert hits(rich, "Needle", ignore_case=False, scopes=["user"]) == [("user", 1, "A Needle")]


def test_the_pattern_is_literal(jp: Path) -> None:
    write(jp, Stream().turn().ask("a.c [x] $1 ^y \\d (z) axc"), title=None)
    for pattern in ("a.c", "[x]", "$1", "^y", "\\d", "(z)"):
        assert len(hits(jp, pattern)) == 1
    assert hits(jp, "a.*c") == []
    assert hits(jp, "\\w") == []


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^found|eye$", ["the NEEDLE eye", "Found the needle."]),
        (r"needle\.\w+", ["needle.txt"]),
        (r"(?-i)NEE+DLE\b", ["NEEDLE"]),
        (r"needle\nthoughts", []),
    ],
)
def test_a_regular_expression_is_matched_line_by_line(
    rich: Path, pattern: str, found: list[str]
) -> None:
    texts = [text for _, _, text in hits(rich, pattern, regex=True)]
    assert len(texts) == len(found)
    assert all(part in text for part, text in zip(found, texts, strict=True))


@pytest.mark.parametrize("pattern", ["(", "a{2000}", r"(a)\1", "(?=a)", "[z-a]", "x{9}{999}{999}"])
def test_an_expression_that_re2_does_not_take_is_refused_with_the_reason(
    rich: Path, pattern: str
) -> None:
    with pytest.raises(UsageError, match=r"invalid regular expression: .+") as caught:
        hits(rich, pattern, regex=True)
    assert "RE2" in (caught.value.hint or "")


def test_a_search_that_takes_too_long_ends_and_says_so(
    rich: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_tools, "REGEX_SECONDS", -1)
    answer = grep_answer(workspace_at(rich.parent), pattern="needle", regex=True, scopes=["chat"])
    assert (answer["total"], "1 conversation was not searched completely" in answer["hint"]) == (
        0,
        True,
    )
    assert grep_answer(workspace_at(rich.parent), pattern="needle", scopes=["chat"])["total"] == 4


def test_labels_select_conversations_that_have_all_of_them(jp: Path) -> None:
    for number, labels in enumerate([{"area": "ui", "draft": ""}, {"area": "cli"}, {}]):
        facts = {"last_activated_at": "2026-01-01 00:00:00.0", "labels": labels}
        write(jp, Stream().turn().ask(f"hit {number}"), number=ID + number, metadata=facts)
    workspace = workspace_at(jp.parent)
    for labels, numbers in {
        ("area",): {0, 1},
        ("area=ui",): {0},
        ("area=u",): set(),
        ("area", "draft"): {0},
        ("area=cli", "draft="): set(),
        ("ui",): set(),
    }.items():
        listed = list_answer(workspace, labels=[*labels])["conversations"]
        assert {entry["id"] for entry in listed} == {f"jp-c{ID + number}" for number in numbers}
        found = {text for _, _, text in hits(jp, "hit", labels=[*labels])}
        assert found == {f"hit {number}" for number in numbers}
    with pytest.raises(UsageError, match="a label needs a key"):
        hits(jp, "hit", labels=["=ui"])


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("ÄPFEL", "äpfel", True),
        ("ПРИВЕТ", "привет", True),
        ("naïve", "NAÏVE", True),
        ("\u212aelvin", "kelvin", False),  # the Kelvin sign is no K
        ("İstanbul kelvin", "KELVIN", True),  # and a letter that grows shifts nothing
        ("yardım istanbul", "yardım", True),
        ("YARDIM", "yardım", False),  # without a dot it is another letter than i
        ("yardim", "yardım", False),
        ("yardım für ihn", "FÜR ıHN", False),
        ("yardım für ihn", "FÜR IHN", True),
        ("istanbul é", "İstanbul é", False),
        ("İstanbul é", "istanbul é", False),
        ("日本語のテキスト", "日本語", True),
        ("emoji 👩\u200d💻 here", "👩\u200d💻 HERE", True),
    ],
)
@pytest.mark.parametrize("where", ["message", "result"])
def test_case_folds_in_other_scripts_too(
    jp: Path, text: str, pattern: str, found: bool, where: str
) -> None:
    stream = Stream().turn()
    stream = stream.say(text) if where == "message" else stream.used("x", "1", text)
    write(jp, stream, title=None)
    assert [line for _, _, line in hits(jp, pattern)] == ([text] if found else [])


def test_a_message_in_pieces_is_searched_as_one(jp: Path) -> None:
    write(jp, Stream().turn().say("the nee").say("dle\nis ").say("here"), title=None)
    assert hits(jp, "needle") == [("assistant", 1, "the needle")]
    assert hits(jp, "is here") == [("assistant", 1, "is here")]


def test_old_results_are_found_in_either_alphabet_and_encoded_twice(jp: Path) -> None:
    stream = Stream().delta(**BASE).ask("q")
    for number, content in enumerate(
        [url_safe("~~~ needle ???"), standard(url_safe("a needle ~~~ ???, encoded once more"))]
    ):
        stream.call("x", str(number))
        stream.add("tool_call_response", id=str(number), content=content, is_error=False)
    write(jp, stream, base=None, title=None)
    assert [line for _, _, line in hits(jp, "NEEDLE")] == [
        "~~~ needle ???",
        "a needle ~~~ ???, encoded once more",
    ]


@pytest.mark.parametrize("pattern", ["", "two\nlines"])
def test_a_pattern_that_cannot_match_is_refused(rich: Path, pattern: str) -> None:
    with pytest.raises(UsageError):
        hits(rich, pattern)


def test_context_shows_lines_around_without_crossing_events(jp: Path) -> None:
    text = "\n".join(["one", "two hit", "three", "four", "five", "six hit", "seven hit", ""])
    write(jp, Stream().turn().ask(text).say("hit\r\nafter"), title=None)
    answer = conversation_tools.answer_conversation_grep(
        workspace_at(jp.parent), pattern="hit", context=1
    )
    shown = [(hit.line.text, hit.line.is_match, hit.block) for hit in answer.hits]
    assert [line[:2] for line in shown] == [
        ("one", False),
        ("two hit", True),
        ("three", False),
        ("five", False),
        ("six hit", True),
        ("seven hit", True),
        ("hit", True),
        ("after", False),
    ]
    numbers = [block for _, _, block in shown]
    assert numbers == sorted(numbers)
    assert len(set(numbers[:3])) == len(set(numbers[3:6])) == len(set(numbers[6:])) == 1
    assert len(set(numbers)) == 3
    assert answer.total == answer.count == 4, "context lines are not counted"


def test_the_limit_counts_matches_and_the_rest_is_named(jp: Path) -> None:
    for number in range(3):
        write(jp, Stream().turn().ask("hit\nx\nhit\nhit"), number=ID + number, title="hit")
    answer = grep_answer(workspace_at(jp.parent), pattern="hit", limit=5, context=1)
    assert (answer["total"], answer["count"], answer["omitted"]) == (12, 5, 7)
    assert sum(hit["is_match"] for hit in answer["hits"]) == 5
    assert answer["hits"][-1]["is_match"], "no context of a match that is not given"
    assert "7 more matches" in answer["hint"]
    whole = grep_answer(workspace_at(jp.parent), pattern="hit", limit=12)
    assert (whole["count"], whole["omitted"], whole["hint"]) == (12, 0, None)


def test_newest_activity_comes_first(jp: Path) -> None:
    write(jp, Stream().turn().ask("hit").say("later"), number=ID - 50)
    write(jp, Stream().turn().ask("hit"), number=ID)
    answer = grep_answer(workspace_at(jp.parent), pattern="hit")
    assert [hit["id"] for hit in answer["hits"]] == [f"jp-c{ID - 50}", f"jp-c{ID}"]


def test_archived_means_instead_of_live(jp: Path) -> None:
    write(jp, Stream().turn().ask("hit live"), number=ID)
    write(jp, Stream().turn().ask("hit archived"), number=ID + 1, archived=True)
    assert hits(jp, "hit") == [("user", 1, "hit live")]
    assert hits(jp, "hit", archived=True) == [("user", 1, "hit archived")]


def test_ids_restrict_and_are_taken_in_every_form(jp: Path) -> None:
    for number in range(3):
        write(jp, Stream().turn().ask(f"hit {number}"), number=ID + number)
    write(jp, Stream().turn().ask("hit old"), number=ID + 9, archived=True)
    assert hits(jp, "hit", ids=[f"jp-c{ID}", str(ID + 2), f"jp://jp-c{ID}"]) == [
        ("user", 1, "hit 2"),
        ("user", 1, "hit 0"),
    ]
    assert hits(jp, "hit", ids=[str(ID + 9)], archived=True) == [("user", 1, "hit old")]
    with pytest.raises(NothingFound, match="is archived") as caught:
        hits(jp, "hit", ids=[str(ID + 9)])
    assert caught.value.hint == "use archived=true"
    with pytest.raises(NothingFound, match=f"jp-c{ID + 5}"):
        hits(jp, "hit", ids=[str(ID + 5)])


def test_the_current_conversation_is_left_out_unless_asked_for(jp: Path) -> None:
    write(jp, Stream().turn().ask("hit here"), number=ID)
    write(jp, Stream().turn().ask("hit there"), number=ID + 1)
    assert hits(jp, "hit", current=jp_id()) == [("user", 1, "hit there")]
    assert len(hits(jp, "hit", current=jp_id(), include_current=True)) == 2
    assert len(hits(jp, "hit", current=None)) == 2
    asked = grep_answer(workspace_at(jp.parent), pattern="hit", ids=[str(ID)], current=jp_id())
    assert asked["hits"] == []
    assert "include_current" in asked["hint"]


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": "5"},
        {"limit": True},
        {"context": -1},
        {"context": 1.5},
        {"ignore_case": "yes"},
        {"archived": 1},
        {"ids": 7},
        {"ids": [7]},
        {"ids": ["the one about locks"]},
        {"scopes": {"chat": True}},
    ],
)
def test_arguments_that_are_not_of_their_form_are_refused(
    jp: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        grep_answer(workspace_at(jp.parent), **{"pattern": "x", **options})


def test_long_lines_are_cut_around_the_match(jp: Path) -> None:
    write(jp, Stream().turn().used("x", "1", "a" * 5000 + "NEEDLE" + "b" * 5000), title=None)
    [(_, _, text)] = hits(jp, "needle")
    assert len(text) == 400
    assert "NEEDLE" in text
    assert text.startswith("…a")
    assert text.endswith("b…")


@given(st.text(max_size=60), st.integers(0, 60), st.integers(8, 30))
def test_a_cut_line_is_a_piece_of_it_within_the_length(line: str, match: int, length: int) -> None:
    cut = cut_line_around_match(line, min(match, max(0, len(line) - 1)), length)
    assert len(cut) <= max(length, 1)
    if len(line) <= length:
        assert cut == line
    else:
        assert cut.removeprefix("…").removesuffix("…") in line


def test_a_cut_never_parts_a_letter_from_its_marks() -> None:
    line = "e\u0301" * 500
    cut = cut_line_around_match(line, 500, 100)
    body = cut.strip("…")
    assert body.startswith("e")
    assert body.endswith("\u0301")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    lines=st.lists(st.sampled_from(["hit", "miss", "a hit b", ""]), max_size=8),
    limit=st.integers(1, 6),
)
def test_totals_and_limits_add_up(tmp_path: Path, lines: list[str], limit: int) -> None:
    root = tmp_path / "sums"
    write(root / ".jp", dump(Stream().turn().ask("\n".join(lines)).say("hit").elements), title="x")
    answer = grep_answer(workspace_at(root), pattern="hit", limit=limit)
    expected = 1 + sum("hit" in line for line in lines)
    assert answer["total"] == expected
    assert answer["count"] == min(limit, expected)
    assert answer["omitted"] == answer["total"] - answer["count"]
    assert len(answer["hits"]) == answer["count"]
    assert json.dumps(answer)
