"""No tool returns a secret of any kind from any field that an assistant can read."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from assistant_support import KEYS, PHRASE, PRIVATE_KEY, RANDOM
from planted_texts import PLANTED
from running import run_command
from support import FIRST_ID, Builder, asked, called, encoded, kill_engine, said, write_json

from kbtui.assistant.assistant_tools import TOOLS, answer_tool_call, list_offered_tools
from kbtui.library import Library
from kbtui.workspace import load_settings

MANIFEST = f"kind: Secret\ndata:\n  colour: {encoded('sesame, sesame')}\n"
SECRETS = [
    *[secret for secret, _ in KEYS],
    PRIVATE_KEY,
    PHRASE,
    MANIFEST,
    f"password: {RANDOM}0",
    f"curl -u me:{RANDOM}1 x",
    f"postgres://me:{RANDOM}2@db/x",
    f"Authorization: Bearer {RANDOM}3",
    f"client-key-data: {base64.b64encode(PRIVATE_KEY.encode()).decode()}",
]
# What must not be returned: ends of keys, each line of long keys, values of secret names.
CORES = [
    *[secret[-16:] for secret, _ in KEYS],
    *[line[20:50] for line in PRIVATE_KEY.splitlines()[1:-1]],
    "winner thank",
    encoded("sesame, sesame"),
    RANDOM,
    base64.b64encode(PRIVATE_KEY.encode()).decode()[100:140],
]
ALL = "\n".join(f"canary\n{secret}\n" for secret in SECRETS)
LINE = "canary " + " canary ".join(
    secret for secret in SECRETS if "\n" not in secret and len(secret) < 300
)


@pytest.fixture
def planted(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """Write a workspace with all secrets in all fields."""
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(
        guide={"title": f"The {SECRETS[1]}", "introduction": LINE, "description": ALL},
        empty={"title": f"{SECRETS[0]} password={RANDOM}"},
    )
    builder.subject("guide/notes.md", f"# Notes\n\n{ALL}")
    builder.subject("guide/titled.md", f"---\ntitle: '{SECRETS[2]}'\n---\ncanary\n")
    builder.subject("guide/data.json", json.dumps({"text": ALL, "password": RANDOM}))
    for number, secret in enumerate(SECRETS):
        builder.subject(f"guide/one/s{number}.md", f"canary\n{secret}\n")
    nested: Any = {
        "password": RANDOM,
        "rows": [{"text": ALL}, [ALL]],
        "inner": json.dumps({"x": ALL}),
    }
    turns = [
        [asked(f"canary\n{ALL}")],
        [said(f"canary\n{ALL}")],
        [{"type": "chat_response", "reasoning": ALL}],
        [{"type": "chat_response", "data": nested}],
        [*called("a", "shell", "canary", command=f"canary\n{ALL}", env=json.dumps({"x": ALL}))],
        [*called("b", "shell", "canary", options=_encoded(nested))],
        [*called("c", "shell", f"canary\n{ALL}")],
        [*called("d", "shell", json.dumps({"log": ALL, "password": RANDOM}))],
        [*called("e", "shell", f"canary {json.dumps(json.dumps({'log': ALL}))}", error=True)],
        [*called("f", f"tool {SECRETS[0]}", "canary")],
        [{"type": "inquiry_request", "id": "q", "question": {"text": ALL, "answer_type": "text"}},
         {"type": "inquiry_response", "id": "q", "answer": ALL}],
        [{**asked("canary"), "author": {"name": SECRETS[0]}}],
    ]  # fmt: skip
    labels = {"key": SECRETS[0], "password": RANDOM}
    builder.conversation(1, turns, title=f"canary {LINE}", metadata={"labels": labels})
    builder.conversation(2, [[asked("canary")]], title=SECRETS[3])
    damaged = builder.conversation(3, [[asked("canary")]], title="canary")
    write_json(damaged / "metadata.json", {"title": "canary", "labels": labels})
    (damaged / "events.json").write_text(f'[{{"type": "chat_request", "content": "{SECRETS[0]}')
    yield builder
    kill_engine(builder)


def _encoded(value: Any) -> Any:
    if isinstance(value, str):
        return encoded(value)
    if isinstance(value, dict):
        return {key: _encoded(item) for key, item in value.items()}
    return [_encoded(item) for item in value] if isinstance(value, list) else value


def asking() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return calls that read every field in every way."""
    yield "learn", {"topic": "nonsense"}
    yield "learn", {"topic": "guide"}
    yield "learn", {"topic": "guide", "subjects": "none"}
    lines = len(ALL.split("\n")) + 3
    for subjects in ("notes", "titled", "data", "one/*", "**", ["data", "notes:3-40"]):
        yield "learn", {"topic": "guide", "subjects": subjects}
    for first in range(1, lines, 7):
        yield "learn", {"topic": "guide", "subjects": f"notes:{first}-{first + 3}"}
    # Every passage has a canary. The text around each hit is masked, which takes 10 ms and more.
    for query, limit in (
        ("canary", 100),
        ("canary", 5),
        ("notes", 15),
        ("password", 15),
        ("shell", 15),
        ("PRIVATE KEY", 15),
        (SECRETS[0], 15),
        ("legal winner", 15),
    ):
        yield "knowledge_search", {"query": query, "limit": limit}
    yield "conversation_list", {}
    yield "conversation_list", {"title_contains": SECRETS[3]}
    for pattern in ("canary", "a", "=", "text", PRIVATE_KEY.splitlines()[5][:6], "winner", RANDOM):
        for context in (0, 2):
            yield "conversation_grep", {"pattern": pattern, "context": context, "limit": 400}
    for scope in (
        "user",
        "assistant",
        "reasoning",
        "structured",
        "tool-call",
        "tool-result",
        "inquiry",
        "title",
    ):
        yield "conversation_grep", {"pattern": "e", "scopes": [scope], "limit": 10_000}
    for number in (1, 2, 3):
        yield "conversation_read", {"id": f"jp-c{FIRST_ID + number}"}
    for turn in range(1, 13):
        yield "conversation_read", {"id": f"jp-c{FIRST_ID + 1}:{turn}"}


def test_no_tool_gives_a_secret_from_any_field(planted: Builder) -> None:
    library = Library(planted.workspace, load_settings())
    try:
        seen = set()
        for name, arguments in asking():
            reply = answer_tool_call(name, arguments, library, masked=True)
            # Answers repeat the request.
            asked_for = json.dumps(arguments)
            found = [core for core in CORES if core in reply.text and core not in asked_for]
            near = max(0, reply.text.find(found[0]) - 300) if found else 0
            assert not found, (name, arguments, reply.text[near : near + 600])
            if "[masked: " in reply.text:
                seen.add(name)
        assert seen == set(TOOLS), "every tool was asked about something that has one"
        from kbtui.secret_detection import mask_secrets

        for tool in list_offered_tools(library.load_knowledge()):
            assert not [core for core in CORES if core in mask_secrets(tool.description)]
    finally:
        library.close()


def test_a_secret_cannot_be_guessed_letter_by_letter(planted: Builder) -> None:
    library = Library(planted.workspace, load_settings())
    try:
        for secret in (SECRETS[0], RANDOM, PRIVATE_KEY.splitlines()[3]):
            for length in (8, len(secret)):
                arguments = {"pattern": secret[:length], "ignore_case": False}
                reply = answer_tool_call("conversation_grep", arguments, library, masked=True).text
                assert "<total>0</total>" in reply, (secret[:length], reply[:500])
    finally:
        library.close()


@pytest.mark.parametrize("name", ["html", "markdown", "json", "jsonl"])
def test_no_export_for_other_people_has_a_secret_and_it_lists_what_was_masked(
    planted: Builder, name: str
) -> None:
    done = run_command("-w", str(planted.root), "export", f"jp-c{FIRST_ID + 1}", "--format", name)
    assert done.returncode == 0
    for core in CORES:
        assert core not in done.stdout
        assert core not in done.stderr
    assert len(KEYS) > 20
    for _, kind in KEYS:
        assert f"masked: {kind}: turn 1, You" in done.stderr
        assert kind in done.stdout
    plain = run_command(
        "-w", str(planted.root), "export", f"jp-c{FIRST_ID + 1}", "--format", name, "--no-mask"
    )
    assert SECRETS[0] in plain.stdout
    assert "masked: " not in plain.stderr


@pytest.mark.parametrize("name", ["html", "markdown", "json", "jsonl"])
def test_no_export_has_a_secret_from_the_places_where_people_write_them(
    workspace_root: Path, name: str
) -> None:
    builder = Builder(workspace_root)
    texts = [text for text, _ in PLANTED.values()]
    turns = [
        [asked(text), *called(f"a{at}", "shell", text, command=text), said(f"So:\n\n{text}")]
        for at, text in enumerate(texts)
    ]
    builder.conversation(1, turns, title="Planted")
    done = run_command("-w", str(builder.root), "export", f"jp-c{FIRST_ID + 1}", "--format", name)
    assert done.returncode == 0
    survivors = [
        kind for kind, (_, cores) in PLANTED.items() for core in cores if core in done.stdout
    ]
    assert survivors == []
