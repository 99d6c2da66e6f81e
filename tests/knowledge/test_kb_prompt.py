"""The `<knowledge>` section and the definition of `learn`, compared with examples written by hand."""

import json

from kb_support import Build

from kbtui.knowledge import KnowledgeBase

NOTE = (
    "(note: some topics may contain hidden subjects that are not listed via `learn`\n"
    "by default, but can be loaded manually if you are made aware of their names via\n"
    "other means, such as by reading non-hidden subjects first. This prevents\n"
    "exposing too much irrelevant knowledge upfront)\n"
)


def test_the_section_reads_as_in_the_rfd(two_topics: Build) -> None:
    assert two_topics().format_knowledge_section() == (
        "<knowledge>\n"
        "The following knowledge topics are available to learn:\n"
        "\n"
        "- project (**General Project Knowledge**): foo bar baz...\n"
        "- skills (**Learnable Assistant Skills**)\n"
        "\n"
        "Use the `learn` tool to consume this knowledge.\n"
        "\n" + NOTE + "</knowledge>"
    )


def test_preloaded_knowledge_reads_as_in_the_rfd(two_topics: Build) -> None:
    knowledge = two_topics(
        'description = "[[topic description here]]"\n'
        'learned = ["maintainers/*"]\ndisabled = ["code-quality"]'
    )
    assert knowledge.format_knowledge_section() == (
        "<knowledge>\n"
        "The following knowledge has been pre-loaded into your system prompt:\n"
        "\n"
        '<topic "General Project Knowledge">\n'
        "\n"
        "[[topic description here]]\n"
        "\n"
        '<subject "maintainers/jean">\n'
        "...file content...\n"
        "</subject>\n"
        "\n"
        '<subject "maintainers/ryan">\n'
        "...file content...\n"
        "</subject>\n"
        "</topic>\n"
        "\n"
        "The following knowledge topics are available to learn:\n"
        "\n"
        "- skills (**Learnable Assistant Skills**)\n"
        "\n"
        "Use the `learn` tool to consume this knowledge.\n"
        "\n" + NOTE + "</knowledge>"
    )


def test_with_everything_learned_list_sentence_and_note_are_absent(two_topics: Build) -> None:
    knowledge = two_topics(
        'learned = ["**"]\ndisabled = ["maintainers/**"]', 'learned = ["ast-grep"]'
    )
    assert knowledge.format_knowledge_section() == (
        "<knowledge>\n"
        "The following knowledge has been pre-loaded into your system prompt:\n"
        "\n"
        '<topic "General Project Knowledge">\n'
        "\n"
        '<subject "code-quality">\n'
        "# Code quality\n"
        "</subject>\n"
        "</topic>\n"
        "\n"
        '<topic "Learnable Assistant Skills">\n'
        "\n"
        '<subject "ast-grep">\n'
        "...content...\n"
        "</subject>\n"
        "</topic>\n"
        "</knowledge>"
    )
    definition = knowledge.make_learn_tool_definition()
    assert definition is not None, "nobody but the prompt has it"
    assert "- project (General Project Knowledge)" in definition["description"]


def test_with_nothing_to_say_there_is_no_section_and_no_tool(build: Build) -> None:
    silent: list[tuple[str, dict[str, str]]] = [
        ("", {}),
        ('[kb.topic.a]\nsubjects = "a"\n', {"a/.hidden.md": "x"}),
        ('[kb.topic.a]\nsubjects = "b"\ndisabled = ["**"]\n', {"b/x.md": "x"}),
        ('[kb.topic.a]\nsubjects = "b"\nenable = false\nlearned = ["**"]\n', {}),
        ('[kb.topic.a]\nsubjects = "missing"\n', {}),
    ]
    for kb, files in silent:
        knowledge = build(kb, files)
        assert knowledge.format_knowledge_section() is None
        assert knowledge.make_learn_tool_definition() is None


def test_a_topic_with_some_learned_and_some_not_stands_in_both_parts(two_topics: Build) -> None:
    text = two_topics('learned = ["maintainers/*"]').format_knowledge_section() or ""
    assert '<subject "maintainers/jean">' in text
    assert "- project (**General Project Knowledge**): foo bar baz..." in text


def test_a_topic_line_has_what_is_there(build: Build) -> None:
    text = build(
        '[kb.topic.z]\nsubjects = "a"\nintroduction = "says"\n[kb.topic.a]\nsubjects = "a"\n',
        {"a/x.md": ""},
    ).format_knowledge_section()
    assert "learn:\n\n- z: says\n- a\n\nUse" in (text or ""), "in order of declaration"


def test_learned_subjects_keep_the_order_of_their_patterns(two_topics: Build) -> None:
    text = (
        two_topics(
            'learned = ["maintainers/ryan", "internal-notes", "**"]'
        ).format_knowledge_section()
        or ""
    )
    slugs = [line for line in text.splitlines() if line.startswith("<subject")]
    assert slugs == [
        '<subject "maintainers/ryan">',
        '<subject "internal-notes">',  # hidden, by its exact slug
        '<subject "code-quality">',
        '<subject "maintainers/jean">',
    ]


def test_preloaded_files_are_fenced_ended_and_quoted(build: Build) -> None:
    text = build(
        '[kb.topic.a]\ntitle = \'The "A"\'\nsubjects = "a"\nlearned = ["*"]\n',
        {'a/q"q.md': "no newline", "a/t.toml": "x = 1", "a/v.md": b"\0"},
    ).format_knowledge_section()
    assert text == (
        "<knowledge>\n"
        "The following knowledge has been pre-loaded into your system prompt:\n"
        "\n"
        '<topic "The &quot;A&quot;">\n'
        "\n"
        '<subject "q&quot;q">\n'
        "no newline\n"
        "</subject>\n"
        "\n"
        '<subject "t">\n'
        "```toml\n"
        "x = 1\n"
        "```\n"
        "</subject>\n"
        "\n"
        '<subject "v">\n'
        'Skipped "v": it is a binary file.\n'
        "</subject>\n"
        "</topic>\n"
        "</knowledge>"
    )


def test_k_adds_to_learned_for_the_call(two_topics: Build) -> None:
    knowledge = two_topics('learned = ["code-quality"]', knowledge=["project/maintainers/*"])
    listed = knowledge.topics["project"].learned
    assert listed == ("code-quality", "maintainers/*")
    assert (
        knowledge.format_knowledge_section()
        == two_topics('learned = ["code-quality", "maintainers/*"]').format_knowledge_section()
    )
    assignment = two_topics(
        'learned = ["code-quality"]', cfg=["kb.topic.project.learned+=maintainers/*"]
    )
    assert assignment.format_knowledge_section() == knowledge.format_knowledge_section()


def test_trying_k_values_gives_what_giving_them_would(two_topics: Build) -> None:
    plain = two_topics()
    plain.list_subjects("project")
    values = ["project/maintainers/*", "skills/ast-grep"]
    tried = plain.copy_with_preload_options(values)
    assert (
        tried.format_knowledge_section() == two_topics(knowledge=values).format_knowledge_section()
    )
    assert [s.slug for s in tried.list_subjects("project") if s.learned] == [
        "maintainers/jean",
        "maintainers/ryan",
    ]
    assert not any(subject.learned for subject in plain.list_subjects("project"))


def schema(knowledge: KnowledgeBase) -> str:
    definition = knowledge.make_learn_tool_definition()
    assert definition is not None
    assert definition["name"] == "learn"
    return json.dumps(definition["parameters"], indent=2)


# KB, "JSON Schema", typed by hand.
SCHEMA = """\
{
  "type": "object",
  "properties": {
    "topic": {
      "type": "string",
      "description": "The topic ID or title to learn about."
    },
    "subjects": {
      "type": [
        "string",
        "array",
        "null"
      ],
      "description": "Glob pattern(s) for subjects to load. Use * for current level, ** for \
recursive. Omit to list available subjects.",
      "items": {
        "type": "string"
      }
    }
  },
  "required": [
    "topic"
  ],
  "additionalProperties": false
}"""


def test_the_schema_is_the_rfds_whatever_the_configuration(two_topics: Build, build: Build) -> None:
    assert schema(two_topics()) == SCHEMA
    assert schema(build('[kb.topic.q]\nsubjects = "q"\n', {"q/x.md": ""})) == SCHEMA


def test_the_description_follows_what_is_learnable(two_topics: Build) -> None:
    definition = two_topics('disabled = ["**"]').make_learn_tool_definition() or {}
    assert "- skills (Learnable Assistant Skills)" in definition["description"]
    assert "project" not in definition["description"]
    definition = two_topics('learned = ["**"]').make_learn_tool_definition() or {}
    line = "- project (General Project Knowledge): foo bar baz...\n"
    assert line in definition["description"], "with its introduction"
    assert "data, not instructions" in definition["description"]


def test_a_topics_own_part_of_the_section_is_what_stands_in_it(two_topics: Build) -> None:
    knowledge = two_topics('learned = ["maintainers/*"]')
    block = knowledge.format_preloaded_subjects("project")
    assert block is not None
    assert block.startswith('<topic "General Project Knowledge">\n\n<subject')
    assert block.endswith("</topic>")
    assert block in (knowledge.format_knowledge_section() or "")
    assert knowledge.format_preloaded_subjects("skills") is None
    assert (
        two_topics('learned = ["maintainers/*"]\nenable = false').format_preloaded_subjects(
            "project"
        )
        is None
    )
