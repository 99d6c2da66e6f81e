"""Tests of doctor, paths, log and man, and of the redaction of logs."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked

from kbtui.cli.diagnostic_and_settings_commands import DiagnosticLogRedactor
from kbtui.cli.main import COMMANDS, main
from kbtui.engine.__main__ import write_engine_log_record
from kbtui.workspace.user_settings import SETTING_KEYS, get_settings_path

GUIDE = Path(__file__).parents[2] / "docs/guide"
SECRET = "Kündigung-Meier"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    builder = Builder(tmp_path / "ws")
    builder.topics(notes={})
    builder.subject("notes/plain.md", "# Plain\n\nText.\n")
    monkeypatch.chdir(builder.root)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("KBTUI_MODEL", "off")
    return builder


@pytest.fixture
def engine_log(built: Builder) -> Path:
    log = built.workspace.engine_log_file
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


def found(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], str]:
    """Return the doctor's messages by area and state."""
    main(["doctor", "--json"])
    told: dict[tuple[str, str], str] = {}
    for one in json.loads(capsys.readouterr().out):
        key = (one["area"], one["state"])
        told[key] = f"{told.get(key, '')}{one['message']}\n"
    return told


def test_a_sound_workspace_has_nothing_wrong(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    told = found(capsys)
    assert [state for _, state in told].count("wrong") == 0
    assert {"terminal", "settings", "workspace", "knowledge", "index", "engine", "model"} <= {
        area for area, _ in told
    }
    assert main(["doctor"]) == 0


def test_the_doctor_works_where_settings_are_broken(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    get_settings_path().parent.mkdir(parents=True, exist_ok=True)
    get_settings_path().write_text("modle = 1\n")
    told = found(capsys)
    assert f"{get_settings_path()}:1: unknown key 'modle'" in told["settings", "wrong"]
    assert "did you mean 'model'?" in told["settings", "wrong"]
    assert ("knowledge", "ok") in told


def test_the_doctor_works_where_there_is_no_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-w", str(tmp_path / "none"), "doctor", "--json"]) == 1
    told = {
        (finding["area"], finding["state"]): finding["message"]
        for finding in json.loads(capsys.readouterr().out)
    }
    assert "no such directory" in told["workspace", "wrong"]
    assert ("settings", "ok") in told


def test_a_cache_that_cannot_be_written_is_found(
    built: Builder, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = os.access
    monkeypatch.setattr(
        "kbtui.library.diagnostics.os.access",
        lambda path, mode: not str(path).startswith(str(home / "cache")) and usual(path, mode),
    )
    assert (
        f"the directory of the index is not writable: {home / 'cache'}"
        in found(capsys)["workspace", "wrong"]
    )


def put_file(folder: Path) -> None:
    folder.write_text("a file where a directory should be")


def put_dangling_link(folder: Path) -> None:
    folder.symlink_to(folder.with_name("nowhere"))


def put_looping_link(folder: Path) -> None:
    folder.symlink_to(folder)


def put_link_outside(folder: Path) -> None:
    jp = next(parent for parent in folder.parents if parent.name == ".jp")
    elsewhere = jp.parents[1] / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)


def put_locked_directory(folder: Path) -> None:
    folder.mkdir(mode=0o000)
    if os.access(folder, os.R_OK):
        folder.rmdir()
        pytest.skip("root reads every directory")


@pytest.mark.parametrize(
    ("put", "reason"),
    [
        (put_file, "not a directory"),
        (put_dangling_link, "the target of the link does not exist"),
        (put_looping_link, "too many levels of symbolic links"),
        (put_link_outside, "points outside the workspace"),
        (put_locked_directory, "permission denied"),
    ],
)
@pytest.mark.parametrize("name", ["conversations", "conversations/.archive"])
def test_a_directory_of_conversations_that_cannot_be_read_is_wrong(
    built: Builder,
    capsys: pytest.CaptureFixture[str],
    put: Callable[[Path], None],
    reason: str,
    name: str,
) -> None:
    folder = built.root / ".jp" / name
    folder.parent.mkdir(exist_ok=True)
    put(folder)
    told = found(capsys)
    [line] = told["conversations", "wrong"].splitlines()
    assert line.startswith(f"{folder}: ")
    assert reason in line
    assert ("conversations", "ok") not in told


def test_no_conversations_yet_and_a_foreign_directory_are_nothing_wrong(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert found(capsys)["conversations", "ok"] == "0 conversations, 0 archived\n"
    built.conversation(1, [[asked("Why?")]], title="A talk")
    (built.root / ".jp/conversations/backup").mkdir()
    told = found(capsys)
    assert told["conversations", "ok"] == "1 conversation, 0 archived\n"
    assert "conversations/backup: " in told["conversations", "note"]
    assert ("conversations", "wrong") not in told


def test_a_subject_with_further_names_is_noted(
    built: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere.md").hardlink_to(built.root / "docs/notes/plain.md")
    assert "notes/plain: the file has other hard links" in found(capsys)["knowledge", "note"]


def test_colours_that_are_not_there_are_said(
    built: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "colour" not in found(capsys)["terminal", "note"]
    monkeypatch.delenv("COLORTERM")
    assert "COLORTERM=truecolor" in found(capsys)["terminal", "note"]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "NO_COLOR is set" in found(capsys)["terminal", "note"]


def test_paths_says_what_is_there_and_where_it_looked(
    built: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paths"]) == 0
    text = capsys.readouterr().out
    assert f"{get_settings_path()}  (does not exist)" in text
    assert re.search(rf"^workspace +{re.escape(str(built.root))}$", text, re.MULTILINE)
    assert main(["paths", "--looked"]) == 0
    looked = capsys.readouterr().out.splitlines()
    assert f"{built.root}/.jp/kb.toml" in looked
    assert f"{built.root}/.jp/config.toml  (does not exist)" in looked


def test_a_log_for_a_report_has_what_happened_and_nothing_private(
    built: Builder, engine_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        f"2026-11-22 10:00:00 [7] engine 0.1.0 for {built.root} on /run/user/1000/kbtui/x.sock",
        f"2026-11-22 10:00:01 [7] refresh failed: OSError: {built.root}/docs/{SECRET}.md: denied",
        f"2026-11-22 10:00:02 [7] closed a client's connection: no subject '{SECRET}'",
        f"2026-11-22 10:00:03 [7] source {SECRET}: started, because it is due",
        f"2026-11-22 10:00:04 [7] fetched https://example.org/{SECRET}?token={SECRET}",
        f"2026-11-22 10:00:05 [7] notes/{SECRET} in jp-c17800000001 of {Path.home()}/{SECRET}",
        "Traceback (most recent call last):",
        '  File "/home/mira/venv/lib/python3.11/site-packages/kbtui/engine/server.py", line 7, in go',
        f'  File "/home/mira/{SECRET}.py", line 3, in <module>',
    ]
    engine_log.write_text("\n".join(lines) + "\n")
    target = tmp_path / "report.txt"
    assert main(["log", "-o", str(target)]) == 0
    assert "check the file for private text" in capsys.readouterr().err
    text = target.read_text()
    for private in (SECRET, "Meier", str(built.root), str(Path.home()), "mira", "17800000001"):
        assert private not in text
    for kept in ("refresh failed: OSError: WORKSPACE/….md", "denied", "engine/server.py", "line 7, in go", "Python 3."):  # fmt: skip
        assert kept in text
    assert main(["log", "--whole", "--lines", "3"]) == 0
    whole = capsys.readouterr().out
    assert f"{SECRET}.py" in whole
    assert "refresh failed" not in whole


PASSAGE = """It's "Mahnung-Meier", says `Mahnung-Meier`
Mahnung-Meier: 100 000 EUR
Traceback (most recent call last):
  File "/home/mira/venv/lib/python3.11/site-packages/x.py", line 1, in Mahnung-Meier
    Mahnung-Meier()
ValueError: Mahnung-Meier

Mahnung-Meier"""
"""A text that a damaged catalog may put into an exception: quotes, lines, the look of a log record."""


def undecodable(path: Path) -> str:
    """Return SQLite's message about a passage that is no longer UTF-8."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE chunks (text TEXT)")
        db.execute("INSERT INTO chunks VALUES (CAST(? AS TEXT))", (PASSAGE.encode() + b"\xff",))
        with pytest.raises(sqlite3.OperationalError) as raised:
            db.execute("SELECT text FROM chunks").fetchall()
    return str(raised.value)


def test_a_log_for_a_report_has_no_line_of_a_damaged_passage(
    built: Builder, engine_log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    message = undecodable(tmp_path / "damaged.sqlite")
    assert "\nMahnung-Meier" in message
    write_engine_log_record(
        f"refresh failed: OperationalError: {message}\n2026-11-22 10:00:07 [7] Meier"
    )
    write_engine_log_record("idle")
    engine_log.write_text(capfd.readouterr().err)
    for lines in range(1, 14):
        assert main(["log", "--lines", str(lines)]) == 0
        text = capfd.readouterr().out
        assert not re.search("Mahnung|Meier|EUR|mira", text)
        assert "] idle" in text
    assert "refresh failed: OperationalError: Could not decode to UTF-8 column" in text
    assert main(["log", "--whole"]) == 0
    assert "Mahnung-Meier" in capfd.readouterr().out


def test_a_traceback_in_a_report_keeps_its_frames_and_loses_what_messages_quote(
    built: Builder, engine_log: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "/home/mira/venv/lib/python3.11/site-packages/kbtui/index/catalog_database.py"
    traceback = (
        "Traceback (most recent call last):\n"
        f'  File "{code}", line 7, in chunks_of\n'
        "    rows = fetch(Meier)\n"
        "           ^^^^^^^^^^^^\n"
        "KeyError: 'Meier'\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        "Traceback (most recent call last):\n"
        f'  File "{code}", line 9, in again\n'
        f"sqlite3.OperationalError: {undecodable(tmp_path / 'damaged.sqlite')}\n"
    )
    write_engine_log_record(f"no search by meaning: {traceback}")
    logged = capfd.readouterr().err
    # Python writes what nobody caught to the same file, as it is.
    for text in (logged, f"{logged}Exception in thread refresher:\n{traceback}", traceback):
        engine_log.write_text(text)
        assert main(["log"]) == 0
        told = capfd.readouterr().out
        assert not re.search("Mahnung|Meier|EUR|mira", told)
        for kept in (
            'kbtui/index/catalog_database.py", line 7, in chunks_of',
            "KeyError: ",
            "During handling of the above exception",
            "line 9, in again",
            "sqlite3.OperationalError: Could not decode to UTF-8 column",
        ):
            assert kept in told
        assert told.count("in chunks_of") == text.count("in chunks_of")


@given(
    st.from_regex(r"[A-Za-z]{9,20}", fullmatch=True),
    st.sampled_from(
        [
            "{root}/docs/{name}.md: gone", "'{name}'", '"{name}"', "~/{name}/x", "/srv/{name}.toml",
            "no topic `{name}`", "notes/{name}", "notes/deep/{name}:3-4", "source {name}: ended with exit code 1",
            "https://{name}.example/", "jp://{name}", 'File "/home/{name}/x.py", line 3, in go',
            "no text 'it's\n{name}'", "b'{name}", "no text “{name}", "'it's {name}", "odd:\n{name}",
            "odd:\n\n  {name}: odd\n", "E: 'x\nTraceback (most recent call last):\n{name}",
        ]
    ),
)  # fmt: skip
def test_no_name_gets_past_the_redaction(name: str, form: str) -> None:
    redaction = DiagnosticLogRedactor(Path("/srv/work/shop"))
    text = form.format(root="/srv/work/shop", name=name)
    for record in (f"2026-11-22 10:00:00 [7] {text}", text):
        assert name not in "\n".join(redaction.redact_log(record.splitlines()))


@pytest.mark.parametrize(
    "id_",
    [
        "jp-c17800836875",
        "claude-258c7280-241a-462a-8d15-5122611a9569",
        "claude-258c7280-241a-462a-8d15-5122611a9569~a2898e3",
        "codex-0199812e",
        "opencode-ses_1a2b3c4d5e",
    ],
)
def test_no_id_of_a_conversation_gets_past_the_redaction(id_: str) -> None:
    [line] = DiagnosticLogRedactor(Path("/srv/work/shop")).redact_log(
        [f"2026-11-22 10:00:00 [7] {id_}: record 3 is not JSON"]
    )
    assert line == "2026-11-22 10:00:00 [7] …: record 3 is not JSON"


def test_the_manual_page_has_everything_and_pleases_groff(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    plain = page.replace("\\-", "-")
    assert all(f".SS kbtui {name}\n" in plain for name in COMMANDS)
    assert all(f"\\fB{key.name}\\fR" in plain for key in SETTING_KEYS)
    for option in ("--no-vectors", "--allow-network", "--case-sensitive", "--workspace"):
        assert option in plain or option == "--workspace"
    assert "\\fB--compare\\fR \\fIOLD NEW\\fR" in plain
    assert page.isascii()
    if shutil.which("groff"):
        file = tmp_path / "kbtui.1"
        file.write_text(page)
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z", str(file)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
