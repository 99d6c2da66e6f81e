"""Topics from the configuration: fields, layers, mistakes, command-line options; prompt sections."""

from pathlib import Path

import pytest
from kb_support import TOPICS, Build, write

from kbtui.errors import ConfigError, NothingFound, UsageError
from kbtui.knowledge import load_knowledge
from kbtui.knowledge.knowledge_data_types import KnowledgeProblem, Topic
from kbtui.workspace import Workspace, open_workspace_at_root

FILES = {"a/x.md": "x", "b/y.md": "y"}


def test_every_field_has_its_value_or_default(build: Build, workspace: Workspace) -> None:
    knowledge = build(
        "[kb.topic.full]\n"
        "enable = false\n"
        'title = "General Project Knowledge"\n'
        'introduction = "foo bar baz..."\n'
        'description = "longer initial description talking about this"\n'
        'subjects = "a"\n'
        'learned = ["x"]\n'
        'disabled = ["y", "z*"]\n'
        "[kb.topic.least]\n"
        'subjects = "b"\n',
        FILES,
    )
    origin = workspace.jp_directory / "kb.toml"
    assert list(knowledge.topics.values()) == [
        Topic(
            id="full",
            subjects="a",
            enable=False,
            title="General Project Knowledge",
            introduction="foo bar baz...",
            description="longer initial description talking about this",
            learned=("x",),
            disabled=("y", "z*"),
            origin=origin,
        ),
        Topic(id="least", subjects="b", origin=origin),
    ]
    assert knowledge.problems == []
    assert origin in knowledge.files


def test_later_layers_win_field_by_field_and_lists_replace(
    build: Build, workspace: Workspace
) -> None:
    write(
        workspace.root,
        {
            ".jp/config.toml": (
                "[assistant]\nname = 1\n"
                '[kb.topic.b]\ntitle = "B"\nsubjects = "a"\nlearned = ["x"]\ndisabled = ["q"]\n'
            ),
            ".jp.json": '{"kb": {"topic": {"b": {"introduction": "i", "title": null}}}}',
        },
    )
    knowledge = build(
        '[kb.topic.a]\nsubjects = "a"\n[kb.topic.b]\nlearned = ["y"]\nsubjects = "b"\n', FILES
    )
    assert list(knowledge.topics) == ["b", "a"], "in order of first declaration"
    topic = knowledge.topics["b"]
    assert topic == Topic(
        "b",
        "b",
        introduction="i",
        learned=("y",),
        disabled=("q",),
        origin=workspace.jp_directory / "config.toml",
    )


@pytest.mark.parametrize(
    ("table", "key", "says", "hint"),
    [
        ('tittle = "x"', "kb.topic.bad.tittle", "unknown key 'tittle'", "did you mean 'title'?"),
        ("zzz = 1", "kb.topic.bad.zzz", "unknown key 'zzz'", "known keys: enable, title"),
        ("enable = 1", "kb.topic.bad.enable", "must be true or false", None),
        ("title = 1", "kb.topic.bad.title", "must be a string", None),
        ('learned = "x"', "kb.topic.bad.learned", "must be a list of strings", None),
        ("disabled = [1]", "kb.topic.bad.disabled", "must be a list of strings", None),
        ('subjects = "/etc"', "kb.topic.bad.subjects", "must be relative", "such as"),
        ('subjects = "../x"', "kb.topic.bad.subjects", "must be inside the workspace", "such as"),
        ('subjects = "a/../../x"', "kb.topic.bad.subjects", "inside", "such as"),
        ('subjects = ""', "kb.topic.bad.subjects", "missing", "subjects ="),
        ('subjects = "a\\u0000"', "kb.topic.bad.subjects", "NUL", None),
    ],
)
def test_a_mistake_names_file_key_and_remedy_and_leaves_the_other_topics(
    build: Build, table: str, key: str, says: str, hint: str | None
) -> None:
    subjects = "" if "subjects" in table else 'subjects = "a"\n'
    knowledge = build(
        f'[kb.topic.bad]\n{subjects}{table}\n[kb.topic.good]\nsubjects = "b"\n', FILES
    )
    assert list(knowledge.topics) == ["good"]
    assert knowledge.list_subject_slugs("good") == ["y"]
    (problem,) = knowledge.problems
    assert (problem.where, problem.key, problem.topic) == (".jp/kb.toml", key, "bad")
    assert says in problem.message
    assert hint is None if problem.hint is None else hint and hint in problem.hint
    assert "bad" not in knowledge.learn("bad").text.partition("Valid")[2]


@pytest.mark.parametrize(
    ("kb", "key", "says"),
    [
        ("kb = 1", "kb", "must be a table"),
        ("[kb]\ntopic = 1", "kb.topic", "must be a table of topics"),
        ("[kb.topic]\na = 1", "kb.topic.a", "must be a table"),
        ('[kb.topic."a/b"]\nsubjects = "a"', "kb.topic.a/b", "an id must"),
        ('[kb.topic.""]\nsubjects = "a"', "kb.topic.", "an id must"),
        ('[kb.topics.a]\nsubjects = "a"', "kb.topics", "unknown key 'topics'"),
        ("[kb.topic.a]", "kb.topic.a.subjects", "missing"),
    ],
)
def test_misshapen_tables_are_said(build: Build, kb: str, key: str, says: str) -> None:
    knowledge = build(kb)
    assert knowledge.topics == {}
    (problem,) = knowledge.problems
    assert problem.key == key
    assert says.replace("an id", "id") in problem.message


def test_only_the_kb_table_is_our_business(build: Build, workspace: Workspace) -> None:
    write(workspace.root, {".jp/config.toml": "nonsense = true\n[providers]\nx = 1\n"})
    assert build('other = 1\n[kb.topic.a]\nsubjects = "a"\n', FILES).problems == []


def test_topics_below_assistant_are_read_too(build: Build, workspace: Workspace) -> None:
    config = '[assistant.kb.topic.a]\nsubjects = "a"\n[assistant.kb.topic.bad]\nwrong = 1\n'
    write(workspace.root, {".jp/config.toml": config})
    knowledge = build('[kb.topic.b]\nsubjects = "b"\n', FILES)
    assert set(knowledge.topics) == {"a", "b"}
    assert "assistant.kb.topic.bad.wrong" in {problem.key for problem in knowledge.problems}


def test_a_broken_kb_toml_leaves_other_layers(build: Build, workspace: Workspace) -> None:
    write(workspace.root, {".jp/config.yaml": "kb: {topic: {a: {subjects: a}}}"})
    knowledge = build("[kb.topic.b\n", FILES)
    assert list(knowledge.topics) == ["a"]
    (problem,) = knowledge.problems
    assert problem.where == ".jp/kb.toml"
    assert "line 1" in problem.message


@pytest.mark.parametrize(
    ("subjects", "says"),
    [
        ("missing", "missing does not exist"),
        ("a/x.md", "a/x.md is not a directory"),
        ("a/x.md/deeper", "a/x.md/deeper is not a directory"),
        ("out", "out is outside the workspace"),
        ("circle", "circle cannot be read: "),
    ],
)
def test_a_directory_that_cannot_be_used_is_said_at_once(
    build: Build, workspace: Workspace, tmp_path: Path, subjects: str, says: str
) -> None:
    write(workspace.root, FILES)
    (workspace.root / "out").symlink_to(tmp_path)
    (workspace.root / "circle").symlink_to("circle")
    knowledge = build(f'[kb.topic.t]\nsubjects = "{subjects}"\n[kb.topic.b]\nsubjects = "b"\n')
    (problem,) = knowledge.problems
    assert says in problem.message
    assert (problem.where, problem.topic) == (".jp/kb.toml", "t")
    assert knowledge.list_subjects("t") == []
    assert knowledge.learn("t").text == "# Topic: t\n\nNo subjects are available."
    assert len(knowledge.problems) == 1, "the same is not said twice"
    assert knowledge.list_subject_slugs("b") == ["y"]


def test_the_workspace_itself_may_be_a_topic(build: Build) -> None:
    knowledge = build('[kb.topic.all]\nsubjects = "."\n', FILES)
    assert knowledge.list_subject_slugs("all") == ["a/x", "b/y"]
    assert knowledge.find_subject("all", "jp/kb") is not None, "hidden, but there"


def test_a_linked_topic_directory_inside_the_workspace_works(
    build: Build, workspace: Workspace
) -> None:
    write(workspace.root, FILES)
    (workspace.root / "link").symlink_to("a")
    knowledge = build('[kb.topic.l]\nsubjects = "link"\n')
    (subject,) = knowledge.list_subjects("l")
    assert subject.path == workspace.root / "link/x.md"
    assert knowledge.learn("l", "x").text == "x"


def test_unknown_topics_of_calls_are_errors_or_nothing(build: Build) -> None:
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', FILES)
    assert knowledge.find_subject("nope", "x") is None
    assert knowledge.find_subject("a", "nope") is None
    with pytest.raises(NothingFound, match="topics: a"):
        knowledge.list_subjects("nope")


# Flags.


def test_k_is_split_at_the_first_slash(two_topics: Build) -> None:
    knowledge = two_topics(
        knowledge=["project/maintainers/*", "project/maintainers/*", "skills/ast-grep"]
    )
    assert knowledge.topics["project"].learned == ("maintainers/*",)
    assert knowledge.topics["skills"].learned == ("ast-grep",)


@pytest.mark.parametrize("value", ["project", "project/", "/x", "nope/x", "off/x", ""])
def test_a_wrong_k_is_a_usage_error(build: Build, value: str) -> None:
    kb = TOPICS + '[kb.topic.off]\nsubjects = "a"\nenable = false\n'
    with pytest.raises(UsageError) as caught:
        build(kb, FILES, knowledge=[value])
    assert caught.value.where == f"-k {value}"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("assignment", "field", "value"),
    [
        ("kb.topic.project.learned+=maintainers/*", "learned", ("code-quality", "maintainers/*")),
        ("kb.topic.project.learned=x", "learned", ("x",)),
        ('kb.topic.project.learned:=["x", "y"]', "learned", ("x", "y")),
        ('kb.topic.project.learned+:=["x", "y"]', "learned", ("code-quality", "x", "y")),
        ("kb.topic.project.title=A = B", "title", "A = B"),
        ("kb.topic.project.enable=false", "enable", False),
        ("kb.topic.project.enable:=false", "enable", False),
        ('kb.topic."project".title=T', "title", "T"),
    ],
)
def test_assignments(two_topics: Build, assignment: str, field: str, value: object) -> None:
    knowledge = two_topics('learned = ["code-quality"]', cfg=[assignment])
    assert getattr(knowledge.topics["project"], field) == value


def test_an_assignment_may_declare_a_topic(build: Build) -> None:
    knowledge = build("", FILES, cfg=["kb.topic.a.subjects=a", "kb.topic.a.title=A"])
    assert knowledge.topics["a"] == Topic("a", "a", title="A")


@pytest.mark.parametrize(
    "assignment",
    [
        "kb.topic.project.lerned+=x",
        "kb.topic.project=x",
        "kb.topic.=x",
        "kb=x",
        "nonsense.key=x",
        "kb.topic.nope.learned+=x",
        "kb.topic.project.title+=x",
        "kb.topic.project.enable=maybe",
        "kb.topic.project.learned:=[1]",
        "kb.topic.project.learned:=[",
    ],
)
def test_a_wrong_assignment_is_a_usage_error(two_topics: Build, assignment: str) -> None:
    with pytest.raises(UsageError) as caught:
        two_topics(cfg=[assignment])
    assert caught.value.where == f"--cfg {assignment}"


def test_assignments_to_jps_own_keys_are_jps_business(two_topics: Build) -> None:
    assert two_topics(cfg=["assistant.model.id=x", "style.code=y"]).problems == []


def test_the_rfds_config_load_paths_example(two_topics: Build, workspace: Workspace) -> None:
    write(
        workspace.root,
        {
            ".jp/config.toml": 'config_load_paths = [".jp/config.d"]',
            ".jp/config.d/kb/maintainers.toml": '[kb.topic.project]\nlearned = ["maintainers/*"]\n',
        },
    )
    assert two_topics().topics["project"].learned == ()
    knowledge = two_topics(cfg=["kb/maintainers"])
    assert knowledge.topics["project"].learned == ("maintainers/*",)
    assert workspace.jp_directory / "config.d/kb/maintainers.toml" in knowledge.files
    later = two_topics(cfg=["kb.topic.project.learned+=code-quality", "kb/maintainers"])
    assert later.topics["project"].learned == ("maintainers/*",), "in the order given"
    write(workspace.root, {".jp/config.d/broken.toml": "["})
    with pytest.raises(ConfigError, match="not valid TOML"):
        two_topics(cfg=["broken"])
    with pytest.raises(UsageError, match="no configuration named 'nope'"):
        two_topics(cfg=["nope"])


def test_directory_level_configuration_counts_below_it(build: Build, workspace: Workspace) -> None:
    build('[kb.topic.a]\nsubjects = "a"\n', FILES)
    write(workspace.root, {"a/.jp.toml": '[kb.topic.a]\ntitle = "Here"\n'})
    assert load_knowledge(workspace, cwd=workspace.root / "a").topics["a"].title == "Here"
    assert load_knowledge(workspace, cwd=workspace.root).topics["a"].title is None


def test_nothing_is_written_by_reading(two_topics: Build, workspace: Workspace) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_ino)
            for path in sorted(workspace.root.rglob("*"))
        }

    knowledge = two_topics('learned = ["**"]')
    before = state()
    for topic in knowledge.topics:
        knowledge.list_subjects(topic)
        knowledge.learn(topic, "**")
    knowledge.format_knowledge_section()
    knowledge.read_jp_prompt_sections()
    assert state() == before


def test_a_problem_reads_as_place_message_and_hint() -> None:
    problem = KnowledgeProblem("is odd", where="f.toml", key="kb", hint="mend it")
    assert str(problem) == "f.toml: kb: is odd (mend it)"


# JP's own prompt sections.


def test_fragments_know_which_configuration_loads_them(build: Build, workspace: Workspace) -> None:
    write(
        workspace.root,
        {
            ".jp/config/knowledge/style.toml": (
                "[[assistant.system_prompt_sections]]\n"
                'tag = "style"\ntitle = "How we write"\ncontent = "Few, clear words."\nposition = 3\n'
                "[[assistant.system_prompt_sections]]\n"
                'content = "Second."\n'
            ),
            ".jp/config/knowledge/lonely.toml": (
                '[assistant]\nsystem_prompt_sections = {value = [{tag = "t", content = "x"}]}\n'
            ),
            ".jp/config/knowledge/broken.toml": "[",
            ".jp/config/knowledge/other.toml": "[assistant]\nname = 'x'\n",
            ".jp/config/personas/dev.toml": 'extends = ["../knowledge/style.toml"]\n',
            ".jp/config/personas/lead.toml": 'extends = ["dev.toml"]\n',
            ".jp/config.toml": 'extends = ["config/knowledge/st*.toml"]\n',
        },
    )
    found = build().read_jp_prompt_sections()
    loaders = (".jp/config.toml", ".jp/config/personas/dev.toml", ".jp/config/personas/lead.toml")
    assert [(part.path.name, part.name, part.content, part.loaded_by) for part in found] == [
        ("lonely.toml", "t", "x", ()),
        ("style.toml", "How we write", "Few, clear words.", loaders),
        ("style.toml", "style", "Second.", loaders),
    ]
    assert found[1].position == 3
    assert build().problems == []


def test_without_fragments_there_are_none(tmp_path: Path) -> None:
    (tmp_path / ".jp").mkdir()
    assert load_knowledge(open_workspace_at_root(tmp_path)).read_jp_prompt_sections() == []
