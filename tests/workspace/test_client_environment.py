"""One process works for clients with different environments, each in its own thread or task."""

import ast
import asyncio
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import answered, session_id, typed, write_session

import kbtui
from kbtui.conversations.conversation_repository import list_conversations
from kbtui.conversations.formats.codex_format import CodexFormat
from kbtui.conversations.formats.llm_cli_format import LlmCliFormat
from kbtui.index.embedding_model import EmbeddingModelUnavailableError, find_embedding_model
from kbtui.sources.document_source_definitions import find_next_cron_time
from kbtui.workspace import Workspace, load_settings, open_workspace_at_root, paths
from kbtui.workspace.client_environment import (
    ClientEnvironment,
    make_client_environment_for_child_process,
)

PACKAGE = Path(kbtui.__file__).parent


class Person:
    """A person with a home, settings and conversations about the same project."""

    def __init__(self, base: Path, name: str, number: int, zone: str, root: Path) -> None:
        self.name, self.number, self.home = name, number, base / name / "home"
        self.client_environment = ClientEnvironment(
            {
                "HOME": str(self.home),
                "TZ": zone,
                "KBTUI_MODEL": f"~/model-of-{name}",
                "AIDER_CHAT_HISTORY_FILE": str(root / f"{name}.md"),
                "LLM_USER_PATH": str(base / name / "llm"),
            }
        )
        self.codex_id = f"0199{number:04}-0000-7000-8000-000000000000"
        config = self.home / ".config/kbtui"
        config.mkdir(parents=True)
        agents = '["claude-code", "codex", "aider", "llm"]'
        (config / "config.toml").write_text(
            f'language = "{name}"\n[conversations]\nagents = {agents}\n'
        )
        write_session(
            base / name, root, session_id(number), [typed("hi"), answered(f"hello {name}")]
        )
        (root / f"{name}.md").write_text(
            "\n# aider chat started at 2026-07-01 12:00:00\n\n#### hello\n\nhello\n"
        )
        self._write_codex_session(root)
        (base / name / "llm").mkdir()
        with closing(sqlite3.connect(base / name / "llm/logs.db")) as database, database:
            database.execute("CREATE TABLE conversations (id TEXT, name TEXT, model TEXT)")
            database.execute(
                "CREATE TABLE responses (id TEXT, conversation_id TEXT, prompt TEXT, "
                "response TEXT, model TEXT, datetime_utc TEXT)"
            )
            database.execute(f"INSERT INTO conversations VALUES ('of-{name}', '{name}', 'm')")
            database.execute(
                f"INSERT INTO responses VALUES ('r', 'of-{name}', 'hi', 'hello', 'm', '2026-05-01')"
            )

    def _write_codex_session(self, root: Path) -> None:
        session = self.home / f".codex/sessions/2026/05/01/rollout-{self.codex_id}.jsonl"
        session.parent.mkdir(parents=True)
        time = "2026-05-01T10:00:00.000Z"
        meta = {"id": self.codex_id, "timestamp": time, "cwd": str(root)}
        session.write_text(
            json.dumps({"timestamp": time, "type": "session_meta", "payload": meta}) + "\n"
        )
        line = json.dumps({"id": self.codex_id, "thread_name": self.name})
        (self.home / ".codex/session_index.jsonl").write_text(f"{line}\n")


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    return open_workspace_at_root(workspace_root)


@pytest.fixture
def people(tmp_path: Path, workspace: Workspace) -> list[Person]:
    zones = {"ann": "America/New_York", "bob": "Asia/Tokyo"}
    return [
        Person(tmp_path, name, number, zone, workspace.root)
        for number, (name, zone) in enumerate(zones.items(), 1)
    ]


def describe_everything(workspace: Workspace) -> dict[str, Any]:
    """Return what kbtui reads from the environment."""
    settings = load_settings()
    found = list_conversations(workspace)
    with pytest.raises(EmbeddingModelUnavailableError) as missing:
        find_embedding_model(settings.model)
    after = datetime.fromisoformat("2026-07-01T00:00:00+00:00").timestamp()
    return {
        "home": paths.get_user_home(),
        "directories": [
            paths.get_kbtui_cache_directory(),
            paths.get_kbtui_data_directory(),
            paths.get_jp_data_home(),
        ],
        "language": settings.language,
        "model": missing.value.where,
        "conversations": {one.agent: (one.id, one.title) for one in found},
        "aider began": next(one.created_at.hour for one in found if one.agent == "aider"),
        "next noon": (find_next_cron_time("0 12 * * *", after) or 0.0) - after,
        "zone": paths.get_time_zone_variable(),
    }


def expect(person: Person, hour: int, seconds: float) -> dict[str, Any]:
    home, name = str(person.home), person.name
    return {
        "home": home,
        "directories": [f"{home}/{place}" for place in DIRECTORIES],
        "language": name,
        "model": f"{home}/model-of-{name}",
        "conversations": {
            "claude-code": (f"claude-{session_id(person.number)}", "hi"),
            "codex": (f"codex-{person.codex_id}", name),
            "aider": ("aider-2026-07-01T12-00-00", "hello"),
            "llm": (f"llm-of-{name}", name),
        },
        "aider began": hour,
        "next noon": seconds,
        "zone": person.client_environment.variables["TZ"],
    }


DATA = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
DIRECTORIES = (".cache/kbtui", ".local/share/kbtui", f"{DATA}/jp")


def list_expected(people: list[Person]) -> list[dict[str, Any]]:
    ann, bob = people
    # Noon in New York is 16:00 UTC, and in Tokyo 3:00 UTC.
    return [expect(ann, 16, 16 * 3600.0), expect(bob, 3, 3 * 3600.0)]


def test_two_threads_at_once_read_two_environments(
    workspace: Workspace, people: list[Person]
) -> None:
    both = threading.Barrier(2, timeout=30)

    def work_for(person: Person) -> dict[str, Any]:
        with person.client_environment.apply_to_thread_or_task():
            both.wait()  # each has begun before the other reads
            found = describe_everything(workspace)
            both.wait()
            return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work_for, people)) == list_expected(people)


def test_tasks_and_their_threads_read_the_environment_of_their_client(
    workspace: Workspace, people: list[Person]
) -> None:
    async def serve(person: Person) -> dict[str, Any]:
        with person.client_environment.apply_to_thread_or_task():
            await asyncio.sleep(0.01)
            return await asyncio.to_thread(describe_everything, workspace)

    async def serve_all() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(serve, people))

    assert asyncio.run(serve_all()) == list_expected(people)


def test_afterwards_and_elsewhere_the_environment_of_the_process_counts(
    people: list[Person],
) -> None:
    own = os.environ["HOME"]
    seen: list[str] = []
    with people[0].client_environment.apply_to_thread_or_task():
        with people[1].client_environment.apply_to_thread_or_task():
            assert paths.get_user_home() == str(people[1].home)
        assert paths.get_user_home() == str(people[0].home)
        other = threading.Thread(target=lambda: seen.append(paths.get_user_home()))
        other.start()
        other.join()
    assert [paths.get_user_home(), *seen] == [own, own]


def test_a_variable_that_the_client_lacks_is_not_read_from_the_process(
    people: list[Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", "/elsewhere")
    monkeypatch.setenv("SECRET", "of the process")
    with people[0].client_environment.apply_to_thread_or_task():
        assert paths.read_client_environment_variable("CODEX_HOME") == ""
        environment = make_client_environment_for_child_process()
    assert environment["HOME"] == str(people[0].home)
    assert "CODEX_HOME" not in environment
    # A program that is started also needs what is no client's own, such as PATH.
    assert environment["SECRET"] == "of the process"
    assert make_client_environment_for_child_process() == dict(os.environ)


@pytest.mark.parametrize("variables", [{}, {"TZ": "Nowhere/At_all"}])
def test_without_a_known_time_zone_that_of_the_machine_counts(variables: dict[str, str]) -> None:
    noon = datetime(2026, 7, 1, 12).timestamp()
    with ClientEnvironment(variables).apply_to_thread_or_task():
        assert find_next_cron_time("0 12 * * *", noon - 60.0) == noon


@pytest.mark.parametrize(
    ("make_format", "opening"),
    [
        (CodexFormat, "kbtui.conversations.formats.codex_format.open_regular_file"),
        (LlmCliFormat, "kbtui.conversations.formats.llm_cli_format.open_database"),
    ],
    ids=["codex", "llm"],
)
def test_a_format_remembers_what_it_has_read_for_each_client(
    workspace: Workspace,
    people: list[Person],
    monkeypatch: pytest.MonkeyPatch,
    make_format: Callable[[], CodexFormat | LlmCliFormat],
    opening: str,
) -> None:
    shared = make_format()

    def list_signatures() -> list[list[tuple[str, str]]]:
        listed = []
        for person in people:
            with person.client_environment.apply_to_thread_or_task():
                found, _ = shared.find_stored_conversations(workspace)
                listed.append([(one.id, one.signature) for one in found])
        return listed

    def open_nothing(path: str) -> None:
        raise AssertionError(f"{path} is read again")

    before = list_signatures()
    assert all(before)
    monkeypatch.setattr(opening, open_nothing)
    assert list_signatures() == before


# What the code reads.

PROCESS_WIDE: dict[str, set[str]] = {
    "engine/engine_launcher.py": {"_start_engine_process"},  # what the engine inherits
    "index/embedding_model.py": {"*"},  # settings of libraries; the export of the model
    "index/embedding_process.py": {"_start_process"},  # settings of libraries
    "index/vector_store.py": {"<module>"},  # logging of a library
    "knowledge/subject_editing.py": {"find_editor_command"},  # runs in clients
    "library/diagnostics.py": {"*"},  # the user's terminal
    "sources/document_text_extraction.py": {"*"},  # the child of a source's run
    "sources/mcp_resource_fetcher.py": {"fetch_mcp_resources"},  # in a source's run
    "workspace/paths.py": {
        "_get_process_environment",
        "expand_user",  # for `~name`
        "find_runtime_directory",  # the engine's own
        "is_time_zone_of_process",
    },
    "workspace/client_environment.py": {
        "_get_client_environment_variables",
        "make_client_environment_for_child_process",
    },
}
"""Module -> the functions that read the environment of the process; `*` means any function."""


PROCESS_READERS = (".environ", ".environb", ".getenv", ".expanduser", ".expandvars", "Path.home")


def iterate_modules_with(*texts: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the modules that contain one of the texts."""
    for path in PACKAGE.rglob("*.py"):
        code = path.read_text()
        if any(text in code for text in texts):
            yield path, ast.parse(code)


def iterate_learned_file_reads(
    tree: ast.AST, function: str = "<module>"
) -> Iterator[tuple[str, int]]:
    """Yield the function and the line of each use of the environment of the process."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith(PROCESS_READERS):
            yield function, node.lineno
        yield from iterate_learned_file_reads(node, inside)


def test_nothing_that_an_engine_runs_reads_the_environment_of_the_process() -> None:
    found = []
    for path, tree in iterate_modules_with(*PROCESS_READERS):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(("cli/", "tui/", "serve/")):
            continue
        allowed = PROCESS_WIDE.get(name, set())
        for function, line in iterate_learned_file_reads(tree):
            if not allowed & {function, "*"}:
                found.append(f"{name}:{line} in {function}")
    assert not found, "read the variables with `paths.read_client_environment_variable`"


def test_every_variable_that_is_read_belongs_to_the_client_environment() -> None:
    read = set()
    for _, tree in iterate_modules_with("read_client_environment_variable", "get_xdg_directory"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args:
                name = ast.unparse(node.func).removeprefix("paths.")
                value = node.args[0]
                if name in {"read_client_environment_variable", "get_xdg_directory"} and isinstance(
                    value, ast.Constant
                ):
                    read.add(value.value)
    from kbtui.workspace.user_settings import SETTING_KEYS

    read |= {key.variable for key in SETTING_KEYS if key.variable}
    assert read | set(paths.AGENT_DIRECTORY_VARIABLES) == set(paths.CLIENT_VARIABLES)
