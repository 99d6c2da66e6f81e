"""The commands `publish` and `library`: publish a workspace, and fetch what others published."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

from kbtui.cli.cli_output import ProgressLine, print_text_or_json, print_to_stderr
from kbtui.errors import IndexUnavailable, KbtuiError, NothingFound, UsageError
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable, Iterator

    from kbtui.publishing.caching_text_embedder import CachingTextEmbedder
    from kbtui.publishing.library_publisher import LibraryPublishResult
    from kbtui.publishing.library_subscription_status import LibrarySubscriptionStatus
    from kbtui.publishing.published_library_format import EntryKey
    from kbtui.publishing.published_library_pull import LibraryPullResult
    from kbtui.workspace import Settings, Workspace


def declare_publish_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "where to publish: s3://BUCKET/PATH, gs://…, az://…, or a directory"
    add("uri", nargs="?", metavar="URI", help=text)
    text = "list exactly what would leave this machine, and write nothing"
    add("--dry-run", action="store_true", help=text)
    add("--no-vectors", action="store_true", help="do not embed anything, and send no vectors")
    text = "publish even if this removes all entries, or all entries of a topic whose directory is missing"
    add("--allow-empty", action="store_true", help=text)
    text = "verify the checksums of all parts in the store first, and replace damaged ones"
    add("--verify", action="store_true", help=text)
    text = "if the manifest is damaged, or not signed with the key of this workspace, publish everything again and replace the manifest"
    add("--replace-damaged", action="store_true", help=text)
    text = "print a new pair of keys for signing, and publish nothing"
    add("--new-key", action="store_true", help=text)
    add("--json", action="store_true", help="print one JSON document")


def run_publish_command(args: Namespace) -> int:
    """Publish the subjects of a workspace, with their vectors, for a team.

    kbtui publish s3://team-kb/main --dry-run   list what would be published
    kbtui publish s3://team-kb/main             publish what has changed

    The table [publish] in kb-library.toml says what may be published: by default the subjects of
    all topics, and no conversations. Hidden subjects, disabled subjects and subjects that contain a
    secret are never published. In conversations, secrets are masked. Readers see either the old
    version or the new one, never a mixture. Set the credentials of the store in the store's own
    environment variables. If the team signs what it publishes, set the key in KBTUI_PUBLISH_KEY.
    """
    if args.new_key:
        return _print_new_signing_keys(args)
    if not args.uri:
        raise UsageError("the URI is missing", hint="write `kbtui publish URI`")
    from kbtui.publishing.library_publisher import LibraryPublisher
    from kbtui.publishing.publishable_entries import collect_publishable_entries
    from kbtui.publishing.published_library_format import parse_private_key
    from kbtui.publishing.published_library_store import LibraryStore
    from kbtui.workspace import find_workspace, load_settings
    from kbtui.workspace.paths import PUBLISH_KEY_VARIABLE
    from kbtui.workspace.published_library_settings import (
        find_mirror_with_root,
        load_library_settings,
        normalize_library_uri,
    )

    workspace = find_workspace(args.workspace)
    if find_mirror_with_root(workspace.root) is not None:
        raise UsageError("this workspace is itself a published library", where=str(workspace.root))
    settings, library = load_settings(), load_library_settings(workspace)
    private = os.environ.get(PUBLISH_KEY_VARIABLE)
    key = parse_private_key(private) if private else None
    uri = normalize_library_uri(args.uri)
    _check_library_is_outside_topics(workspace, uri)
    store = LibraryStore(uri, create=not args.dry_run, is_missing_allowed=args.dry_run)
    entries = collect_publishable_entries(workspace, settings, library.publish)
    embedder = (
        None if args.no_vectors else _make_caching_embedder_unless_model_is_off(workspace, settings)
    )
    with ProgressLine() as progress, _convert_vector_cache_errors(workspace):
        try:
            publisher = LibraryPublisher(
                workspace,
                store,
                entries,
                embedder,
                private_key=key,
                public_key=library.library.key,
                grace_seconds=library.publish.grace_hours * 3600,
                has_table=library.publish.vector_table,
                verifies_all=args.verify,
                replaces_damaged=args.replace_damaged,
                on_progress=lambda done, total: progress.show_progress(
                    f"embedding {done:,} of {total:,}"
                ),
            )
            removal = None if args.allow_empty else publisher.describe_suspicious_removal()
            if args.dry_run:
                result = publisher.result
            else:
                result = publisher.publish(allow_empty=args.allow_empty)
        finally:
            if embedder is not None:
                embedder.close()
    text = _format_publish_dry_run(result) if args.dry_run else _format_publish_result(result)
    print_text_or_json(text, _make_publish_json(result, args.dry_run, removal), args.json)
    if not args.json:
        for line in entries.unmatched:
            print_to_stderr(f"[publish] {line}")
        if removal:
            print_to_stderr(f"publishing would be refused without --allow-empty: {removal}")
        for one in entries.left_out:
            print_to_stderr(f"{one.ref}: not published: {one.detail}")
    return 0


def _check_library_is_outside_topics(workspace: Workspace, uri: str) -> None:
    """Raise `UsageError` if a library would be written into a topic's directory."""
    from kbtui.knowledge import load_knowledge
    from kbtui.workspace.published_library_settings import is_library_uri

    if is_library_uri(uri):
        return
    place = Path(os.path.realpath(uri))
    for topic in load_knowledge(workspace).topics.values():
        if not topic.is_published and place.is_relative_to(
            os.path.realpath(workspace.root / topic.subjects)
        ):
            raise UsageError(
                f"the directory is in the topic {topic.id!r}, so its files would become subjects",
                where=uri,
                hint="choose a directory outside the workspace",
            )


def _print_new_signing_keys(args: Namespace) -> int:
    from kbtui.publishing.published_library_format import generate_key_pair
    from kbtui.workspace.paths import PUBLISH_KEY_VARIABLE

    private, public = generate_key_pair()
    text = (
        f"Add this as a secret to the job that publishes the library:\n  {PUBLISH_KEY_VARIABLE}={private}\n"
        f'For everyone, in kb-library.toml:\n  [library]\n  key = "{public}"\n'
    )
    print_text_or_json(text, {"private_key": private, "public_key": public}, args.json)
    return 0


def _make_caching_embedder_unless_model_is_off(
    workspace: Workspace, settings: Settings
) -> CachingTextEmbedder | None:
    from kbtui.index.embedding_model import EmbeddingModelUnavailableError, find_embedding_model
    from kbtui.publishing.caching_text_embedder import CachingTextEmbedder

    if settings.model == "off":
        return None
    try:
        model = find_embedding_model(settings.model)
    except EmbeddingModelUnavailableError as error:
        raise KbtuiError(
            error.message, where=error.where, hint="--no-vectors publishes without the model"
        ) from error
    with _convert_vector_cache_errors(workspace):
        return CachingTextEmbedder(workspace, model, lambda text: None)


@contextmanager
def _convert_vector_cache_errors(workspace: Workspace) -> Iterator[None]:
    """Turn errors from the vector cache into `IndexUnavailable`.

    An `OSError` that concerns something else, such as the pipe to the model's process, is not
    converted.
    """
    import sqlite3

    from kbtui.workspace.paths import get_kbtui_cache_directory

    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        name = error.filename if isinstance(error, OSError) else workspace.cache_dir
        place, home = Path(os.fsdecode(name or "")), Path(get_kbtui_cache_directory())
        # The directory that cannot be written may also be a parent of the cache directory.
        if not name or not (place.is_relative_to(home) or home.is_relative_to(place)):
            raise
        raise IndexUnavailable(
            f"the vector cache cannot be written: {(reason or str(error)).lower()}",
            where=str(workspace.cache_dir),
            hint="free some space, set XDG_CACHE_HOME to another directory, or publish with --no-vectors",
        ) from error


def _format_entry_key(key: EntryKey) -> str:
    return "/".join(key[1:])


def _format_new_changed_or_removed_entries(word: str, keys: Iterable[EntryKey]) -> str:
    return "".join(f"{word:<8} {sanitize_to_one_line(_format_entry_key(key))}\n" for key in keys)


def _format_publish_dry_run(result: LibraryPublishResult) -> str:
    lines = [
        _format_new_changed_or_removed_entries("new", result.new),
        _format_new_changed_or_removed_entries("changed", result.changed),
        _format_new_changed_or_removed_entries("removed", result.removed),
    ]
    vectors = format_counted_noun(result.vectors, "vector")
    whole = format_counted_noun(len(result.entries.texts), "entry", "entries")
    lines.append(f"{whole} would be published, {vectors} would be sent\n")
    if result.replaced_manifest:
        lines.append(f"the manifest would be replaced: {result.replaced_manifest}\n")
    if result.entries.hidden:
        subjects = format_counted_noun(
            result.entries.hidden, "hidden or disabled subject", "hidden or disabled subjects"
        )
        lines.append(f"{subjects} would not be published\n")
    if result.damaged:
        lines.append(
            f"{format_counted_noun(result.damaged, 'damaged or missing part')} would be replaced\n"
        )
    for id_, count in result.entries.masked.items():
        lines.append(f"{id_}: {format_counted_noun(count, 'secret')} would be masked\n")
    for id_, reasons in result.entries.withheld.items():
        reason = sanitize_to_one_line("; ".join(reasons))
        lines.append(f"{id_}: results of calls would be left out: {reason}\n")
    for id_, counts in result.entries.quoted.items():
        for reason, count in counts.items():
            quoted = format_counted_noun(count, "quoted line")
            lines.append(f"{id_}: {quoted} would be left out: {sanitize_to_one_line(reason)}\n")
    return "".join(lines)


def _format_publish_result(result: LibraryPublishResult) -> str:
    repaired = ""
    if result.damaged:
        parts = format_counted_noun(result.damaged, "damaged or missing part")
        repaired = f"replaced {parts}\n"
    if result.replaced_manifest:
        repaired += f"replaced the manifest: {result.replaced_manifest}\n"
    if result.is_unchanged:
        return f"{repaired}nothing has changed since version {result.version}\n"
    changes = ", ".join(
        f"{len(keys):,} {word}"
        for keys, word in (
            (result.new, "new"),
            (result.changed, "changed"),
            (result.removed, "removed"),
        )
    )
    entries = format_counted_noun(len(result.entries.texts), "entry", "entries")
    vectors = format_counted_noun(result.vectors, "new vector")
    return (
        f"{repaired}version {result.version}: {entries} ({changes}), "
        f"{vectors}; sent {result.sent_bytes:,} bytes in "
        f"{format_counted_noun(result.sent_parts, 'part')}\n"
    )


def _make_publish_json(
    result: LibraryPublishResult, is_dry_run: bool, removal: str | None
) -> dict[str, object]:
    return {
        "dry_run": is_dry_run,
        "version": result.version,
        "unchanged": result.is_unchanged,
        "entries": len(result.entries.texts),
        "passages": result.entries.passages,
        "new": list(map(_format_entry_key, result.new)),
        "changed": list(map(_format_entry_key, result.changed)),
        "removed": list(map(_format_entry_key, result.removed)),
        "left_out": [one._asdict() for one in result.entries.left_out],
        "masked": result.entries.masked,
        "unmatched": result.entries.unmatched,
        "refusal": removal,
        "withheld": result.entries.withheld,
        "quoted": result.entries.quoted,
        "hidden": result.entries.hidden,
        "vectors": result.vectors,
        "computed_vectors": result.computed,
        "sent_parts": result.sent_parts,
        "sent_bytes": result.sent_bytes,
        "deleted_parts": result.deleted,
        "damaged_parts": result.damaged,
        "replaced_manifest": result.replaced_manifest,
    }


def declare_library_command_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "status (the default) shows the published library, pull fetches the current version, forget deletes the mirror"
    add("action", nargs="?", choices=["status", "pull", "forget"], default="status", help=text)
    add("--json", action="store_true", help="print one JSON document")


def run_library_command(args: Namespace) -> int:
    """Show, fetch or forget the published library that this workspace subscribes to.

    kbtui library             show when it was published, and how many of your files differ from it
    kbtui library pull        fetch the current version
    kbtui library forget      delete the mirror on this machine

    A workspace subscribes with `[library] remote = "URI"` in kb-library.toml. Nothing is fetched before the
    first `pull`. From then on, the engine fetches new versions, by default every 15 minutes.
    """
    from kbtui.index.embedding_model import find_embedding_model_key
    from kbtui.publishing.library_subscription_status import read_subscription_status
    from kbtui.publishing.published_library_pull import delete_mirror, pull_subscribed_library
    from kbtui.workspace import find_workspace, load_settings
    from kbtui.workspace.published_library_settings import (
        find_mirror_of_subscribed_library,
        find_mirror_with_root,
    )

    workspace = find_workspace(args.workspace)
    mirror = find_mirror_of_subscribed_library(workspace)
    if mirror is None:
        hint = 'write `[library] remote = "URI"` into kb-library.toml'
        raise NothingFound("this workspace does not subscribe to a published library", hint=hint)
    if args.action == "forget":
        delete_mirror(mirror)
        print_text_or_json(f"forgot {mirror.uri}\n", {"forgotten": mirror.uri}, args.json)
        return 0
    if args.action == "pull":
        with ProgressLine() as progress:
            result = pull_subscribed_library(workspace, _make_library_pull_reporter(progress))
        if not args.json:
            print_to_stderr(_format_library_pull_result(result))
    status = read_subscription_status(workspace, find_embedding_model_key(load_settings().model))
    assert status is not None
    has_own_files = find_mirror_with_root(workspace.root) is None
    print_text_or_json(
        _format_library_subscription(status, has_own_files), status.as_json(), args.json
    )
    return 0 if status.is_mirrored else 1


def _make_library_pull_reporter(progress: ProgressLine) -> Callable[[int, int], None]:
    return lambda done, total: progress.show_progress(f"fetching part {done:,} of {total:,}")


def _format_library_pull_result(result: LibraryPullResult) -> str:
    if result.is_unchanged:
        return "the mirror is up to date"
    entries = format_counted_noun(result.entries, "entry", "entries")
    vectors = format_counted_noun(result.vectors, "vector")
    removed = format_counted_noun(result.removed, "entry", "entries")
    return (
        f"fetched {entries} and {vectors}, removed {removed}; "
        f"{result.fetched_bytes:,} bytes in {format_counted_noun(result.requests, 'request')}"
    )


def _format_library_subscription(status: LibrarySubscriptionStatus, has_own_files: bool) -> str:
    from kbtui.publishing.library_subscription_status import PROBLEM_TEXTS

    lines = [f"library    {sanitize_to_one_line(status.remote)}"]
    if status.is_mirrored:
        commit = f" from commit {status.commit[:12]}" if status.commit else ""
        counts = [
            format_counted_noun(count, name.removesuffix("s"), name)
            for name, count in status.counts.items()
        ]
        lines += [
            f"published  {status.published_at}{commit} (version {status.version})",
            f"fetched    {status.pulled_at}, last checked {status.checked_at}",
            f"contains   {', '.join(counts)}",
        ]
    if status.is_mirrored and has_own_files:
        lines.append(
            f"your files {format_counted_noun(status.differing, 'subject')} in another version, "
            f"{status.only_here:,} not published; "
            f"{format_counted_noun(status.only_published, 'entry', 'entries')} only in the published library"
        )
    if status.problem:
        text = PROBLEM_TEXTS[status.problem].format(detail=status.detail)
        lines.append(f"note       {sanitize_to_one_line(text)}")
    return "\n".join(lines) + "\n"


def find_or_fetch_library_mirror(uri: str) -> str:
    """Return the root of the mirror of the library at `uri`; fetch the library if it has no mirror yet."""
    from kbtui.publishing.published_library_pull import pull_library
    from kbtui.workspace.published_library_settings import (
        LibrarySubscriptionSettings,
        PublishedLibraryMirrorPaths,
        normalize_library_uri,
    )

    mirror = PublishedLibraryMirrorPaths(normalize_library_uri(uri))
    if not mirror.exists():
        with ProgressLine() as progress:
            settings = LibrarySubscriptionSettings(remote=uri)
            pull_library(mirror, settings, _make_library_pull_reporter(progress))
    return str(mirror.workspace_root)
