"""What later versions of JP store in blocks and blobs: read, shown by its kind, or said to be missing."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from jp_files import BASE, Stream, dump, events_of, load, put_blob, standard, texts, write

from kbtui.conversations.formats.jp import jp_content_decoder


def reference(digest: str, **more: Any) -> dict[str, Any]:
    return {"$blob": digest, "size": 10, **more}


def result_with(*blocks: dict[str, Any]) -> Stream:
    stream = Stream().turn().ask("x").call("see", "1")
    return stream.add("tool_call_response", id="1", content=list(blocks), is_error=False)


def test_blobs_are_read_where_the_conversation_refers_to_them(jp: Path) -> None:
    rust, check = put_blob(jp, "fn main() {}"), put_blob(jp, "check succeeded")
    image = put_blob(jp, b"\x89PNG\0\xff")
    stream = result_with(
        {"type": "text", "content": reference(check)},
        {"type": "text", "content": {"text": "edited by hand"}},
        {"type": "resource", "resource": {"uri": "file:///a.rs", "content": reference(rust)}},
        {"type": "image", "mimeType": "image/png", "content": reference(image)},
    )
    stream.ask("Read this", resources=[{"uri": "file:///b.rs", "content": reference(rust)}])
    write(jp, stream)
    conversation = load(jp.parent)
    assert conversation.problems == []
    result, request, attachment = events_of(conversation)[2:]
    assert result.text.split("\n") == [
        "check succeeded",
        "edited by hand",
        "[resource: file:///a.rs]",
        "fn main() {}",
        "[image: image/png, 6 bytes]",
    ]
    assert [block.kind for block in result.blocks or ()] == ["text", "text", "resource", "image"]
    assert request.text == "Read this"
    assert (attachment.kind, attachment.text) == (
        "attachment",
        "[resource: file:///b.rs]\nfn main() {}",
    )


@pytest.mark.parametrize("key", ["text", "content"])
def test_a_blob_can_be_in_the_place_of_a_text(jp: Path, key: str) -> None:
    block = {"type": "text", key: reference(put_blob(jp, "check succeeded"))}
    resource = {"uri": "file:///b.rs", key: reference(put_blob(jp, "fn main() {}"))}
    write(jp, result_with(block).ask("Read this", resources=[resource]))
    assert texts(load(jp.parent))[2] == "check succeeded"
    assert texts(load(jp.parent))[-1] == "[resource: file:///b.rs]\nfn main() {}"


def test_files_in_an_envelope_are_read_as_without_it(jp: Path) -> None:
    def wrap(data: Any) -> str:
        return dump({"format": "jp.conversation", "version": 1, "data": data})

    stream = Stream().turn().ask("Why?").say("Because.")
    metadata = wrap({"title": "In an envelope", "last_activated_at": "2026-05-29 10:00:00.0"})
    write(jp, wrap(stream.elements), metadata=metadata, base=wrap(BASE))
    conversation = load(jp.parent)
    assert conversation.problems == []
    assert (conversation.info.title, texts(conversation)) == (
        "In an envelope",
        ["Why?", "Because."],
    )
    assert conversation.info.events_count == 3


def test_a_blob_of_a_user_local_conversation_is_in_the_user_local_directory(
    jp: Path, silo: Path
) -> None:
    digest = put_blob(silo, "a private note")
    write(silo, result_with({"type": "text", "content": reference(digest)}))
    assert texts(load(jp.parent))[-1] == "a private note"


def break_blob(jp: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Store a blob that cannot be read, in one of several ways; return its name."""
    digest = put_blob(jp, "a secret " * 1000)
    path = jp / "blobs" / digest[:2] / digest[2:4] / f"{digest[4:]}.blob.gz"
    outside = jp.parent.parent / "outside.gz"
    if how == "missing":
        path.unlink()
    elif how == "another content":
        path.write_bytes(gzip.compress(b"not this"))
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "not compressed":
        path.write_bytes(b"a secret " * 1000)
    elif how == "link":
        path.rename(outside)
        path.symlink_to(outside)
    elif how == "linked directory":
        folder = path.parent.rename(jp.parent.parent / "outside")
        path.parent.symlink_to(folder)
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif how == "too large":
        monkeypatch.setattr(jp_content_decoder, "MAX_BLOB_BYTES", 100)
    return digest


@pytest.mark.parametrize(
    ("how", "said", "problem"),
    [
        ("missing", "missing", "is missing"),
        ("another content", "damaged", "is damaged"),
        ("truncated", "damaged", "is damaged"),
        ("not compressed", "damaged", "is damaged"),
        ("link", "damaged", "is damaged"),
        ("linked directory", "missing", "is missing"),
        ("pipe", "damaged", "is damaged"),
        ("too large", "too large to read", "is too large to read"),
    ],
)
def test_a_blob_that_cannot_be_read_says_why(
    jp: Path, how: str, said: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = break_blob(jp, how, monkeypatch)
    write(jp, result_with({"type": "text", "content": reference(digest)}).say("Done."))
    conversation = load(jp.parent)
    _, _, result, answer = events_of(conversation)
    assert result.text == f"[text: {digest}, 10 bytes, {said}]"
    assert result.problem == f"the blob {digest[:12]}… {problem}"
    assert answer.text == "Done."


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "/etc/passwd", "", "a" * 63, "a" * 65, "g" * 64, None, 7, ["a"]]
)
def test_only_a_checksum_names_a_blob(jp: Path, name: Any) -> None:
    put_blob(jp, "x")
    write(jp, result_with({"type": "text", "content": reference(name)}))
    assert texts(load(jp.parent))[-1].endswith("10 bytes, stored elsewhere]")


def test_a_small_file_does_not_become_large_in_memory(jp: Path) -> None:
    digest = put_blob(jp, b"\0" * (jp_content_decoder.MAX_BLOB_BYTES + 1))
    write(jp, result_with({"type": "text", "content": reference(digest)}))
    assert texts(load(jp.parent))[-1].endswith("too large to read]")


def test_encrypted_and_external_contents_say_so(jp: Path) -> None:
    encryption = {"scheme": "age", "recipients": ["age1qy8e", "age1bob"]}
    armoured = put_blob(jp, "age-encryption.org/v1\n-> X25519 …")
    stream = result_with(
        {
            "type": "resource",
            "resource": {
                "uri": "external:x1",
                "title": "private.pdf",
                "content": reference(armoured, encryption=encryption),
            },
        },
        {"type": "text", "content": reference(armoured)},
    )
    stream.ask("See", resources=[{"uri": "external:k3x9", "title": "data.json"}])
    write(jp, stream)
    conversation = load(jp.parent)
    assert texts(conversation)[2].split("\n") == [
        "[resource: private.pdf, external:x1, 10 bytes, encrypted for age1qy8e, age1bob]",
        "[text: 35 bytes, encrypted]",
    ]
    assert texts(conversation)[4] == "[resource: data.json, external:k3x9, stored elsewhere]"
    assert conversation.problems == []


def test_a_question_of_a_tool_is_shown_with_its_choices(jp: Path) -> None:
    question = {
        "id": "branch",
        "text": "Which branch?",
        "schema": {"type": "string", "enum": ["main", "develop"]},
        "default": "main",
    }
    write(jp, result_with({"type": "question", "question": question}))
    assert texts(load(jp.parent))[-1].split("\n") == [
        "[question: branch]",
        "Which branch?",
        "choices: main, develop",
        "default: main",
    ]


def test_what_is_unknown_in_a_block_is_shown(jp: Path) -> None:
    stream = result_with(
        {"type": "text", "text": {"de": "Hallo"}},
        {"type": "resource", "resource": {"uri": "file:///a", "text": ["x"], "depth": 3}},
        {
            "type": "resource",
            "resource": {"mimeType": "text/plain", "text": standard("named by none")},
        },
    )
    write(jp, stream)
    text = texts(load(jp.parent))[-1]
    for shown in ('"de": "Hallo"', "[resource: file:///a]", '"depth": 3', "named by none"):
        assert shown in text


def test_people_and_assistants_are_the_authors_of_what_they_wrote(jp: Path) -> None:
    stream = Stream().turn().ask("Why?", author="Jean", recipients={"responders": ["dev"]})
    for participant, message in (
        ("dev", "Be"),
        ("dev", "cause."),
        ("architect", "No."),
        ("assistant", "Yes."),
    ):
        stream.add("chat_response", message=message, participant=participant, request_id="k3")
    write(jp, stream)
    conversation = load(jp.parent)
    assert [(event.author, event.text) for event in events_of(conversation)] == [
        ("Jean", "Why?"),
        ("dev", "Because."),
        ("architect", "No."),
        (None, "Yes."),
    ]
    assert conversation.problems == []


def test_an_inquiry_without_an_answer_says_why(jp: Path) -> None:
    stream = Stream().turn().ask("x")
    outcomes = ({"outcome": "cancelled", "reason": "no_prompt_backend"}, {"outcome": "cancelled"}, {"outcome": "redacted"}, {"outcome": "answered", "answer": True})  # fmt: skip
    for number, outcome in enumerate(outcomes):
        question = {"text": "Passphrase?", "answer_type": {"type": "secret"}}
        stream.add("inquiry_request", id=f"{number}", source={"source": "user"}, question=question)
        stream.add("inquiry_response", id=f"{number}", **outcome)
    write(jp, stream)
    conversation = load(jp.parent)
    answers = [one.text for one in events_of(conversation) if one.kind == "inquiry_response"]
    assert answers == ["Cancelled (no prompt backend)", "Cancelled (user)", "Redacted", "true"]
    assert conversation.problems == []
