"""An export for other people: chosen turns, masked secrets, and an HTML file that leads nowhere."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import run_command
from support import Builder, asked, called, said

from kbtui.citations.shared_conversation_export import parse_turn_ranges, render_markdown_as_html
from kbtui.errors import UsageError

SECRET = "q7Rz-41kP_x8Wm2T"
TALK = "jp-c17800000001"


@pytest.fixture
def built(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "Guide"})
    builder.subject("guide/deploy.md", f"# Deploy\n\nUse {SECRET} for the server.\n")
    learned = f"# Deploy\n\nUse {SECRET} for the server.\n"
    reasoning = {"type": "chat_response", "reasoning": "Thinking *hard*."}
    turns = [
        [
            asked("How do I deploy? <script>alert(1)</script>"),
            reasoning,
            *called("a", "learn", learned, topic="guide", subjects="deploy"),
            said("See ![a map](https://maps.example/x.png) and [this](https://evil.example/a)."),
        ],
        [asked(f"password: {SECRET}"), said(f"So {SECRET} it is.")],
        [asked("Bye"), said("Bye.")],
    ]
    builder.conversation(1, turns, title="Deploying & <b>more</b>")
    return builder


def export(built: Builder, *words: str) -> str:
    done = run_command("-w", str(built.root), "export", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Page(HTMLParser):
    """Collects the tags, the addresses and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "srcset", "data", "action", "poster", "background"):
                self.addresses.append(value or "")
            if name.startswith("on") or name == "style":
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


LOADING = {"script", "img", "iframe", "link", "object", "embed", "video", "audio", "base", "form", "svg"}  # fmt: skip


def test_the_html_file_has_everything_in_it_and_leads_nowhere(built: Builder) -> None:
    text = export(built, TALK, "--format", "html")
    page = Page(text)
    assert not page.tags & LOADING
    assert set(page.addresses) == {"#turn-1", "#turn-2", "#turn-3"}
    assert page.handlers == []
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "url(" not in text
    shown = "".join(page.texts)
    assert "Deploying & <b>more</b>" in shown
    assert "<script>alert(1)</script>" in shown
    assert "this (https://evil.example/a)" in shown
    assert "image: a map (https://maps.example/x.png)" in shown
    # The call, its result, the reasoning, the given text, the list of turns and of masked secrets.
    assert text.count("<details") == 6
    assert "guide/deploy" in shown
    assert "Use [masked: secret] for the server." in shown


@given(st.text() | st.lists(st.sampled_from(
    ["[a](javascript:x)", "![b](data:image/png;base64,AA)", "<http://c.example>", "<img src=x>", "`", "\n\n", "> ", "- ",
     "<a href=https://d.example>", "[e]: https://e.example\n\n[e]", '"onload=x', "\x1b]8;;https://f.example\x07g"]
)).map("".join))  # fmt: skip
def test_no_message_becomes_a_link_an_image_or_a_script(text: str) -> None:
    page = Page(render_markdown_as_html(text))
    assert not page.tags & (LOADING | {"a"})
    assert page.addresses == []
    assert page.handlers == []


def test_a_secret_that_one_turn_names_is_masked_in_all_others(built: Builder) -> None:
    shared = json.loads(export(built, TALK, "--format", "json"))
    texts = [event["content"] for turn in shared["turns"] for event in turn["events"]]
    assert "So [masked: secret] it is." in texts
    [citation] = shared["turns"][0]["citations"]
    assert (citation["target"], citation["state"]) == ("guide/deploy", "unchanged")
    assert "Use [masked: secret] for the server." in citation["given"]
    places = [(one["turn"], one["call"], one["part"], one["count"]) for one in shared["masked"]]
    assert places == [
        (1, 1, "tool_call_response", 1),
        (2, None, "chat_request", 1),
        (2, None, "message", 1),
        (1, 1, "citation", 1),
    ]
    # Also if the turn that names it is not shared.
    assert SECRET not in export(built, f"{TALK}:1", "--format", "json")


def test_turns_and_kinds_are_chosen_and_the_given_text_goes_with_the_results(
    built: Builder,
) -> None:
    lines = export(built, TALK, "--turns", "1,3", "--include", "chat", "--format", "jsonl")
    records = [json.loads(line) for line in lines.splitlines()]
    assert [one["turn"] for one in records if one["type"] == "turn"] == [1, 3]
    kinds = {one["event_kind"] for one in records if one["type"] == "event"}
    assert kinds == {"chat_request", "message"}
    assert [one["given"] for one in records if one["type"] == "citation"] == [None]
    assert records[0]["turns_total"] == 3
    assert records[-1] == {"type": "end", "masked": []}


def test_the_suffix_of_the_file_chooses_the_format(built: Builder, tmp_path: Path) -> None:
    for name, start in (("a.html", "<!DOCTYPE html>"), ("a.md", "# Deploying"), ("a.json", "{")):
        assert export(built, TALK, "-o", str(tmp_path / name)) == ""
        assert (tmp_path / name).read_text().startswith(start)
    # The other name of the command writes the same.
    done = run_command("-w", str(built.root), "c", "export", TALK, "--format", "html")
    assert done.stdout == (tmp_path / "a.html").read_text()


def test_a_file_that_exists_is_overwritten_only_with_force(built: Builder, tmp_path: Path) -> None:
    target = tmp_path / "talk.html"
    target.write_text("mine")
    done = run_command("-w", str(built.root), "export", TALK, "-o", str(target))
    assert (done.returncode, target.read_text()) == (2, "mine")
    assert "exists already" in done.stderr
    assert "--force" in done.stderr
    assert export(built, TALK, "--force", "-o", str(target)) == ""
    assert target.read_text().startswith("<!DOCTYPE html>")


def test_an_export_with_its_secrets_says_so_on_the_page(built: Builder) -> None:
    for form, sign in (("html", 'id="unmasked"'), ("markdown", "> Secrets were not masked")):
        assert sign in export(built, TALK, "--format", form, "--no-mask")
        assert sign not in export(built, TALK, "--format", form)
    assert json.loads(export(built, TALK, "--format", "json", "--no-mask"))["masked"] is None


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_no_text_of_an_export_acts_on_a_terminal(workspace_root: Path, form: str) -> None:
    builder = Builder(workspace_root)
    bad = "a\x1b]0;owned\x07b \x1b[31mred\x1b[0m \x9b2Jc\u202ed\x08"
    called_with = called(
        f"id{bad}", f"tool{bad}", bad, error=True, command=bad, nested={bad: [bad]}
    )
    reasoning = {"type": "chat_response", "reasoning": bad}
    turns = [
        [
            {**asked(bad), "author": bad},
            reasoning,
            *called_with,
            said(f"`{bad}`\n\n```{bad}\n{bad}\n```"),
        ]
    ]
    builder.conversation(1, turns, title=bad, metadata={"labels": {bad: bad}})
    for words in ((), ("--no-mask",)):
        text = export(builder, TALK, "--format", form, *words)
        assert "red" in text
        assert [sign for sign in "\x1b\x07\x08\x9b\u202e" if sign in text] == []


@pytest.mark.parametrize("text", ["", "0", "a", "3-1", "1,,2", "-2", "1-", "9999999"])
def test_what_is_no_range_of_turns_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_turn_ranges(text)
    assert parse_turn_ranges("1, 4-6") == {1, 4, 5, 6}
