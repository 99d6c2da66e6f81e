"""Tests of the commands for search, index and references, in a terminal and in scripts."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import run_command
from support import Builder, asked, called, kill_engine, said, tree_hash


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"})
    builder.subject(
        "guide/start.md", "# Getting started\n\nThe aardvark wakes first.\n\nThen the ibex.\n"
    )
    builder.subject("guide/.inner.md", "# Inner\n\nThe aardvark has a secret.\n")
    builder.conversation(
        1,
        [
            [
                asked("Who wakes first?"),
                *called("a", "learn", "…", topic="guide", subjects="start"),
                said("The aardvark."),
            ],
            [asked("And then?"), said("The ibex, says the guide.")],
        ],
        title="Waking order",
    )
    builder.conversation(
        2, [[asked("Old aardvark?"), said("Older.")]], archived=True, title="Long ago"
    )
    yield builder
    kill_engine(builder)


def run(
    builder: Builder, *words: str, inside: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return run_command(*words, cwd=inside or builder.root)


def test_search_finds_from_any_folder_below_and_writes_nothing_there(built: Builder) -> None:
    before = tree_hash(built.root)
    done = run(built, "search", "aardvark", inside=built.root / "docs" / "guide")
    assert done.returncode == 0, done.stderr
    assert "guide/start:1-5  Getting started" in done.stdout
    assert "keywords only: the model is switched off" in done.stderr
    for words in (
        ["index"],
        ["cites", "guide/start"],
        ["show", "jp-c17800000001"],
        ["doctor"],
        ["paths"],
        ["topics"],
        ["prompt"],
    ):
        run(built, *words)
    assert tree_hash(built.root) == before


def test_a_search_is_saved_by_name_with_its_options_and_removed(built: Builder) -> None:
    words = ["search", "--mode", "lexical"]
    first = run(built, *words, "--save", "big  ants", "aardvark", "--in", "subjects")
    assert first.stdout
    assert "saved as 'big ants'" in first.stderr
    again = run(built, "search", "--saved", "big ants")
    assert again.stdout == first.stdout
    assert run(built, "search", "--saved").stdout == (
        "big ants  aardvark in:subjects  --mode lexical\n"
    )
    assert run(built, "search", "--saved", "ants").returncode == 1
    assert run(built, "search", "--saved", "big ants", "more").returncode == 2
    assert run(built, "search", "--remove-saved", "big ants").returncode == 0
    # A regular expression stays one.
    expression = run(built, "search", "/aardv[aeiou]rk/", "--save", "rx")
    assert expression.stdout
    assert expression.returncode == 0
    repeated = run(built, "search", "--saved", "rx")
    assert (repeated.stdout, "matching lines" in repeated.stderr) == (expression.stdout, True)
    assert run(built, "search", "--remove-saved", "rx").returncode == 0
    assert run(built, "search", "--saved").stdout == ""


def test_search_json_has_the_documented_shape(built: Builder) -> None:
    found = json.loads(run(built, "search", "--json", "--mode", "lexical", "aardvark").stdout)
    assert list(found) == [
        "query",
        "mode",
        "degraded",
        "total",
        "omitted",
        "left_out",
        "notices",
        "hits",
    ]
    subject = next(hit for hit in found["hits"] if hit["kind"] == "subject")
    assert set(subject) == {
        "ref", "kind", "entry_id", "chunk_id", "title", "text", "score", "matches", "topic", "slug",
        "lines", "freshness", "entry_passages", "legs",
    }  # fmt: skip
    assert subject["freshness"] == "fresh"
    assert [subject["text"][a:b] for a, b in subject["matches"]] == ["aardvark"]
    spoken = next(hit for hit in found["hits"] if hit["kind"] == "conversation")
    assert spoken["conversation_id"] == "jp-c17800000001"
    assert spoken["turn"] == 1
    assert spoken["role"] in {"user", "assistant"}
    assert spoken["timestamp"].endswith("+00:00")
    assert not any("inner" in hit["ref"] for hit in found["hits"])
    assert not any(hit["ref"].startswith("jp-c17800000002") for hit in found["hits"])


def test_the_text_groups_passages_by_entry_and_the_json_does_not(built: Builder) -> None:
    words = ["search", "--mode", "lexical", "aardvark"]
    every = json.loads(run(built, *words, "--json").stdout)
    best = json.loads(run(built, *words, "--json", "--per-entry", "1").stdout)
    assert every["left_out"] == 0
    assert len(best["hits"]) + best["left_out"] == len(every["hits"]) > len(best["hits"])
    assert len({hit["entry_id"] for hit in best["hits"]}) == len(best["hits"])
    found = run(built, *words).stdout
    assert len(re.findall(r"^\S", found, re.MULTILINE)) == len(best["hits"])
    assert "more passage" in found
    unfolded = run(built, *words, "--per-entry", "0").stdout
    assert len(re.findall(r"^\S", unfolded, re.MULTILINE)) == len(every["hits"])
    assert "more passage" not in unfolded
    assert run(built, *words, "--per-entry", "-1").returncode == 2


NARROWED = {
    "--in subjects": {"guide/start"},
    "--in conversations": {"jp-c17800000001"},
    "--in conversations --archived": {"jp-c17800000001", "jp-c17800000002"},
    "--in subjects --hidden": {"guide/start", "guide/inner"},
    "--topic guide": {"guide/start"},
    "--role assistant": {"jp-c17800000001"},
    "--until 2001-01-01 --in conversations": set(),
    "--since 2020-01-01 --in conversations": {"jp-c17800000001"},
}


def test_options_narrow(built: Builder) -> None:
    found = {}
    for options in NARROWED:
        words = ["search", "--json", "--mode", "lexical", *options.split(), "--", "aardvark"]
        hits = json.loads(run(built, *words).stdout)["hits"]
        found[options] = {hit["ref"].partition(":")[0] for hit in hits}
    assert found == NARROWED


def test_exit_codes_say_what_happened(built: Builder, tmp_path: Path) -> None:
    assert run(built, "search", "--mode", "lexical", "xylophone").returncode == 1
    assert run(built, "search", "--since", "yesterdayish", "aardvark").returncode == 2
    assert run(built, "search").returncode == 2
    assert run(built, "serach", "aardvark").returncode == 2
    done = run(built, "-w", str(tmp_path / "none"), "search", "aardvark")
    assert done.returncode == 3
    assert "no such directory" in done.stderr
    assert done.stdout == ""


def test_a_mistyped_command_is_met_with_the_nearest(built: Builder) -> None:
    assert "did you mean `kbtui search`?" in run(built, "serach").stderr


def test_index_counts(built: Builder) -> None:
    facts = json.loads(run(built, "index", "--json").stdout)
    assert (facts["subjects"], facts["conversations"], facts["citations"]) == (2, 2, 1)
    assert facts["semantic"] is False
    assert facts["reason"]


def test_cites_goes_both_ways(built: Builder) -> None:
    used_by = json.loads(run(built, "cites", "guide/start", "--json").stdout)["used_by"]
    assert [(cite["source"], cite["how"]) for cite in used_by] == [("jp-c17800000001:1", "learn")]
    uses = json.loads(run(built, "cites", "jp-c17800000001:1", "--json").stdout)["uses"]
    assert [cite["target"] for cite in uses] == ["guide/start"]
    assert run(built, "cites", "jp-c17800000001:2").returncode == 1


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        ("guide/start:3", "The aardvark wakes first.\n"),
        ("guide/start:3-5", "The aardvark wakes first.\n\nThen the ibex."),
        ("jp-c17800000001:2", "The ibex, says the guide."),
        ("jp-c17800000001:1.1", "learn\ntopic: guide\nsubjects: start"),
        ("17800000001:2", "And then?"),
        ("jp://jp-c17800000001", "# Waking order"),
    ],
)
def test_show_prints_what_a_reference_names(built: Builder, ref: str, text: str) -> None:
    assert text.strip() in run(built, "show", ref).stdout


@pytest.mark.parametrize(
    "ref", ["guide/none", "jp-c1", "jp-c17800000001:9", "guide/start:99", "chunk:none"]
)
def test_show_of_what_does_not_exist_is_nothing_found(built: Builder, ref: str) -> None:
    done = run(built, "show", ref)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kbtui: ")


def test_engine_status_and_stop(built: Builder) -> None:
    assert run(built, "engine", "status").returncode == 1
    run(built, "index")
    state = json.loads(run(built, "engine", "status", "--json").stdout)
    assert state["running"]
    assert [one["root"] for one in state["workspaces"]] == [str(built.root.resolve())]
    assert run(built, "engine", "stop").returncode == 0
    assert run(built, "engine", "status").returncode == 1


def test_paths_and_model_and_version_and_help(built: Builder, home: Path) -> None:
    places = json.loads(run(built, "paths", "--json").stdout)
    assert places["index"].startswith(str(home / "cache"))
    assert places["user_data"].startswith(str(home / "data"))
    assert run(built, "--version").stdout.startswith("kbtui ")
    shown = run(built, "--help").stdout
    assert "kbtui demo" in shown
    assert run(built, "search", "--help").stdout.startswith("usage: kbtui search")


def test_a_broken_kb_toml_is_said_and_the_rest_goes_on(built: Builder) -> None:
    (built.root / ".jp" / "kb.toml").write_text("[kb.topic.guide\nsubjects = ")
    done = run(built, "doctor")
    assert done.returncode == 1
    assert "kb.toml" in done.stdout
    assert "jp-c17800000001" in run(built, "search", "--mode", "lexical", "aardvark").stdout


def test_index_and_search_say_that_kb_toml_is_invalid(built: Builder) -> None:
    assert run(built, "index", "--json").returncode == 0
    (built.root / ".jp" / "kb.toml").write_text("x = [")
    done = run(built, "index", "--json")
    assert done.returncode == 2
    assert "kbtui: .jp/kb.toml: not valid TOML" in done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem in done.stderr
    done = run(built, "search", "--mode", "lexical", "aardvark")
    assert (done.returncode, "jp-c17800000001" in done.stdout) == (0, True)
    assert "topics may be missing: .jp/kb.toml: not valid TOML" in done.stderr
    built.topics(guide={})
    assert run(built, "index").returncode == 0
    assert "kb.toml" not in run(built, "search", "--mode", "lexical", "aardvark").stderr


def test_search_and_doctor_say_that_the_query_log_is_damaged(built: Builder) -> None:
    log = built.workspace.user_data_directory / "queries.sqlite"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"no database" * 1000)
    done = run(built, "search", "--mode", "lexical", "aardvark")
    assert (done.returncode, "guide/start" in done.stdout) == (0, True)
    assert "the search is not logged: " in done.stderr
    assert str(log) in done.stderr
    done = run(built, "doctor")
    assert done.returncode == 1
    assert "searches are not logged: " in done.stdout
    assert run(built, "insights", "erase", "--yes").returncode == 0
    assert "logged" not in run(built, "search", "--mode", "lexical", "aardvark").stderr
    assert "searches are not logged" not in run(built, "doctor").stdout


def test_the_demo_is_a_fresh_copy_each_time(built: Builder) -> None:
    root = Path(run(built, "demo", "--path").stdout.strip())
    assert (root / ".jp" / "kb.toml").exists()
    (root / ".jp" / "kb.toml").write_text("spoiled")
    (root / "extra.md").write_text("extra")
    assert Path(run(built, "demo", "--path").stdout.strip()) == root
    assert "[kb.topic" in (root / ".jp" / "kb.toml").read_text()
    assert not (root / "extra.md").exists()


IMPORTS = """
import sys
from kbtui.cli.main import main
code = main(sys.argv[1:])
heavy = [name for name in ("torch", "lancedb", "sentence_transformers", "pyarrow", "numpy", "asyncio", "textual", "pydantic", "mcp", "yaml") if name in sys.modules]
print("HEAVY", heavy, file=sys.stderr)
sys.exit(code)
"""


def test_a_command_imports_nothing_heavy(built: Builder) -> None:
    run(built, "index")
    for words in (
        ["search", "--mode", "lexical", "aardvark"],
        ["search", "aardvark"],
        ["topics"],
        ["learn", "guide"],
        ["conversation", "ls"],
        ["cites", "guide/start"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", IMPORTS, *words],
            cwd=built.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "HEAVY []" in done.stderr, words


@pytest.mark.parametrize("option", ["--topic", "--type", "--since", "--until", "--role", "--in"])
def test_an_option_that_names_nothing_is_refused_and_does_not_mean_all(
    built: Builder, option: str
) -> None:
    done = run(built, "search", option, "", "aardvark")
    assert done.returncode == 2
    assert done.stdout == ""
    assert option.strip("-") in done.stderr


def test_the_index_says_that_it_does_not_count_disabled_subjects(built: Builder) -> None:
    counted = run(built, "index", "--no-vectors").stdout
    built.topics(guide={"disabled": ["start"]})
    without = run(built, "index", "--no-vectors").stdout
    assert counted.startswith("2 subjects, ")
    assert without.startswith("1 subject (without disabled ones), ")
