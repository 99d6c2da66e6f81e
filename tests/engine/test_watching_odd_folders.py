"""Other directories remain watched if a topic's directory is missing or not a directory."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Builder, asked

from kbtui.engine.file_watcher import FileWatcher


def loop(place: Path) -> None:
    place.symlink_to(place.name)


def device(place: Path) -> None:
    place.symlink_to("/dev/zero")


@pytest.mark.parametrize("odd", [loop, device, os.mkfifo])
def test_a_folder_that_is_none_does_not_end_the_watching(
    workspace_root: Path, odd: Callable[[Path], None]
) -> None:
    builder = Builder(workspace_root)
    folder = workspace_root / "docs/notes"
    folder.parent.mkdir(parents=True)
    odd(folder)
    seen, said = threading.Event(), list[str]()
    watcher = FileWatcher(builder.workspace, seen.set, said.append)
    watcher.set_watched_topic_directories([folder])
    watcher.start_thread()
    try:
        assert seen.wait(30)  # the first look
        for number in range(1, 60):
            seen.clear()
            builder.conversation(number, [[asked("Hello")]])
            if seen.wait(1.0):
                break
        assert seen.is_set()
        assert not said
    finally:
        watcher.stop_thread()
