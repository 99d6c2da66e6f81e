"""Tests of both ends of citations, with titles and missing targets."""

import io
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from support import FIRST_ID, Builder, asked, called, kill_engine, said

from kbtui import Library, open_workspace
from kbtui.cli.main import main
from kbtui.errors import NothingFound, UsageError
from kbtui.search.search_request_and_answer import SearchRequest

TALK = f"jp-c{FIRST_ID + 1}"


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    monkeypatch.chdir(workspace_root)
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"})
    builder.subject("guide/start.md", "# Getting started\n\nThe aardvark wakes first.\n")
    builder.subject("guide/rule.md", "---\ntitle: The first rule\n---\n# Rule\n\nNo ibex.\n")
    (builder.root / "Makefile").write_text("all:\n")
    (builder.root / "unused.txt").write_text("text\n")
    builder.conversation(
        1,
        [
            [
                asked("Who wakes first?"),
                *called("a", "learn", "…", topic="guide", subjects="start"),
                *called("b", "fs_read_file", "…", path="docs/guide/rule.md"),
                *called("c", "fs_read_file", "…", path="./Makefile"),
                *called("d", "fs_read_file", "…", path="notes/lost.txt"),
                *called("e", "fs_read_file", "…", path="/elsewhere/hosts"),
                said("The aardvark."),
            ],
            [asked("And then?"), said("The ibex.")],
        ],
        title="Waking order",
    )
    yield builder
    kill_engine(builder)


@pytest.fixture
def library(built: Builder) -> Iterator[Library]:
    with open_workspace(built.root) as library:
        yield library


def sources(library: Library, name: str) -> list[str]:
    return [cite.source for cite in library.cites(name).used_by]


def until(is_so: Callable[[], bool]) -> None:
    """Wait until the engine has noticed changed files."""
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def run(builder: Builder, *words: str, inside: str = ".") -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which is faster than a process of its own."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2)]
    with chdir(builder.root / inside), redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = main(list(words))
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, code, *texts)


def test_what_a_turn_used_has_titles_and_says_what_is_gone(library: Library) -> None:
    uses = library.cites(f"{TALK}:1").uses
    assert [(cite.target, cite.title, cite.gone) for cite in uses] == [
        ("guide/start", "Getting started", False),
        ("guide/rule", "The first rule", False),
        ("Makefile", "Makefile", False),
        ("notes/lost.txt", "notes/lost.txt", True),
        # Outside the workspace nothing is looked at.
        ("/elsewhere/hosts", "/elsewhere/hosts", False),
    ]
    assert library.cites(f"{TALK}:2").uses == []


def test_a_title_is_the_present_one(built: Builder, library: Library) -> None:
    built.subject("guide/start.md", "# Renamed\n\nThe aardvark wakes first.\n")
    assert library.cites(TALK).uses[0].title == "Renamed"


def test_used_by_has_the_conversations_title_and_the_targets(library: Library) -> None:
    [cite] = library.cites("guide/start").used_by
    assert (cite.source, cite.source_title, cite.title) == (
        f"{TALK}:1",
        "Waking order",
        "Getting started",
    )
    assert cite.timestamp is not None


def test_a_subject_is_found_by_its_reference_and_by_its_path(library: Library) -> None:
    for name in (
        "guide/rule", "The Guide/rule", "docs/guide/rule.md", "./docs/guide/../guide/rule.md",
    ):  # fmt: skip
        assert library.cites(name).ref == "guide/rule", name
        assert sources(library, name) == [f"{TALK}:1"], name


def test_a_path_is_that_from_the_workspace_or_from_here(
    built: Builder, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sources(library, "Makefile") == [f"{TALK}:1"]
    assert sources(library, str(built.root / "Makefile")) == [f"{TALK}:1"]
    assert sources(library, str(built.root / "docs/guide/rule.md")) == [f"{TALK}:1"]
    assert sources(library, "/elsewhere/hosts") == [f"{TALK}:1"]
    monkeypatch.chdir(built.root / "docs")
    assert library.cites("guide/rule.md").ref == "guide/rule"
    assert sources(library, "../Makefile") == [f"{TALK}:1"]


def test_what_was_used_and_is_gone_is_found_and_said_to_be_gone(
    built: Builder, library: Library
) -> None:
    found = library.cites("notes/lost.txt")
    assert ([cite.gone for cite in found.used_by], found.uses) == ([True], [])
    assert found.gone is not None
    (built.root / "docs/guide/start.md").unlink()
    found = library.cites("guide/start")
    assert [cite.gone for cite in found.used_by] == [True]
    assert found.gone is not None


def test_what_neither_exists_nor_was_used_is_an_error(library: Library) -> None:
    for name in ("guide/nosuch", "nosuch.txt", "no/such/file.txt", "chunk:nosuch", f"{TALK}:3"):
        with pytest.raises(NothingFound):
            library.cites(name)
    for name in ("guide", "The Guide", ""):
        with pytest.raises(UsageError):
            library.cites(name)
    found = library.cites("unused.txt")
    assert (found.ref, found.uses, found.used_by, found.gone) == ("unused.txt", [], [], None)


def test_a_passage_is_used_by_the_turns_that_found_it(built: Builder, library: Library) -> None:
    [start] = library.search(SearchRequest("aardvark wakes", types=("note",))).hits
    [talk] = library.search(SearchRequest("who wakes first", kinds=("conversation",), limit=1)).hits
    headers = [
        f"[entry {hit.entry_id} · chunk {hit.chunk_id} · score 0.5000] {hit.title}\n{hit.text}"
        for hit in (start, talk)
    ]
    call = called("s", "knowledge_search", "\n\n".join(headers), query="wakes")
    built.conversation(2, [[asked("Who?"), *call, said("It.")]], title="Later")
    later = f"jp-c{FIRST_ID + 2}:1"
    until(lambda: sources(library, "guide/start") == [later, f"{TALK}:1"])
    for hit in (start, talk):
        [cite] = library.cites(f"chunk:{hit.chunk_id}").used_by
        assert (cite.source, cite.how, cite.source_title) == (later, "search", "Later")
    # A passage of a turn uses what the turn used.
    assert "guide/start" in {cite.target for cite in library.cites(f"chunk:{talk.chunk_id}").uses}
    built.subject("guide/start.md", "# Getting started\n\nNothing of it is left.\n")
    until(lambda: library.cites(f"chunk:{start.chunk_id}").gone is not None)
    found = library.cites(f"chunk:{start.chunk_id}")
    assert [cite.source for cite in found.used_by] == [later]


def test_the_command_prints_titles_dates_and_what_is_gone(built: Builder) -> None:
    uses = run(built, "cites", f"{TALK}:1").stdout.splitlines()
    assert uses[0] == f"[1] guide/start  Getting started  (learn, {TALK}:1)  changed since"
    assert uses[3] == f"[4] notes/lost.txt  (file, {TALK}:1)  no longer there"
    done = run(built, "cites", "rule.md", inside="docs/guide")
    [line] = done.stdout.splitlines()
    assert line.startswith(f"cited by {TALK}:1  2026-")
    assert line.endswith("may have changed: kbtui cannot read what the tool returned")
    assert "  Waking order  (file, fs_read_file)  " in line
    done = run(built, "cites", "notes/lost.txt")
    assert (done.returncode, "cannot be opened: there is no such file" in done.stderr) == (0, True)
    done = run(built, "cites", "unused.txt")
    assert (done.returncode, "no citations to or from unused.txt" in done.stderr) == (1, True)


def test_the_command_prints_what_has_changed_since_the_turn(built: Builder) -> None:
    then = "# Limits\n\nAt most ten.\n"
    path = built.subject("guide/limits.md", then)
    call = called("l", "learn", then, topic="guide", subjects="limits")
    built.conversation(3, [[asked("How many?"), *call, said("Ten.")]], title="Limits")
    turn = f"jp-c{FIRST_ID + 3}:1"
    [line] = run(built, "cites", turn, "--diff").stdout.splitlines()
    assert line.endswith(f"{turn})  unchanged")
    path.write_text("# Limits\n\nAt most twelve.\n")
    # The search compares with the index, which follows a changed file within a moment.
    with open_workspace(built.root) as library:
        assert library.request_engine_refresh(60.0)["done"]
    for ref, first in ((turn, "[1] guide/limits"), ("guide/limits", f"cited by {turn}")):
        line, *difference = run(built, "cites", ref, "--diff").stdout.splitlines()
        assert line.startswith(first)
        assert line.endswith("changed since")
        assert difference[0] == f"--- guide/limits (given to {turn})"
        assert difference[-2:] == ["-At most ten.", "+At most twelve."]
    hits = json.loads(run(built, "search", "how many", "--json").stdout)["hits"]
    hit = next(hit for hit in hits if hit["ref"] == turn)
    outdated = [{"ref": "guide/limits", "state": "changed"}]
    assert hit["outdated_subjects"] == outdated
    assert "knowledge changed since" in run(built, "search", "how many").stdout
    turns = json.loads(run(built, "insights", "--json").stdout)["outdated_turns"]
    assert [one["outdated_subjects"] for one in turns if one["ref"] == turn] == [outdated]
    for command in (["c", "read"], ["show"]):
        shown = run(built, *command, turn).stdout
        assert "nowledge changed since: guide/limits\n" in shown
    path.unlink()
    # A turn that read the file was given the subject, too, and an index built later knows this.
    read = called("r", "fs_read_file", f"```md\n{then}```", path="docs/guide/limits.md")
    built.conversation(4, [[asked("And now?"), *read, said("Ten.")]])
    later = f"jp-c{FIRST_ID + 4}:1"
    assert (
        "nowledge changed since: guide/limits (no longer there)\n"
        in run(built, "show", later).stdout
    )
    with open_workspace(built.root) as library:
        assert library.request_engine_refresh(60.0)["done"]
    for ref in ("docs/guide/limits.md", "guide/limits"):
        shown = run(built, "cites", ref, "--diff").stdout
        assert f"cited by {later}" in shown
        assert f"--- guide/limits (given to {later})" in shown
    assert (
        "nowledge changed since: guide/limits (no longer there)\n"
        in run(built, "show", turn).stdout
    )
    [cite] = json.loads(run(built, "cites", turn, "--diff", "--json").stdout)["uses"]
    assert cite["state"] == "gone"
    assert cite["difference"].splitlines()[-1] == "-At most ten."
    assert cite["remark"].startswith("The subject no longer exists, so the whole text")
    assert f"    {cite['remark']}\n--- guide/limits" in run(built, "cites", turn, "--diff").stdout


def test_the_marks_of_a_turn_are_shown_by_every_command_that_shows_the_turn(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    then = "# Limits\n\nAt most ten.\n"
    path = built.subject("guide/limits.md", then)
    calls = [
        *called("l", "learn", then, topic="guide", subjects="limits"),
        *called("w", "fs_create_file", "File created.", path="limits.txt", content="ten\n"),
    ]
    number = int(time.time() - 60) * 10 - FIRST_ID
    built.conversation(number, [[asked("How many?"), *calls, said("Ten.")]], title="Limits")
    (built.root / "limits.txt").write_text("ten\n")
    path.write_text("# Limits\n\nAt most twelve.\n")
    conversation = f"jp-c{FIRST_ID + number}"
    turn, label = f"{conversation}:1", "rejected: too few, ü"
    assert main(["mark", "add", turn, "rejected", "--note", "too few, ü"]) == 0
    capsys.readouterr()

    def find_marks(shape: Any) -> Iterator[str]:
        for key, value in shape.items() if isinstance(shape, dict) else enumerate(shape):
            if key == "marks":
                yield from (mark["label"] for mark in value)
            elif isinstance(value, dict | list):
                yield from find_marks(value)

    for words in (
        ["cites", turn],
        ["cites", "guide/limits"],
        ["entry", "show", "guide/limits"],
        ["entry", "history", "guide/limits"],
        ["blame", "limits.txt"],
        ["insights"],
        ["conversation", "changes", conversation],
        ["conversation", "grep", "Ten."],
        ["conversation", "ls", "--file", "limits.txt"],
        ["search", "how many"],
    ):
        assert main(words) == 0, words
        assert label in capsys.readouterr().out, words
        if words[0] not in ("conversation", "search"):
            assert main([*words, "--json"]) == 0
            assert label in set(find_marks(json.loads(capsys.readouterr().out))), words
    assert main(["conversation", "changes", conversation, "--stat"]) == 0
    assert f"turn 1  mark: {label}" in capsys.readouterr().out
    # Damaged marks hide nothing.
    (open_workspace(built.root).workspace.user_data_directory / "marks.sqlite").write_bytes(
        b"no data" * 99
    )
    for words in (["cites", turn], ["blame", "limits.txt"], ["conversation", "grep", "Ten."]):
        assert main(words) == 0
        assert "marks are not shown" in capsys.readouterr().err, words


def test_a_text_that_came_back_is_a_version_again(built: Builder, library: Library) -> None:
    ten, twelve = "# Limits\n\nAt most ten.\n", "# Limits\n\nAt most twelve.\n"
    path = built.subject("guide/limits.md", ten)
    numbers = range(10, 90, 20)
    for number, text in zip(numbers, (ten, ten, twelve, ten), strict=True):
        call = called("l", "learn", text, topic="guide", subjects="limits")
        built.conversation(number, [[asked("How many?"), *call, said("So many.")]])
    turns = [f"jp-c{FIRST_ID + number}:1" for number in numbers]
    until(lambda: len(sources(library, "guide/limits")) == 4)

    def list_versions() -> list[tuple[str, list[str]]]:
        done = run(built, "entry", "history", "guide/limits", "--json")
        return [
            ("now" if one["is_current"] else "then", one["given_to"])
            for one in json.loads(done.stdout)["versions"]
        ]

    first, between = ("then", [turns[1], turns[0]]), ("then", [turns[2]])
    assert list_versions() == [("now", [turns[3]]), between, first]
    path.write_text(twelve)
    assert list_versions() == [("now", []), ("then", [turns[3]]), between, first]


def test_the_history_of_a_subject_names_the_turns_that_were_given_each_version(
    built: Builder,
) -> None:
    def git(*words: str, time: str = "2026-05-01T10:00:00Z") -> None:
        names = {"GIT_AUTHOR_DATE": time, "GIT_COMMITTER_DATE": time}
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *who, *words], cwd=built.root, env=os.environ | names, check=True)

    rest = "\nThe other limits are the same as before.\n"
    words = ("ten", "eleven", "twelve", "many")
    texts = [f"# Limits\n\nAt most {word}.\n{rest}" for word in words]
    path = built.subject("guide/old-limits.md", texts[0])
    git("init", "-q")
    git("add", "docs/guide")
    git("commit", "-qm", "say ten")
    path = path.rename(path.with_name("limits.md"))
    path.write_text(texts[1])
    git("add", "-A", "docs/guide")
    git("commit", "-qm", "say eleven", time="2026-05-02T10:00:00Z")
    path.write_text(texts[3])
    # The first turn was given the subject under the name that it had then.
    for number, text, name in (
        (3, texts[0], "old-limits"),
        (4, texts[1], "limits"),
        (5, texts[2], "limits"),
    ):
        call = called("l", "learn", text, topic="guide", subjects=name)
        built.conversation(number, [[asked("How many?"), *call, said("So many.")]])
    # A turn that read the file cites the file, not the subject, after the subject is deleted.
    read = called("r", "fs_read_file", f"```md\n{texts[0]}```", path="docs/guide/limits.md")
    built.conversation(6, [[asked("What does it say?"), *read]])
    done = run(built, "entry", "history", "guide/limits", "--diff", "--json")
    versions = json.loads(done.stdout)["versions"]
    turns = [f"jp-c{FIRST_ID + number}:1" for number in (3, 4, 5)]
    first = [f"jp-c{FIRST_ID + 6}:1", turns[0]]
    assert [one["summary"] for one in versions] == [None, None, "say eleven", "say ten"]
    assert [one["given_to"] for one in versions] == [[], [turns[2]], [turns[1]], first]
    assert [one["is_current"] for one in versions] == [True, False, False, False]
    assert versions[2]["author"] == "Ada"
    assert "-At most ten.\n+At most eleven.\n" in versions[2]["difference"]
    lines = run(built, "entry", "history", "guide/limits").stdout.splitlines()
    assert lines[0].startswith("1  ")
    assert lines[0].endswith("  now")
    assert lines[1].endswith("  from a conversation")
    assert lines[2] == f"  given to {turns[2]}"
    assert lines[3].endswith("  Ada  say eleven")
    commit = versions[2]["commit"][:8]
    for old, new in (("4", "now"), ("4", "1")):
        shown = run(built, "entry", "history", "guide/limits", "--compare", old, new).stdout
        assert "-At most ten.\n+At most many.\n" in shown
    shown = run(built, "entry", "history", "guide/limits", "--compare", "2", commit).stdout
    assert "-At most twelve.\n+At most eleven.\n" in shown
    wrong = run(built, "entry", "history", "guide/limits", "--compare", "9", "1")
    assert wrong.returncode == 2
    assert "there is no version '9'" in wrong.stderr
    # An uncommitted new name changes nothing else.
    path.rename(path.with_name("bounds.md"))
    shown = json.loads(run(built, "entry", "history", "guide/bounds", "--json").stdout)
    assert [one["given_to"] for one in shown["versions"]] == [
        [],
        [turns[2]],
        [turns[1]],
        first,
    ]
    for words in (["entry", "history", "guide/limits", "--json"], ["cites", "guide/limits"]):
        done = run(built, *words)
        assert "was renamed to guide/bounds" in done.stderr
    # A version that is not text is listed without its text.
    (path.parent / "bounds.md").unlink()
    path.write_bytes(b"ten\0")
    done = run(built, "entry", "history", "guide/limits", "--json")
    assert "the current text of guide/limits is not shown: it is a binary file" in done.stderr
    versions = json.loads(done.stdout)["versions"]
    assert [one["has_text"] for one in versions] == [False, True, True, True]
    path.unlink()
    gone = run(built, "entry", "history", "guide/limits", "--json")
    assert "guide/limits no longer exists" in gone.stderr
    versions = json.loads(gone.stdout)["versions"]
    assert [one["given_to"] for one in versions] == [[turns[2]], [turns[1]], first]
    assert not any(one["is_current"] for one in versions)
    assert run(built, "entry", "history", "guide/other").returncode == 1
    path.write_text(texts[3])
    # Without commits that can be read, the history says that it has only the other versions.
    shutil.rmtree(built.root / ".git/objects")
    done = run(built, "entry", "history", "guide/limits")
    assert "say eleven" not in done.stdout
    assert "the Git history cannot be read and is left out: git: " in done.stderr


def test_a_disabled_subject_is_not_said_to_be_missing(built: Builder) -> None:
    call = called("l", "learn", "Off.", topic="guide", subjects="off")
    built.conversation(20, [[asked("What is off?"), *call]])
    built.subject("guide/off.md", "Off.\n")
    built.topics(guide={"disabled": ["off"]})
    for words in (["show"], ["entry", "history"], ["cites"]):
        done = run(built, *words, "guide/off")
        assert "the subject 'off' of the topic 'guide' is disabled" in done.stderr
        assert "no such" not in done.stderr
    assert done.stdout.endswith("  no longer there\n")
