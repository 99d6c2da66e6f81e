"""The result of a run: changed documents, skipped ones with the reason, and edited ones."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from running import run_command
from web_support import FAST, Site, SourceWorkspace, page_with_links

from kbtui.sources.http_fetcher import SourceRunLimits
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace.user_settings import get_settings_path

pytestmark = pytest.mark.usefixtures("read_in_this_process")


def skips(run: object) -> dict[str, str]:
    return {skip.what: skip.reason for skip in run.skips}  # type: ignore[attr-defined]


def command(project: SourceWorkspace, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_command("source", *words, "-w", str(project.root))


def test_what_a_crawl_skips_is_named_and_no_failure(project: SourceWorkspace, site: Site) -> None:
    noindex = page_with_links("Draft").replace(
        "<head>", '<head><meta name="robots" content="noindex">'
    )
    site.pages |= {
        "/robots.txt": (200, {}, b"User-agent: *\nDisallow: /secret\n"),
        "/": page_with_links("Start", "/dead", "/draft", "/data", "/logo.png", "/feed.json", "/secret", "/a"),
        "/draft": noindex,
        "/data": (200, {"Content-Type": "application/json"}, b"{}"),
        "/photo": (200, {"Content-Type": "image/jpeg"}, b"\xff\xd8"),
        "/a": page_with_links("A", "/photo"),
    }  # fmt: skip
    project.crawl(site.url(), depth=2)
    run = project.run()
    assert (run.status, run.error, run.problems) == ("ok", None, ())
    said = {what.removeprefix(site.url("")): reason for what, reason in skips(run).items()}
    assert run.skipped == len(said) == 7
    assert set(said) == {"/dead", "/draft", "/data", "/logo.png", "/feed.json", "/secret", "/photo"}
    assert "404" in said["/dead"]
    assert "noindex" in said["/draft"]
    assert "application/json" in said["/data"]
    assert ".png" in said["/logo.png"]
    assert ".json" in said["/feed.json"]
    assert "robots.txt" in said["/secret"]
    assert "image/jpeg" in said["/photo"]
    # The result is stored with the run.
    assert UserData(project.builder.workspace).load_last_source_runs()["docs"] == run


def test_the_command_prints_each_number_and_each_reason(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages |= {
        "/": page_with_links("Start", "/dead", "/gone", "/edited", "/stays", "/changes", "/goes"),
        **{path: page_with_links(path) for path in ("/edited", "/stays", "/changes", "/goes")},
    }
    project.crawl(site.url())
    assert project.run().status == "ok"
    path = project.root / "docs/guide/docs/edited.md"
    path.write_text(path.read_text() + "\nMine.\n")
    del site.pages["/goes"]
    site.pages["/edited"] = page_with_links("Other")
    site.pages["/changes"] = page_with_links("Changed")
    site.pages["/new"] = page_with_links("New")
    site.pages["/"] = page_with_links("Start", "/dead", "/gone", "/edited", "/stays", "/changes", "/goes", "/new")  # fmt: skip
    done = command(project, "run", "docs")
    assert done.returncode == 0, done.stderr
    for words in ("1 new", "2 changed", "1 removed", "1 kept", "3 skipped", "1 edited by you"):
        assert words in done.stdout
    lines = done.stderr.splitlines()
    [skipped] = [line for line in lines if "404" in line]
    assert all(site.url(path) in skipped for path in ("/dead", "/gone", "/goes"))
    assert any("edited.md" in line and "you have edited it" in line for line in lines)
    [told] = json.loads(command(project, "run", "docs", "--json").stdout)
    assert (told["skipped"], told["unchanged"]) == (3, 4)
    assert {"what": site.url("/dead"), "reason": "the server answered 404"} in told["skips"]
    assert len(told["edited"]) == 1


def test_a_source_of_which_nothing_can_be_taken_is_an_error(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages["/"] = page_with_links("Start").replace(
        "<head>", '<head><meta name="robots" content="none">'
    )
    project.crawl(site.url())
    run = project.run()
    assert run.status == "error"
    assert "noindex" in (run.error or "")


def test_an_interrupted_run_counts_what_it_kept(project: SourceWorkspace, site: Site) -> None:
    reached, go = threading.Event(), threading.Event()

    def hang(handler: object) -> None:
        reached.set()
        go.wait(60)

    site.pages |= {
        "/": page_with_links("Start", "/a", "/hang"),
        "/a": page_with_links("A"),
        "/hang": hang,
    }
    project.crawl(site.url())
    process = subprocess.Popen(
        [sys.executable, "-m", "kbtui.cli.main", "source", "run", "docs", "-w", str(project.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The parent process may ignore SIGINT, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert reached.wait(60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    go.set()
    assert process.returncode == 130
    assert "2 new" in out
    assert "interrupted" in err
    run = UserData(project.builder.workspace).load_last_source_runs()["docs"]
    assert (run.status, run.error, run.entries, run.added) == ("partial", "interrupted", 2, 2)
    assert set(project.documents()) == {"index.md", "a.md"}


@pytest.mark.parametrize(
    ("key", "value"), [("source_pages", 2), ("source_seconds", 0.0), ("source_bytes", 200)]
)
def test_limits_are_settings_and_a_run_that_meets_one_names_it(
    project: SourceWorkspace, site: Site, key: str, value: float
) -> None:
    names = [f"/p{number}" for number in range(4)]
    site.pages |= {
        "/": page_with_links("Start", *names),
        **{name: page_with_links(name) for name in names},
    }
    project.crawl(site.url())
    get_settings_path().parent.mkdir(parents=True, exist_ok=True)
    get_settings_path().write_text(f"{key} = {value}\nsource_delay = 0.0\n")
    done = command(project, "run", "docs")
    assert done.returncode == 1
    assert key in done.stderr


def test_too_many_files_are_taken_up_to_the_limit(project: SourceWorkspace) -> None:
    (project.root / "inbox").mkdir()
    for number in range(4):
        (project.root / f"inbox/{number}.md").write_text(f"# {number}\n\ntext\n")
    project.add(kind="file_upload", file="inbox")
    assert project.run().added == 4
    run = project.run(limits=SourceRunLimits(files=3))
    assert (run.status, run.entries, run.removed) == ("partial", 4, 0)
    assert "source_files" in (run.error or "")


def test_the_hint_for_a_private_host_names_the_option(project: SourceWorkspace) -> None:
    done = command(project, "add", "url_crawl", "http://localhost:8000/", "--topic", "guide")
    assert done.returncode == 2
    assert "--allow-host localhost" in done.stderr
    again = command(project, "add", "url_crawl", "http://localhost:8000/", "--topic", "guide", "--allow-host", "localhost")  # fmt: skip
    assert again.returncode == 0


def test_a_schedule_says_that_it_needs_a_running_engine(
    project: SourceWorkspace, tmp_path: Path
) -> None:
    done = command(
        project, "add", "file_upload", "inbox", "--topic", "guide", "--cron", "0 4 * * 1"
    )
    assert done.returncode == 0
    assert "the engine keeps running while" in done.stderr
    without = command(project, "edit", "inbox", "--no-cron")
    assert "engine" not in without.stderr
    assert (
        "the engine keeps running while"
        in command(project, "edit", "inbox", "--cron", "0 4 * * 2").stderr
    )


def test_a_document_that_cannot_be_had_now_is_a_failure_and_stays(
    project: SourceWorkspace, site: Site
) -> None:
    site.pages |= {"/": page_with_links("Start", "/a"), "/a": page_with_links("A")}
    project.crawl(site.url())
    assert project.run().status == "ok"
    site.pages["/a"] = (500, {}, b"")
    run = project.run(limits=FAST)
    assert (run.status, run.entries, run.removed) == ("partial", 2, 0)
    assert "500" in (run.error or "")
    assert run.skips == ()
    assert "a.md" in project.documents()
