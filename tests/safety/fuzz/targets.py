"""What is fuzzed: one function for each kind of input that strangers write.

A target takes bytes. It may refuse them only with a `KbtuiError`, or in the way its own
interface says; whatever else it raises is a finding.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.library import Library
    from kbtui.workspace import Workspace

ID = 17_800_000_001


@cache
def workspace() -> Workspace:
    """A workspace of this process, whose files the targets write."""
    from kbtui.workspace import open_workspace_at_root

    root = Path(tempfile.mkdtemp(prefix="kb-fuzz-"))
    (root / f".jp/conversations/{ID}").mkdir(parents=True)
    (root / "docs/notes").mkdir(parents=True)
    (root / "docs/notes/one.md").write_text("# One\n\nA note on otters.\n")
    (root / ".jp/kb.toml").write_text('[kb.topic.notes]\nsubjects = "docs/notes"\n')
    _conversation(root, "events.json", b"[]")
    _conversation(root, "metadata.json", b"{}")
    _conversation(root, "base_config.json", b"{}")
    return open_workspace_at_root(root)


def _conversation(root: Path, name: str, data: bytes) -> None:
    (root / f".jp/conversations/{ID}" / name).write_bytes(data)


def _read_conversation() -> None:
    from kbtui.assistant.conversation_tool_answers import format_answer_as_xml
    from kbtui.assistant.conversation_tools import (
        answer_conversation_grep,
        answer_conversation_list,
        answer_conversation_read,
    )
    from kbtui.conversations.conversation_repository import find_conversation, load_conversation
    from kbtui.index.catalog_database import CatalogDatabase
    from kbtui.index.indexable_entry_reader import read_unindexed_conversation_parts

    info = find_conversation(workspace(), f"jp-c{ID}")
    conversation = load_conversation(info)
    with contextlib.closing(
        CatalogDatabase(workspace().root / "catalog.sqlite", write=True)
    ) as catalog:
        list(read_unindexed_conversation_parts(catalog, info, embed_tool_results=True))
    assert conversation.turns is not None
    with contextlib.suppress(KbtuiError):
        format_answer_as_xml("read", answer_conversation_read(workspace(), id=str(ID)).as_json())
    format_answer_as_xml("list", answer_conversation_list(workspace()).as_json())
    format_answer_as_xml(
        "grep", answer_conversation_grep(workspace(), pattern="a", current=None).as_json()
    )


def events(data: bytes) -> None:
    """A conversation's events, read, searched, chunked, and given to an assistant."""
    _conversation(workspace().root, "events.json", data)
    try:
        _read_conversation()
    finally:
        _conversation(workspace().root, "events.json", b"[]")


def blob(data: bytes) -> None:
    """A file among the blobs, to which a tool result and an attachment refer."""
    from kbtui.conversations.conversation_repository import find_conversation, load_conversation

    digest = hashlib.sha256(data).hexdigest()
    path = workspace().root / ".jp/blobs" / digest[:2] / digest[2:4] / f"{digest[4:]}.blob.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"content": {"$blob": digest, "size": 1}}
    block = {"type": "text", **content}
    elements = [
        {"type": "chat_request", "content": "a", "resources": [{"uri": "file:///a", **content}]},
        {"type": "tool_call_response", "id": "x", "is_error": False, "content": [block]},
    ]
    try:
        for stored in (gzip.compress(data), *([data] if data.startswith(b"\x1f\x8b") else [])):
            path.write_bytes(stored)
            _conversation(workspace().root, "events.json", json.dumps(elements).encode())
            conversation = load_conversation(find_conversation(workspace(), f"jp-c{ID}"))
            # The target `events` shows, searches and chunks such texts.
            assert len(conversation.turns[0].events) == 3
    finally:
        _conversation(workspace().root, "events.json", b"[]")
        path.unlink()


def pointer(data: bytes) -> None:
    """A file `.jp` that names JP's directory, and a workspace that is looked for below it."""
    from kbtui.conversations.conversation_repository import list_conversations
    from kbtui.workspace import find_workspace

    root = workspace().root / "pointers"
    (root / "src").mkdir(parents=True, exist_ok=True)
    (root / ".jp").write_bytes(data)
    with contextlib.suppress(KbtuiError):
        found = find_workspace(root / "src")
        list_conversations(found, counts=False)


def nested(data: bytes) -> None:
    """The metadata of a conversation inside another one, which names its parent."""
    from kbtui.conversations.conversation_repository import list_conversations

    folder = workspace().root / f".jp/conversations/{ID}/conversations/{ID + 1}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for parent in (data, json.dumps({"parent_id": _text(data)}, ensure_ascii=True).encode()):
            (folder / "metadata.json").write_bytes(parent)
            (folder / "events.json").write_bytes(b"[]")
            assert len(list_conversations(workspace(), counts=False)) == 2
    finally:
        shutil.rmtree(folder.parent)


def metadata(data: bytes) -> None:
    """A conversation's metadata and base configuration."""
    for name in ("metadata.json", "base_config.json"):
        _conversation(workspace().root, name, data)
    try:
        _read_conversation()
    finally:
        for name in ("metadata.json", "base_config.json"):
            _conversation(workspace().root, name, b"{}")


def front_matter(data: bytes) -> None:
    """A subject: its front matter, title and chunks, and the document on the screen."""
    from kbtui.index.chunk_splitter import split_subject_into_chunks
    from kbtui.knowledge.front_matter import split_front_matter
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.tui.reader.subject_document_builder import build_subject_document

    text = _text(data)
    subject = Subject("t", "s", "s.md", "s.md")
    for given in (text, f"---\n{text}\n---\n\n# Title\n"):
        split = split_front_matter(given)
        assert split.title != ""
        for chunk in split_subject_into_chunks(split):
            assert chunk.text
        build_subject_document(subject, given)
        for value in split.facts.values():
            assert len(str(value)) < 1 << 20


def markdown(data: bytes) -> None:
    """A text as the reader draws it."""
    from kbtui.tui.reader.subject_document_builder import build_assistant_text_document

    for block in build_assistant_text_document("k", "t", _text(data), view="rendered").blocks:
        block.lay_out_with_lead_and_space_above(80)


def toml(data: bytes) -> None:
    """A workspace's own configuration: topics, and what is made of them."""
    from kbtui.knowledge import load_knowledge
    from kbtui.sources.document_source_definitions import load_source_definitions

    root = workspace().root
    kept = (root / ".jp/kb.toml").read_bytes()
    try:
        (root / ".jp/kb.toml").write_bytes(data)
        (root / ".jp/kb-sources.toml").write_bytes(data)
        knowledge = load_knowledge(workspace())
        knowledge.format_knowledge_section()
        knowledge.make_learn_tool_definition()
        for topic in knowledge.topics:
            knowledge.list_subjects(topic)
            knowledge.learn(topic, "**")
        with contextlib.suppress(KbtuiError):
            load_source_definitions(workspace())
    finally:
        (root / ".jp/kb.toml").write_bytes(kept)
        (root / ".jp/kb-sources.toml").unlink(missing_ok=True)


def settings(data: bytes) -> None:
    """A person's settings."""
    from kbtui.workspace import load_settings

    path = workspace().root / "config.toml"
    path.write_bytes(data)
    with contextlib.suppress(KbtuiError):
        load_settings(path)


def globs(data: bytes) -> None:
    """A pattern over slugs; the first line is the pattern, the rest a slug."""
    from kbtui.knowledge.slug_patterns import compile_slug_pattern, is_glob_pattern

    pattern, _, slug = _text(data).partition("\n")
    is_glob_pattern(pattern)
    matches = compile_slug_pattern(pattern)
    for name in (slug, "a" * 200, "a/" * 100, "one/two/three.four"):
        matches(name)


def query(data: bytes) -> None:
    """A question to the search, and its answer."""
    from kbtui.search.query_parsing_and_filter_application import parse_query
    from kbtui.search.search_request_and_answer import SearchRequest

    text = _text(data)
    parse_query(text)
    parse_query(text, partial=True)
    with contextlib.suppress(KbtuiError):
        _library().search_by_keywords(SearchRequest(text, mode="lexical"))


def reference(data: bytes) -> None:
    """A reference, as printed and as typed."""
    from kbtui.references import parse_conversation_id, parse_ref

    text = _text(data)
    with contextlib.suppress(KbtuiError):
        assert parse_ref(str(parse_ref(text)))
    with contextlib.suppress(KbtuiError):
        parse_conversation_id(text)


def message(data: bytes) -> None:
    """A frame to the engine, and what it asks for."""
    from kbtui.engine import engine_protocol
    from kbtui.errors import UsageError
    from kbtui.search.search_request_and_answer import parse_search_request_json

    with contextlib.suppress(engine_protocol.InvalidProtocolFrameError):
        engine_protocol.parse_frame_length(data[:4], engine_protocol.REQUEST_BYTES_MAX)
    with contextlib.suppress(engine_protocol.InvalidProtocolFrameError):
        found = engine_protocol.decode_frame_body(data)
        engine_protocol.encode_message_as_frame(found)
        engine_protocol.get_max_wait_seconds_of_request(found)
        if isinstance(question := found.get("question"), dict):
            with contextlib.suppress(ValueError, TypeError, UsageError):
                parse_search_request_json(question)


def arguments(data: bytes) -> None:
    """A tool call: `NAME` on the first line, its arguments as JSON on the others."""
    from kbtui.assistant.assistant_tools import UnknownToolError, answer_tool_call
    from kbtui.assistant.jp_local_tools import format_tool_call_for_jp_terminal

    name, _, rest = _text(data).partition("\n")
    try:
        given = json.loads(rest)
    except (ValueError, RecursionError):
        given = {"query": rest, "topic": rest, "pattern": rest, "id": rest, "subjects": [rest]}
    if not isinstance(given, dict):
        given = {"query": given, "topic": given, "pattern": given, "id": given}
    format_tool_call_for_jp_terminal(name, given)
    with contextlib.suppress(UnknownToolError):
        answer_tool_call(name, given, _library()).text.encode()
    for known in ("learn", "knowledge_search", "conversation_grep", "conversation_read"):
        reply = answer_tool_call(known, given, _library(), masked=True)
        reply.text.encode()
        assert not reply.text.startswith("kbtui failed"), reply.text


def shown(data: bytes) -> None:
    """Text made safe for a terminal, and masked."""
    from kbtui.secret_detection import mask_secrets
    from kbtui.terminal_text import cut_to_width, sanitize, sanitize_to_one_line

    text = _text(data)
    for policy in ("strip", "visualize", "off"):
        clean = sanitize(text, policy)  # type: ignore[arg-type]
        clean.encode()
        assert sanitize(clean, policy) == clean  # type: ignore[arg-type]
        if policy != "off":
            assert not any(ord(c) < 32 and c not in "\n\t" for c in clean)
        cut_to_width(sanitize_to_one_line(text, policy), 20)  # type: ignore[arg-type]
    mask_secrets(text)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@cache
def _library() -> Library:
    from kbtui.errors import EngineUnavailableError
    from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
    from kbtui.library import Library
    from kbtui.workspace import Settings

    assert os.environ.get("XDG_CACHE_HOME"), "fuzzing wants a cache of its own"
    index = WorkspaceIndexWriter(workspace(), Settings(model="off"))
    index.refresh_index()
    index.close()
    library = Library(workspace(), Settings(model="off", query_log=False))

    def none(*_: object, **__: object) -> None:
        raise EngineUnavailableError("none while fuzzing")

    library.connect_engine = none  # type: ignore[method-assign,assignment]
    return library


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        events, blob, pointer, nested, metadata, front_matter, markdown, toml, settings, globs, query, reference, message,
        arguments, shown,
    )
}  # fmt: skip

SEEDS: dict[str, list[bytes]] = {
    "events": [
        b'[{"timestamp": "2026-01-01 00:00:00.0", "type": "turn_start"}, {"timestamp": "2026-01-01 00:00:01.0", '
        b'"type": "chat_request", "content": "a"}, {"timestamp": "2026-01-01 00:00:02.0", "type": "tool_call_request", '
        b'"id": "x", "name": "learn", "arguments": {"topic": "bm90ZXM="}}, {"type": "tool_call_response", "id": "x", '
        b'"content": "YQ==", "is_error": false, "timestamp": "2026-01-01 00:00:03.0"}, {"type": "chat_response", '
        b'"message": "b", "timestamp": "2026-01-01 00:00:04.0"}]',
        b'[{"type": "compaction", "from": 0, "to": 1, "timestamp": 1}]',
        b'[{"type": "chat_request", "content": "a", "author": "Jean", "event_id": "k3f9a1z", "timestamp": "2026-01-01 00:00:01.0", '
        b'"participant": "dev", "recipients": 1, "resources": [{"uri": "file:///a.rs", "mimeType": "text/x-rust", "text": "Zm4="}, {"uri": "external:x", "title": "t"}, "u"]}, '
        b'{"type": "tool_call_response", "id": "x", "isError": false, "timestamp": "2026-01-01 00:00:03.0", "content": ['
        b'{"type": "text", "content": {"$blob": "%s", "size": 2}}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}, '
        b'{"type": "question", "question": {"id": "q", "text": "?", "schema": {"enum": ["y", 1]}, "default": {}}}, '
        b'{"type": "resource", "resource": {"uri": "file:///b", "content": {"$blob": "../..", "encryption": {"recipients": ["r", 1]}}}}]}]'
        % (b"ab" * 32),
    ],
    "blob": [b"fn main() {}", b"\x89PNG\0", b"age-encryption.org/v1\n-> X25519 a", b"\x1f\x8b\x08\0"],
    "pointer": [b"/nowhere/at/all\n", b"src", b"~/storage", b"a\nb\n"],
    "nested": [b"jp-c17800000001", b'{"parent_id": "jp-c17800000002"}', b'{"parent_id": 17800000001}'],
    "metadata": [
        b'{"title": "t", "last_activated_at": "2026-01-01 00:00:00.0", "labels": {"a": "b"}, "expires_at": null}'
    ],
    "front_matter": [b"title: x\ntags: [a, b]\ncreated: 2026-01-01\ntype: note", b"a: &a [*a]"],
    "markdown": [b"# h\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx\n```\n> q\n* l\n1. n\n[a](b) <b>"],
    "toml": [
        b'[kb.topic.notes]\nsubjects = "docs/notes"\nlearned = ["*"]\ndisabled = ["one"]\ntitle = "t"\n',
        b'[source.a]\nkind = "url_crawl"\ntopic = "notes"\nurl = "https://a.example/"\n',
    ],
    "settings": [b'model = "off"\nengine_idle = 1\n[keys]\nsearch = "x"\n'],
    "globs": [b"**/a*[b-d]?\nx/ab", b"[!a]**/**/*\nq"],
    "query": [b'otters "a note" -x type:note after:2026-01-01 topic:notes "unclosed', b"title:one OR in:x", b"type:\x80"],
    "reference": [b"notes/one:1-2", b"jp-c17800000001:1.2", b"chunk:abc", b"jp://jp-c17800000001", b"jp://jp-c17800000001#k3m9x2a@/content:t=Y2hva2Vz"],
    "message": [b'{"id": 1, "op": "search", "question": {"hidden": true}, "wait": 1e9}'],
    "arguments": [b'learn\n{"topic": "notes", "subjects": ["*"]}', b'knowledge_search\n{"query": "a", "limit": 5.0}'],
    "shown": [b"\x1b]0;x\x07a\xe2\x80\xaeb api_key = 'aB3dE5fG7hJ9kL1m'", b"-----BEGIN PRIVATE KEY-----"],
}  # fmt: skip
"""Where atheris begins; hypothesis tries them, too."""

DENSE: list[bytes] = [
    b"[" * 60_000,
    b"{\"a\":" * 30_000,
    b"*" * 2000 + b"\n" + b"a" * 2000,
    b"*a" * 200 + b"b\n" + b"a" * 3000,
    b"**/" * 60 + b"x\n" + b"a/" * 500,
    b"[" + b"a-z" * 5000 + b"]\n",
    b"(" * 5000 + b")" * 5000,
    b"`" * 20_000 + b"\n" + b"[" * 5000 + b"](" * 5000,
    b"> " * 2000 + b"x",
    b"- " * 3000 + b"x",
    b"a: {b: [" * 500,
    b"a: &a [x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: &d [*c, *c, *c, *c]\n" * 4,
    b"\n".join(b"%c: &%c [%s]" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 110)).replace(b"*a", b"x"),
    b"-----BEGIN " * 3000,
    b"sk-" * 10_000 + b"eyJ" * 10_000,
    b"password=" * 5000,
    b"\x1b[" * 20_000 + b"\x1b]0;" * 10_000,
    "\u0301".encode() * 20_000,
    b'"' * 5001,
    b"-" * 10_000 + b" x:" * 3000,
    b"|a" * 20_000 + b"\n" + b"|-" * 20_000 + b"\n",
    b"*_" * 10_000,
    b"<a " * 10_000,
    b"9" * 6000,
    b"[1e999, -0.0, 123456789012345678901234567890, NaN, Infinity]",
    b'{"created": "9999-99-99", "timestamp": 1e300}',
    "\u202e\u2066\U000e0041".encode() * 5000,
    b"notes/one:" + b"9" * 4000 + b"-" + b"9" * 4000,
    b"\x00\xff\xfe\xf0\x9f",
]  # fmt: skip
"""Inputs on which careless code is slow, deep or large; every target gets each."""
