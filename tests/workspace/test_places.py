"""The directories that kbtui uses, depending on the environment."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest
from pty_support import COMMAND


@pytest.mark.parametrize("value", [None, "", "relative"])
def test_without_a_home_in_the_environment_that_of_the_password_database_counts(
    workspace_root: Path, value: str | None
) -> None:
    environment = {
        name: text
        for name, text in os.environ.items()
        if name != "HOME" and (not name.startswith("XDG_") or name == "XDG_RUNTIME_DIR")
    }
    if value is not None:
        environment["HOME"] = value
    done = subprocess.run(
        [COMMAND, "paths", "-w", str(workspace_root)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    home = pwd.getpwuid(os.getuid()).pw_dir.rstrip("/")
    assert f"{home}/.cache/kbtui/" in done.stdout
    assert f"{home}/.config/kbtui/config.toml" in done.stdout
    assert " /.c" not in done.stdout
