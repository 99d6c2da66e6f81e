"""Marks are previewed, written to `.jp/kb.toml` without losing anything in it, and undone."""

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kb_support import Build, write

from kbtui.errors import ConfigError, KbtuiError, NothingFound, UsageError
from kbtui.knowledge import KnowledgeBase, load_knowledge
from kbtui.knowledge.knowledge_data_types import PreloadOrDisableChange, Topic
from kbtui.knowledge.toml_config_editor import (
    TomlFileChange,
    plan_toml_change_for_preload_or_disable_changes,
    plan_toml_change_that_declares_topic,
    undo_toml_change,
    write_toml_file_change,
)
from kbtui.workspace import Workspace

WRITTEN = """\
# My topics. Keep this comment.

[kb.topic.project]   # the project
subjects = ".jp/kb/project" # where they are
learned = [
  # people first
  "maintainers/*", # everybody
  "code-quality",  # always
]

# What follows is about skills.
[kb.topic.skills]
title = 'Skills'
subjects = ".jp/kb/skills"

[other]
kept = 2026-01-01
"""


@pytest.fixture
def knowledge(two_topics: Build, build: Build) -> KnowledgeBase:
    two_topics()
    return build(WRITTEN)


def text(knowledge: KnowledgeBase) -> str:
    return (knowledge.workspace.jp_directory / "kb.toml").read_text()


def test_a_file_with_a_byte_order_mark_is_edited(knowledge: KnowledgeBase) -> None:
    path = knowledge.workspace.jp_directory / "kb.toml"
    path.write_bytes(b"\xef\xbb\xbf" + WRITTEN.encode())
    write_toml_file_change(
        plan_toml_change_for_preload_or_disable_changes(
            knowledge, [PreloadOrDisableChange("skills", "ast-grep", "learned")]
        )
    )
    assert load_knowledge(knowledge.workspace).topics["skills"].learned == ("ast-grep",)
    assert "# people first" in text(knowledge)


def test_a_change_is_shown_as_a_diff_before_anything_is_written(knowledge: KnowledgeBase) -> None:
    change = plan_toml_change_for_preload_or_disable_changes(
        knowledge, [PreloadOrDisableChange("skills", "ast-grep", "learned")]
    )
    assert text(knowledge) == WRITTEN
    assert change.diff == (
        "--- .jp/kb.toml\n"
        "+++ .jp/kb.toml\n"
        "@@ -12,6 +12,7 @@\n"
        " [kb.topic.skills]\n"
        " title = 'Skills'\n"
        ' subjects = ".jp/kb/skills"\n'
        '+learned = ["ast-grep"]\n'
        " \n"
        " [other]\n"
        " kept = 2026-01-01\n"
    )


def test_applying_writes_only_what_was_marked_and_undoing_takes_it_back(
    knowledge: KnowledgeBase,
) -> None:
    marks = [
        PreloadOrDisableChange("project", "code-quality", "disabled"),
        PreloadOrDisableChange("project", "internal-notes", "learned"),
        PreloadOrDisableChange("skills", None, "off"),
    ]
    change = plan_toml_change_for_preload_or_disable_changes(knowledge, marks)
    write_toml_file_change(change)
    assert text(knowledge) == (
        "# My topics. Keep this comment.\n"
        "\n"
        "[kb.topic.project]   # the project\n"
        'subjects = ".jp/kb/project" # where they are\n'
        "learned = [\n"
        "  # people first\n"
        '  "maintainers/*", # everybody\n'
        '  "internal-notes",\n'
        "  # always\n"
        "]\n"
        'disabled = ["code-quality"]\n'
        "\n"
        "# What follows is about skills.\n"
        "[kb.topic.skills]\n"
        "title = 'Skills'\n"
        'subjects = ".jp/kb/skills"\n'
        "enable = false\n"
        "\n"
        "[other]\n"
        "kept = 2026-01-01\n"
    )
    again = load_knowledge(knowledge.workspace)
    assert again.topics == knowledge.copy_with_preload_or_disable_changes(marks).topics
    assert not again.topics["skills"].enable
    undo_toml_change(change)
    assert text(knowledge) == WRITTEN


def test_without_a_file_one_is_made_and_undoing_removes_it(
    build: Build, workspace: Workspace
) -> None:
    write(
        workspace.root, {"docs/a.md": "a", ".jp/config.toml": '[kb.topic.d]\nsubjects = "docs"\n'}
    )
    change = plan_toml_change_for_preload_or_disable_changes(
        build(), [PreloadOrDisableChange("d", "a", "learned")]
    )
    assert change.old is None
    assert "--- /dev/null\n+++ .jp/kb.toml\n" in change.diff
    write_toml_file_change(change)
    path = workspace.jp_directory / "kb.toml"
    assert path.read_text() == '[kb.topic.d]\nlearned = [\n    "a",\n]\n'
    assert build().list_subjects("d")[0].learned
    undo_toml_change(change)
    assert not path.exists()


def test_a_first_topic_can_be_declared(build: Build, workspace: Workspace) -> None:
    knowledge = build(files={"docs/a.md": "a"})
    change = plan_toml_change_that_declares_topic(
        knowledge, Topic("docs", "docs", title='The "docs"', learned=("a",))
    )
    write_toml_file_change(change)
    assert build().topics["docs"] == Topic(
        "docs",
        "docs",
        title='The "docs"',
        learned=("a",),
        origin=workspace.jp_directory / "kb.toml",
    )
    with pytest.raises(UsageError, match="the topic already exists"):
        plan_toml_change_that_declares_topic(knowledge, Topic("docs", "docs"))


def test_marks_that_change_nothing_write_nothing(knowledge: KnowledgeBase) -> None:
    marks = [
        PreloadOrDisableChange("project", "code-quality", "learned"),
        PreloadOrDisableChange("project", "maintainers/jean", "learned"),
        PreloadOrDisableChange("skills", "ast-grep", "plain"),
        PreloadOrDisableChange("skills", None, "on"),
    ]
    change = plan_toml_change_for_preload_or_disable_changes(knowledge, marks)
    assert change.has_no_changes
    assert change.diff == ""
    before = (knowledge.workspace.jp_directory / "kb.toml").stat().st_mtime_ns
    write_toml_file_change(change)
    assert (knowledge.workspace.jp_directory / "kb.toml").stat().st_mtime_ns == before


def test_the_preview_shows_the_prompt_as_it_would_be(knowledge: KnowledgeBase) -> None:
    marks = [
        PreloadOrDisableChange("skills", "ast-grep", "learned"),
        PreloadOrDisableChange("project", "code-quality", "plain"),
    ]
    preview = knowledge.copy_with_preload_or_disable_changes(marks)
    prompt = preview.format_knowledge_section() or ""
    assert '<subject "ast-grep">' in prompt
    assert '<subject "code-quality">' not in prompt
    assert (
        "## Already learned (in system prompt):\n\n- ast-grep"
        in preview.learn("skills", has_prompt=True).text
    )
    assert '<subject "ast-grep">' not in (knowledge.format_knowledge_section() or ""), (
        "the original is as it was"
    )
    write_toml_file_change(plan_toml_change_for_preload_or_disable_changes(knowledge, marks))
    assert load_knowledge(knowledge.workspace).format_knowledge_section() == prompt


def test_a_glob_that_says_otherwise_is_the_persons_to_change(knowledge: KnowledgeBase) -> None:
    with pytest.raises(UsageError, match=r"matches the pattern 'maintainers/\*' in `learned`"):
        plan_toml_change_for_preload_or_disable_changes(
            knowledge, [PreloadOrDisableChange("project", "maintainers/jean", "plain")]
        )
    change = plan_toml_change_for_preload_or_disable_changes(
        knowledge, [PreloadOrDisableChange("project", "maintainers/jean", "disabled")]
    )
    write_toml_file_change(change)
    jean = load_knowledge(knowledge.workspace).find_subject("project", "maintainers/jean")
    assert jean is not None
    assert (jean.disabled, jean.learned) == (True, False)
    write(knowledge.workspace.root, {".jp/kb.toml": WRITTEN.replace("learned", "disabled")})
    for state in ("plain", "learned"):
        with pytest.raises(UsageError, match=r"matches the pattern 'maintainers/\*' in `disabled`"):
            plan_toml_change_for_preload_or_disable_changes(
                knowledge, [PreloadOrDisableChange("project", "maintainers/jean", state)]
            )  # type: ignore[arg-type]


def test_marks_of_unknown_things_are_refused(knowledge: KnowledgeBase) -> None:
    with pytest.raises(NothingFound, match="unknown subject"):
        plan_toml_change_for_preload_or_disable_changes(
            knowledge, [PreloadOrDisableChange("project", "nope", "learned")]
        )
    with pytest.raises(NothingFound, match="unknown topic 'nope'"):
        plan_toml_change_for_preload_or_disable_changes(
            knowledge, [PreloadOrDisableChange("nope", None, "off")]
        )
    with pytest.raises(UsageError, match="cannot be marked"):
        plan_toml_change_for_preload_or_disable_changes(
            knowledge, [PreloadOrDisableChange("project", None, "learned")]
        )


def test_what_flags_added_is_not_written(two_topics: Build, build: Build) -> None:
    two_topics()
    knowledge = build(WRITTEN, knowledge=["skills/*"])
    change = plan_toml_change_for_preload_or_disable_changes(
        knowledge, [PreloadOrDisableChange("project", "internal-notes", "disabled")]
    )
    assert "skills" not in "".join(
        line for line in change.diff.splitlines() if line.startswith("+")
    )


def test_a_file_that_changed_meanwhile_is_not_overwritten(knowledge: KnowledgeBase) -> None:
    change = plan_toml_change_for_preload_or_disable_changes(
        knowledge, [PreloadOrDisableChange("skills", "ast-grep", "learned")]
    )
    path = knowledge.workspace.jp_directory / "kb.toml"
    path.write_text(WRITTEN + "# mine\n")
    with pytest.raises(KbtuiError, match="changed by another program"):
        write_toml_file_change(change)
    with pytest.raises(KbtuiError, match="changed by another program"):
        undo_toml_change(change)
    path.unlink()
    with pytest.raises(KbtuiError, match="changed by another program"):
        write_toml_file_change(change)
    assert not path.exists()


def test_a_failing_write_leaves_the_file_and_no_litter(
    knowledge: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = plan_toml_change_for_preload_or_disable_changes(
        knowledge, [PreloadOrDisableChange("skills", "ast-grep", "learned")]
    )

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KbtuiError, match="No space left on device"):
        write_toml_file_change(change)
    assert text(knowledge) == WRITTEN
    assert {path.name for path in knowledge.workspace.jp_directory.iterdir()} == {"kb", "kb.toml"}


def test_mode_is_kept_and_links_are_refused(knowledge: KnowledgeBase, tmp_path: Path) -> None:
    path = knowledge.workspace.jp_directory / "kb.toml"
    path.chmod(0o640)
    marks = [PreloadOrDisableChange("skills", "ast-grep", "learned")]
    write_toml_file_change(plan_toml_change_for_preload_or_disable_changes(knowledge, marks))
    assert path.stat().st_mode & 0o777 == 0o640
    path.rename(tmp_path / "elsewhere.toml")
    path.symlink_to(tmp_path / "elsewhere.toml")
    with pytest.raises(ConfigError, match="is a symbolic link"):
        plan_toml_change_for_preload_or_disable_changes(knowledge, marks)


def test_a_file_that_is_no_toml_is_not_touched(knowledge: KnowledgeBase) -> None:
    path = knowledge.workspace.jp_directory / "kb.toml"
    write(knowledge.workspace.root, {".jp/config.toml": WRITTEN, ".jp/kb.toml": "[kb\n"})
    with pytest.raises(ConfigError, match="not valid TOML"):
        plan_toml_change_for_preload_or_disable_changes(
            knowledge, [PreloadOrDisableChange("skills", "ast-grep", "learned")]
        )
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        plan_toml_change_for_preload_or_disable_changes(
            knowledge, [PreloadOrDisableChange("skills", "ast-grep", "learned")]
        )


def test_a_misshapen_table_is_not_touched(knowledge: KnowledgeBase) -> None:
    for kb in ("kb = 1\n", "[kb]\ntopic = []\n"):
        write(knowledge.workspace.root, {".jp/config.toml": WRITTEN, ".jp/kb.toml": kb})
        with pytest.raises(ConfigError, match="cannot be edited safely"):
            plan_toml_change_for_preload_or_disable_changes(
                knowledge, [PreloadOrDisableChange("skills", "ast-grep", "learned")]
            )


def test_dos_line_ends_stay(knowledge: KnowledgeBase) -> None:
    path = knowledge.workspace.jp_directory / "kb.toml"
    path.write_bytes(WRITTEN.replace("\n", "\r\n").encode())
    write_toml_file_change(
        plan_toml_change_for_preload_or_disable_changes(
            knowledge, [PreloadOrDisableChange("skills", "ast-grep", "learned")]
        )
    )
    data = path.read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") == len(WRITTEN.splitlines()) + 1


# Any way of writing the same topics.

SHAPES = [
    WRITTEN,
    'kb.topic.project.subjects = ".jp/kb/project" # c1\n'
    'kb.topic.skills.subjects = ".jp/kb/skills" # c2\n# c3',
    'kb = {topic = {project = {subjects = ".jp/kb/project"}, '
    'skills = {subjects = ".jp/kb/skills"}}} # c1\n',
    '[kb.topic]\nproject.subjects = ".jp/kb/project" # c1\n# c2\n'
    'skills = {subjects = ".jp/kb/skills", learned = []} # c3\n',
    '[kb]\n# c1\n[kb.topic]\n[kb.topic.skills]\nsubjects = ".jp/kb/skills" # c2\ndisabled = [ # c3\n'
    '"x#y", # c4\n # c5\n]\n[a]\nb = "# no comment"\n[kb.topic.project]\nsubjects = ".jp/kb/project"',
    '[kb.topic.project]\nsubjects = ".jp/kb/project"\nlearned = ["maintainers/ryan"\n  # c1\n, '
    '\'code-quality\' # c2\n]\ndescription = """\n# no comment\n"""\n'
    '[kb.topic.skills]\nsubjects = ".jp/kb/skills"\n',
]
marks = st.one_of(
    st.builds(
        PreloadOrDisableChange,
        st.just("project"),
        st.sampled_from(["maintainers/jean", "maintainers/ryan", "code-quality", "internal-notes"]),
        st.sampled_from(["learned", "disabled", "plain"]),
    ),
    st.builds(
        PreloadOrDisableChange,
        st.just("skills"),
        st.just("ast-grep"),
        st.sampled_from(["learned", "disabled"]),
    ),
    st.builds(
        PreloadOrDisableChange,
        st.sampled_from(["project", "skills"]),
        st.none(),
        st.sampled_from(["on", "off"]),
    ),
)


@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(shape=st.sampled_from(SHAPES), wanted=st.lists(marks, max_size=4))
def test_no_comment_and_no_value_is_ever_lost(
    knowledge: KnowledgeBase, shape: str, wanted: list[PreloadOrDisableChange]
) -> None:
    path = knowledge.workspace.jp_directory / "kb.toml"
    path.write_text(shape)
    base = load_knowledge(knowledge.workspace)
    assert base.problems == []
    try:
        change = plan_toml_change_for_preload_or_disable_changes(base, wanted)
    except UsageError:
        return  # a glob says otherwise
    write_toml_file_change(change)
    after = load_knowledge(knowledge.workspace)
    assert after.topics == base.copy_with_preload_or_disable_changes(wanted).topics
    for number in range(1, 6):
        assert (f"# c{number}" in path.read_text()) == (f"# c{number}" in shape)
    old, new = tomllib.loads(shape), tomllib.loads(path.read_text())
    for values in (old, new):
        for topic in values["kb"]["topic"].values():
            for field in ("learned", "disabled", "enable"):
                topic.pop(field, None)
    assert old == new
    undo_toml_change(change)
    assert path.read_text() == shape


def test_a_diff_shows_a_missing_last_newline() -> None:
    change = TomlFileChange(Path("kb.toml"), "a = 1", "a = 2")
    assert change.diff.count("\\ No newline at end of file\n") == 2
