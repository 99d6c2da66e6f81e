"""`kbtui conversation` with conversations of other agents than JP."""

import json
from pathlib import Path

import pytest
from claude_sessions import answered, call, claude_folder, result, session_id, typed, write_session
from support import Builder, asked, said

from kbtui.cli.main import main

CLAUDE = f"claude-{session_id(1)}"
JP = "jp-c17800000001"


@pytest.fixture
def root(home: Path, workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    Builder(workspace_root).conversation(1, [[asked("Hello"), said("Hi")]], title="Greeting")
    records = [
        typed("Where is the \x1b[2Jneedle?"),
        answered(call(1, "Read", file_path="/hay"), usage=(10, 2, 1000, 500)),
        result(1, "straw"),
        answered("In the hay.", message="msg_2", usage=(20, 3, 1500, 0)),
        typed("And the thread?"),
        answered("Gone.", message="msg_3", model="claude-haiku-4-5", usage=(7, 5, 0, 0)),
    ]
    write_session(home, workspace_root, session_id(1), records)
    subagent = [typed("Search"), answered("Done.", message="msg_4", usage=(1, 1, 0, 0))]
    write_session(home, workspace_root, session_id(1), subagent, subagent="a2898e3")
    monkeypatch.chdir(workspace_root)
    return workspace_root


def kbtui(*words: str) -> int:
    return main(["conversation", *words])


def test_ls_shows_short_ids_and_json_whole_ones(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("ls", "--agent", "claude-code") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["claude-158c7280", "claude-158c7280~a2898e3"]
    assert lines[1].endswith("  in claude-158c7280")
    assert kbtui("ls", "--json") == 0
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)["conversations"]}
    assert {one: found[one]["agent"] for one in found} == {
        CLAUDE: "claude-code",
        f"{CLAUDE}~a2898e3": "claude-code",
        JP: "jp",
    }
    assert found[CLAUDE]["events_count"] == 6


def test_ls_selects_agents(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbtui("ls", "--agent", "jp") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [JP]
    assert kbtui("ls", "--agent", "jp", "--agent", "claude-code") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    for name in ("claude", "Claude Code", "CLAUDE C"):
        assert kbtui("ls", "--agent", name) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2
    for unknown in ("clod", ""):
        assert kbtui("ls", "--agent", unknown) == 2
        assert f"--agent: unknown agent '{unknown}'" in capsys.readouterr().err


def test_ls_names_only_skipped_places_of_the_chosen_agents(
    root: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (claude_folder(home, root) / f"{session_id(2)}.jsonl").write_text("garbage\n")
    for agent, is_named in (("claude", True), ("jp", False)):
        assert kbtui("ls", "--agent", agent) == 0
        assert (": skipped: " in capsys.readouterr().err) is is_named


@pytest.mark.parametrize("id_", ["claude-158c7280", CLAUDE])
def test_every_command_takes_whole_and_shortened_ids(
    root: Path, capsys: pytest.CaptureFixture[str], id_: str
) -> None:
    for words in (
        ["conversation", "read", f"{id_}:1"],
        ["conversation", "export", f"{id_}:1"],
        ["conversation", "grep", "-i", id_, "needle"],
        ["show", f"{id_}:1"],
        ["cites", f"{id_}:1.1", "--json"],
    ):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert "needle" in out or CLAUDE in out
    for words in (["show"], ["conversation", "read"], ["conversation", "export"]):
        assert main([*words, f"{id_}:1.1"]) == 0
        out = capsys.readouterr().out
        assert "straw" in out
        assert "Gone." not in out


def test_info_counts_what_a_session_contains(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("info", "claude-158c7280", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "agent": "claude-code",
        "id": CLAUDE,
        "parent_id": None,
        "title": "Where is the \x1b[2Jneedle?",
        "project": str(root),
        "started_at": "2026-05-29T10:00:00.000Z",
        "ended_at": "2026-05-29T10:00:05.000Z",
        "turns": 2,
        "rewound_turns": 0,
        "tool_calls": 1,
        "tool_results": 1,
        "attachments": 0,
        "compactions": 0,
        "subagents": 1,
        "models": ["claude-opus-4-6", "claude-haiku-4-5"],
        "usage": {
            "input_tokens": 37,
            "output_tokens": 10,
            "cache_read_tokens": 2500,
            "cache_write_tokens": 500,
            "total_tokens": 3047,
            "is_estimate": False,
        },
        "subagent_usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "total_tokens": 2,
            "is_estimate": False,
        },
        "cost": None,
        "subagent_cost": None,
        "models_without_price": ["claude-haiku-4-5", "claude-opus-4-6"],
    }
    assert kbtui("info", "claude-158c7280") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "title                Where is the needle?\n" in out
    assert "total tokens         3,047\n" in out
    assert "subagents            1\n" in out
    assert "subagent tokens      2  (1 input, 1 output, 0 cache read, 0 cache write)\n" in out
    assert kbtui("info", "claude-158c7280~a2898e3") == 0
    out = capsys.readouterr().out
    assert "subagent " not in out
    assert f"parent id            {CLAUDE}\n" in out


def test_info_of_a_turn_says_that_it_is_about_the_whole_conversation(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ref in ("claude-158c7280:2", "claude-158c7280:1.1"):
        assert kbtui("info", ref) == 0
        out, err = capsys.readouterr()
        assert "turns                2\n" in out
        assert f"about the whole conversation, not only about {ref}" in err


def test_read_says_that_there_are_no_events_of_the_kinds(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ref, kind in (("claude-158c7280:1.1", "chat"), ("claude-158c7280:2", "tool_calls")):
        assert kbtui("read", ref, "--include", kind) == 1
        assert "there are no events of these kinds: use --include to show other kinds" in (
            capsys.readouterr().err
        )


def test_info_of_a_conversation_without_tokens(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("info", JP, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["agent"], found["turns"], found["cost"]) == ("jp", 1, None)
    assert set(found["usage"].values()) == {None, False}
    assert kbtui("info", "claude-99999999") == 1
    assert "there is no conversation claude-99999999" in capsys.readouterr().err


@pytest.mark.parametrize("call_number", ["9", "0"])
def test_a_call_that_does_not_exist_is_an_error(
    root: Path, capsys: pytest.CaptureFixture[str], call_number: str
) -> None:
    wrong = f"claude-158c7280:1.{call_number}"
    for words in (
        ["conversation", "read", wrong],
        ["conversation", "export", wrong],
        ["conversation", "info", wrong],
        ["show", wrong],
        ["cites", wrong],
    ):
        assert main(words) == 1
        out, err = capsys.readouterr()
        assert "turn 1 has 1 call\n" in err
        assert out == ""
    assert kbtui("read", f"{JP}:1.1") == 1
    assert "turn 1 has no calls" in capsys.readouterr().err
    assert kbtui("read", "claude-158c7280:1.1") == 0


def test_what_begins_like_an_id_is_not_called_a_topic(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("claude-99999999", "claude-deadbeef", "codex-deadbeef:3"):
        for words in (["show", wrong], ["cites", wrong], ["conversation", "read", wrong]):
            assert main(words) == 1
            assert f"there is no conversation {wrong.split(':')[0]}" in capsys.readouterr().err
    for wrong in ("claude-158c", "codex-abc:3"):
        for words in (["show", wrong], ["cites", wrong], ["conversation", "read", wrong]):
            assert main(words) == 2
            err = capsys.readouterr().err
            assert "the id of a conversation needs at least 8 characters after c" in err
    Builder(root).topics(**{"claude-notes": {"title": "Notes"}})
    Builder(root).subject("claude-notes/one.md", "# One\n")
    assert main(["show", "claude-notes"]) == 0
    assert main(["show", "nosuch"]) == 1
    assert "Unknown topic" in capsys.readouterr().err


def test_info_of_a_turn_that_does_not_exist_is_an_error(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbtui("info", f"{CLAUDE}:9999") == 1
    out, err = capsys.readouterr()
    assert f"{CLAUDE}:9999: the conversation has 2 turns" in err
    assert out == ""
    assert kbtui("info", f"{CLAUDE}:2") == 0


def write_settings(home: Path, text: str) -> None:
    (home / "config/kbtui").mkdir(exist_ok=True)
    (home / "config/kbtui/config.toml").write_text(text)


def test_a_configured_price_gives_the_cost(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The longest matching pattern counts, and what has no price is named."""
    write_settings(
        home,
        '[prices."claude-*"]\ninput = 99\noutput = 99\n'
        '[prices."claude-opus-*"]\ninput = 5\noutput = 25\ncache_read = 0.5\ncache_write = 6.25\n',
    )
    assert kbtui("info", "claude-158c7280", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    opus = (30 * 5 + 5 * 25 + 2500 * 0.5 + 500 * 6.25) / 1e6
    assert found["cost"] == pytest.approx(opus + 12 * 99 / 1e6)
    assert found["subagent_cost"] == pytest.approx((5 + 25) / 1e6)
    assert found["models_without_price"] == []
    write_settings(home, "[prices.claude-haiku-4-5]\ninput = 1\noutput = 5\n")
    assert kbtui("info", "claude-158c7280") == 0
    out, err = capsys.readouterr()
    assert "cost                 0.0000\n" in out
    assert "without a price in the table [prices] of config.toml: claude-opus-4-6" in err


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("prices = 3", 2, "prices must be a table"),
        ("[prices]\nx = 3", 3, 'prices."x" must be a table'),
        ("[prices.x]\ninput = 3", 2, "the table [prices.\"x\"] has no key 'output'"),
        ("[prices.x]\ninput = 3\noutput = -1", 4, 'prices."x".output must be a number'),
        ("[prices.x]\ninput = nan\noutput = 1", 3, 'prices."x".input must be a number'),
        ("[prices.x]\ninput = 1\noutput = inf", 4, 'prices."x".output must be a number from 0 to'),
        ("[prices.x]\ninput = 1e300\noutput = 1", 3, 'prices."x".input must be a number from 0 to'),
        ("[prices.x]\ninput = 1\noutput = 1\ncache = 1", 5, "unknown key 'cache'"),
    ],
)
def test_wrong_prices_are_refused_with_their_line(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str], text: str, line: int, message: str
) -> None:
    write_settings(home, f"session = false\n{text}\n")
    assert kbtui("info", JP) == 2
    err = capsys.readouterr().err
    assert message in err
    assert f"config.toml:{line}:" in err


def test_results_have_what_the_agent_shows_of_them(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = {"bytes": 274_387, "code": 200, "codeText": "OK"}
    records = [
        typed("Look it up"),
        answered(call(1, "WebFetch", url="https://example.org")),
        {**result(1, "A page"), "toolUseResult": outcome},
    ]
    write_session(home, root, session_id(2), records)
    session = f"claude-{session_id(2)}"
    for words in (["read"], ["read", "--format", "json"], ["read", "--format", "xml"], ["export"]):
        assert kbtui(*words, session) == 0
        assert "Received 268KB (200 OK)" in capsys.readouterr().out


@pytest.mark.parametrize("at", [0, 2])
def test_the_summary_of_a_compaction_is_read_exported_and_found(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    """A session can begin with the summary of another one; this starts no turn."""
    records = [typed("Build it"), answered("Built."), typed("Go on"), answered("Gone.")]
    records.insert(at, {**typed("So far: a wombat."), "isCompactSummary": True})
    write_session(home, root, session_id(2), records)
    session = f"claude-{session_id(2)}"
    for words in (["read"], ["read", "--format", "xml"], ["export"]):
        assert kbtui(*words, f"{session}:1") == 0
        assert capsys.readouterr().out.count("So far: a wombat.") == 1
    assert kbtui("read", session, "--format", "json") == 0
    turns = json.loads(capsys.readouterr().out)["turns"]
    kinds = [[event["event_kind"] for event in turn["events"]] for turn in turns]
    first = ["chat_request", "message"]
    first.insert(at, "compaction")
    assert kinds == [first, ["chat_request", "message"]]
    assert kbtui("grep", "wombat") == 0
    assert capsys.readouterr().out == "claude-258c7280:1:notice:m:So far: a wombat.\n"


def test_a_subagent_and_the_call_that_started_it_name_each_other(
    home: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        typed("Look"),
        answered(call(1, "Task", prompt="Look around")),
        {**result(1, "Nothing"), "toolUseResult": {"agentId": "b7"}},
    ]
    write_session(home, root, session_id(2), records)
    write_session(home, root, session_id(2), [typed("Look around")], subagent="b7")
    parent = f"claude-{session_id(2)}"
    for words in (["read"], ["read", "--format", "json"], ["export"]):
        assert kbtui(*words, parent) == 0
        assert f"{parent}~b7" in capsys.readouterr().out
    assert kbtui("read", f"{parent}~b7") == 0
    assert capsys.readouterr().out.startswith(f"{parent}~b7  Look around (part of {parent})\n")
    assert kbtui("export", f"{parent}~b7") == 0
    assert f"- Part of: `{parent}`" in capsys.readouterr().out
