"""The state of a subscription: when its library was published and fetched, and how the workspace differs from it."""

from __future__ import annotations

from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kbtui.conversations.conversation_repository import find_conversation
from kbtui.conversations.formats.published_library_conversation_format import (
    is_from_published_library,
)
from kbtui.dates import format_unix_time_as_iso
from kbtui.errors import KbtuiError
from kbtui.file_reading_and_writing import iterate_regular_file_blocks
from kbtui.index.entry_and_chunk_data_types import CHUNKING_VERSION
from kbtui.knowledge import load_knowledge
from kbtui.light_named_tuple import NamedTuple
from kbtui.publishing.published_library_mirror_database import (
    convert_mirror_errors,
    open_mirror_database,
    read_mirrored_entry_checksums,
    read_value_from_mirror_state,
)
from kbtui.workspace.published_library_settings import (
    find_mirror_of_subscribed_library,
    find_mirror_with_root,
)

if TYPE_CHECKING:
    from kbtui.publishing.published_library_format import EntryKey
    from kbtui.workspace import Workspace


class LibrarySubscriptionStatus(NamedTuple):
    """The state of a workspace's subscription, and the differences between workspace and library.

    * `differing` is the number of published subjects whose text in the workspace is different.
    * `only_published` is the number of entries that the workspace lacks.
    * `only_here` is the number of subjects that only the workspace contains, not counting hidden
      and disabled ones.
    * `problem` is a key of `PROBLEM_TEXTS`.
    * `detail` is the value inserted into that text.

    Times are in ISO format.
    """

    remote: str
    is_mirrored: bool
    published_at: str | None = None
    commit: str | None = None
    version: int | None = None
    pulled_at: str | None = None
    checked_at: str | None = None
    differing: int = 0
    only_published: int = 0
    only_here: int = 0
    counts: dict[str, int] = {}  # noqa: RUF012  (nobody changes it)
    problem: str | None = None
    detail: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the status in the documented JSON format."""
        return self._asdict()


PROBLEM_TEXTS = {
    "not_pulled": "the library has not been fetched yet; `kbtui library pull` fetches it",
    "error": "the last refresh failed: {detail}",
    "other_model": "the library has vectors of another model ({detail}), so passages are embedded on this machine",
    "no_vectors": "the library has no vectors, so passages are embedded on this machine",
    "vectors_too_large": "the library has {detail} MB of vectors, more than `mirror_megabytes`, and no table of vectors, so passages are embedded on this machine",
    "other_version": "the library was published by kbtui {detail}, which splits texts differently, so some passages are embedded on this machine",
}
"""Maps the code of each problem with a subscription to the text of the problem."""


def read_subscription_status(
    workspace: Workspace, model: str | None = None
) -> LibrarySubscriptionStatus | None:
    """Return the status of a workspace's subscription; None if it has none. Raises `ConfigError`.

    `model` is the key of this machine's embedding model, or None if the model is unknown or
    switched off.
    """
    mirror = find_mirror_of_subscribed_library(workspace)
    if mirror is None:
        return None
    if not mirror.exists():
        return LibrarySubscriptionStatus(mirror.uri, False, problem="not_pulled")
    facts = mirror.read_mirror_facts()
    with convert_mirror_errors(mirror), closing(open_mirror_database(mirror)) as db:
        error = read_value_from_mirror_state(db, "error")
        checked = float(read_value_from_mirror_state(db, "checked_at") or 0)
        entries = read_mirrored_entry_checksums(db)
    status = LibrarySubscriptionStatus(
        mirror.uri,
        True,
        facts.get("published_at"),
        facts.get("commit"),
        facts.get("number"),
        facts.get("pulled_at"),
        format_unix_time_as_iso(checked) if checked else None,
        counts=facts.get("counts", {}),
    )
    if find_mirror_with_root(workspace.root) is None:
        differing, only_published, only_here = _count_differences_from_workspace(workspace, entries)
        status = status._replace(
            differing=differing, only_published=only_published, only_here=only_here
        )
    if error:
        return status._replace(problem="error", detail=error)
    if facts.get("model") is None:
        return status._replace(problem="no_vectors")
    if model is not None and facts["model"] != model:
        return status._replace(problem="other_model", detail=str(facts["model"]))
    if not facts.get("are_vectors_mirrored", True) and facts.get("remote_vectors") is None:
        megabytes = f"{facts.get('vector_bytes', 0) / 1e6:,.0f}"
        return status._replace(problem="vectors_too_large", detail=megabytes)
    if facts.get("chunking") != CHUNKING_VERSION:
        return status._replace(problem="other_version", detail=str(facts.get("kbtui")))
    return status


def _count_differences_from_workspace(
    workspace: Workspace, entries: dict[EntryKey, str]
) -> tuple[int, int, int]:
    """Count the entries that differ, those only in the library, and those only in the workspace."""
    knowledge = load_knowledge(workspace)
    differing = only_here = seen = 0
    for topic in knowledge.topics.values():
        if not topic.enable or topic.is_published:
            continue
        for subject in knowledge.iterate_subjects_of_topic(topic.id):
            if subject.is_published:
                continue
            checksum = entries.get(("subject", subject.topic, subject.relative))
            if checksum is None:
                only_here += not (subject.hidden or subject.disabled)
            else:
                seen += 1
                differing += _hash_file(subject.file) != checksum
    conversations = {key[1] for key in entries if key[0] == "conversation"}
    published = sum(_is_conversation_only_in_mirror(workspace, id_) for id_ in conversations)
    subjects = sum(key[0] == "subject" for key in entries)
    return differing, subjects - seen + published, only_here


def _is_conversation_only_in_mirror(workspace: Workspace, conversation_id: str) -> bool:
    try:
        return is_from_published_library(find_conversation(workspace, conversation_id))
    except KbtuiError:
        return True


def _hash_file(path: str) -> str | None:
    digest = sha256()
    try:
        for block in iterate_regular_file_blocks(path):
            digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()
