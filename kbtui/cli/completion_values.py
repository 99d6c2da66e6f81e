"""The names that a workspace has for completions: topics, subjects, conversations, sources, settings.

What a listing leaves out is not offered: disabled topics and subjects, and hidden
ones, which only their exact name reaches.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import Topic
    from kbtui.workspace import Workspace

    Pairs = Iterable[tuple[str, str]]

MOST = 20
"""So many conversations are offered before a digit is typed."""


def _workspace(path: str | None) -> Workspace:
    from pathlib import Path

    from kbtui.workspace.workspace import find_workspace

    return find_workspace(Path(path) if path is not None else None)


def _knowledge(path: str | None) -> Knowledge:
    from kbtui.knowledge import load_knowledge

    return load_knowledge(_workspace(path))


def topics(path: str | None, given: list[str], current: str) -> Pairs:
    """The ids of the enabled topics."""
    return [(topic.id, topic.title or "") for topic in _enabled(_knowledge(path))]


def _enabled(knowledge: Knowledge) -> list[Topic]:
    return [topic for topic in knowledge.topics.values() if topic.enable]


def subjects(path: str | None, given: list[str], current: str) -> Pairs:
    """The slugs of the topic that was named first, a step at a time."""
    knowledge = _knowledge(path)
    topic = knowledge.resolve_topic(given[0])
    return _steps(knowledge.resolved(topic.id).visible, current)


def globs(path: str | None, given: list[str], current: str) -> Pairs:
    """`TOPIC/` first, then its slugs."""
    knowledge = _knowledge(path)
    topic, sign, rest = current.partition("/")
    if not sign:
        return [(f"{topic.id}/", topic.title or "") for topic in _enabled(knowledge)]
    if not any(one.id == topic for one in _enabled(knowledge)):
        return []
    steps = _steps(knowledge.resolved(topic).visible, rest)
    return [(f"{topic}/{slug}", text) for slug, text in steps]


def references(path: str | None, given: list[str], current: str) -> Pairs:
    """Subjects and conversations."""
    if current and (current.isdigit() or "jp-c".startswith(current[:4])):
        found = list(conversations(path, given, current))
        if current[0] != "j" or current.startswith("jp-c"):
            return found
        return [*found, *globs(path, given, current)]
    if current:
        return globs(path, given, current)
    return [*globs(path, given, current), *conversations(path, given, current)]


def conversations(path: str | None, given: list[str], current: str) -> Pairs:
    """The ids of the live conversations, newest first."""
    from kbtui.conversations.formats.jp.locations import live_names

    form = "" if current.isdigit() else "jp-c"
    found = sorted(live_names(path).items(), reverse=True)
    named = [(f"{form}{number}", name.replace("-", " ")) for number, name in found]
    return named if len(current) > len("jp-c") or current.isdigit() else named[:MOST]


def sources(path: str | None, given: list[str], current: str) -> Pairs:
    """The names of the declared sources."""
    from kbtui.workspace.jp_config import parse_config

    file = _workspace(path).jp / "kb-sources.toml"
    found = parse_config(file).get("source") if file.exists() else None
    return [(name, "") for name in found] if isinstance(found, dict) else []


def keys(path: str | None, given: list[str], current: str) -> Pairs:
    """The keys of the settings."""
    from kbtui.workspace.settings import KEYS

    return [(key.name, key.text) for key in KEYS]


def _steps(slugs: list[str], current: str) -> Pairs:
    """Slugs below a directory as its name alone, until it was typed."""
    found: dict[str, None] = {}
    for slug in slugs:
        if slug.startswith(current):
            head, sign, _ = slug[len(current) :].partition("/")
            found[current + head + sign] = None
    return [(step, "") for step in found]


KINDS: dict[str, Callable[[str | None, list[str], str], Pairs]] = {
    "TOPIC": topics,
    "SUBJECT": subjects,
    "TOPIC/GLOB": globs,
    "REF": references,
    "ID": conversations,
    "NAME": sources,
    "KEY": keys,
}
"""By what stands for the value in the help."""
