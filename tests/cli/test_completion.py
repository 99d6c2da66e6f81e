"""Tests of completion: its candidates, safe quoting, and its imports."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from claude_sessions import session_id, typed, write_session
from running import complete_line, completion_environment
from support import Builder, asked

from kbtui.cli.main import COMMANDS

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
    """Build two visible topics, a disabled one, and two conversations."""
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


def offered(line: str, cwd: Path | None = None) -> list[str]:
    """Return the candidates at the end of a line, without a shell's quoting."""
    return [word.split("\t")[0] for word in complete_line(line, cwd=cwd).split("\n") if word]


def imported(line: str) -> set[str]:
    """Return the modules that one TAB imports."""
    environment = completion_environment(line, "fish") | {"PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "kbtui.cli.main"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout, line
    return {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}


def test_commands_options_choices_and_actions_are_offered(built: Builder) -> None:
    assert offered("kbtui ") == list(COMMANDS)
    assert offered("kbtui sea") == ["search"]
    options = {"--mode", "--topic", "--json", "--workspace", "--help"}
    assert options <= set(offered("kbtui search --"))
    assert offered("kbtui search --mode ") == ["hybrid", "lexical", "semantic"]
    assert offered("kbtui search --mode=le") == ["--mode=lexical"]
    assert {"ls", "grep", "read", "export"} <= set(offered("kbtui c "))
    assert offered("kbtui engine st") == ["status", "stop"]
    assert "--mode" not in offered("kbtui search --mode lexical --")
    assert "--topic" in offered("kbtui search --topic notes --")
    assert "search subjects and conversations" in complete_line("kbtui sea")


def test_topics_subjects_and_conversations_are_offered_as_the_commands_take_them(
    built: Builder,
) -> None:
    assert offered("kbtui learn ") == ["notes", "hostile"]
    assert offered("kbtui search --topic n") == ["notes"]
    assert offered("kbtui learn notes ") == ["deep/", "plain"]
    assert offered("kbtui learn 'My Notes' deep/") == ["deep/one", "deep/two"]
    assert offered("kbtui learn notes plain deep/o") == ["deep/one"]
    assert offered("kbtui show notes/deep/o") == ["notes/deep/one"]
    assert offered("kbtui prompt -k notes/p") == ["notes/plain"]
    assert offered("kbtui c read ") == ["jp-c17800000001"]
    assert offered("kbtui show 178") == ["17800000001"]
    assert ".jp/" in offered("kbtui -w ")
    assert ".jp/" in offered("kbtui c export jp-c1 -o ")


def test_ids_of_other_agents_are_offered_once_their_prefix_is_typed(
    home: Path, built: Builder
) -> None:
    for number in (1, 2):
        write_session(home, built.root, session_id(number), [typed(f"Ask {number}\x1b[2J")])
    assert offered("kbtui c read ") == ["jp-c17800000001", "claude-"]
    assert offered("kbtui c info cl") == ["claude-"]
    assert set(offered("kbtui c read claude-")) == {"claude-158c7280", "claude-258c7280"}
    assert complete_line("kbtui show claude-2") == "claude-258c7280\tAsk 2"
    assert offered("kbtui c export claude-258c7280-2") == [f"claude-{session_id(2)}"]
    assert offered("kbtui c ls --agent cl") == ["claude-code"]
    assert offered("kbtui search --agent cod") == ["codex"]


def test_what_is_hidden_or_disabled_is_not_offered(built: Builder) -> None:
    for line in ("learn notes ", "show notes/", "learn notes ."):
        found = offered(f"kbtui {line}")
        assert not {word for word in found if "secret" in word or "off" in word}
    assert not offered("kbtui show gone/")


def test_another_workspace_may_be_named_before_or_after_the_command(
    built: Builder, tmp_path: Path
) -> None:
    where = shlex.quote(str(built.root))
    assert offered(f"kbtui -w {where} learn ", tmp_path) == ["notes", "hostile"]
    assert offered(f"kbtui learn --workspace {where} ", tmp_path) == ["notes", "hostile"]
    assert offered(f"kbtui c read --workspace={where} ", tmp_path) == ["jp-c17800000001"]
    assert offered(f"kbtui c -w {where} read ", tmp_path) == ["jp-c17800000001"]


@pytest.fixture
def shell_home(built: Builder, tmp_path: Path) -> Iterator[Path]:
    """Make a directory for PATH with `kbtui`, and with `args`, which prints its arguments."""
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
    "bash": (["--norc", "--noprofile", "-i"], "bind 'set enable-bracketed-paste off'; {script}; complete -o nospace -F _python_argcomplete_kbtui args"),
    "zsh": (["-f", "-i"], "unset zle_bracketed_paste; autoload -U compinit; compinit -u -D; {script}; compdef _python_argcomplete_kbtui args"),
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


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
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
    heavy = {"asyncio", "sqlite3", "textual", "tantivy", "lancedb", "numpy", "rich"}
    for line in ("search --", "learn notes ", "show ", "c read "):
        assert not heavy & imported(f"kbtui {line}"), line


def test_a_mistake_is_silent(tmp_path: Path) -> None:
    for line in ("learn", "nonsense", "show", "search --topic", "learn no-topic", "source rm"):
        assert complete_line(f"kbtui {line} ", cwd=tmp_path) == ""  # no workspace here
