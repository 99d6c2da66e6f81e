"""Your own subjects: written in one step, never outside the workspace, never over another file."""

import os
import shlex
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder

from kbtui.errors import KbtuiError, UsageError
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.knowledge import KnowledgeBase, load_knowledge, subject_editing
from kbtui.knowledge.front_matter import join_front_matter_and_body, split_front_matter
from kbtui.knowledge.subject_editing import MissingSubjectTitleError, SubjectDraft
from kbtui.knowledge.subject_files import make_safe_file_name, split_file_extension


@pytest.fixture
def builder(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"})
    return builder


def knowledge(builder: Builder) -> KnowledgeBase:
    return load_knowledge(builder.workspace)


def add(builder: Builder, **draft: object) -> object:
    known = knowledge(builder)
    return subject_editing.add_subject(
        known, subject_editing.get_named_or_only_topic(known, "guide"), SubjectDraft(**draft)
    )  # type: ignore[arg-type]


def set_editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Set $EDITOR to a program that runs `script` on the file `$1`."""
    program = tmp_path / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", shlex.quote(str(program)))
    monkeypatch.delenv("VISUAL", raising=False)


def test_a_draft_becomes_a_subject_that_learn_gives(builder: Builder) -> None:
    found = add(
        builder, title='On "retries": how', text="Back off.", type="rule", tags=("net", "2026")
    )
    assert found.slug == "on-retries-how"  # type: ignore[attr-defined]
    text = (builder.root / "docs/guide/on-retries-how.md").read_text()
    facts = split_front_matter(text).facts
    assert facts["title"] == 'On "retries": how'
    assert (facts["type"], facts["tags"]) == ("rule", ["net", "2026"])
    assert "Back off." in knowledge(builder).learn("guide", "on-retries-how").text


def test_the_topic_may_be_named_by_title_or_be_the_only_one(builder: Builder) -> None:
    known = knowledge(builder)
    assert subject_editing.get_named_or_only_topic(known, "the guide").id == "guide"
    assert subject_editing.get_named_or_only_topic(known, None).id == "guide"
    builder.topics(guide={}, ops={})
    with pytest.raises(UsageError, match="choose a topic"):
        subject_editing.get_named_or_only_topic(knowledge(builder), None)


def test_a_name_that_is_taken_is_refused_and_nothing_changes(builder: Builder) -> None:
    builder.subject("guide/retries.txt", "mine")
    with pytest.raises(UsageError, match="already"):
        add(builder, title="Retries", text="other")
    assert [path.name for path in (builder.root / "docs/guide").iterdir()] == ["retries.txt"]


@pytest.mark.parametrize(
    "slug", ["../x", "a/../../x", "/etc/x", "a//b", ".", "..", "a\nb", "a\\b", "x" * 300]
)
def test_a_name_never_leads_out(builder: Builder, slug: str) -> None:
    with pytest.raises(KbtuiError):
        add(builder, title="T", text="x", slug=slug)
    assert list(builder.root.rglob("*.md")) == []


def test_a_topic_behind_a_link_out_of_the_workspace_is_refused(
    builder: Builder, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (builder.root / "docs/guide").rmdir()
    (builder.root / "docs/guide").symlink_to(outside)
    with pytest.raises(KbtuiError, match="outside the workspace"):
        add(builder, title="T", text="x")
    assert list(outside.iterdir()) == []


def test_a_topic_whose_directory_is_missing_gets_one(builder: Builder) -> None:
    (builder.root / "docs/guide").rmdir()
    add(builder, title="First", text="x")
    assert (builder.root / "docs/guide/first.md").exists()


def test_the_editor_sees_the_draft_and_its_words_are_written(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_editor(
        monkeypatch, tmp_path, "sed -i 's/Untitled/On deploys/' \"$1\"; echo 'Ship.' >> \"$1\""
    )
    known = knowledge(builder)
    found = subject_editing.edit_draft_and_add_subject(
        known, subject_editing.get_named_or_only_topic(known, None), SubjectDraft(title="")
    )
    assert found is not None
    assert found.slug == "on-deploys"
    assert "Ship." in found.path.read_text()


def test_a_draft_left_as_it_was_writes_nothing(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_editor(monkeypatch, tmp_path, "sleep 1.1")
    known = knowledge(builder)
    assert (
        subject_editing.edit_draft_and_add_subject(
            known, subject_editing.get_named_or_only_topic(known, None), SubjectDraft(title="T")
        )
        is None
    )
    assert list(builder.root.rglob("*.md")) == []


@pytest.mark.parametrize(
    "script",
    ["printf -- '---\\ntitle: [unclosed\\n---\\nprecious words\\n' > \"$1\"",
     "printf -- '---\\ntitle: Taken\\n---\\nprecious words\\n' > \"$1\"",
     "echo 'precious words' >> \"$1\"; exit 3",
     "echo 'precious words' >> \"$1\"; kill -9 $$",
     "printf 'precious words in Latin-1: \\344' > \"$1\""],
    ids=["front matter that is no YAML", "a name that is taken", "an editor that fails",
         "an editor that is killed", "text that is no UTF-8"],
)  # fmt: skip
def test_what_was_typed_is_kept_when_it_cannot_be_written(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> None:
    builder.subject("guide/taken.md", "# Taken\n")
    set_editor(monkeypatch, tmp_path, script)
    known = knowledge(builder)
    with pytest.raises(KbtuiError) as caught:
        subject_editing.edit_draft_and_add_subject(
            known, subject_editing.get_named_or_only_topic(known, None), SubjectDraft(title="")
        )
    assert caught.value.hint is not None
    kept = Path(caught.value.hint.partition("is in ")[2])
    assert b"precious words" in kept.read_bytes()
    kept.unlink()


def test_a_draft_that_was_not_touched_is_not_kept_when_the_editor_fails(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(drafts))
    set_editor(monkeypatch, tmp_path, "exit 3")
    known = knowledge(builder)
    with pytest.raises(KbtuiError, match="exit code 3") as caught:
        subject_editing.edit_draft_and_add_subject(
            known, subject_editing.get_named_or_only_topic(known, None), SubjectDraft(title="T")
        )
    assert "what you wrote" not in str(caught.value)
    assert list(drafts.iterdir()) == []


def test_an_editor_that_fails_or_is_missing_is_said(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    builder.subject("guide/a.md", "# A\n")
    subject = knowledge(builder).find_subject("guide", "a")
    assert subject is not None
    set_editor(monkeypatch, tmp_path, "exit 3")
    with pytest.raises(KbtuiError, match="exit code 3") as caught:
        subject_editing.edit_subject_in_editor(subject)
    assert "what you wrote" not in str(caught.value)
    set_editor(monkeypatch, tmp_path, 'echo more >> "$1"; exit 3')
    with pytest.raises(KbtuiError, match="exit code 3") as caught:
        subject_editing.edit_subject_in_editor(subject)
    assert f"your text is in {subject.path}" in str(caught.value)
    assert subject.path.read_text() == "# A\nmore\n"
    monkeypatch.setenv("EDITOR", "/does/not/exist")
    with pytest.raises(KbtuiError, match="cannot be started"):
        subject_editing.edit_subject_in_editor(subject)
    monkeypatch.setenv("EDITOR", "")
    with pytest.raises(UsageError, match="no editor is set"):
        subject_editing.edit_subject_in_editor(subject)


@pytest.mark.parametrize("chosen", ["vim", "/usr/bin/nano -w", ""])
def test_no_editor_is_started_that_nobody_chose_or_that_has_no_terminal(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: str
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", chosen)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("it was started"))
    monkeypatch.setattr(os, "isatty", lambda number: False)
    known = knowledge(builder)
    with pytest.raises(UsageError, match="needs a terminal" if chosen else "no editor is set"):
        subject_editing.edit_draft_and_add_subject(
            known, subject_editing.get_named_or_only_topic(known, None), SubjectDraft(title="T")
        )


@pytest.mark.parametrize("title", ["", " \t "])
def test_an_entry_without_a_title_is_refused(builder: Builder, title: str) -> None:
    with pytest.raises(MissingSubjectTitleError):
        add(builder, title=title, text="words")
    assert list(builder.root.rglob("*.md")) == []


@pytest.mark.parametrize(
    ("written", "slug"),
    [("---\ntitle: Kept\n---\nwords", "kept"), ("# From its heading\n", "from-its-heading"),
     ("words alone", "given"), ("---\ntitle: ''\n---\n# No\n", None), ("---\ntitle: Untitled\n---\nx", None)],
)  # fmt: skip
def test_an_edited_draft_is_called_by_what_it_says(
    builder: Builder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    written: str,
    slug: str | None,
) -> None:
    (tmp_path / "draft").write_text(written)
    set_editor(monkeypatch, tmp_path, f"cp '{tmp_path}/draft' \"$1\"")
    known = knowledge(builder)
    topic = subject_editing.get_named_or_only_topic(known, None)
    if slug is None:
        with pytest.raises(KbtuiError, match="needs a title") as caught:
            subject_editing.edit_draft_and_add_subject(known, topic, SubjectDraft(title="Given"))
        kept = Path((caught.value.hint or "").partition("is in ")[2])
        assert kept.read_text() == written
        kept.unlink()
    else:
        found = subject_editing.edit_draft_and_add_subject(
            known, topic, SubjectDraft(title="Given")
        )
        assert found is not None
        assert found.slug == slug


def test_editing_keeps_the_id(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    builder.subject("guide/a.md", "# A\n")
    subject = knowledge(builder).find_subject("guide", "a")
    assert subject is not None
    set_editor(monkeypatch, tmp_path, "printf '# Another title\\n' > \"$1\"")
    assert subject_editing.edit_subject_in_editor(subject)
    after = knowledge(builder).find_subject("guide", "a")
    assert after is not None
    assert make_subject_id(after.topic, after.slug) == make_subject_id(subject.topic, subject.slug)


@pytest.mark.parametrize(
    ("text", "sound"),
    [("# no front matter", True), ("---\ntitle: x\n---\nbody", True), ("---\n---\nbody", True),
     ("---\ntitle: [x\n---\nbody", False), ("---\n- a\n---\nbody", False), ("---\ntitle: x\nbody", False),
     ("---\na: &a [x]\ntags: *a\n---\nbody", False), (f"---\ntags: [{'x, ' * 400_000}]\n---\nbody", False)],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_front_matter_is_judged_as_the_index_reads_it(text: str, sound: bool) -> None:
    assert (split_front_matter(text).problem is None) == sound
    assert sound or split_front_matter(text).facts == {}


@given(st.text(max_size=200))
def test_any_text_makes_a_name_that_is_plain_and_keeps_its_slug(text: str) -> None:
    name = make_safe_file_name(text)
    assert name
    assert name.isprintable()
    assert "/" not in name
    assert not name.startswith((".", "-"))
    assert len(name.encode()) <= 90
    assert split_file_extension(f"{name}.md") == (name, ".md")
    assert make_safe_file_name(name) == name or name.endswith("-1")


VALUES = st.one_of(st.text(max_size=40), st.lists(st.text(max_size=10), max_size=4), st.dates())


@given(st.dictionaries(st.sampled_from(["title", "type", "tags", "source", "created"]), VALUES))
def test_front_matter_is_read_as_it_was_written(facts: dict[str, object]) -> None:
    text = join_front_matter_and_body(facts, "# Body\n\n---\nnot: front matter\n")
    kept = {key: value for key, value in facts.items() if value not in ("", [])}
    read = split_front_matter(text).facts
    assert set(read) == set(kept)
    for key, value in kept.items():
        # Leave out characters that YAML cannot represent (lone surrogates) or folds.
        if _plain(value):
            assert read[key] == value


def _plain(value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(not isinstance(item, str) or item.isprintable() for item in items)


def test_a_file_system_without_hard_links_still_writes_nothing_over(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    add(builder, title="First", text="one")
    path = builder.root / "docs/guide/second.md"
    path.write_text("mine")
    from kbtui.knowledge.subject_files import write_new_file

    with pytest.raises(KbtuiError, match="already"):
        write_new_file(path, "theirs")
    assert path.read_text() == "mine"
