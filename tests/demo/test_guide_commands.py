"""Every `kbtui …` command in the guide and the README works, on a copy of the demo."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo_files import DEMO, subject_files
from running import run_command

from kbtui.cli.main import ALIASES
from kbtui.cli.main import COMMANDS as KNOWN

README = Path(__file__).parents[2] / "README.md"
GOLDEN = Path(__file__).parents[1] / "conversations" / "golden"
PAGES = {"README": README} | {
    ref: path for ref, path in sorted(subject_files().items()) if ref.startswith("guide/")
}
NOT_RUN = {
    "kbtui": "the screen",
    "kbtui -w '~/projects/website'": "the screen",
    "kbtui demo": "the screen",
    "kbtui open decisions/005-fuse-by-rank": "the screen",
    "kbtui open jp-c17757622345:2": "the screen",
    "kbtui c grep retry -i -": "reads what the command before it in the pipe prints",
    "kbtui data import -": "reads what the command before it in the pipe prints",
    "kbtui data export -": "prints the data of this machine",
    "kbtui data import laptop.jsonl --map /home/me/website=.": "the file has no such workspace",
    "kbtui workspaces forget '~/old/project'": "the list has no such workspace",
    "kbtui publish s3://team-kb/main": "needs object storage",
    "kbtui publish s3://team-kb/main --dry-run": "needs object storage",
    "kbtui -w s3://team-kb/main": "needs object storage",
    "kbtui -w s3://team-kb/main search rollback": "needs object storage",
    "kbtui tools install": "asks a person",
    "kbtui tools uninstall": "removes what the one above made",
}
"""Commands that ask the user or open the TUI, with the reason why they are not run."""
EXIT_CODES = {
    "kbtui entries --status error,pending --json": 1,  # the demo has none
    # The demo subscribes to no library.
    "kbtui library": 1,
    "kbtui library pull": 1,
    "kbtui library forget": 1,
    "kbtui tools install --check": 1,  # none are installed in the demo
    # The demo has only conversations of JP, which cannot be kept.
    "kbtui keep claude-258c7280": 1,
    "kbtui keep --agent claude-code": 1,
    "kbtui keep --agent claude-code --title retry": 1,
    "kbtui keep --all": 1,
    "kbtui keep ls": 1,
    "kbtui keep rm claude-258c7280": 1,
}
MESSAGE = re.compile(r"`kbtui (?:needs|crashed)[^`]*`")
"""A quoted message that starts like a command."""


def shown_lines(text: str) -> Iterator[str]:
    """Yield the shell lines of a page without indentation."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        yield from (line.strip() for line in block.splitlines())


def commands() -> dict[str, str]:
    """Return each `kbtui …` command with the first page that has it."""
    found: dict[str, str] = {}
    for page, path in PAGES.items():
        for line in shown_lines(path.read_text("utf-8")):
            for words in simple_commands(line):
                if words[:1] == ["kbtui"]:
                    found.setdefault(shlex.join(words), page)
    return found


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the commands of a shell line without redirections and conditions."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|>;&")
    words.whitespace_split = True
    found: list[str] = []
    for word in [*words, ";"]:
        if word and set(word) <= set("|>;&"):
            yield found
            found = []
        elif found or not (word == "if" or re.fullmatch(r"\w+=\S+", word)):
            found.append(word)


COMMANDS = {line: page for line, page in commands().items() if line not in NOT_RUN}


@pytest.fixture(scope="module")
def demo() -> Iterator[Path]:
    """A directory with a copy of the demo and separate directories for kbtui's files."""
    # A short path: the path of a socket is limited to 104 bytes.
    base = Path(tempfile.mkdtemp(prefix="kb-"))
    (base / "run").mkdir(mode=0o700)
    shutil.copytree(DEMO, base / "demo")
    yield base
    run(base, ["engine", "stop"])
    shutil.rmtree(base)


def run(base: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "HOME": str(base),
        "XDG_CACHE_HOME": str(base / "cache"),
        "XDG_CONFIG_HOME": str(base / "config"),
        "XDG_DATA_HOME": str(base / "data"),
        "XDG_STATE_HOME": str(base / "state"),
        "XDG_RUNTIME_DIR": str(base / "run"),
        "JP_USER_DATA_DIR": str(base / "jp"),
        "KBTUI_MODEL": "off",
        "KBTUI_ENGINE_IDLE": "60",
    }
    return run_command(*words, cwd=base / "demo", environment=environment)


def test_many_commands_are_shown_and_what_is_set_apart_is_shown_too() -> None:
    assert len(COMMANDS) > 60
    assert set(NOT_RUN) | set(EXIT_CODES) <= set(commands())


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"`kbtui ([a-z]+)", MESSAGE.sub("", PAGES[page].read_text("utf-8"))))
    assert named <= set(KNOWN) | set(ALIASES)


def test_every_command_has_a_place_in_the_guides_list() -> None:
    page = PAGES["guide/command-line"].read_text("utf-8")
    listed = set(re.findall(r"`kbtui ([a-z]+)", page))
    assert set(KNOWN) - {"tui"} <= listed


def keys(value: object) -> set[str]:
    """Return every key in a JSON document at any depth, except inside labels and arguments."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if not isinstance(value, dict):
        return set()
    deeper = (keys(part) for name, part in value.items() if name not in {"labels", "arguments"})
    return set(value).union(*deeper)


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.json")), ids=lambda path: str(path.stem))
def test_the_guide_has_every_key_of_a_conversation_answer(golden: Path) -> None:
    page = PAGES["guide/json"].read_text("utf-8")
    assert keys(json.loads(golden.read_text("utf-8"))) <= set(re.findall(r"\w+", page))


@pytest.mark.parametrize(
    "line",
    [
        "search chunk size --json",
        "entries --limit 2 --json",
        "entry show guide/keys --json",
        "cites jp-c17757622345:1 --json",
    ],
)
def test_the_guide_has_every_key_of_an_answer(demo: Path, line: str) -> None:
    page = PAGES["guide/json"].read_text("utf-8")
    answer = json.loads(run(demo, line.split()).stdout)
    for inner in ("by_type", "chunk_list"):
        answer.pop(inner, None)
    assert keys(answer) <= set(re.findall(r"\w+", page))


@pytest.mark.parametrize("line", COMMANDS)
def test_a_shown_command_works(demo: Path, line: str) -> None:
    words = shlex.split(line)[1:]
    if words[0] == "engine":
        run(demo, ["index", "--no-vectors"])  # so that there is one
    if words[:2] in (["mark", "ls"], ["mark", "rm"]):
        run(demo, ["mark", "add", "jp-c17757622345:1", "decided"])  # in any order of the tests
    if words[:2] == ["mark", "import"]:
        run(demo, ["mark", "export", "-o", words[2]])
    if words[:2] == ["data", "import"]:
        run(demo, ["data", "export", words[2]])
    done = run(demo, words)
    said = f"{COMMANDS[line]}: {line}\n{done.stdout[:500]}{done.stderr}"
    assert done.returncode == EXIT_CODES.get(line, 0), said
    assert "Traceback" not in done.stderr
