"""Tests of the commands entries, entry, insights and source."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from running import run_command
from support import Builder, asked, called, kill_engine, said, tree_hash

DAY = 86_400.0


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"})
    builder.subject(
        "guide/start.md",
        "---\ntype: rule\ntags: [first]\ncreated: 2026-03-01\n---\n# Getting started\n\nThe aardvark.\n",
    )
    builder.subject("guide/end.md", "---\ncreated: 2026-02-01\n---\n# The end\n\nThe ibex.\n")
    builder.subject("guide/.inner.md", "# Inner\n\nThe aardvark has a secret.\n")
    lately = int((time.time() - DAY) * 10) - 17_800_000_000
    use = called("a", "learn", "…", topic="guide", subjects="start")
    builder.conversation(lately, [[asked("Who?"), *use, said("The aardvark.")]], title="Waking")
    yield builder
    kill_engine(builder)


def run(builder: Builder, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return run_command(*words, cwd=builder.root, typed=text or "")


def found(done: subprocess.CompletedProcess[str]) -> dict:  # type: ignore[type-arg]
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_cache_that_cannot_be_written_is_named_once(
    built: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    done = run(built, "search", "aardvark")
    assert done.returncode == 0
    assert done.stderr.count("keywords only") == 1
    assert f"{tmp_path / 'file'}/kbtui" in done.stderr
    assert "set XDG_CACHE_HOME" in done.stderr


# entries


def test_entries_have_the_documented_shape_and_write_nothing(built: Builder) -> None:
    before = tree_hash(built.root)
    page = found(run(built, "entries", "--json"))
    assert list(page) == ["total", "by_status", "by_type", "cursor", "entries"]
    assert page["by_type"] == {"conversation": 1, "note": 1, "rule": 1}
    assert page["by_status"] == {"ready": 3, "pending": 0, "error": 0}
    row = next(row for row in page["entries"] if row["ref"] == "guide/start")
    assert set(row) == {
        "id", "ref", "kind", "title", "type", "status", "error", "tags", "topic", "slug", "created_at",
        "changed_at", "chunks", "size", "cites_30d", "source_url", "hidden", "archived", "agent",
        "parent_id", "parent_title",
    }  # fmt: skip
    assert (row["title"], row["cites_30d"], row["tags"]) == ("Getting started", 1, ["first"])
    assert row["created_at"] == "2026-03-01T00:00:00+00:00"
    table = run(built, "entries", "--type", "note,rule").stdout.split("\n")
    headings = "cited 30d status type passages size changed entry title tags"
    assert table[0].split() == headings.split()
    assert next(line for line in table if "guide/start" in line).endswith("Getting started  first")
    # Seen and never cited is 0, which is something else than not known.
    assert table[1].split()[0] == "1"
    assert table[2].split()[0] == "0"
    assert tree_hash(built.root) == before


def test_entries_filters_and_pages(built: Builder) -> None:
    def refs(*words: str) -> list[str]:
        done = run(built, "entries", "--json", *words)
        return [row["ref"] for row in json.loads(done.stdout)["entries"]]

    assert refs("aardvark", "--type", "rule") == ["guide/start"]
    assert refs("--topic", "guide", "--from", "2026-02-01", "--to", "2026-02-01") == ["guide/end"]
    assert refs("--topic", "guide", "--hidden", "secret") == ["guide/inner"]
    assert refs("--status", "error") == []
    assert run(built, "entries", "--status", "error").returncode == 1
    first = found(run(built, "entries", "--json", "--limit", "1"))
    rest = found(run(built, "entries", "--json", "--cursor", first["cursor"]))
    assert len(rest["entries"]) == 2
    done = run(built, "entries", "--json", "--type", "note", "--cursor", first["cursor"])
    assert (done.returncode, "other filters" in done.stderr) == (2, True)
    for wrong in (["--from", "soonish"], ["--status", "red"], ["--to", "2026-13-45"]):
        assert run(built, "entries", *wrong).returncode == 2


# insights


def test_insights_show_gaps_use_and_days_and_forget_on_demand(built: Builder) -> None:
    from kbtui.userdata.user_data_store import UserData

    userdata = UserData(built.workspace)
    userdata.query_log.log_search("unknown beast", "hybrid", 0, "cli")
    userdata.query_log.log_search("aardvark", "hybrid", 2, "dashboard")
    facts = found(run(built, "insights", "--json"))
    assert [gap["query"] for gap in facts["zero_result_queries"]] == ["unknown beast"]
    assert {asked["query"] for asked in facts["top_queries"]} == {"unknown beast", "aardvark"}
    assert [(use["ref"], use["cites"]) for use in facts["most_cited"]] == [("guide/start", 1)]
    assert [use["ref"] for use in facts["never_cited"]] == ["guide/end"]
    assert len(facts["by_day"]) == 30
    assert sum(day["searches"] for day in facts["by_day"]) == facts["searches"] == 2
    text = run(built, "insights").stdout
    assert "kbtui entry new --title 'unknown beast'" in text
    assert "aardvark  (2 found)" in text
    userdata.query_log.log_search("aardvark", "hybrid", 7, "cli", is_meaning_only=True)
    text = run(built, "insights").stdout
    assert "aardvark  (0 with these words, 7 by meaning)" in text
    userdata.query_log.delete_all_logged_searches()
    userdata.query_log.log_search("unknown beast", "hybrid", 0, "cli")
    userdata.query_log.log_search("aardvark", "hybrid", 2, "dashboard")
    assert "█" in text
    refused = run(built, "insights", "erase")
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True), "there was nobody to ask"
    assert found(run(built, "insights", "--json"))["searches"] == 2
    assert found(run(built, "insights", "erase", "--yes", "--json")) == {"erased": 2}
    assert found(run(built, "insights", "--json"))["searches"] == 0
    assert "Last 3 days: 0 searches, 1 citation\n" in run(built, "insights", "--days", "3").stdout
    assert run(built, "insights", "--days", "0").returncode == 2


# entry


def editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    program = tmp_path / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", shlex.quote(str(program)))


def test_an_entry_is_made_edited_and_keeps_id_and_citations(
    built: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = found(
        run(built, "entry", "new", "--title", "Retry policy", "--tags", "net,http", "--text", "-", "--json",
            text="Back off.\n")
    )  # fmt: skip
    assert made["ref"] == "guide/retry-policy"
    assert "Back off." in Path(made["path"]).read_text()
    assert run(built, "entry", "new", "--title", "Retry policy", "--text", "x").returncode == 2
    before = found(run(built, "entry", "show", "guide/start", "--json"))
    assert len(before["citations_30d"]) == before["cites_30d"] == 1
    assert before["citations_30d"][0]["source_title"] == "Waking"
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d  Waking  \(learn, learn\)", run(built, "entry", "show", "guide/start").stdout)  # fmt: skip
    editor(monkeypatch, tmp_path, "printf '# All new\\n\\nThe wombat.\\n' > \"$1\"")
    assert run(built, "entry", "edit", "guide/start").returncode == 0
    end = time.monotonic() + 20
    while True:
        after = found(run(built, "entry", "show", "guide/start", "--json"))
        if after["title"] == "All new":
            break
        assert time.monotonic() < end, "the edit is not indexed"
    assert after["id"] == before["id"]
    assert after["citations_30d"] == before["citations_30d"]
    assert [chunk["text"] for chunk in after["chunk_list"]] == ["# All new\n\nThe wombat."]


def test_a_text_that_is_not_utf_8_is_refused_and_nothing_is_written(built: Builder) -> None:
    before = tree_hash(built.root)
    for text, typed in [(b"caf\xe9", b""), (b"-", b"one\ncaf\xe9\n")]:
        done = subprocess.run(
            [sys.executable, "-m", "kbtui.cli.main", "entry", "new", "--title", "Menu", "--text", text],
            cwd=built.root, input=typed, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        line = 2 if typed else 1
        assert f"the text is not UTF-8: byte 0xe9 in line {line}" in done.stderr.decode()
    assert tree_hash(built.root) == before


def test_a_new_entry_is_the_newest(built: Builder) -> None:
    now = time.time()
    os.utime(built.subject("guide/earlier.md", "# Earlier today\n"), (now - 60, now - 60))
    talk = int((now - 60) * 10) - 17_800_000_000
    built.conversation(talk, [[asked("Now?"), said("Yes.")]], title="A minute ago")
    assert run(built, "entry", "new", "--title", "Brand new", "--text", "x").returncode == 0
    assert run(built, "index").returncode == 0
    listed = found(run(built, "entries", "--json"))["entries"]
    assert [entry["title"] for entry in listed[:1]] == ["Brand new"]


@pytest.mark.parametrize("end", ["exit 3", "kill -INT $PPID; sleep 0.3; exit 3"])
def test_an_editor_that_fails_leaves_what_was_typed_and_says_where(
    built: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str
) -> None:
    editor(monkeypatch, tmp_path, f"echo 'Back off.' >> \"$1\"; {end}")
    done = run(built, "entry", "new", "--title", "Retry policy")
    assert done.returncode == 3
    assert "the editor failed with exit code 3" in done.stderr
    kept = Path(done.stderr.partition("your text is in ")[2].strip().removesuffix(")"))
    assert kept.read_text().endswith("Back off.\n")
    kept.unlink()
    assert run(built, "show", "guide/retry-policy").returncode == 1
    done = run(built, "entry", "edit", "guide/end")
    path = built.root / "docs/guide/end.md"
    assert done.returncode == 3
    assert f"your text is in {path}" in done.stderr
    assert path.read_text().endswith("Back off.\n")


def test_a_name_that_is_taken_is_refused_before_text_is_asked_for(built: Builder) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "kbtui.cli.main", "entry", "new", "--title", "End", "--text", "-"],
        cwd=built.root, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.wait(60) == 2, "it waits for text"
        assert child.stderr is not None
        assert b"the subject already exists" in child.stderr.read()
    finally:
        child.kill()
        child.communicate()


def test_an_entry_goes_to_the_trash_after_asking(built: Builder, home: Path) -> None:
    path = built.root / "docs/guide/end.md"
    done = run(built, "entry", "rm", "guide/end")
    assert (done.returncode, path.exists()) == (2, True), "there was nobody to ask"
    assert run(built, "entry", "rm", "guide/end", "--yes").returncode == 0
    assert not path.exists()
    (trashed,) = (home / "data" / "Trash" / "files").iterdir()
    assert "The ibex." in trashed.read_text()
    assert run(built, "entry", "rm", "guide/end", "--yes").returncode == 1
    assert run(built, "entry", "rm", "guide", "--yes").returncode == 2


def test_without_a_trash_nothing_is_deleted_unless_that_is_said(built: Builder, home: Path) -> None:
    (home / "data" / "Trash").write_text("no directory")
    path = built.root / "docs/guide/end.md"
    done = run(built, "entry", "rm", "guide/end", "--yes")
    assert (done.returncode, path.exists()) == (3, True)
    assert "--permanently" in done.stderr
    assert run(built, "entry", "rm", "guide/end", "--yes", "--permanently").returncode == 0
    assert not path.exists()


# sources


@pytest.fixture
def page() -> Iterator[str]:
    """Return the address of a page on a local server."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/docs/"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/markdown")
            self.end_headers()
            self.wfile.write(b"# Wombats\n\nThe wombat digs.\n" if known else b"")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/docs/"
    server.shutdown()
    server.server_close()


def test_a_source_from_adding_to_removing(built: Builder, page: str) -> None:
    words = [
        "source",
        "add",
        "url_crawl",
        page,
        "--topic",
        "The Guide",
        "--depth",
        "0",
        "--name",
        "web",
    ]
    done = run(built, *words)
    assert (done.returncode, "private or loopback" in done.stderr) == (2, True)
    assert run(built, *words, "--allow-host", "127.0.0.1", "--cron", "0 4 * * *").stdout == "web\n"
    (listed,) = found(run(built, "source", "ls", "--json"))
    assert listed["approved_at"]
    assert listed["next_run_at"]
    assert listed["last_run_status"] is None
    (ran,) = found(run(built, "source", "run", "web", "--json"))
    assert (ran["last_run_status"], ran["last_run_entry_count"], ran["added"]) == ("ok", 1, 1)
    assert (built.root / "docs/guide/web/index.md").exists()
    (listed,) = found(run(built, "source", "ls", "--json"))
    assert listed["last_run_status"] == "ok"
    assert "ok" in run(built, "source", "ls").stdout
    assert run(built, "source", "edit", "web", "--no-cron").returncode == 0
    (listed,) = found(run(built, "source", "ls", "--json"))
    assert (listed["cron"], listed["next_run_at"]) == (None, None)
    assert listed["approved_at"], "a change by hand is approved"
    assert run(built, "source", "rm", "web").returncode == 2, "there was nobody to ask"
    assert run(built, "source", "rm", "web", "--yes", "--delete").returncode == 0
    assert not (built.root / "docs/guide/web").exists()
    assert run(built, "source", "ls").returncode == 1
    assert run(built, "source", "run", "web").returncode == 1


def test_documents_stay_when_their_source_goes_unless_said(built: Builder, page: str) -> None:
    run(built, "source", "add", "url_crawl", page, "--topic", "guide", "--depth", "0", "--name", "web",
        "--allow-host", "127.0.0.1")  # fmt: skip
    run(built, "source", "run", "web")
    assert run(built, "source", "rm", "web", "--yes").returncode == 0
    text = (built.root / "docs/guide/web/index.md").read_text()
    assert "The wombat digs." in text
    assert "\nsource: " not in text


def test_a_source_moves_only_to_a_topic_that_exists(built: Builder, page: str) -> None:
    built.topics(guide={"title": "The Guide"}, notes={})
    run(built, "source", "add", "url_crawl", page, "--topic", "guide", "--depth", "0", "--name", "web",
        "--allow-host", "127.0.0.1")  # fmt: skip
    run(built, "source", "run", "web")
    done = run(built, "source", "edit", "web", "--topic", "nope")
    assert done.returncode != 0
    assert 'Unknown topic "nope".' in done.stderr
    assert run(built, "source", "edit", "web", "--topic", "notes").returncode == 0
    (listed,) = found(run(built, "source", "ls", "--json"))
    assert listed["topic"] == "notes"
    assert run(built, "source", "rm", "web", "--delete", "--yes").returncode == 0
    assert not (built.root / "docs/guide/web").exists(), "its documents in the topic before"


def test_a_source_whose_documents_cannot_be_found_is_not_removed_with_them(
    built: Builder, page: str
) -> None:
    run(built, "source", "add", "url_crawl", page, "--topic", "guide", "--depth", "0", "--name", "web",
        "--allow-host", "127.0.0.1")  # fmt: skip
    run(built, "source", "run", "web")
    built.topics(other={})
    done = run(built, "source", "rm", "web", "--delete", "--yes")
    assert done.returncode == 2
    assert "web: the source's documents cannot be deleted" in done.stderr
    assert (built.root / "docs/guide/web/index.md").exists()
    assert len(found(run(built, "source", "ls", "--json"))) == 1
    done = run(built, "source", "rm", "web", "--keep", "--yes")
    assert done.returncode == 0
    assert "stay unchanged" in done.stderr


def test_a_broken_file_of_sources_is_said_once_and_is_not_ok(built: Builder) -> None:
    (built.root / ".jp/kb-sources.toml").write_text("x = [")
    done = run(built, "source", "run", "web")
    assert done.returncode == 2
    assert done.stderr.startswith("kbtui: .jp/kb-sources.toml: not valid TOML")
    doctor = run(built, "doctor").stdout
    assert "wrong  sources        .jp/kb-sources.toml: not valid TOML" in doctor
    assert "ok     sources" not in doctor


def test_an_unknown_status_is_named_with_its_filter(built: Builder) -> None:
    done = run(built, "entries", "is:nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kbtui: is: unknown status 'nope'\n")


@pytest.mark.slow
def test_a_source_of_somebody_else_runs_after_it_was_looked_at(built: Builder, page: str) -> None:
    (built.root / ".jp" / "kb-sources.toml").write_text(
        f'[source.theirs]\nkind = "url_crawl"\ntopic = "guide"\nurl = "{page}"\ndepth = 0\n'
        'allow_hosts = ["127.0.0.1"]\n[source.broken]\nkind = "mcp"\n'
    )
    done = run(built, "source", "run", "theirs")
    assert (done.returncode, "is not approved" in done.stderr) == (2, True)
    done = run(built, "source", "run", "--all")
    assert "skipped, because it is not approved" in done.stderr
    shown = run(built, "source", "ls")
    assert "NOT APPROVED" in shown.stdout
    assert "source.broken.topic: the key is missing" in shown.stderr
    assert run(built, "source", "approve", "theirs").returncode == 2, "there was nobody to ask"
    # Changing one key is not looking at the others.
    assert run(built, "source", "edit", "theirs", "--depth", "1").returncode == 0
    assert run(built, "source", "run", "theirs").returncode == 2
    done = run(built, "source", "approve", "theirs", "--yes")
    assert done.returncode == 0
    assert page in done.stderr
    assert run(built, "source", "run", "theirs").returncode == 0


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["file", "notes/handbook.pdf"], "handbook"),
        (["url", "https://docs.example.org/x/"], "docs.example.org"),
        (["mcp", "/opt/notes-mcp --x"], "notes-mcp"),
    ],
)
def test_a_source_gets_a_name(built: Builder, words: list[str], name: str) -> None:
    assert run(built, "source", "add", *words, "--topic", "guide").stdout == f"{name}\n"


def test_mistakes_in_arguments_are_usage_errors(built: Builder) -> None:
    for words in (
        ["source"],
        ["source", "add", "ftp", "x", "--topic", "guide"],
        ["source", "add", "url", "--topic", "guide"],
        ["source", "add", "url", "https://example.org/", "--topic", "guide", "--cron", "daily"],
        ["source", "run"],
        ["entry"],
        ["entry", "edit", "jp-c17800000001"],
    ):
        done = run(built, *words)
        assert done.returncode == 2, (words, done.stderr)
        assert "Traceback" not in done.stderr
    assert (
        run(built, "source", "add", "url", "https://example.org/", "--topic", "none").returncode
        == 1
    )


# citations, and what the doctor says


def test_cites_says_what_does_not_exist_and_still_shows_who_used_what_is_gone(
    built: Builder,
) -> None:
    done = run(built, "cites", "guide/nosuch")
    assert (done.returncode, "no subject 'nosuch'" in done.stderr) == (1, True)
    assert "uses nothing" not in done.stderr
    (built.root / "docs/guide/start.md").unlink()
    gone = found(run(built, "cites", "guide/start", "--json"))
    assert [cite["how"] for cite in gone["used_by"]] == ["learn"]
    assert gone["uses"] == []


def test_the_doctor_looks_at_sources(built: Builder) -> None:
    from kbtui.library import Library
    from kbtui.library.diagnostics import run_diagnostics
    from kbtui.workspace import load_settings

    (built.root / ".jp/kb-sources.toml").write_text(
        '[source.good]\nkind = "file_upload"\ntopic = "nowhere"\nfile = "x"\n[source.bad]\nkind = "ftp"\n'
    )
    library = Library(built.workspace, load_settings())
    said = [(one.state, one.message) for one in run_diagnostics(library) if one.area == "sources"]
    library.close()
    assert said[0] == ("ok", "1 source")
    assert [state for state, message in said if "source.bad" in message] == ["wrong"]
    assert ("wrong", "good: unknown topic 'nowhere'") in said
    assert any(state == "note" and "not approved" in message for state, message in said)


def test_what_could_not_be_read_is_read_again_when_asked(built: Builder) -> None:
    from kbtui.library import Library
    from kbtui.workspace import load_settings

    path = built.root / "docs/guide/end.md"
    before = path.stat()
    good = path.read_bytes()
    path.write_bytes(b"\xff" * len(good))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def status() -> str:
        rows = found(run(built, "entries", "--json", "--topic", "guide"))["entries"]
        return next(row["status"] for row in rows if row["ref"] == "guide/end")

    assert status() == "error"
    # The same size and time: nothing says that the file is another.
    path.write_bytes(good)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    library = Library(built.workspace, load_settings())
    library.retry_failed_files_and_passages()
    library.close()
    assert status() == "ready"
