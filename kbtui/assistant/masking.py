"""On which assistants' faces secrets are masked; what is one says `kbtui.secrets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import ConfigError
from kbtui.secrets import mask, mask_excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from kbtui.library import Library
    from kbtui.search.records import Hit
    from kbtui.workspace import Settings

__all__ = ["mask", "mask_hits", "masks"]

_FACES = {"always": ("mcp", "jp"), "mcp": ("mcp",), "never": ()}


def masks(settings: Settings, face: Literal["mcp", "jp"]) -> bool:
    """Whether the setting `mask_secrets` asks for masking on this face; raises `ConfigError`."""
    if settings.mask_secrets not in _FACES:
        from kbtui.workspace.paths import config_home

        raise ConfigError(
            f"mask_secrets must be one of {', '.join(_FACES)}, not {settings.mask_secrets!r}",
            where=str(config_home() / "config.toml"),
        )
    return face in _FACES[settings.mask_secrets]


def mask_hits(library: Library, hits: Iterable[Hit]) -> list[Hit]:
    """The hits with what is secret in their sources masked: a passage may be cut from a key."""
    from dataclasses import replace

    return [replace(hit, title=mask(hit.title), text=_masked_passage(library, hit)) for hit in hits]


def _masked_passage(library: Library, hit: Hit) -> str:
    from kbtui.errors import KbtuiError
    from kbtui.text import without_sequences

    try:
        sources = [without_sequences(text) for text in _sources(library, hit)]
    except KbtuiError:
        sources = []
    passage = "".join(hit.text.split())
    whole = (source for source in sources if passage in "".join(source.split()))
    return mask_excerpt(hit.text, next(whole, ""))


def _sources(library: Library, hit: Hit) -> list[str]:
    """The texts that a passage may be from, as they are now."""
    if hit.kind == "subject":
        from kbtui.refs import subject_ref

        ref = subject_ref(hit.topic or "", hit.slug or "")
        return [library.subject_text(library.subject(ref))]
    from kbtui.conversations import find_conversation, parse_conversation_id
    from kbtui.conversations.turns import Turns
    from kbtui.index.chunking import call_text

    number = parse_conversation_id(hit.conversation_id or "")
    turn = Turns(find_conversation(library.workspace, number)).turn(hit.turn or 0)
    return [
        call_text(event) if event.kind == "tool_call_request" else event.text
        for event in (turn.events if turn else ())
    ]
