"""Escape sequences and markup in texts are shown, and never interpreted."""

import re

from support import Builder, asked, called, said
from tui_support import Tui, running

EVIL = (
    "\x1b]0;TITLE\x07\x1b[31mred\x1b[0m\x9b32m [/b] [link=file:///x]l[/link] [@click=app.quit]q[/] "
    "\x1b]52;c;QUJD\x1b\\ \u202egnp.exe \x00\x08\x7f \ud800 [bold"
)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def assert_harmless(tui: Tui) -> None:
    for strip in tui.app.screen._compositor.render_strips():
        for segment in strip:
            assert not CONTROL.search(segment.text), repr(segment.text)
            style = segment.style
            assert style is None or style._link is None
            if style is not None and style._meta:
                assert "@click" not in style.meta


async def test_hostile_titles_slugs_tools_and_texts_are_only_shown(book: Builder) -> None:
    # A NUL would make a file binary, and a lone surrogate cannot be written to one.
    evil = EVIL.replace("\ud800", "").replace("\x00", "")
    book.topics(
        bad={"title": f"Bad {evil}", "introduction": evil, "description": evil},
        project={"title": "[/b] project"},
    )
    slug = "a[b]c [link=x] [@click=app.quit]z"
    book.subject("bad/esc \x1b[31m\u202ez.md", "# A name that is refused, or shown harmlessly\n")
    book.subject(
        f"bad/{slug}.md",
        f"---\ntitle: '[/b]'\n---\n# Head harmless {evil}\n\n{evil}\n\n```{evil}\n{evil}\n```\n\n| {evil} | b |\n|---|---|\n| {evil} | [x]({evil}) |\n",
    )
    book.subject("bad/plain.py", f"x = '{evil}'\n")
    book.conversation(
        9,
        [
            [
                {**asked(f"Ask {evil}"), "author": f"Eve {evil}"},
                {"type": "chat_response", "reasoning": evil},
                *called("x", f"tool {evil}", f"{evil}\x00", path=evil, other=evil),
                *called("y", "learn", evil, topic=evil, subjects=evil),
                said(evil),
            ]
        ],
        title=f"Evil {evil}",
        metadata={"labels": {"k": evil}},
    )
    async with running(book.root, size=(140, 50)) as tui:
        assert_harmless(tui)
        await tui.open("jp-c17800000009")
        await tui.press("t", "r")
        assert_harmless(tui)
        await tui.press("n", "3", "2", "G")
        assert_harmless(tui)
        for row in list(tui.main.library_pane.list.rows):
            if row.key.startswith("bad/") or row.key == "topic:bad":
                place = row.data
                tui.main.open_target_in_reader(place)
                await tui.until(lambda place=place: tui.main.document_controller.shown == place)
                for _ in range(3):
                    assert_harmless(tui)
                    await tui.press("v")
        await tui.press("p", "question_mark")
        assert_harmless(tui)
        await tui.press("escape", "slash")
        await tui.type("harmless")
        await tui.until_hits()
        await tui.press("down", "down")
        assert_harmless(tui)
        await tui.press("escape", "escape", "ctrl+p")
        await tui.until(lambda: getattr(tui.app.focused, "id", "") == "palette-input")
        await tui.type("evil")
        assert_harmless(tui)
        assert tui.app.is_running


async def test_pasted_text_enters_as_one_safe_line(book: Builder) -> None:
    from textual.events import Paste

    async with running(book.root) as tui:
        await tui.press("slash")
        found = tui.main.query_one("#search")
        found.post_message(Paste("make\x1b[31m\nit \x07red\u202e"))
        await tui.until(lambda: found.value == "make it red")  # type: ignore[attr-defined]
        assert_harmless(tui)


async def test_errors_with_markup_in_their_words_are_only_shown(book: Builder) -> None:
    (book.root / "docs" / "project" / "[b]bad.md").write_bytes(b"\xff\xfe\x00[/b]")
    async with running(book.root) as tui:
        await tui.open("project/[b]bad")
        await tui.until("! ")
        tui.main.status.flash_message("a [/b] flash \x1b[31m")
        tui.main.status.set_activity_text("x", "[link=x] doing")
        await tui.pilot.pause()
        assert_harmless(tui)
