"""Workspaces that publish and subscribe, with vectors that no model has to compute."""

import os
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kbtui.index.embedding_cache import EmbeddingCache
from kbtui.index.embedding_model import EmbeddingModelKeyAndSource
from kbtui.publishing.caching_text_embedder import CachingTextEmbedder
from kbtui.publishing.library_publisher import LibraryPublisher, LibraryPublishResult
from kbtui.publishing.publishable_entries import collect_publishable_entries
from kbtui.publishing.published_library_pull import LibraryPullResult, pull_subscribed_library
from kbtui.publishing.published_library_store import LibraryStore
from kbtui.workspace import Settings
from kbtui.workspace.published_library_settings import (
    PublishedLibraryMirrorPaths,
    load_library_settings,
)
from tests.support import Builder

if TYPE_CHECKING:
    # Processes that publish and pull need not load it.
    import pytest

MODEL = EmbeddingModelKeyAndSource("m", "/no/model/is/here", packaged=False)


def vector_of(key: bytes) -> np.ndarray:
    seed = int.from_bytes(blake2b(key, digest_size=4).digest(), "big")
    return np.random.default_rng(seed).random(32, dtype=np.float32)


def publish(builder: Builder, uri: str, **options: object) -> LibraryPublishResult:
    """Publish a workspace; its vectors are in its embedding cache."""
    publish_settings = load_library_settings(builder.workspace).publish
    entries = collect_publishable_entries(builder.workspace, Settings(), publish_settings)
    embedder = CachingTextEmbedder(builder.workspace, MODEL, print)
    try:
        cache = EmbeddingCache(builder.workspace.cache_dir / "embeddings.sqlite", "m")
        cache.store_cached_vectors({key: vector_of(key) for key in entries.embedded})
        cache.close()
        store = LibraryStore(uri, create=True)
        options.setdefault("grace_seconds", 86_400.0)
        return LibraryPublisher(builder.workspace, store, entries, embedder, **options).publish()  # type: ignore[arg-type]
    finally:
        embedder.close()


def subscribe(builder: Builder, uri: str, more: str = "") -> None:
    (builder.workspace.config_directory / "kb-library.toml").write_text(
        f'[library]\nremote = "{uri}"\n{more}'
    )


def pull(builder: Builder) -> LibraryPullResult:
    return pull_subscribed_library(builder.workspace)


def move_to_other_home(monkeypatch: "pytest.MonkeyPatch", base: Path) -> None:
    """From here on, work as another user, with an empty cache."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        (base / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        monkeypatch.setenv(name, str(base / name))


def mirrored_files(uri: str) -> dict[str, str]:
    """The files of subjects in a mirror."""
    topics = PublishedLibraryMirrorPaths(uri).topics_directory
    return {
        str(path.relative_to(topics)): path.read_text()
        for path in sorted(topics.rglob("*"))
        if path.is_file()
    }


def make_team_workspace(root: Path, subjects: int = 3) -> Builder:
    builder = Builder(root)
    builder.topics(notes={"title": "Notes"})
    for number in range(subjects):
        builder.subject(
            f"notes/note{number}.md", f"# Note {number}\n\nThe plan of service {number}.\n"
        )
    return builder


def is_root() -> bool:
    return os.geteuid() == 0
