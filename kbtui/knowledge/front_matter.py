"""Splits the text of a subject file into YAML front matter and body, and joins the two."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_LINES = 200
MAX_CHARACTERS = 20_000
"""The maximum number of characters of front matter. Parsing longer nested YAML can take seconds."""

_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_SETEXT = re.compile(r"^(\S[^\n]*)\n=+[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FrontMatterAndBody:
    """A subject's text, split into front matter and body.

    `lines` is the number of lines before the body. If the front matter is invalid, `facts` is
    empty, `problem` says why, and the body is the whole text.
    """

    body: str
    facts: dict[str, Any] = field(default_factory=dict)
    lines: int = 0
    problem: str | None = None

    @property
    def title(self) -> str | None:
        """The title in the front matter or, if there is none, the first heading; None if there is neither."""
        title = self.facts.get("title")
        if isinstance(title, str) and title.strip():
            return " ".join(title.split())
        start = self.body[:4000]
        heading = _HEADING.search(start) or _SETEXT.search(start)
        return " ".join(heading[1].split())[:300] if heading else None

    @property
    def fetching_source_name(self) -> str | None:
        """The name of the source that fetched the subject; None for a subject written by hand."""
        name = self.facts.get("source")
        return name if isinstance(name, str) and name else None


def split_front_matter(text: str) -> FrontMatterAndBody:
    """Split a subject's text into front matter and body.

    Front matter begins with `---` on line 1 and ends with `---` or `...`.
    """
    if not text.startswith(("---\n", "---\r\n")):
        return FrontMatterAndBody(text)
    head = text.split("\n", MAX_LINES)[:MAX_LINES]
    end = next((at for at, line in enumerate(head[1:], 1) if line.rstrip() in {"---", "..."}), None)
    if end is None:
        return FrontMatterAndBody(text, problem="the closing --- is missing")
    try:
        facts = _parse_yaml_without_aliases("\n".join(head[1:end]))
    except ValueError as error:
        return FrontMatterAndBody(text, problem=" ".join(str(error).split())[:200])
    if facts is not None and not isinstance(facts, dict):
        return FrontMatterAndBody(text, problem="it is not a table of keys and values")
    start = sum(len(line) + 1 for line in head[: end + 1])
    named = {str(key): value for key, value in (facts or {}).items()}
    return FrontMatterAndBody(text[start:], named, end + 1)


def _parse_yaml_without_aliases(source: str) -> Any:
    """Parse YAML. Raises `ValueError` if the text is invalid or too long, or contains an alias."""
    import yaml

    class YamlLoaderWithoutAliases(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            # An alias could expand to gigabytes.
            if self.check_event(yaml.AliasEvent):
                raise ValueError("it has an alias, which is not supported")
            return super().compose_node(parent, index)

    if len(source) > MAX_CHARACTERS:
        raise ValueError(f"it has more than {MAX_CHARACTERS:,} characters")
    try:
        return yaml.load(source, YamlLoaderWithoutAliases)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error


def join_front_matter_and_body(facts: dict[str, Any], body: str) -> str:
    """Return the text of a subject file with `facts` as its front matter.

    The values of `facts` are strings, dates and lists. Empty values are left out.
    """
    import yaml

    lines = []
    for key, value in facts.items():
        is_list = isinstance(value, list | tuple)
        if value not in (None, "", [], ()):
            shown = {key: list(value) if is_list else value}
            flow = None if is_list else False  # write a list on one line
            lines.append(
                yaml.safe_dump(
                    shown, allow_unicode=True, default_flow_style=flow, width=100_000
                ).rstrip("\n")
            )
    head = "\n".join(lines)
    body = body.strip("\n")
    return f"---\n{head}\n---\n\n{body}\n" if body else f"---\n{head}\n---\n"
