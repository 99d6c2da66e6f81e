"""What `lint_knowledge` reports and what it leaves alone."""

from kb_support import Build

from kbtui.knowledge import KnowledgeBase
from kbtui.knowledge.knowledge_lint import lint_knowledge
from kbtui.knowledge.system_prompt_and_learn_tool import estimate_token_count

PROSE = " ".join(f"word{number} and{number % 7}" for number in range(60))


def list_problems(knowledge: KnowledgeBase) -> list[tuple[str | None, str, str | None]]:
    return [
        (problem.where or problem.key, problem.message, problem.hint)
        for problem in lint_knowledge(knowledge)
    ]


def topic(lines: str = "", name: str = "t") -> str:
    return f'[kb.topic.{name}]\nsubjects = "{name}"\n{lines}\n'


def test_a_tidy_knowledge_base_has_nothing_to_mend(two_topics: Build) -> None:
    assert (
        list_problems(two_topics('learned = ["maintainers/*"]', 'disabled = ["ast-grep/rules"]'))
        == []
    )


def test_collisions(build: Build) -> None:
    files = {"t/a.md": "1", "t/a.toml": "2", "t/.a.md": "3", "t/b.md": "4"}
    assert list_problems(build(topic(), files)) == [
        (
            "t/a",
            "a.md and .a.md, a.toml have the same slug, which refers to a.md",
            "rename the others, or refer to them by their paths",
        )
    ]


def test_dead_patterns_and_why(build: Build) -> None:
    files = {"t/alpha.md": "1", "t/.secret.md": "2", "t/off.md": "3", "t/sub/b.md": "4"}
    learned = '["alpha.md", "sec*", "off", "apha", "x/*", ".secret", "[", "alpha", "secret"]'
    found = list_problems(
        build(topic(f'learned = {learned}\ndisabled = ["off", "gone", "sec?et"]'), files)
    )
    key = "kb.topic.t.learned"
    assert found == [
        (key, "'alpha.md' matches no subject", "slugs have no extension: write 'alpha'"),
        (key, "'sec*' matches no subject", "the matching subjects are disabled"),
        (key, "'off' matches no subject", "the matching subjects are disabled"),
        (key, "'apha' matches no subject", "did you mean 'alpha'?"),
        (key, "'x/*' matches no subject", None),
        (key, "'.secret' matches no subject", "a slug cannot start with a dot"),
        (key, "'[' matches no subject", "a [ without ] matches only the character ["),
        (key, "'secret' matches no subject", "the matching subjects are disabled"),
        ("kb.topic.t.disabled", "'gone' matches no subject", None),
    ]
    (glob,) = list_problems(build(topic('learned = ["sec*"]'), files))
    assert glob[2] == "a glob does not match hidden subjects; write 'secret' instead"


def test_empty_topics(build: Build) -> None:
    kb = topic() + topic(name="u") + topic("enable = false", name="off") + topic(name="missing")
    knowledge = build(kb, {"u/.a.md": "1", "u/.b.md": "2", "off/.x": "3"})
    (knowledge.workspace.root / "t").mkdir()
    knowledge = build(kb)
    hint = "add a file, or set enable = false"
    assert list_problems(knowledge) == [
        ("kb.topic.t.subjects", "t has no subjects", hint),
        (
            "kb.topic.u.subjects",
            "all 2 subjects are hidden or disabled",
            hint,
        ),
    ]
    assert [problem.topic for problem in knowledge.problems] == ["missing"]


def test_subjects_too_large_to_preload(build: Build) -> None:
    files = {"t/big.md": "x" * 40_001, "t/same.md": "y" * 40_000, "t/unlearned.md": "z" * 50_000}
    assert list_problems(build(topic('learned = ["big", "same"]'), files)) == [
        (
            "t/big",
            "is too large to pre-load: about 10,001 tokens in every request",
            "remove it from `learned` or split it",
        )
    ]


def test_subjects_that_cannot_be_learned(build: Build) -> None:
    files = {"t/a.md": b"\0", "t/.b.md": b"\0", "t/off.md": b"\0"}
    assert list_problems(build(topic('disabled = ["off"]'), files)) == [
        ("t/a", "cannot be learned: it is a binary file", None)
    ]


def test_near_duplicates_within_and_across_topics(build: Build) -> None:
    changed = PROSE.replace("word30", "changed")
    files = {
        "t/a.md": f"# One\n\n{PROSE}\n",
        "t/b.md": f"# One\n{PROSE.upper()}",
        "u/c.md": f"# One\n\n{changed}\n",
        "u/d.md": " ".join(reversed(PROSE.split())),
        "u/short.md": "the same few words",
        "t/short.md": "the same few words",
    }
    found = lint_knowledge(build(topic() + topic(name="u"), files))
    assert [problem.where for problem in found] == ["t/b", "u/c"]
    assert found[0].message == "has the same text as t/a"
    assert found[1].message.startswith("is nearly the same as t/a (9")


def test_one_file_by_two_ways_is_no_duplicate(build: Build) -> None:
    kb = topic() + '[kb.topic.again]\nsubjects = "t"\n'
    knowledge = build(kb, {"t/a.md": PROSE})
    (knowledge.workspace.root / "t/link.md").symlink_to("a.md")
    assert list_problems(knowledge) == []


def test_mentions_of_slugs_that_do_not_exist(build: Build) -> None:
    text = """
Read `rules/deep` and `rules/gone`, `u/there`, `u/gone`, `u/folder`, `t/rules/deep`.
Paths such as `src/lib.rs`, `u/there.md`, `t/x.md` and `https://u/gone` are none; nor is `rules/*`.
Call learn(topic: "The U", subjects: ["there", "lost", "any*"]) or learn(topic="nope", subjects="x").

```sh
cat `rules/fenced`
```
"""
    files = {
        "t/x.md": text,
        "t/rules/.deep.md": "",
        "u/there.md": "",
        "u/folder/in.md": "",
        "u/.off.md": "`u/off` is `u/off`, and off.",
    }
    knowledge = build(topic() + topic('title = "The U"\ndisabled = ["off"]', name="u"), files)
    assert [(problem.where, problem.message) for problem in lint_knowledge(knowledge)] == [
        ("t/x", "mentions `rules/gone`, which does not exist"),
        ("t/x", "mentions `u/gone`, which does not exist"),
        ("t/x", "mentions 'lost' in u, which does not exist"),
    ]


def test_titles_that_two_topics_share(build: Build) -> None:
    kb = (
        topic('title = "Same"')
        + topic('title = "SAME"', name="u")
        + topic('title = "t"', name="v")
        + topic('title = "Same"\nenable = false', name="off")
    )
    files = {f"{name}/x.md": name for name in ("t", "u", "v")}
    assert list_problems(build(kb, files)) == [
        (
            "kb.topic.u.title",
            "'SAME' is also the title of the topic t; this title always refers to t",
            "choose another title",
        ),
        (
            "kb.topic.v.title",
            "'t' is also the id of another topic; this name refers to the other topic",
            "choose another title",
        ),
    ]


def test_tokens_are_a_quarter_of_the_bytes() -> None:
    assert [estimate_token_count(text) for text in ("", "a", "abcd", "abcde", "\u4e16\u754c")] == [
        0,
        1,
        1,
        2,
        2,
    ]
