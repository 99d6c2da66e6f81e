"""The workshop without its screen: sizes, rows, marks, patterns."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Builder

from kbtui.knowledge import KnowledgeBase, load_knowledge
from kbtui.knowledge.knowledge_data_types import PreloadOrDisableChange
from kbtui.tui.library_pane import make_folder_row_key
from kbtui.tui.prompt_workshop.prompt_workshop_screen import escape_glob
from kbtui.tui.prompt_workshop.subject_pattern_input_bar import find_subject_pattern_matches
from kbtui.tui.prompt_workshop.subject_tree import SubjectTreeFoldsAndFilter, make_subject_tree_rows
from kbtui.tui.prompt_workshop.system_prompt_with_unsaved_changes import (
    PendingPreloadOrDisableChanges,
    PromptTextSize,
    RunningSumsOfSubjectSizes,
    SubjectPromptSizes,
    find_subject_or_topic_state,
    format_prompt_size_change,
    load_prompt_with_changes,
    make_prompt_with_pending_marks,
    measure_prompt_size,
)
from kbtui.workspace import open_workspace_at_root

FILES = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)

names = st.text("ab[*1- ", min_size=1, max_size=3).filter(lambda name: name.strip(" ."))
slugs = st.lists(
    st.lists(names, min_size=1, max_size=4).map("/".join), min_size=1, max_size=30, unique=True
).map(sorted)


@given(slugs, st.data())
def test_the_sum_below_any_beginning_is_that_of_its_subjects(
    found: list[str], data: st.DataObject
) -> None:
    sizes = [PromptTextSize(len(slug), n, is_estimate=n % 3 == 0) for n, slug in enumerate(found)]
    sums = RunningSumsOfSubjectSizes(found, list(sizes))
    prefix = data.draw(st.sampled_from(["", *(slug[: len(slug) // 2] for slug in found)]))
    own = [size for slug, size in zip(found, sizes, strict=True) if slug.startswith(prefix)]
    wanted = PromptTextSize(
        sum(c.characters for c in own), sum(c.tokens for c in own), any(c.is_estimate for c in own)
    )
    assert sums.sum_sizes_in_folder(prefix) == (len(own), wanted)


def test_growth_has_one_sign_unless_letters_and_tokens_differ() -> None:
    assert (
        format_prompt_size_change(PromptTextSize(10, 3), PromptTextSize(3130, 783))
        == "+3,120 characters ≈ 780 tokens"
    )
    assert (
        format_prompt_size_change(PromptTextSize(3130, 783), PromptTextSize(10, 3))
        == "−3,120 characters ≈ 780 tokens"
    )
    assert (
        format_prompt_size_change(PromptTextSize(8, 2), PromptTextSize(6, 5))
        == "−2 characters ≈ +3 tokens"
    )
    assert (
        format_prompt_size_change(PromptTextSize(8, 2), PromptTextSize(7, 3))
        == "−1 character ≈ +1 token"
    )
    assert PromptTextSize(1, 1).format_prompt_size_with_units() == "1 character ≈ 1 token"
    assert format_prompt_size_change(PromptTextSize(8, 2), PromptTextSize(8, 2)) == ""
    assert (
        format_prompt_size_change(PromptTextSize(0, 0), PromptTextSize(8, 2), units=False)
        == "+8 ≈ 2"
    )


def test_counting_is_exact_and_reads_again_only_what_changed(book: Builder) -> None:
    knowledge = load_knowledge(open_workspace_at_root(book.root))
    subject_sizes = SubjectPromptSizes()
    todo = next(iter(subject_sizes.measure_subject_sizes(knowledge, lambda: True)))
    assert todo == 6
    assert list(subject_sizes.measure_subject_sizes(knowledge, lambda: True))[-1] == 0
    for topic, slug in (("project", "start"), ("snippets", "retry")):
        assert subject_sizes.get_measured_subject_size(topic, slug) == measure_prompt_size(
            knowledge.learn(topic, slug).text
        )
    book.subject("project/start.md", "shorter\n")
    again = load_knowledge(open_workspace_at_root(book.root))
    assert next(iter(subject_sizes.measure_subject_sizes(again, lambda: True))) == 1
    assert list(subject_sizes.measure_subject_sizes(again, lambda: True))
    assert subject_sizes.get_measured_subject_size("project", "start") == PromptTextSize(8, 2)


@FILES
@given(slugs)
def test_every_subject_is_listed_once_when_all_is_open(
    workspace_root: Path, found: list[str]
) -> None:
    book = Builder(workspace_root)
    book.topics(t={})
    folder = book.root / "docs" / "t"
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for slug in found:
        target = folder / f"{slug}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("x")

    class Files:
        def load_knowledge(self) -> KnowledgeBase:
            return load_knowledge(open_workspace_at_root(book.root))

    prompt_with_changes = load_prompt_with_changes(Files(), SubjectPromptSizes())  # type: ignore[arg-type]
    parts = [slug.split("/") for slug in found]
    opened = {"topic:t"} | {
        make_folder_row_key("t", "/".join(part[:depth]) + "/")
        for part in parts
        for depth in range(1, len(part))
    }
    made = make_subject_tree_rows(
        prompt_with_changes, SubjectTreeFoldsAndFilter(opened, hidden=True)
    )
    rows = [row for row in made if row.selectable]
    listed = [row.key for row in rows if row.data.kind == "subject"]
    assert sorted(listed) == sorted(f"t/{slug}" for slug in found)
    folders = [row.key for row in rows if row.data.kind == "folder"]
    assert set(folders) == opened - {"topic:t"}
    assert len(folders) == len(set(folders))
    for row in rows:
        # A folder's row shows what a glob over just that folder gives.
        # A slug that is written like that glob wins over it.
        pattern = f"{escape_glob(row.data.name)}**"
        if row.data.kind == "folder" and pattern not in found:
            reached = prompt_with_changes.written.list_subject_slugs("t", [pattern])
            assert reached == [slug for slug in found if slug.startswith(row.data.name)]


MARKS = st.lists(
    st.tuples(
        st.sampled_from(["start", "style", "old", "people/ada"]),
        st.sampled_from(["learned", "disabled"]),
    ),
    max_size=12,
)


@FILES
@given(MARKS)
def test_any_keys_end_in_what_the_marks_alone_would_give(
    book: Builder, presses: list[tuple[str, str]]
) -> None:
    knowledge = load_knowledge(open_workspace_at_root(book.root))
    marks = PendingPreloadOrDisableChanges()

    class Files:
        def load_knowledge(self) -> KnowledgeBase:
            return knowledge

    prompt_with_changes = load_prompt_with_changes(Files(), SubjectPromptSizes())  # type: ignore[arg-type]
    for slug, state in presses:
        now = marks.find_state_with_pending_mark(knowledge, "project", slug)
        marks.toggle_pending_mark(PreloadOrDisableChange("project", slug, state), knowledge)  # type: ignore[arg-type]
        prompt_with_changes = make_prompt_with_pending_marks(
            prompt_with_changes, SubjectPromptSizes(), marks.pending_marks_in_order
        )
        assert not prompt_with_changes.refusals
        # Pressed once it is so; pressed again it is not.
        after = find_subject_or_topic_state(prompt_with_changes.knowledge, "project", slug)
        assert (after == state) == (now != state)
    assert (
        prompt_with_changes.prompt
        == knowledge.copy_with_preload_or_disable_changes(
            marks.pending_marks_in_order
        ).format_knowledge_section()
    )
    assert prompt_with_changes.size == measure_prompt_size(prompt_with_changes.prompt)
    for topic in knowledge.topics:
        assert prompt_with_changes.preloads[topic] == measure_prompt_size(
            prompt_with_changes.knowledge.format_preloaded_subjects(topic)
        )


@FILES
@given(
    st.one_of(
        st.text(max_size=20),
        st.lists(
            st.sampled_from(
                ["-k", "-k=", "-kproject/*", "--knowledge", "--knowledge=project/**", "project/",
                 "*", "**", "start", "[", "[!a]", "'", '"', "snippets/*", "../", "\0", "\x1b[31m",
                 "people/**", "project", "-", "--", "/", "//", ".secret", "%", "é\u202e"]
            ),
            max_size=5,
        ).map(" ".join),
    )
)  # fmt: skip
def test_whatever_one_types_is_understood_or_pointed_at(book: Builder, typed: str) -> None:
    knowledge = load_knowledge(open_workspace_at_root(book.root))
    trial = find_subject_pattern_matches(typed, knowledge, SubjectPromptSizes(), "project")
    if trial.problem is not None:
        assert 0 <= trial.problem.at <= max(0, len(typed) - 1)
    if trial.preloads:
        before = {
            (t, s)
            for t in knowledge.topics
            for s in knowledge.get_topic_slugs_by_visibility(t).learned
        }
        tried = knowledge.copy_with_preload_options(trial.preloads)
        after = {
            (t, s) for t in tried.topics for s in tried.get_topic_slugs_by_visibility(t).learned
        }
        assert set(trial.matches) == after - before
    elif trial.topic is not None:
        wanted = knowledge.list_subject_slugs(trial.topic, trial.patterns or None)
        assert list(trial.matches) == [(trial.topic, slug) for slug in wanted]
    elif typed.strip():
        assert trial.problem is not None
        assert trial.problem.is_error


@pytest.mark.parametrize(
    ("typed", "call"),
    [
        ("people/*", "learn project 'people/*'"),
        ("project/people/*", "learn project 'people/*'"),
        ("snippets", "learn snippets"),
        ("snippets/", "learn snippets"),
        ("'a b' style", "learn project 'a b' style"),
        ("-k snippets/*", "prompt -k 'snippets/*'"),
        ("-ksnippets/retry --knowledge=project/start", "prompt -k snippets/retry -k project/start"),
    ],
)
def test_what_is_typed_is_the_command_that_gives_the_same(
    book: Builder, typed: str, call: str
) -> None:
    knowledge = load_knowledge(open_workspace_at_root(book.root))
    assert (
        find_subject_pattern_matches(
            typed, knowledge, SubjectPromptSizes(), "project"
        ).kbtui_command_arguments
        == call
    )
