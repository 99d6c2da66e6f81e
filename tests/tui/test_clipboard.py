"""Copied text may be pasted into a shell: it has no hidden characters and no control sequences."""

from pathlib import Path

import pytest
from support import Builder
from tui_support import running

from kbtui.terminal_text import set_sanitize_policy


@pytest.mark.parametrize("policy", ["strip", "visualize"])
async def test_references_and_texts_are_copied_without_hidden_characters(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject(
        "guide/in\u200bvisible.md", "# One\n\nIt \x1b]0;commands\x07 and \u202ehides.\n"
    )
    set_sanitize_policy(policy)
    try:
        async with running(builder.root) as tui:
            await tui.press("j", "y")
            await tui.until(lambda: tui.app.clipboard == "guide/invisible")
            await tui.press("enter")
            await tui.until("hides")
            await tui.press("2", "Y")
            await tui.until("kbtui command")
            await tui.press("a")
            await tui.until(lambda: tui.app.clipboard == "# One\n\nIt  and hides.\n")
    finally:
        set_sanitize_policy("strip")
