"""The workshop's help: its keys and its signs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.key_hints import help_of, key_of
from kbtui.tui.library.rows import MARKS
from kbtui.tui.reader.blocks import FactsBlock, HeadBlock
from kbtui.tui.workshop.row_format import UNWRITTEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.document import Document


def help_page(keymap: Mapping[str, str]) -> Document:
    """The keys and the signs."""
    names = ("pre-loaded", "disabled", "hidden")
    signs: list[tuple[str, Spans]] = [(MARKS[name][0], [(name, "")]) for name in names]
    signs.append((UNWRITTEN, [("marked, and not written yet", "")]))
    signs.append(("~", [("guessed from the file's size; the text is not counted yet", "")]))
    signs.append(("≈", [("characters at its left, estimated tokens at its right", "")]))
    write, enter = key_of("workshop.write", keymap), key_of("workshop.open", keymap)
    text = (
        f"Marks change nothing until they are written: {write} shows the change of .jp/kb.toml, "
        f"{write} or {enter} then writes it. In an input letters are text: Esc leaves it."
    )
    more = (HeadBlock("head:signs", [("Signs", "h2")], above=1), FactsBlock("signs", signs))
    return help_of("workshop", (text,), keymap, more)
