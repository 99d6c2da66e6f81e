"""TAB: what is offered, that it is quoted safely, and that nothing heavy is loaded for it."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked

from kbtui.cli import option_spec
from kbtui.cli.bash_quoting import ParsedLine
from kbtui.cli.completion_engine import complete
from kbtui.cli.main import COMMANDS, load_command
from kbtui.cli.parser import Parser

BREAKS = " \t\n\"'@><=;|&(:"
HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "it's",
    'say "so"',
    "a;touch pwned",
    "two words",
    "back\\slash",
    "a:b",
    "x|y&z>q",
    "star*",
    "-rf",
    "~root",
    "größe",
    "#no",
]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """Two topics that are seen, one that is not, and two conversations."""
    builder = Builder(tmp_path / "ws")
    builder.topics(
        notes={"title": "My Notes", "disabled": ["off"]},
        hostile={},
        gone={"enable": False},
    )
    for path in ("plain.md", "deep/one.md", "deep/two.md", ".secret.md", "off.md"):
        builder.subject(f"notes/{path}", "Text.\n")
    for name in HOSTILE:
        builder.subject(f"hostile/{name}.md", "Text.\n")
    builder.subject("gone/never.md", "Text.\n")
    builder.conversation(1, [[asked("One?")]])
    builder.conversation(2, [[asked("Two?")]], archived=True)
    monkeypatch.chdir(builder.root)
    return builder


def offered(*words: str) -> list[str]:
    return [word for word, _ in complete(list(words[:-1]), words[-1])[1]]


def test_commands_options_choices_and_actions_are_offered(built: Builder) -> None:
    assert offered("") == list(COMMANDS)
    assert offered("sea") == ["search"]
    assert {"--mode", "--topic", "--json", "--workspace", "--help"} <= set(offered("search", "--"))
    assert offered("search", "--mode", "") == ["hybrid", "lexical", "semantic"]
    assert offered("search", "--mode=le") == ["--mode=lexical"]
    assert offered("c", "") == ["ls", "grep", "read", "export"]
    assert offered("engine", "st") == ["status", "stop"]
    assert "--mode" not in offered("search", "--mode", "lexical", "--")
    assert "--topic" in offered("search", "--topic", "notes", "--")


def test_topics_subjects_and_conversations_are_offered_as_the_commands_take_them(
    built: Builder,
) -> None:
    assert offered("learn", "") == ["notes", "hostile"]
    assert offered("search", "--topic", "n") == ["notes"]
    assert offered("learn", "notes", "") == ["deep/", "plain"]
    assert offered("learn", "My Notes", "deep/") == ["deep/one", "deep/two"]
    assert offered("show", "notes/deep/o") == ["notes/deep/one"]
    assert offered("prompt", "-k", "notes/p") == ["notes/plain"]
    assert offered("c", "read", "") == ["jp-c17800000001"]
    assert offered("show", "178") == ["17800000001"]
    assert complete(["-w"], "")[0] == "directories"
    assert complete(["c", "export", "jp-c1", "-o"], "")[0] == "files"


def test_what_is_hidden_or_disabled_is_not_offered(built: Builder) -> None:
    for words in (("learn", "notes", ""), ("show", "notes/"), ("learn", "notes", ".")):
        assert not {word for word in offered(*words) if "secret" in word or "off" in word}
    assert not offered("show", "gone/")


def test_another_workspace_may_be_named_before_or_after_the_command(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    where = str(built.root)
    assert offered("-w", where, "learn", "") == ["notes", "hostile"]
    assert offered("learn", "--workspace", where, "") == ["notes", "hostile"]
    assert offered("c", "read", f"--workspace={where}", "") == ["jp-c17800000001"]


def test_suppress_is_what_argparse_means_by_it() -> None:
    assert option_spec.SUPPRESS == argparse.SUPPRESS


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_declared_is_what_the_parser_takes(name: str) -> None:
    def names(parser: argparse.ArgumentParser) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {"": set()}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner, sub in action.choices.items():
                    found[inner] = names(sub)[""]
            else:
                found[""] |= set(action.option_strings or [action.dest])
        return found

    parser = Parser(prog=name)
    load_command(name)[0](parser)
    command = option_spec.declared(name)
    wanted = names(parser)
    for action in command.actions:
        for inner in (action.name, *action.aliases):
            got = {word for one in action.arguments for word in one.names or (one.dest,)}
            assert got | {"-h", "--help"} == wanted.pop(inner)
    got = {word for one in command.arguments for word in one.names or (one.dest,)}
    assert wanted == {"": (got | {"-h", "--help"}) - {"-w", "--workspace"}}


@given(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1))
def test_a_completed_word_is_read_as_itself(word: str) -> None:
    for opening in ("", '"', "'"):
        line = ParsedLine(f"kbtui show {opening}", BREAKS)
        again = ParsedLine(f"kbtui show {opening}{line.completed(word)}{opening} ", BREAKS)
        assert again.words == ["kbtui", "show", word] or word.startswith("~/")


@pytest.fixture
def shell_home(built: Builder, tmp_path: Path) -> Iterator[Path]:
    """A directory with `kbtui` as a shell finds it, and `args`, which says what it was given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, code in {
        "kbtui": "import sys; from kbtui.cli.main import main; sys.exit(main())",
        "args": "import json, sys; print('<<' + json.dumps(sys.argv[1:]) + '>>')",
    }.items():
        script = folder / name
        script.write_text(f"#!{sys.executable}\n{code}\n")
        script.chmod(0o755)
    yield folder
    assert not (built.root / "pwned").exists()


SHELLS = {
    "bash": (["--norc", "--noprofile", "-i"], "bind 'set enable-bracketed-paste off'; {script}; complete -F _kbtui args"),
    "zsh": (["-f", "-i"], "unset zle_bracketed_paste; autoload -U compinit; compinit -u -D; {script}; compdef _kbtui args"),
}  # fmt: skip


@pytest.mark.parametrize("shell", [name for name in SHELLS if shutil.which(name)])
def test_a_shell_passes_on_hostile_names_as_they_are(
    built: Builder, shell_home: Path, shell: str
) -> None:
    options, prepare = SHELLS[shell]
    script = f'eval "$(kbtui completion {shell})"'
    environment = os.environ | {
        "PATH": f"{shell_home}:{os.environ['PATH']}",
        "PS1": "ready> ",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }
    child = pexpect.spawn(
        shell, options, cwd=str(built.root), env=environment, encoding="utf-8",
        dimensions=(24, 500), timeout=60,
    )  # fmt: skip
    try:
        child.sendline(prepare.format(script=script) + "; echo pre''pared")
        child.expect_exact("prepared")
        # Each is typed as far as it is alone, the first letter as the shell wants it quoted.
        typed = {name: _quoted(name[0]) for name in HOSTILE}
        typed |= {"a;touch pwned": "a\\;", "a:b": "a:", 'say "so"': "sa", "star*": "st"}
        for name, begin in typed.items():
            child.send(f"args show hostile/{begin}\t\n")
            child.expect("<<(.*)>>")
            assert json.loads(child.match[1]) == ["show", f"hostile/{name}"]
    finally:
        child.close(force=True)


def _quoted(sign: str) -> str:
    return sign if sign.isalnum() or sign in "-" else f"\\{sign}"


@pytest.mark.slow
def test_fish_offers_the_same_words(built: Builder, shell_home: Path) -> None:
    environment = os.environ | {"PATH": f"{shell_home}:{os.environ['PATH']}"}
    done = subprocess.run(
        [
            "fish",
            "--no-config",
            "-c",
            'kbtui completion fish | source; complete -C "kbtui learn hostile "',
        ],
        cwd=built.root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert set(done.stdout.splitlines()) == set(HOSTILE)


def test_a_tab_loads_nothing_heavy(built: Builder) -> None:
    for line in ("search --", "learn notes ", "show ", "c read "):
        code = (
            "import sys; from kbtui.cli.main import main; "
            f"main(['__complete', 'bash', 'kbtui {line}', ' ']); print(*sys.modules, file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.count("\n") > 1, line
        heavy = {"argparse", "asyncio", "sqlite3", "textual", "tantivy", "lancedb", "numpy", "rich"}
        assert not heavy & set(done.stderr.split()), line


def test_a_mistake_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no workspace here
    for line in ("learn", "nonsense", "show", "search --topic", "learn no-topic"):
        done = subprocess.run(
            [sys.executable, "-m", "kbtui.cli.main", "__complete", "zsh", "kbtui", *line.split(), ""],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == ("", "")
