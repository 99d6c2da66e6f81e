"""`Knowledge`: all that one reading of the configuration gives, and `load_knowledge`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import NothingFound
from kbtui.knowledge import learn, prompt, topic_config
from kbtui.knowledge.models import Learned, Problem, Subject, Topic
from kbtui.knowledge.visibility import Resolved, directory, mark_topic, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.errors import ConfigError
    from kbtui.knowledge.models import Fragment, SubjectMark
    from kbtui.refs import Ref
    from kbtui.workspace import Workspace


def load_knowledge(
    workspace: Workspace,
    cfg: Iterable[str] = (),
    assignments: Iterable[str] = (),
    knowledge: Iterable[str] = (),
    *,
    cwd: Path | None = None,
) -> Knowledge:
    """Read the configuration and make its topics.

    `cfg` are `--cfg` names, `assignments` are `kb.topic.<id>.<key>+=value` (one
    among `cfg` keeps its place), `knowledge` are `-k TOPIC/GLOB` values. `cwd`
    is where directory-level `.jp.toml` files count, by default the process's.
    Mistakes in files become `Knowledge.problems`; those in arguments raise
    `UsageError` or `ConfigError`.
    """
    from kbtui.workspace import jp_config

    found = jp_config.read_layers(workspace, cwd)
    declared = topic_config.TopicDeclarations(workspace.root)
    for layer in found.layers:
        topic_config.add_layer(declared, layer)
    problems = [_problem(workspace, error) for error in found.errors]
    assigned: dict[str, str] = {}
    for value in (*cfg, *assignments):
        if "=" in value:
            name = topic_config.assign(declared, value)
            if name is not None:
                assigned[name] = value
            continue
        done, failed = len(found.layers), len(found.errors)
        jp_config.read_named(workspace, found, value)
        if len(found.errors) > failed:
            raise found.errors[failed]
        for layer in found.layers[done:]:
            topic_config.add_layer(declared, layer)
    topics = topic_config.topics_of(declared)
    for name, value in assigned.items():
        if name not in topics:
            raise topic_config.unknown_topic(topics, name, f"--cfg {value}")
    for value in knowledge:
        topic_config.preload(topics, value)
    return Knowledge(workspace, topics, problems + declared.problems, found.files)


def _problem(workspace: Workspace, error: ConfigError) -> Problem:
    where = topic_config.shown(workspace.root, Path(error.where)) if error.where else None
    return Problem(error.message, where=where, hint=error.hint)


def resolve_ref(workspace: Workspace, text: str) -> Ref:
    """A reference as typed: topics by id or title, slugs as they exist.

    Raises `UsageError`, and `NothingFound` for a conversation of another workspace.
    """
    from kbtui.refs import parse_ref, within

    knowledge: Knowledge | None = None

    def exists(topic: str, slug: str) -> bool:
        nonlocal knowledge
        knowledge = knowledge or load_knowledge(workspace)
        return knowledge.find(topic, slug) is not None

    return within(parse_ref(text, exists), workspace.id)


class Knowledge:
    """The topics of one workspace as they are now, and everything made of them.

    `topics` has enabled and disabled ones in order of declaration, `problems`
    what is wrong, `files` every configuration file that was read or would have
    been. Directories are walked on first use and remembered as long as this
    object lives; contents are read anew each time. Load again to see changes.
    """

    def __init__(
        self,
        workspace: Workspace,
        topics: dict[str, Topic],
        problems: list[Problem],
        files: list[Path],
    ) -> None:
        self.workspace = workspace
        self.topics = topics
        self.problems = problems
        self.files = list(dict.fromkeys(files))
        self._resolved: dict[str, Resolved] = {}
        self._records: dict[str, dict[str, Subject]] = {}
        self._root = os.path.realpath(workspace.root)
        self._folder = Path(self._root)
        for topic in topics.values():
            if topic.enable:
                self._check_directory(topic)

    def subjects(self, topic: str) -> list[Subject]:
        """All subjects of a topic, by id, with their flags, sorted by slug.

        Hidden, disabled, learned and contested ones too. Empty, with a Problem,
        where the directory cannot be read. Raises `NothingFound`.
        """
        return list(self.each_subject(topic))

    def each_subject(self, topic: str) -> Iterator[Subject]:
        """The same one by one, for callers that may be told to stop. Raises `NothingFound`."""
        return self._each(topic, self.resolved(topic).scan.slugs)

    def find(self, topic: str, slug: str) -> Subject | None:
        """The subject of exactly this slug, whatever its flags; None where there is none."""
        if topic not in self.topics or slug not in self.resolved(topic).scan:
            return None
        return next(self._each(topic, [slug]), None)

    def match(self, topic: str, patterns: Iterable[str]) -> list[Subject]:
        """What patterns match, in pattern order, then slug order."""
        return list(self._each(topic, self.slugs(topic, patterns)))

    def slugs(self, topic: str, patterns: Iterable[str] | None = None) -> list[str]:
        """The slugs that patterns match, or those that a listing offers (None).

        The same as `match` without looking at each file. Raises `NothingFound`.
        """
        resolved = self.resolved(topic)
        return list(resolved.available) if patterns is None else resolved.match(patterns)

    def resolve_topic(self, name: str) -> Topic:
        """The enabled topic of this id, else title; raises `NothingFound` with the valid ones."""
        return learn.find_topic(self.topics.values(), name)

    def learn(
        self,
        topic: str,
        subjects: str | list[str] | None = None,
        *,
        has_prompt: bool = False,
        max_chars: int | None = None,
        masked: bool = False,
    ) -> Learned:
        """Exactly what the `learn` tool returns; never raises.

        `has_prompt` is for a caller that has the `<knowledge>` section: what that pre-loads is
        named and not given again. Over `max_chars` an answer is cut, and says how to go on.
        `masked` replaces secrets. A source of a search, `topic/slug:lines`, may stand for `topic`.
        """
        caller = learn.Caller(has_prompt, max_chars, masked)
        patterns = [subjects] if isinstance(subjects, str) else list(subjects or ())
        try:
            found, patterns = self._find_source(topic, patterns)
        except NothingFound as error:
            text = error.message
            if self.problems and not self.topics:
                # Else an assistant would conclude that nothing is known here.
                text += " The files that declare topics have mistakes: `kbtui doctor` names them."
            return Learned(caller.shown(text), is_error=True)
        resolved = self.resolved(found.id)
        if not patterns:
            return Learned(learn.listing(resolved, caller))
        return learn.load(
            resolved, patterns, lambda slug: self._for_reading(found.id, slug), caller
        )

    def _find_source(self, topic: str, patterns: list[str]) -> tuple[Topic, list[str]]:
        """The topic and the patterns that are meant; raises `NothingFound`."""
        try:
            return self.resolve_topic(topic), patterns
        except NothingFound:
            name, _, slug = topic.partition("/")
            if patterns or not slug:
                raise
            try:
                return self.resolve_topic(name), [slug]
            except NothingFound:
                pass
            raise

    def prompt(self) -> str | None:
        """The `<knowledge>` section; None where there is nothing to list or pre-load."""
        return prompt.section(self._enabled(), self._for_reading)

    def preloaded(self, topic: str) -> str | None:
        """A topic's own part of the `<knowledge>` section; None where it pre-loads nothing.

        Raises `NothingFound`.
        """
        resolved = self.resolved(topic)
        if not resolved.topic.enable or not resolved.learned:
            return None
        return prompt.topic_block(resolved, self._for_reading)

    def tool_definition(self) -> dict[str, Any] | None:
        """The `learn` tool: name, description, parameters; None when nothing is learnable."""
        return prompt.tool_definition(self._enabled())

    def fragments(self) -> list[Fragment]:
        """JP's own prompt fragments, read-only."""
        from kbtui.knowledge.prompt_fragments import read_fragments

        return read_fragments(self.workspace)

    def with_marks(self, marks: Iterable[SubjectMark]) -> Knowledge:
        """This knowledge as it would be with the marks, on the same walk of the directories.

        Raises `NothingFound` or `UsageError` for a mark that cannot be set.
        """
        other = self._copy()
        for mark in marks:
            if mark.topic not in other.topics:
                raise NothingFound(f"there is no topic {mark.topic!r}", hint=self._known())
            other._put(mark_topic(other.topics[mark.topic], other.resolved(mark.topic), mark))
        return other

    def with_preloaded(self, values: Iterable[str]) -> Knowledge:
        """This knowledge as `-k` values would make it, on the same walk; raises `UsageError`."""
        other = self._copy()
        topics = dict(self.topics)
        for value in values:
            topic_config.preload(topics, value)
        for name, topic in topics.items():
            if topic is not self.topics[name]:
                other._put(topic)
        return other

    def _copy(self) -> Knowledge:
        other = Knowledge(self.workspace, dict(self.topics), list(self.problems), self.files)
        other._resolved = dict(self._resolved)
        return other

    def _put(self, topic: Topic) -> None:
        """Replace a topic, keeping the walk of its directory."""
        walked = self.resolved(topic.id)
        self.topics[topic.id] = topic
        self._resolved[topic.id] = Resolved(topic, walked.scan, walked.folder)

    def resolved(self, topic: str) -> Resolved:
        """A topic's slugs and what may be seen of them; raises `NothingFound`."""
        found = self._resolved.get(topic)
        if found is None:
            if topic not in self.topics:
                raise NothingFound(f"there is no topic {topic!r}", hint=self._known())
            found, problems = resolve(self._root, self.topics[topic])
            self._resolved[topic] = found
            self._note(problems)
        return found

    def _known(self) -> str:
        return "topics: " + ", ".join(self.topics) if self.topics else "no topics are configured"

    def _enabled(self) -> list[Resolved]:
        return [self.resolved(topic.id) for topic in self.topics.values() if topic.enable]

    def _check_directory(self, topic: Topic) -> None:
        """Note a missing or misplaced directory before anybody asks for its subjects."""
        _, problem = directory(self._root, topic)
        if problem is not None:
            self._note([problem])

    def _note(self, problems: list[Problem]) -> None:
        self.problems += [problem for problem in problems if problem not in self.problems]

    def _for_reading(self, topic: str, slug: str) -> Subject:
        """A record to read from; one without a stat where the file has vanished."""
        for subject in self._each(topic, [slug]):
            return subject
        resolved = self.resolved(topic)
        relative = resolved.scan.relative[slug]
        file = f"{resolved.folder}/{relative}"
        return Subject(topic, slug, file, relative, root=self._folder)

    def _each(self, topic: str, slugs: Iterable[str]) -> Iterator[Subject]:
        """The records of slugs, in their order, without files that vanished since the walk."""
        resolved = self.resolved(topic)
        records = self._records.setdefault(topic, {})
        scan, relatives = resolved.scan, resolved.scan.relative
        for slug in slugs:
            subject = records.get(slug)
            if subject is None:
                relative = relatives[slug]
                # os.stat and no Path: twenty thousand of these are made at a time.
                file = f"{resolved.folder}/{relative}"
                try:
                    status = os.stat(file)  # noqa: PTH116
                except OSError:
                    continue
                subject = records[slug] = Subject.quickly(
                    topic=topic,
                    slug=slug,
                    file=file,
                    relative=relative,
                    hidden=slug in scan.hidden,
                    disabled=slug in resolved.disabled,
                    learned=slug in resolved.learned_set,
                    shadowed=slug in scan.shadowed,
                    size=status.st_size,
                    mtime_ns=status.st_mtime_ns,
                    inode=status.st_ino,
                    root=self._folder,
                )
            yield subject
