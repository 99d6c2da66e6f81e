"""On which assistants' faces secrets are masked; what is one says `kbtui.secrets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import ConfigError
from kbtui.secrets import mask

if TYPE_CHECKING:
    from typing import Literal

    from kbtui.workspace import Settings

__all__ = ["mask", "masks"]

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
