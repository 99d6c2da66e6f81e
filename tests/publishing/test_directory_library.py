"""A team with a directory on a share: what is published, what a member gets, and what stays where it is."""

import json
import os
import shutil
import struct
import time
from pathlib import Path

import pytest

from kbtui.cli.main import main
from kbtui.conversations.conversation_repository import (
    find_conversation,
    list_conversations,
    load_conversation,
)
from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.index.embedding_cache import EmbeddingCache, PulledVectorLookup
from kbtui.index.entry_and_chunk_data_types import hash_embedded_text
from kbtui.knowledge import load_knowledge
from kbtui.knowledge.subject_editing import delete_subject_permanently
from kbtui.library import open_workspace
from kbtui.publishing.library_subscription_status import read_subscription_status
from kbtui.publishing.published_library_format import (
    DamagedLibraryPartError,
    EntryFileToPublish,
    PublishedTextPartTableOfContents,
    decode_table_of_contents,
    encode_text_part,
    generate_key_pair,
    parse_private_key,
    read_entry_from_part,
    validate_entry_key,
)
from kbtui.publishing.published_library_pull import delete_mirror, record_pull_attempt_if_due
from kbtui.workspace.published_library_settings import (
    PublishedLibraryMirrorPaths,
    normalize_library_uri,
)
from tests.publishing.s3_server import VARIABLES
from tests.publishing.team_workspaces import (
    make_team_workspace,
    mirrored_files,
    move_to_other_home,
    publish,
    pull,
    subscribe,
    vector_of,
)
from tests.support import Builder, asked, called, kill_engine, said

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_members_own_version_counts_and_the_rest_comes_from_the_library(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "share")
    ours = make_team_workspace(tmp_path / "ours")
    ours.subject("notes/secret.md", f"The token is {TOKEN}\n")
    ours.subject("notes/.hidden.md", "not for all\n")
    ours.subject("notes/off.md", "switched off\n")
    ours.topics(notes={"disabled": ["off"]}, plans={"title": "Plans"})
    ours.subject("plans/next.md", "We move to the harbour.\n")
    result = publish(ours, uri)
    assert [one.ref for one in result.entries.left_out] == ["notes/secret"]
    assert "GitHub token (line 1)" in result.entries.left_out[0].detail
    assert (result.entries.hidden, len(result.new), result.version) == (2, 4, 1)

    move_to_other_home(monkeypatch, home / "member")
    theirs = make_team_workspace(tmp_path / "theirs", subjects=2)
    theirs.topics(notes={"disabled": ["note2"]})
    theirs.subject("notes/note1.md", "Our own words.\n")
    theirs.subject("notes/draft.md", "A draft.\n")
    subscribe(theirs, uri)
    status = read_subscription_status(theirs.workspace)
    assert status is not None
    assert (status.is_mirrored, status.problem) == (False, "not_pulled")
    assert "next" not in [
        one.slug for one in load_knowledge(theirs.workspace).list_subjects("notes")
    ]
    pulled = pull(theirs)
    assert (pulled.entries, pulled.vectors) == (4, len(result.entries.embedded))

    knowledge = load_knowledge(theirs.workspace)
    assert knowledge.problems == []
    notes = {one.slug: one for one in knowledge.list_subjects("notes")}
    assert sorted(notes) == ["draft", "note0", "note1", "note2"]
    assert [slug for slug, one in notes.items() if one.is_published] == ["note2"]
    assert notes["note2"].disabled, "the member's own pattern holds for published subjects, too"
    assert "Our own words." in knowledge.learn("notes", "note1").text
    assert "harbour" in knowledge.learn("plans", "next").text
    status = read_subscription_status(theirs.workspace)
    assert status is not None
    assert read_subscription_status(theirs.workspace, "m") == status
    other = read_subscription_status(theirs.workspace, "another-model")
    assert other is not None
    assert (other.problem, other.detail) == ("other_model", "m")
    # `next` and the disabled `note2` are only in the library; `note1` differs; `draft` is only here.
    assert (status.differing, status.only_published, status.only_here) == (1, 2, 1)
    with pytest.raises(UsageError, match="published library"):
        delete_subject_permanently(knowledge.list_subjects("plans")[0])
    assert main(["-w", str(theirs.root), "entry", "new", "--topic", "plans", "--title", "x"]) == 2

    with open_workspace(theirs.root) as library:
        found = library.search("harbour", mode="lexical")
        assert [hit.ref.partition(":")[0] for hit in found.hits] == ["plans/next"]
        assert not library.search("not for all", mode="lexical").hits

    # What differs is embedded here; everything else has its published vector.
    published = PulledVectorLookup(lambda: PublishedLibraryMirrorPaths(uri).database)
    theirs.workspace.cache_dir.mkdir(parents=True, exist_ok=True)
    cache = EmbeddingCache(theirs.root / "cache.sqlite", "m", published)
    keys = [hash_embedded_text(text) for text in ("We move to the harbour.", "Our own words.")]
    vectors = cache.get_cached_vectors(keys)
    cache.close()
    assert list(vectors) == keys[:1]
    import numpy as np

    assert np.allclose(np.frombuffer(vectors[keys[0]], np.float32), vector_of(keys[0]), atol=1e-3)


def test_the_engine_looks_for_new_versions_only_of_what_the_user_has_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "share")
    publish(make_team_workspace(tmp_path / "ours"), uri)
    reader = Builder(tmp_path / "reader")
    assert not record_pull_attempt_if_due(reader.workspace)
    subscribe(reader, uri, "refresh_minutes = 0.0001\n")
    assert not record_pull_attempt_if_due(reader.workspace), (
        "a file of a stranger causes no request"
    )
    pull(reader)
    time.sleep(0.02)
    assert record_pull_attempt_if_due(reader.workspace)
    subscribe(reader, uri, "refresh_minutes = 1000\n")
    assert not record_pull_attempt_if_due(reader.workspace)
    subscribe(reader, uri, "refresh_minutes = 0\n")
    assert not record_pull_attempt_if_due(reader.workspace)
    subscribe(reader, uri, "refresh_minutes = true\n")
    assert not record_pull_attempt_if_due(reader.workspace)
    subscribe(reader, uri, "refresh_minutes = 1000\n")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 86_400.0)
    assert record_pull_attempt_if_due(reader.workspace), (
        "a clock that was set back does not stop it"
    )
    assert not record_pull_attempt_if_due(reader.workspace)


def test_a_running_engine_finds_what_was_published_without_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    uri = str(tmp_path / "share")
    ours = make_team_workspace(tmp_path / "ours")
    publish(ours, uri)
    reader = make_team_workspace(tmp_path / "reader", subjects=0)
    subscribe(reader, uri, "refresh_minutes = 0.005\n")
    pull(reader)
    try:
        with open_workspace(reader.root) as library:
            assert library.search("plan", mode="lexical", wait=20).hits
            assert not library.search("harbour", mode="lexical", wait=5).hits
            ours.subject("notes/note1.md", "# Note 1\n\nThe plan leads to the harbour.\n")
            publish(ours, uri)
            end = time.monotonic() + 60
            while not (found := library.search("harbour", mode="lexical", wait=5).hits):
                assert time.monotonic() < end, "the engine has not fetched the new version"
                time.sleep(0.1)
        assert [hit.ref.partition(":")[0] for hit in found] == ["notes/note1"]
        status = read_subscription_status(reader.workspace)
        assert status is not None
        assert (status.version, status.problem) == (2, None)
    finally:
        kill_engine(reader)


def test_vectors_are_fetched_when_the_setting_allows_more_megabytes(tmp_path: Path) -> None:
    uri = str(tmp_path / "share")
    publish(make_team_workspace(tmp_path / "ours"), uri)
    reader = Builder(tmp_path / "reader")
    subscribe(reader, uri, "mirror_megabytes = 0\n")
    first = pull(reader)
    assert (first.entries, first.vectors, first.are_vectors_remote) == (3, 0, True)
    assert pull(reader).is_unchanged
    subscribe(reader, uri)
    second = pull(reader)
    assert (second.entries, second.vectors, second.are_vectors_remote) == (0, 6, False)
    assert pull(reader).is_unchanged


def test_an_update_sends_and_fetches_only_what_changed(tmp_path: Path) -> None:
    uri = str(tmp_path / "share")
    ours = make_team_workspace(tmp_path / "ours", subjects=60)
    first = publish(ours, uri)
    reader = Builder(tmp_path / "reader")
    subscribe(reader, uri)
    pull(reader)
    assert publish(ours, uri).is_unchanged
    assert pull(reader).is_unchanged
    ours.subject("notes/note7.md", "Service 7 was replaced.\n")
    ours.subject("notes/fresh.md", "A new service.\n")
    second = publish(ours, uri)
    assert [key[2] for key in second.new] == ["fresh.md"]
    assert [key[2] for key in second.changed] == ["note7.md"]
    assert second.sent_bytes < first.sent_bytes / 4
    pulled = pull(reader)
    assert (pulled.entries, pulled.removed) == (2, 0)
    assert pulled.fetched_bytes < first.sent_bytes / 3
    (ours.root / "docs/notes/note8.md").unlink()
    (ours.root / "docs/notes/note9.md").rename(ours.root / "docs/notes/moved.md")
    third = publish(ours, uri)
    assert [key[2] for key in third.new] == ["moved.md"]
    assert [key[2] for key in third.removed] == ["note8.md", "note9.md"]
    assert third.sent_bytes < first.sent_bytes, "vectors are not sent again"
    pulled = pull(reader)
    assert (pulled.entries, pulled.removed) == (1, 2)
    files = {path.name: path.read_text() for path in (ours.root / "docs/notes").iterdir()}
    assert mirrored_files(uri) == {f"notes/{name}": text for name, text in files.items()}
    # Many small publishes are joined, and still nothing is lost.
    for number in range(35):
        ours.subject("notes/note0.md", f"Version {number}.\n")
        publish(ours, uri)
    files["note0.md"] = "Version 34.\n"
    pulled = pull(reader)
    assert mirrored_files(uri) == {f"notes/{name}": text for name, text in files.items()}
    assert sum(part.kind == "texts" for part in pulled.manifest.parts) < 20
    assert pulled.fetched_bytes < first.sent_bytes, "what the member has is not fetched again"


def test_deleted_parts_are_those_that_nobody_can_be_reading(tmp_path: Path) -> None:
    uri = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours", subjects=1)
    publish(ours, str(uri))
    old = {path.name for path in (uri / "parts").iterdir()}
    stray = uri / "parts" / ("0" * 64)
    stray.write_bytes(b"left by a killed publish")
    two_days_ago = stray.stat().st_mtime - 2 * 86_400
    for path in (uri / "parts").iterdir():
        os.utime(path, (two_days_ago, two_days_ago))
    ours.subject("notes/note0.md", "Something else.\n")
    result = publish(ours, str(uri))
    assert not stray.exists()
    # Readers of the version before may still fetch its parts, although they are old.
    assert old <= {path.name for path in (uri / "parts").iterdir()}
    assert result.deleted == 1
    ours.subject("notes/note0.md", "Something else again.\n")
    for path in (uri / "parts").iterdir():
        os.utime(path, (two_days_ago, two_days_ago))
    publish(ours, str(uri), grace_seconds=-10.0)
    assert not old & {path.name for path in (uri / "parts").iterdir()}
    reader = Builder(tmp_path / "reader")
    subscribe(reader, str(uri))
    pull(reader)
    assert mirrored_files(str(uri)) == {"notes/note0.md": "Something else again.\n"}


def test_named_conversations_are_published_with_their_secrets_masked(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "share")
    ours = make_team_workspace(tmp_path / "ours", subjects=1)
    turn = [
        asked(f"Use the token {TOKEN}"),
        *called("c1", "fs_read", "some text", path="a.txt"),
        said("Done."),
    ]
    ours.conversation(
        1, [turn, [asked("And now?"), said("The zeppelin flies.")]], title="Zeppelins"
    )
    ours.conversation(2, [[asked("private"), said("words")]], title="Private")
    assert publish(ours, uri).entries.masked == {}
    id_ = "jp-c17800000001"
    (ours.root / ".jp/kb-library.toml").write_text(f'[publish]\nconversations = ["{id_}"]\n')
    result = publish(ours, uri)
    assert result.new == [("conversation", id_)]
    assert result.entries.masked[id_] >= 1
    assert all(
        TOKEN.encode() not in zlib_texts(path) for path in (tmp_path / "share/parts").iterdir()
    )

    move_to_other_home(monkeypatch, home / "member")
    theirs = Builder(tmp_path / "theirs")
    subscribe(theirs, uri)
    pull(theirs)
    assert [(one.id, one.title, one.agent) for one in list_conversations(theirs.workspace)] == [
        (id_, "Zeppelins", "jp")
    ]
    conversation = load_conversation(find_conversation(theirs.workspace, id_))
    assert conversation.problems == []
    assert [len(turn.events) for turn in conversation.turns] == [4, 2]
    call = conversation.turns[0].events[1]
    assert call.arguments == {"path": "a.txt"}
    assert call.result is conversation.turns[0].events[2]
    with open_workspace(theirs.root) as library:
        hits = library.search("zeppelin", mode="lexical").hits
        assert {hit.entry_id for hit in hits} == {id_}
    # An event of a kind that only newer versions know is shown as JSON.
    file = find_conversation(theirs.workspace, id_).events_path
    assert file is not None
    file.write_bytes(file.read_bytes().replace(b'"kind":"message"', b'"kind":"oracle"'))
    conversation = load_conversation(find_conversation(theirs.workspace, id_))
    (event,) = (one for one in conversation.turns[1].events if one.name == "oracle")
    assert event.kind == "unknown"
    assert "The zeppelin flies." in event.text
    # The member's own copy counts.
    theirs.conversation(1, [[asked("mine"), said("own words")]], title="Mine")
    assert [one.title for one in list_conversations(theirs.workspace)] == ["Mine"]


def zlib_texts(path: Path) -> bytes:
    """All texts of a part."""
    data = path.read_bytes()
    packed, table = struct.unpack("<QQ", data[13:29])
    contents = decode_table_of_contents(data)
    if not isinstance(contents, PublishedTextPartTableOfContents):
        return b""
    start = 29 + packed + table
    return b"".join(read_entry_from_part(data, start, entry) for entry in contents.entries)


def test_damaged_and_foreign_parts_are_named_and_the_mirror_stays_as_it_was(tmp_path: Path) -> None:
    uri = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours")
    private, public = generate_key_pair()
    publish(ours, str(uri), private_key=parse_private_key(private))
    reader = Builder(tmp_path / "reader")
    subscribe(reader, str(uri), f'key = "{public}"\n')
    pull(reader)
    before = mirrored_files(str(uri))
    old = {path.name for path in (uri / "parts").iterdir()}
    ours.subject("notes/note1.md", "Changed.\n")
    publish(ours, str(uri), private_key=parse_private_key(private))
    manifest = (uri / "manifest.json").read_bytes()
    fresh = [path for path in (uri / "parts").iterdir() if path.name not in old]
    assert fresh
    for part in fresh:
        good = part.read_bytes()
        middle = good[:-1] + bytes([good[-1] ^ 1])
        beginning = good[:20] + bytes([good[20] ^ 1]) + good[21:]
        for bad in (middle, beginning, good[:-1], b"", good + b"x", b"<html>" * 100):
            part.write_bytes(bad)
            with pytest.raises(KbtuiError) as raised:
                pull(reader)
            assert part.name in str(raised.value)
            if isinstance(raised.value, DamagedLibraryPartError):
                assert "--verify" in (raised.value.hint or "")
            assert mirrored_files(str(uri)) == before
        part.write_bytes(good)
    forged = json.loads(manifest)
    forged["manifest"] = forged["manifest"].replace("Notes", "Nodes")
    unsigned = json.dumps({**json.loads(manifest), "signature": None}).encode()
    future = json.loads(manifest)
    future["manifest"] = future["manifest"].replace('"format":1', '"format":9')
    for bad, message in (
        (json.dumps(forged).encode(), "not signed with the key"),
        (unsigned, "not signed"),
        (b"<html>", "not the manifest"),
        (b"[" * 100_000, "not the manifest"),
    ):
        (uri / "manifest.json").write_bytes(bad)
        with pytest.raises(KbtuiError, match=message):
            pull(reader)
        status = read_subscription_status(reader.workspace)
        assert status is not None
        assert status.problem == "error"
        assert message in (status.detail or "")
        assert mirrored_files(str(uri)) == before
        assert load_knowledge(reader.workspace).list_subjects("notes"), "the reader goes on locally"
    # Whoever once required the key does so for the mirror, whatever opens it.
    (uri / "manifest.json").write_bytes(unsigned)
    subscribe(reader, str(uri))
    with pytest.raises(KbtuiError, match="not signed"):
        pull(reader)
    (uri / "manifest.json").write_bytes(json.dumps(future).encode())
    other = PublishedLibraryMirrorPaths(str(uri))
    shutil.rmtree(other.directory)
    with pytest.raises(KbtuiError, match="has the format 9"):
        pull(reader)


def test_a_damaged_manifest_is_replaced_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    uri = tmp_path / "share"
    ours, reader = make_team_workspace(tmp_path / "ours"), Builder(tmp_path / "reader")
    subscribe(reader, str(uri))
    command = ["-w", str(ours.root), "publish", str(uri)]
    for number in range(3):
        ours.subject("notes/note0.md", f"Version {number}\n")
        assert main(command) == 0
    pull(reader)
    good = (uri / "manifest.json").read_bytes()
    ours.subject("notes/note0.md", "A newer version\n")
    for bad, problem in ((good[:-9], "this is not the manifest"), (good.replace(b'\\"parts\\"', b'\\"p\\"'), "is damaged (KeyError)")):  # fmt: skip
        # Whoever can damage the manifest can also put something else into a part.
        for part in (uri / "parts").iterdir():
            part.write_bytes(b"x" * part.stat().st_size)
        (uri / "manifest.json").write_bytes(bad)
        capsys.readouterr()
        assert main(command) == 3
        said = " ".join(capsys.readouterr().err.split())
        assert problem in said
        assert str(uri / "manifest.json") in said
        assert "--replace-damaged" in said
        assert (uri / "manifest.json").read_bytes() == bad, "never silently"
        assert main([*command, "--replace-damaged", "--dry-run"]) == 0
        listed = capsys.readouterr().out
        assert "the manifest would be replaced: " in listed
        assert problem in listed
        assert main([*command, "--replace-damaged"]) == 0
        assert "replaced the manifest: " in capsys.readouterr().out
        # A reader of an earlier version accepts it, and gets every text.
        pull(reader)
        assert mirrored_files(str(uri))["notes/note0.md"] == "A newer version\n"
        delete_mirror(PublishedLibraryMirrorPaths(str(uri)))
        assert pull(reader).entries == 3
        assert main(command) == 0
        assert "nothing has changed" in capsys.readouterr().out
    # The format of a later version is not damage.
    future = good.replace(b'\\"format\\": 1', b"").replace(b'\\"format\\":1', b'\\"format\\":9')
    (uri / "manifest.json").write_bytes(future)
    assert main([*command, "--replace-damaged"]) == 3
    assert "the library has the format 9" in capsys.readouterr().err


def test_signing_begins_and_keys_change_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    uri = str(tmp_path / "share")
    ours, reader = make_team_workspace(tmp_path / "ours"), Builder(tmp_path / "reader")
    command = ["-w", str(ours.root), "publish", uri]
    assert main(command) == 0
    private, public = generate_key_pair()
    subscribe(ours, uri, f'key = "{public}"\n')
    for key, message in ((None, "is not set"), (generate_key_pair()[0], "does not match")):
        if key:
            monkeypatch.setenv("KBTUI_PUBLISH_KEY", key)
        capsys.readouterr()
        assert main([*command, "--replace-damaged"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    monkeypatch.setenv("KBTUI_PUBLISH_KEY", private)
    assert main(command) == 3
    assert "is not signed" in " ".join(capsys.readouterr().err.split())
    assert main([*command, "--replace-damaged"]) == 0
    subscribe(reader, uri, f'key = "{public}"\n')
    assert pull(reader).entries == 3
    subscribe(reader, uri, 'key = "abc"\n')
    with pytest.raises(ConfigError, match="not a public key"):
        pull(reader)


def test_no_name_in_a_part_leads_out_of_the_mirror() -> None:
    for path in (
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        ".jp/x",
        "a\\b",
        "a\0b",
        "x" * 300,
        "",
    ):
        with pytest.raises(DamagedLibraryPartError):
            validate_entry_key(("subject", "notes", path))
    for key in (
        ("subject", "..", "x"),
        ("subject", "a/b", "x"),
        ("conversation", "../x"),
        ("other",),
        (),
        5,
    ):
        with pytest.raises(DamagedLibraryPartError):
            validate_entry_key(key)
    # A bomb: the part claims a small entry that would grow without end.
    part = encode_text_part([EntryFileToPublish(("subject", "notes", "a.md"), b"0" * 50_000_000)])
    contents = decode_table_of_contents(part.data)
    assert isinstance(contents, PublishedTextPartTableOfContents)
    with pytest.raises(DamagedLibraryPartError, match="size"):
        read_entry_from_part(
            part.data, part.contents_bytes, contents.entries[0]._replace(size=1000)
        )


def test_dry_run_lists_what_would_leave_and_writes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = make_team_workspace(tmp_path / "ours", subjects=2)
    ours.subject("notes/secret.md", f"{TOKEN}\n")
    share = tmp_path / "share"
    share.mkdir()
    words = ["-w", str(ours.root), "publish", str(share)]
    assert main([*words, "--dry-run", "--no-vectors"]) == 0
    out, error = capfd.readouterr()
    assert out.splitlines() == [
        "new      notes/note0.md",
        "new      notes/note1.md",
        "2 entries would be published, 0 vectors would be sent",
    ]
    assert "notes/secret: not published: it contains GitHub token (line 1)" in error
    assert list(share.iterdir()) == []
    assert main([*words, "--no-vectors", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["new"] == ["notes/note0.md", "notes/note1.md"]
    assert main(["-w", share.as_uri(), "topics"]) == 0
    assert "notes/note1" in capfd.readouterr().out
    assert main(["-w", share.as_uri(), "library"]) == 0
    out = capfd.readouterr().out
    assert "2 subjects" in out
    assert "your files" not in out, "there is no checkout"
    subscribe(ours, str(share))
    assert main(["-w", str(ours.root), "library", "pull", "--json"]) == 0
    status = json.loads(capfd.readouterr().out)
    assert (status["differing"], status["only_published"], status["problem"]) == (
        0,
        0,
        "no_vectors",
    )
    assert main(["-w", str(ours.root), "library", "forget"]) == 0
    assert main(["-w", str(tmp_path), "library"]) == 1
    (ours.root / ".jp/kb-library.toml").write_text("[publish]\ntopic = 1\n")
    assert main(["-w", str(ours.root), "publish", str(share)]) == 2
    assert "did you mean 'topics'" in capfd.readouterr().err


def test_removed_text_leaves_the_store_after_the_grace_period(tmp_path: Path) -> None:
    uri = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours", subjects=6)
    ours.subject("notes/gone.md", "the deleted words\n")
    ours.subject("notes/off.md", "the disabled words\n")
    ours.subject("notes/leak.md", "the leaking words\n")
    publish(ours, str(uri))
    (ours.root / "docs/notes/gone.md").unlink()
    ours.topics(notes={"title": "Notes", "disabled": ["off"]})
    ours.subject("notes/leak.md", f"the leaking words {TOKEN}\n")
    assert len(publish(ours, str(uri)).removed) == 3
    assert b"the deleted words" in read_all_texts(uri), "readers may still fetch the old version"
    publish(ours, str(uri), grace_seconds=-10.0)
    texts = read_all_texts(uri)
    assert texts.count(b"The plan of service") == 6
    for words in (b"deleted words", b"disabled words", b"leaking words", b"gone.md"):
        assert words not in texts
    reader = Builder(tmp_path / "reader")
    subscribe(reader, str(uri))
    pull(reader)
    assert len(mirrored_files(str(uri))) == 6


def read_all_texts(uri: Path) -> bytes:
    return b"".join(zlib_texts(path) for path in (uri / "parts").iterdir())


def test_publishing_again_repairs_missing_and_damaged_parts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours")
    publish(ours, str(uri))
    reader = Builder(tmp_path / "reader")
    subscribe(reader, str(uri))
    command = ["-w", str(ours.root), "publish", str(uri), "--no-vectors"]
    for part in sorted((uri / "parts").iterdir()):
        good = part.read_bytes()
        for bad in (None, good[:-1] + bytes([good[-1] ^ 1]), good[:-1], b"x" * len(good)):
            if bad is None:
                part.unlink()
            else:
                part.write_bytes(bad)
            assert main([*command, "--dry-run"]) == 0
            assert "1 damaged or missing part would be replaced" in capfd.readouterr().out
            assert publish(ours, str(uri)).damaged == 1
            assert part.read_bytes() == good
            assert publish(ours, str(uri)).damaged == 0
    pull(reader)
    assert len(mirrored_files(str(uri))) == 3
    texts = next(path for path in (uri / "parts").iterdir() if zlib_texts(path))
    texts.unlink()
    assert main(command) == 0
    assert "replaced 1 damaged or missing part" in capfd.readouterr().out


def test_verify_finds_damage_in_large_parts(tmp_path: Path) -> None:
    uri = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours", subjects=1)
    ours.subject("notes/large.md", "".join(f"{os.urandom(30).hex()}\n\n" for _ in range(12_000)))
    command = ["-w", str(ours.root), "publish", str(uri), "--no-vectors"]
    assert main(command) == 0
    (part,) = (uri / "parts").iterdir()
    good = part.read_bytes()
    part.write_bytes(good[:-1])
    assert main(command) == 0
    assert part.read_bytes() == good, "every publish compares the sizes"
    part.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert main([*command, "--verify"]) == 0
    assert part.read_bytes() == good


def test_published_conversations_do_not_have_the_text_of_unpublished_subjects(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours", subjects=1)
    ours.topics(
        notes={"disabled": ["off"]},
        other={"title": "Other"},
        closed={"title": "C", "enable": False},
    )
    texts = {
        ref: f"# Title\n\nThe words of {ref} are for a few people only.\n"
        for ref in ("notes/off", "notes/.hidden", "other/one", "closed/two")
    }
    for ref, text in texts.items():
        ours.subject(f"{ref}.md", text)
    calls = [
        part
        for number, (ref, text) in enumerate(texts.items())
        for part in (
            *called(f"a{number}", "learn", text, topic=ref.partition("/")[0], subjects=[ref.partition("/")[2]]),
            *called(f"b{number}", "fs_read", text, path=f"docs/{ref}.md"),
            *called(f"c{number}", "shell", f"$ cat x\n{text}", command="cat x"),
        )
    ]  # fmt: skip
    own = called("d", "learn", "The plan of service 0.", topic="notes", subjects=["note0"])
    # Messages quote lines of a disabled subject, and results have a part of it; a line that is published stays.
    line = "The words of notes/off are for a few people only."
    ours.subject(
        "notes/off.md", f"{texts['notes/off']}\nThe plan of service 0, as everybody may know it.\n"
    )
    ours.subject(
        "notes/note0.md",
        "The plan of service 0.\n\nThe plan of service 0, as everybody may know it.\n",
    )
    quoting = said(
        f"It says:\n\n> {line}\n> {line}\n\n* The plan of service 0, as everybody may know it."
    )
    part = called("e", "shell", f"$ grep words x\n3:\n{line}\nend", command="grep words x")
    ours.conversation(
        1, [[asked(f"Is this right?\n{line}"), *calls, *own, *part, quoting]], title="Told"
    )
    (ours.root / ".jp/kb-library.toml").write_text(
        '[publish]\nconversations = ["*"]\ntopics = ["notes", "closed"]\n'
    )
    result = publish(ours, str(uri))
    assert len(result.new) == 2
    published = read_all_texts(uri)
    assert b"for a few people only" not in published
    assert published.count(b"[left out: ") == 15
    assert published.count(b"[left out: notes/off is disabled]") == 6
    assert b"The plan of service 0." in published
    assert b"Is this right?" in published
    assert b"It says:" in published
    assert b"* The plan of service 0, as everybody may know it." in published
    assert not any("few people" in text for text in result.entries.embedded.values())
    command = ["-w", str(ours.root), "publish", str(uri), "--no-vectors", "--dry-run"]
    assert main(command) == 0
    listed = capfd.readouterr().out
    assert "results of calls would be left out: notes/off is disabled" in listed
    assert "6 quoted lines would be left out: notes/off is disabled" in listed


def test_a_destination_that_is_not_what_it_seems_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = make_team_workspace(tmp_path / "ours")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    command = ["-w", str(ours.root), "publish", "--no-vectors"]
    for uri, message in (
        ("s3://", "write s3://BUCKET/PATH"),
        ("s3:/a/b", "write s3://BUCKET/PATH"),
        ("gs:bucket", "write s3://BUCKET/PATH"),
        ("S3:///x", "write s3://BUCKET/PATH"),
        ("file://host/x", "file:///PATH"),
        ("file:/x", "file:///PATH"),
        ("ftp://host/x", "is not supported"),
        ("x+y://host/x", "is not supported"),
        (str(ours.root / "docs/notes/share"), "in the topic 'notes'"),
        (str(ours.root / "docs/notes"), "in the topic 'notes'"),
    ):
        assert main([*command, uri]) == 2
        assert message in capfd.readouterr().err
    assert list(empty.iterdir()) == []
    assert len(list((ours.root / "docs/notes").iterdir())) == 3
    assert normalize_library_uri("S3://Bucket/Path/") == "s3://Bucket/Path"
    assert normalize_library_uri("FILE:///a%20b") == "/a b"
    subscribe(ours, "s3:/a")
    assert main(["-w", str(ours.root), "library"]) == 2
    assert "library.remote" in capfd.readouterr().err
    assert main(["-w", str(ours.root), "topics"]) == 0
    subscribe(ours, "")
    assert main([*command, str(empty / "new/share"), "--dry-run"]) == 0
    assert "3 entries would be published" in capfd.readouterr().out
    assert list(empty.iterdir()) == []


def test_errors_of_directories_and_files_on_this_machine_are_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "share")
    ours, reader = make_team_workspace(tmp_path / "ours"), Builder(tmp_path / "reader")
    subscribe(reader, uri)
    for words in (["library", "forget"], ["library", "pull"]):
        assert main(["-w", str(reader.root), *words]) == 1
    assert main(["-w", f"file://{uri}", "topics"]) == 1
    said = capfd.readouterr().err
    assert said.count("no such directory") == 2
    assert said.count("that the share is mounted") == 2
    assert "there is no mirror of this library" in said
    publish(ours, uri)
    # A file where a directory should be fails for everyone, root included.
    file = tmp_path / "file"
    file.write_text("")
    with monkeypatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(file))
        for words in (["-w", str(reader.root), "library", "pull"], ["-w", f"file://{uri}", "topics"]):  # fmt: skip
            assert main(words) == 3
            said = capfd.readouterr().err
            assert "the mirror cannot be written: not a directory" in said
            assert "XDG_DATA_HOME" in said
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(file))
        assert main(["-w", str(ours.root), "publish", uri]) == 3
    assert "the vector cache cannot be written: not a directory" in capfd.readouterr().err
    assert main(["-w", str(ours.root), "publish", str(file / "x"), "--no-vectors"]) == 3
    assert str(file / "x") in capfd.readouterr().err


def test_hints_name_the_variables_of_the_store(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = make_team_workspace(tmp_path / "ours")
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for uri, variable in (
        ("s3://b/x", "AWS_ALLOW_HTTP=true"),
        ("az://c/x", "AZURE_STORAGE_ACCOUNT_NAME"),
    ):
        assert main(["-w", str(ours.root), "publish", uri, "--no-vectors"]) == 3
        assert variable in capfd.readouterr().err


def test_mistakes_that_would_empty_the_library_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours")
    ours.topics(notes={"title": "Notes"}, plans={"title": "Plans"})
    ours.subject("plans/next.md", "We move to the harbour.\n")
    command = ["-w", str(ours.root), "publish", str(uri), "--no-vectors"]
    assert main(command) == 0
    capfd.readouterr()
    settings = ours.root / ".jp/kb-library.toml"
    before = (uri / "manifest.json").read_bytes()
    settings.write_text('[publish]\ntopics = ["nonsense"]\nconversations = ["label:none", "x"]\n')
    (ours.root / "docs/plans").rename(ours.root / "docs/away")
    for text, message in (
        (settings.read_text(), "all 4 entries of the library would be removed"),
        ("", "the directory of the topic 'plans' is missing (docs/plans)"),
    ):
        settings.write_text(text)
        assert main([*command, "--dry-run"]) == 0
        assert message in capfd.readouterr().err
        assert main(command) == 2
        assert message in capfd.readouterr().err
        assert (uri / "manifest.json").read_bytes() == before
    assert main([*command, "--allow-empty"]) == 0
    settings.write_text('[publish]\ntopics = ["no*", "zzz"]\nconversations = ["label:none"]\n')
    unmatched = ["topics: 'zzz' matches nothing", "conversations: 'label:none' matches nothing"]
    capfd.readouterr()
    assert main(command) == 0
    assert capfd.readouterr().err.splitlines() == [f"kbtui: [publish] {line}" for line in unmatched]
    assert main([*command, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["unmatched"] == unmatched


def test_entries_with_secrets_in_their_names_are_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = tmp_path / "share"
    ours = make_team_workspace(tmp_path / "ours", subjects=1)
    for name in (f"{TOKEN}.md", f"{TOKEN}/inner.md", f"key {TOKEN}.md"):
        ours.subject(f"notes/{name}", "harmless\n")
    assert main(["-w", str(ours.root), "publish", str(uri), "--no-vectors"]) == 0
    out, error = capfd.readouterr()
    assert error.count("not published: its name contains GitHub token") == 3
    assert TOKEN not in out + error
    (part,) = (uri / "parts").iterdir()
    contents = decode_table_of_contents(part.read_bytes())
    assert isinstance(contents, PublishedTextPartTableOfContents)
    assert [entry.key[2] for entry in contents.entries] == ["note0.md"]
