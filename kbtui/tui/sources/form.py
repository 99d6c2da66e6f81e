"""The form of a source: what is asked, and the block that comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.errors import UsageError
from kbtui.tui.framework.dialogs import FormField, Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.library import Library
    from kbtui.sources.models import Source

KINDS = ("url_crawl", "file_upload", "mcp")
_LISTS = ("prefixes", "allow_hosts", "env")


def fields_of(topics: Sequence[str], source: Source | None = None) -> list[FormField]:
    """The lines of the form; with a source, filled with what it is."""
    block: dict[str, Any] = dict(source.block) if source else {}

    def text(key: str, default: str = "") -> str:
        value = block.get(key, default)
        return " ".join(value) if isinstance(value, list) else str(value)

    def kind(wanted: str) -> Any:
        if source is not None:
            return lambda values: source.kind == wanted
        return lambda values: values.get("kind") == wanted

    fields = [
        FormField("url", "address", text("url"), "Where to begin, such as https://docs.example.org/guide/.", when=kind("url_crawl")),
        FormField("file", "file", text("file"), "A file or directory: text, Markdown, HTML, PDF, Word, source code.", when=kind("file_upload")),
        FormField("server", "command", text("server"), "The MCP server's command line.", when=kind("mcp")),
        FormField("topic", "topic", text("topic"), "The topic that it feeds: ← and → choose.", tuple(topics)),
        FormField("depth", "depth", text("depth", "1"), "Follow links so many times; 0: this page alone.", when=kind("url_crawl")),
        FormField("prefixes", "only below", text("prefixes"), "Addresses with spaces between them; empty: the directory of the first.", when=kind("url_crawl")),
        FormField("allow_hosts", "private hosts", text("allow_hosts"), "Hosts that may lie in a private network; usually none.", when=kind("url_crawl")),
        FormField("pattern", "pattern", text("pattern"), "Only resources whose address matches this glob.", when=kind("mcp")),
        FormField("env", "variables", text("env"), "Names of your variables that the server gets.", when=kind("mcp")),
        FormField("cron", "cron", text("cron"), "When the engine runs it, such as 0 4 * * 1; empty: by hand only."),
    ]  # fmt: skip
    if source is not None:
        return fields
    first = FormField(
        "kind", "kind", "url_crawl", "Web pages, files, or an MCP server's resources.", KINDS
    )
    name = FormField("name", "name", "", "Its name and directory; empty: made of what it fetches.")
    return [first, *fields, name]


def block_of(values: Values, kind: str) -> dict[str, Any]:
    """The block that a filled form means; what is empty is left out. Raises `UsageError`."""
    block: dict[str, Any] = {"kind": kind}
    for key, value in values.items():
        if key in ("kind", "name") or not value:
            continue
        if key in _LISTS:
            block[key] = value.split()
        elif key == "depth":
            if not value.isdecimal():
                raise UsageError("must be a whole number", where="depth")
            block[key] = int(value)
        else:
            block[key] = value
    return block


def declare(library: Library, values: Values) -> Source:
    """Write a new source, approved by filling in the form; raises `KbtuiError`."""
    from kbtui.sources.approval import approve
    from kbtui.sources.config import MAIN_KEY
    from kbtui.sources.editing import add_source, name_for
    from kbtui.userdata import UserData

    kind = values["kind"]
    what = values.get(MAIN_KEY[kind], "")
    if not what:
        raise UsageError("say what to fetch")
    source = add_source(
        library.workspace, values["name"] or name_for(kind, what), block_of(values, kind)
    )
    approve(library.workspace, UserData(library.workspace), source)
    return source


def change(library: Library, before: Source, values: Values) -> tuple[Source, bool]:
    """Change a source; says whether it is approved: one that was not has to be looked at first.

    Raises `KbtuiError`, also when it was changed meanwhile.
    """
    from kbtui.sources.approval import approve, approved_at
    from kbtui.sources.config import load_sources
    from kbtui.sources.editing import edit_source
    from kbtui.userdata import UserData

    workspace, journal = library.workspace, UserData(library.workspace)
    now = load_sources(workspace).find(before.name)
    if now.block != before.block:
        raise UsageError("the file was changed meanwhile", where=before.name, hint="begin again")
    approved = approved_at(workspace, journal, now) is not None
    block = block_of(values, before.kind)
    changes = {**dict.fromkeys(before.block), **block}
    changed = {key: value for key, value in changes.items() if before.block.get(key) != value}
    if changed.get("depth") == 1 and "depth" not in before.block:
        del changed["depth"]
    if not changed:
        return now, approved
    after = edit_source(workspace, before.name, changed)
    if approved:
        approve(workspace, journal, after)
    return after, approved
