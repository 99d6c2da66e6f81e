"""Slugs, hidden and disabled subjects, collisions and globs, compared with a simple model.

The model below does not use the code under test; hypothesis compares the two on generated trees.
"""

import fnmatch
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kb_support import Build, write

from kbtui.knowledge import KnowledgeBase, load_knowledge
from kbtui.knowledge.slug_patterns import compile_slug_pattern, has_unclosed_glob_bracket
from kbtui.knowledge.subject_files import scan_topic_directory
from kbtui.workspace import open_workspace_at_root

# The model.


def model_glob(pattern: list[str], slug: list[str]) -> bool:
    if not pattern:
        return not slug
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(slug)
        return any(model_glob(pattern[1:], slug[skip:]) for skip in range(len(slug) + 1))
    return (
        bool(slug)
        and fnmatch.fnmatchcase(slug[0], pattern[0])
        and model_glob(pattern[1:], slug[1:])
    )


def matches(pattern: str, slug: str) -> bool:
    return model_glob(pattern.split("/"), slug.split("/"))


def model_slug(path: str) -> str:
    parts = list(Path(path).parts)
    parts[-1] = PurePath(path).stem
    return "/".join(part.lstrip(".") for part in parts)


def rank(path: str) -> tuple[bool, int, str]:
    ending = PurePath(path).suffix
    order = [".md", ".txt", ".text", ""]
    hidden = any(part.startswith(".") for part in Path(path).parts)
    return hidden, order.index(ending) if ending in order else 4, path


class Model:
    def __init__(self, paths: list[str], disabled: list[str]) -> None:
        self.file: dict[str, str] = {}
        self.loser: dict[str, str] = {}
        slugs = {model_slug(path) for path in paths}
        for path in sorted(paths, key=rank):
            slug = model_slug(path)
            if slug in self.file:
                self.loser["./" + path if path in slugs else path] = slug
            else:
                self.file[slug] = path
        every = set(self.file) | set(self.loser)
        self.disabled = set()
        for pattern in disabled:
            for name in every:
                slug = self.loser.get(name, name)
                if pattern in every:
                    reached = pattern in (name, slug)
                else:
                    reached = matches(pattern, slug) or matches(pattern, name)
                if reached:
                    self.disabled.add(name)

    def hidden(self, name: str) -> bool:
        path = self.file[name]
        return path.startswith(".") or "/." in path

    def visible(self) -> list[str]:
        return sorted(s for s in self.file if not self.hidden(s) and s not in self.disabled)

    def match(self, patterns: list[str]) -> list[str]:
        available = (set(self.file) | set(self.loser)) - self.disabled
        found: list[str] = []
        for pattern in patterns:
            if pattern in available:
                found.append(pattern)
            else:
                found += [slug for slug in self.visible() if matches(pattern, slug)]
        return list(dict.fromkeys(found))


# Generate few different names, so that collisions are frequent.

NAMES = ["a", "b", "ab", "a.b", "[a]", "A"]
folders = st.sampled_from([*NAMES, ".a", ".b", "a.md"])
endings = st.sampled_from(["", ".md", ".md", ".txt", ".text", ".toml", ".json"])
files = st.builds(
    "".join, st.tuples(st.sampled_from(["", "", "."]), st.sampled_from(NAMES), endings)
)
paths = st.builds(
    lambda above, name: "/".join([*above, name]), st.lists(folders, max_size=2), files
)
# Trees in which most files have the same slug.
rivals = st.builds(
    lambda folder, dot, ending: f"{folder}{dot}a{ending}",
    st.sampled_from(["", "", "d/", ".d/"]),
    st.sampled_from(["", "", "."]),
    endings,
)
trees = st.lists(paths, max_size=12, unique=True) | st.lists(rivals, max_size=8, unique=True)
pieces = st.sampled_from(
    [*NAMES, "*", "**", "?", "?", "*.*", "a*", "*b", "[ab]", "[!a]*", "[", "**b", ""]
)
globs = st.lists(pieces, min_size=1, max_size=4).map("/".join)
patterns = st.lists(globs, max_size=3)


def drop_conflicts(tree: list[str]) -> list[str]:
    """Return the paths without those that need a file as a directory."""
    kept: list[str] = []
    for path in tree:
        below = any(other.startswith(path + "/") for other in kept)
        above = any(path.startswith(other + "/") for other in kept)
        if not below and not above and path not in kept:
            kept.append(path)
    return kept


def quoted(items: list[str]) -> str:
    return "[" + ", ".join(f"'{item}'" for item in items) + "]"


@pytest.fixture
def folder() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="kb-tree-"))
    yield base
    shutil.rmtree(base)


def write_tree(folder: Path, tree: list[str], **fields: list[str]) -> KnowledgeBase:
    root = Path(tempfile.mkdtemp(dir=folder))
    write(root, dict.fromkeys((f"t/{path}" for path in tree), "x"))
    lines = [f"{name} = {quoted(value)}" for name, value in fields.items()]
    write(root, {".jp/kb.toml": "\n".join(['[kb.topic.t]\nsubjects = "t"', *lines])})
    (root / "t").mkdir(exist_ok=True)
    return load_knowledge(open_workspace_at_root(root))


many = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


@many
@given(tree=trees.map(drop_conflicts), disabled=patterns, asked=patterns)
def test_patterns_match_as_in_a_plain_reading_of_the_rfd(
    folder: Path, tree: list[str], disabled: list[str], asked: list[str]
) -> None:
    knowledge = write_tree(folder, tree, disabled=disabled)
    model = Model(tree, disabled)
    subjects = {subject.slug: subject for subject in knowledge.list_subjects("t")}
    assert list(subjects) == sorted([*model.file, *model.loser])
    assert {name for name in subjects if subjects[name].disabled} == model.disabled
    assert {name for name in subjects if subjects[name].shadowed} == set(model.loser)
    assert knowledge.list_subject_slugs("t") == model.visible()
    assert knowledge.list_subject_slugs("t", asked) == model.match(asked)


@many
@given(tree=trees.map(drop_conflicts), asked=globs)
def test_no_glob_ever_reaches_a_hidden_subject(folder: Path, tree: list[str], asked: str) -> None:
    knowledge = write_tree(folder, tree)
    subjects = {subject.slug: subject for subject in knowledge.list_subjects("t")}
    if asked not in subjects:
        assert not any(subjects[slug].hidden for slug in knowledge.list_subject_slugs("t", [asked]))


@many
@given(tree=trees.map(drop_conflicts), disabled=patterns, learned=patterns, asked=patterns)
def test_a_disabled_subject_never_comes(
    folder: Path, tree: list[str], disabled: list[str], learned: list[str], asked: list[str]
) -> None:
    knowledge = write_tree(folder, tree, disabled=disabled, learned=learned)
    gone = {subject.slug for subject in knowledge.list_subjects("t") if subject.disabled}
    assert not gone & set(knowledge.list_subject_slugs("t", [*asked, *sorted(gone)]))
    for text in (
        knowledge.format_knowledge_section() or "",
        knowledge.learn("t", [*asked, *sorted(gone)]).text,
    ):
        assert not any(f'<subject "{slug}">' in text for slug in gone)


@many
@given(tree=trees.map(drop_conflicts))
def test_every_file_is_reached_by_exactly_one_slug(folder: Path, tree: list[str]) -> None:
    knowledge = write_tree(folder, tree)
    subjects = {subject.slug: subject for subject in knowledge.list_subjects("t")}
    assert all(knowledge.list_subject_slugs("t", [slug]) == [slug] for slug in subjects)
    assert sorted(subject.relative for subject in subjects.values()) == sorted(tree)


@many
@given(tree=trees.map(drop_conflicts), learned=patterns)
def test_what_is_learned_is_in_the_prompt_and_never_comes_again(
    folder: Path, tree: list[str], learned: list[str]
) -> None:
    knowledge = write_tree(folder, tree, learned=learned)
    slugs = [subject.slug for subject in knowledge.list_subjects("t") if subject.learned]
    assert sorted(knowledge.list_subject_slugs("t", learned)) == slugs
    listing = knowledge.learn("t", has_prompt=True).text.partition("## Already learned")[0]
    for slug in slugs:
        assert f'<subject "{slug}">' in (knowledge.format_knowledge_section() or "")
        assert "already in the system prompt" in knowledge.learn("t", slug, has_prompt=True).text
        assert f"- {slug}\n" not in listing


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    pattern=st.lists(pieces, min_size=1, max_size=6).map("/".join),
    slug=st.lists(st.sampled_from([*NAMES, "bb", "aab", "*", "x\ny"]), min_size=1, max_size=5).map(
        "/".join
    ),
)
def test_globs_mean_what_the_model_means(pattern: str, slug: str) -> None:
    assert bool(compile_slug_pattern(pattern)(slug)) == matches(pattern, slug)


# Tables written by hand.


def test_slugs_and_hidden_of_the_layout_example(two_topics: Build) -> None:
    knowledge = two_topics()
    found = {
        topic: [(subject.slug, subject.hidden) for subject in knowledge.list_subjects(topic)]
        for topic in knowledge.topics
    }
    assert found == {
        "project": [
            ("code-quality", False),
            ("internal-notes", True),
            ("maintainers/jean", False),
            ("maintainers/ryan", False),
        ],
        "skills": [("ast-grep", False), ("ast-grep/rules", True)],
    }


@pytest.mark.parametrize(
    ("path", "slug", "hidden"),
    [
        (".internal-notes.md", "internal-notes", True),
        ("ast-grep/.rules.md", "ast-grep/rules", True),
        (".hidden-dir/visible.md", "hidden-dir/visible", True),
        ("maintainers/jean.md", "maintainers/jean", False),
        ("archive.tar.gz", "archive.tar", False),
        ("v1.2/notes.md", "v1.2/notes", False),
        (".gitignore", "gitignore", True),
        ("..twice.md", "twice", True),
        ("Makefile", "Makefile", False),
        ("trailing.", "trailing", False),
        ("...", "...", True),
        ("na\u00efve caf\u00e9.md", "na\u00efve caf\u00e9", False),
        ("no\u00a0break.md", "no\u00a0break", False),
    ],
)
def test_slug_and_hidden_of_a_path(build: Build, path: str, slug: str, hidden: bool) -> None:
    (subject,) = build('[kb.topic.t]\nsubjects = "t"\n', {f"t/{path}": "x"}).list_subjects("t")
    assert (subject.slug, subject.hidden, subject.relative) == (slug, hidden, path)


@pytest.mark.parametrize(
    ("pattern", "slugs"),
    [
        ("*", ["code-quality"]),
        ("**", ["code-quality", "maintainers/deep/er", "maintainers/jean", "maintainers/ryan"]),
        ("maintainers/*", ["maintainers/jean", "maintainers/ryan"]),
        ("maintainers/**", ["maintainers/deep/er", "maintainers/jean", "maintainers/ryan"]),
        ("internal-notes", ["internal-notes"]),
        ("maintainers/j*", ["maintainers/jean"]),
        ("**/jean", ["maintainers/jean"]),
        (
            "**/**/**",
            ["code-quality", "maintainers/deep/er", "maintainers/jean", "maintainers/ryan"],
        ),
        ("maintainers/[jr]?an", ["maintainers/jean", "maintainers/ryan"]),
        ("Code-*", []),
        ("internal*", []),
        ("[", []),
        ("", []),
        ("../**", []),
        ("../../.jp/kb.toml", []),
        ("/etc/passwd", []),
        ("maintainers", []),
    ],
)
def test_the_glob_table(two_topics: Build, pattern: str, slugs: list[str]) -> None:
    write(two_topics().workspace.root, {".jp/kb/project/maintainers/deep/er.md": "x"})
    assert two_topics().list_subject_slugs("project", [pattern]) == slugs


def test_equality_with_a_slug_wins_over_a_glob(build: Build) -> None:
    files = {"t/a[1].md": "literal\n", "t/a1.md": "other\n", "t/b*.md": "star\n", "t/bc.md": ""}
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n', files)
    assert knowledge.list_subject_slugs("t", ["a[1]"]) == ["a[1]"]
    assert knowledge.learn("t", "b*").text == "star\n"
    assert build('[kb.topic.t]\nsubjects = "t"\ndisabled = ["b*"]\n').list_subject_slugs(
        "t", ["b*"]
    ) == ["bc"]


def test_a_contested_slug_goes_by_the_order_of_extensions(build: Build) -> None:
    endings = ["aaa", "", ".text", ".txt", ".md"]
    for known in range(2, len(endings) + 1):
        names = [f"s{'.' if ending == 'aaa' else ''}{ending}" for ending in endings[:known]]
        files = {f"t/{name}": name for name in names}
        knowledge = build('[kb.topic.t]\nsubjects = "t"\n', files)
        assert knowledge.learn("t", "s").text.startswith(names[-1])
        assert knowledge.list_subject_slugs("t", ["**"]) == ["s"]
        assert knowledge.learn("t", "s.aaa").text == "```aaa\ns.aaa\n```"
    assert knowledge.learn("t", "./s").text == "s"


def test_a_visible_file_beats_a_hidden_one(build: Build) -> None:
    files = {"t/.a.md": "hidden", "t/a.zzz": "seen", "t/.d/b.md": "hidden", "t/d/b.txt": "seen"}
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n', files)
    assert knowledge.list_subject_slugs("t", ["**"]) == ["a", "d/b"]
    assert knowledge.learn("t", "d/b").text == "seen"
    assert knowledge.learn("t", ".a.md").text == "hidden"
    assert knowledge.learn("t", ".d/b.md").text == "hidden"
    for reaching in ("a", "?", ".a.*"):
        off = build(f'[kb.topic.t]\nsubjects = "t"\ndisabled = ["{reaching}"]\n')
        assert off.learn("t", ".a.md").is_error


def test_a_hostile_pattern_takes_no_time() -> None:
    slug = "/".join(["a" * 200] * 20)
    assert not compile_slug_pattern("*a" * 60 + "b")(slug)
    assert not compile_slug_pattern("**/*a*a*a*a*a*a*a/" * 10 + "b")(slug)
    assert not compile_slug_pattern("x" * 100_000)("x")


def test_unclosed_brackets_are_known() -> None:
    assert has_unclosed_glob_bracket("a[b")
    assert has_unclosed_glob_bracket("[a]/[!")
    assert not has_unclosed_glob_bracket("[]]")
    assert not has_unclosed_glob_bracket("a[b]c")


# Links and odd directories.


def tree(root: Path, names: list[str]) -> None:
    write(root, dict.fromkeys(names, "x"))


def test_links_are_followed_inside_the_workspace_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    tree(tmp_path, ["outside/secret.md", "root/t/a.md", "root/shared/b.md", "root/shared/c/d.md"])
    (root / "t/file.md").symlink_to(root / "shared/b.md")
    (root / "t/folder").symlink_to("../shared")
    (root / "t/out.md").symlink_to(tmp_path / "outside/secret.md")
    (root / "t/outdir").symlink_to(tmp_path / "outside")
    (root / "t/.#lock.md").symlink_to("nobody@nowhere.1")
    found = scan_topic_directory(str(root), str(root / "t"))
    assert found.slugs == ["a", "file", "folder/b", "folder/c/d"]
    assert sorted(found.mistakes) == [
        ("the link points outside the workspace", "out.md"),
        ("the link points outside the workspace", "outdir"),
    ]


def test_loops_of_links_are_cut(tmp_path: Path) -> None:
    tree(tmp_path, ["t/a/b/c.md", "t/x/y.md"])
    (tmp_path / "t/a/b/up").symlink_to("..")
    (tmp_path / "t/self").symlink_to("self")
    (tmp_path / "t/x/other").symlink_to("../a")
    (tmp_path / "t/a/back").symlink_to("../x")
    (tmp_path / "t/root").symlink_to("..")
    found = scan_topic_directory(str(tmp_path), str(tmp_path / "t"))
    assert {"a/b/c", "x/y", "x/other/b/c", "a/back/y"} <= set(found.slugs)
    assert len(found.slugs) < 30
    assert all("not followed" in message for message, _ in found.mistakes)
    assert (
        "the link leads back to a parent directory, so it is not followed",
        "a/b/up",
    ) in found.mistakes


def test_links_that_multiply_are_cut(tmp_path: Path) -> None:
    for level in range(20):
        tree(tmp_path, [f"d{level}/s.md"])
        for twice in "xy":
            (tmp_path / f"d{level}" / twice).symlink_to(f"../d{level + 1}")
    (tmp_path / "d20").mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "t/in").symlink_to("../d0")
    found = scan_topic_directory(str(tmp_path), str(tmp_path / "t"))
    assert "in/s" in found.slugs
    assert any("linked directories" in message for message, _ in found.mistakes)


def test_names_that_are_no_text_are_left_out_with_a_message(
    build: Build, workspace_root: Path
) -> None:
    tree(workspace_root, ["t/good.md", "t/sub/fine.md"])
    base = os.fsencode(workspace_root / "t")
    for name in (b"b\xffd.md", b"new\nline.md", b"\xfedir/x.md"):
        path = Path(os.fsdecode(base + b"/" + name))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n')
    assert [subject.slug for subject in knowledge.list_subjects("t")] == ["good", "sub/fine"]
    said = sorted((problem.where, problem.message) for problem in knowledge.problems)
    assert said == [
        (r"t/\udcfedir", "the name is not UTF-8"),
        (r"t/b\udcffd.md", "the name is not UTF-8"),
        (r"t/new\nline.md", "the name has a control character"),
    ]


def test_a_subject_that_became_a_link_out_is_not_read(build: Build, tmp_path: Path) -> None:
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n', {"t/a.md": "mine\n"})
    (subject,) = knowledge.list_subjects("t")
    tree(tmp_path, ["secret.md"])
    subject.path.unlink()
    subject.path.symlink_to(tmp_path / "secret.md")
    assert knowledge.learn("t", "a").text == 'Skipped "a": it is outside the workspace.'


def test_pipes_and_sockets_are_no_subjects(build: Build, workspace_root: Path) -> None:
    tree(workspace_root, ["t/a.md"])
    os.mkfifo(workspace_root / "t/pipe.md")
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n')
    assert knowledge.list_subject_slugs("t") == ["a"]
    (workspace_root / "t/a.md").unlink()
    os.mkfifo(workspace_root / "t/a.md")
    assert knowledge.learn("t", "a").text == 'Skipped "a": it is not a regular file.'
