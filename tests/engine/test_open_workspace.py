"""Workspaces that are open in one process, each in the environment of its client."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path

from claude_sessions import answered, session_id, typed, write_session
from support import Builder

from kbtui.engine.engine_workspace import ClientConnection, EngineWorkspace
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import Settings, load_settings
from kbtui.workspace.client_environment import ClientEnvironment


class Person:
    """A person with an own home, who holds conversations about the same project as the others."""

    def __init__(self, base: Path, name: str, builder: Builder) -> None:
        self.base, self.builder = base / name, builder
        self.directories = {
            variable: str(self.base / place)
            for variable, place in {
                "HOME": "home",
                "XDG_CACHE_HOME": "cache",
                "XDG_CONFIG_HOME": "config",
                "XDG_DATA_HOME": "data",
            }.items()
        }
        self.client_environment = ClientEnvironment(
            os.environ | self.directories | {"KBTUI_MODEL": "off"}
        )
        self.said = [typed(f"Where is the wombat of {name}?")]
        self.write_session()

    def write_session(self) -> None:
        write_session(self.base, self.builder.root, session_id(1), self.said)

    def load_settings(self) -> Settings:
        with self.client_environment.apply_to_thread_or_task():
            return load_settings()

    def write_settings(self, text: str) -> None:
        path = Path(self.directories["XDG_CONFIG_HOME"], "kbtui/config.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @asynccontextmanager
    async def open_workspace(self, settings: Settings) -> AsyncIterator[EngineWorkspace]:
        def end_never() -> None:
            pass

        with ThreadPoolExecutor(2) as pool:
            opened = EngineWorkspace(
                self.builder.workspace,
                self.client_environment,
                settings,
                pool,
                -1,
                end_never,
                print,
            )
            opened.start_threads()
            try:
                yield opened
            finally:
                await opened.stop_threads()

    async def search(self, opened: EngineWorkspace, words: str) -> list[str]:
        """Search as the server does for a client; return the texts of the hits."""
        ours, theirs = socket.socketpair()
        with closing(theirs):
            _, writer = await asyncio.open_unix_connection(sock=ours)
            client = ClientConnection(writer)
            question = {"query": words, "mode": "lexical"}
            with opened.client_environment.apply_to_thread_or_task():
                reply = await opened.operations["search"](
                    client, {"question": question, "origin": "cli"}
                )
            client.close()
        answer = reply["answer"]
        assert isinstance(answer, dict)
        return [hit["text"] for hit in answer["hits"]]

    def count_logged_searches(self) -> int:
        with self.client_environment.apply_to_thread_or_task():
            return UserData(self.builder.workspace).query_log.compute_search_statistics().total


async def test_two_workspaces_in_one_process_keep_to_their_clients(
    tmp_path: Path, home: Path
) -> None:
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={})
    ann, bob = (Person(tmp_path, name, builder) for name in ("ann", "bob"))
    async with (
        ann.open_workspace(ann.load_settings()) as hers,
        bob.open_workspace(bob.load_settings()) as his,
    ):
        # Each thread that writes an index reads the sessions in its client's home.
        assert await ann.search(hers, "wombat") == ["Where is the wombat of ann?"]
        assert await bob.search(his, "wombat") == ["Where is the wombat of bob?"]

        # Each watches that home. The first change may be found by the refresh at the start.
        for animal in ("quokka", "numbat"):
            ann.said.append(answered(f"With the {animal}."))
            ann.write_session()
            async with asyncio.timeout(20):
                while not await ann.search(hers, animal):
                    await asyncio.sleep(0.05)
        assert await bob.search(his, "numbat") == []

        # Each follows its client's settings file.
        bob.write_settings('language = "german"\n')
        assert hers.find_reason_to_reopen() is None
        assert his.find_reason_to_reopen() == "the settings have changed"

        # Each writes into its client's directories, and nothing into those of this process.
        assert ann.count_logged_searches() >= 2
        assert bob.count_logged_searches() == 2
    assert not list((home / "data").iterdir())
    assert not list((home / "cache").iterdir())


async def test_settings_that_change_while_the_engine_starts_are_noticed(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={})
    person = Person(tmp_path, "ann", builder)
    settings = person.load_settings()
    person.write_settings('language = "german"\n')
    async with person.open_workspace(settings) as opened:
        assert opened.find_reason_to_reopen() == "the settings have changed"
    async with person.open_workspace(person.load_settings()) as opened:
        assert opened.find_reason_to_reopen() is None
