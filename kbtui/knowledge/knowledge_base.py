"""Loads a workspace's topics from its configuration, and provides their subjects."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import NothingFound, UsageError, suggest_similar_key
from kbtui.knowledge import learn_tool_answers, system_prompt_and_learn_tool
from kbtui.knowledge.knowledge_data_types import KnowledgeProblem, LearnToolResult, Subject, Topic
from kbtui.knowledge.subject_visibility import (
    SubjectSlugsByVisibility,
    copy_topic_with_preload_or_disable_change,
    find_topic_directory_or_problem,
    scan_topic_slugs,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.paths import TOPICS_FILE, format_path_relative_to_root
from kbtui.workspace.published_library_settings import (
    PublishedLibraryMirrorPaths,
    find_existing_mirror_of_subscribed_library,
    find_mirror_with_root,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.knowledge.knowledge_data_types import JpPromptSection, PreloadOrDisableChange
    from kbtui.workspace import Workspace
    from kbtui.workspace.jp_config import ParsedConfigFile


# Root keys of JP's own configuration: assignments to them are left to JP.
_ROOT_KEYS = """
    inherit config_load_paths extends assistant conversation style interrupt editor template
    providers plugins user
"""

_TEXT, _FLAG, _LIST = "a string", "true or false", "a list of strings"
TOPIC_FIELDS = {
    "enable": _FLAG,
    "title": _TEXT,
    "introduction": _TEXT,
    "description": _TEXT,
    "subjects": _TEXT,
    "learned": _LIST,
    "disabled": _LIST,
}


@dataclass
class MergedTopicDeclarations:
    """The topics that are declared in the configuration layers merged so far.

    `broken` contains the ids of the topics with a mistake. These topics are not loaded,
    because a wrong pattern in `disabled` could reveal subjects that the user wants to hide.
    """

    root: Path
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    origins: dict[str, Path | None] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    problems: list[KnowledgeProblem] = field(default_factory=list)

    def add_problem(
        self,
        message: str,
        where: Path | None,
        key: str,
        topic: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Record a mistake in the configuration. If `topic` is given, mark this topic as broken."""
        place = format_path_relative_to_root(self.root, where) if where else None
        self.problems.append(
            KnowledgeProblem(message, where=place, key=key, topic=topic, hint=hint)
        )
        if topic is not None:
            self.broken.add(topic)


def merge_topic_declarations_of_config_layer(
    declared: MergedTopicDeclarations, layer: ParsedConfigFile
) -> None:
    """Merge the tables `assistant.kb` and `kb` of a configuration layer into `declared`.

    Both tables can declare topics, because JP's draft D01 does not yet decide between them.
    """
    assistant = layer.data.get("assistant")
    if isinstance(assistant, dict):
        _merge_kb_table(declared, layer.path, "assistant.kb", assistant.get("kb"))
    _merge_kb_table(declared, layer.path, "kb", layer.data.get("kb"))


def _merge_kb_table(declared: MergedTopicDeclarations, where: Path, name: str, kb: Any) -> None:
    """Merge `kb`, a table of topics. `name` is the table's name in the file `where`."""
    if kb is None:
        return
    if not isinstance(kb, dict):
        declared.add_problem("must be a table", where, name)
        return
    for key in kb:
        if key != "topic":
            hint = f"topics are declared as [{name}.topic.ID]"
            declared.add_problem(f"unknown key {key!r}", where, f"{name}.{key}", hint=hint)
    topics = kb.get("topic")
    if isinstance(topics, dict):
        for topic, table in topics.items():
            _merge_topic_table(declared, where, f"{name}.topic", str(topic), table)
    elif topics is not None:
        declared.add_problem("must be a table of topics", where, f"{name}.topic")


def _merge_topic_table(
    declared: MergedTopicDeclarations, where: Path, parent: str, name: str, table: Any
) -> None:
    """Merge the table of one topic.

    `name` is the topic's id, and `parent` is the name of the surrounding table.
    """
    key = f"{parent}.{name}"
    values = declared.values.setdefault(name, {})
    declared.origins.setdefault(name, where)
    if not name or "/" in name or not name.isprintable():
        message = "a topic's id must not be empty or contain `/` or control characters"
        declared.add_problem(message, where, key, name)
        return
    if not isinstance(table, dict):
        declared.add_problem("must be a table", where, key, name)
        return
    for entry, value in table.items():
        if entry not in TOPIC_FIELDS:
            hint = suggest_similar_key(str(entry), TOPIC_FIELDS)
            declared.add_problem(f"unknown key {entry!r}", where, f"{key}.{entry}", name, hint)
        elif value is None:
            values.pop(entry, None)  # null in JSON and YAML
        elif not _is_value_of_type(TOPIC_FIELDS[entry], value):
            declared.add_problem(f"must be {TOPIC_FIELDS[entry]}", where, f"{key}.{entry}", name)
        else:
            values[entry] = value


def _is_value_of_type(kind: str, value: Any) -> bool:
    if kind == _LIST:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, bool if kind == _FLAG else str)


def apply_config_assignment(declared: MergedTopicDeclarations, text: str) -> str | None:
    """Apply a `--cfg` assignment `kb.topic.ID.KEY=VALUE`. Return the topic's id.

    The operator `+=` appends to a list. With the operator `:=`, the value is JSON. If the key
    belongs to JP's own configuration, the assignment is ignored, and the result is None. Raises
    `UsageError` if the key is unknown or the value is invalid.
    """
    found = re.fullmatch(r"([^=]*?)(\+?)(:?)=(.*)", text, re.DOTALL)
    key, adds, as_json, value = found.groups() if found else (text, "", "", "")
    key = key.strip()
    if key.partition(".")[0] in _ROOT_KEYS.split():
        return None
    where = f"--cfg {text}"
    head, _, entry = key.rpartition(".")
    name = head.removeprefix("kb.topic.").strip("\"'")
    if not head.startswith("kb.topic.") or not name:
        hint = "write kb.topic.ID.KEY=VALUE, or += to append"
        raise UsageError(f"unknown key {key!r}", where=where, hint=hint)
    if entry not in TOPIC_FIELDS:
        hint = suggest_similar_key(entry, TOPIC_FIELDS)
        raise UsageError(f"unknown key {entry!r}", where=where, hint=hint)
    values = declared.values.setdefault(name, {})
    declared.origins.setdefault(name, None)
    kind = TOPIC_FIELDS[entry]
    new = _parse_assigned_value(kind, value, bool(as_json), where)
    if adds and kind != _LIST:
        raise UsageError(f"{entry} is {kind}; += works only for lists", where=where)
    values[entry] = [*values.get(entry, []), *new] if adds else new
    return name


def _parse_assigned_value(kind: str, text: str, as_json: bool, where: str) -> Any:
    value: Any = text
    if as_json:
        import json

        try:
            value = json.loads(text)
        except ValueError as error:
            raise UsageError(f"not valid JSON: {error}", where=where) from error
    elif kind == _FLAG and text in ("true", "false"):
        value = text == "true"
    if kind == _LIST and isinstance(value, str):
        value = [value]
    if not _is_value_of_type(kind, value):
        raise UsageError(f"must be {kind}", where=where)
    return value


def build_declared_topics(declared: MergedTopicDeclarations) -> dict[str, Topic]:
    """Return the valid topics in the order of declaration. Record the mistakes of other topics."""
    topics = {}
    for name, values in declared.values.items():
        key, where = f"kb.topic.{name}.subjects", declared.origins[name]
        if name not in declared.broken and (
            problem := _find_subjects_path_problem(values.get("subjects"))
        ):
            message, hint = problem
            declared.add_problem(message, where, key, name, hint)
        if name in declared.broken:
            continue
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in values.items()
            if value != ""
        }
        topics[name] = Topic(id=name, origin=where, **fields)
    return topics


def _find_subjects_path_problem(subjects: str | None) -> tuple[str, str | None] | None:
    """Return what is wrong with a topic's key `subjects`, and a hint; None if the key is valid."""
    path_hint = "write a path such as docs/project"
    if not subjects:
        hint = 'add `subjects = "DIRECTORY"` with a path relative to the workspace'
        return "the key is missing, so the topic has no directory", hint
    if "\0" in subjects:
        return "must not contain a NUL character", None
    if subjects.startswith("/"):
        return "must be relative to the workspace", path_hint
    if os.path.normpath(subjects).split("/")[0] == "..":
        return "must be inside the workspace", path_hint
    return None


def apply_preload_option(topics: dict[str, Topic], value: str) -> None:
    """Pre-load the subjects that match `value`, which has the form `TOPIC/GLOB`. Raises `UsageError`."""
    name, slash, pattern = value.partition("/")
    where = f"-k {value}"
    if not slash or not pattern:
        raise UsageError("expected a topic and a pattern", where=where, hint="write TOPIC/GLOB")
    topic = topics.get(name)
    if topic is None or not topic.enable:
        raise make_unknown_topic_error(topics, name, where)
    if pattern not in topic.learned:
        topics[name] = replace(topic, learned=(*topic.learned, pattern))


def make_unknown_topic_error(topics: dict[str, Topic], name: str, where: str) -> UsageError:
    """Return the error for an unknown or disabled topic in an argument."""
    known = [topic.id for topic in topics.values() if topic.enable]
    hint = learn_tool_answers.suggest_similar_topics(name, known)
    return UsageError(f"unknown topic {name!r}", where=where, hint=hint)


def load_knowledge(
    workspace: Workspace,
    cfg: Iterable[str] = (),
    knowledge: Iterable[str] = (),
    *,
    cwd: Path | None = None,
) -> KnowledgeBase:
    """Load the topics of a workspace.

    `cfg` contains the values of `--cfg` in order: configuration names, or assignments such as
    `kb.topic.ID.KEY+=VALUE`. `knowledge` contains the values of `-k`, each in the form
    `TOPIC/GLOB`. `.jp.toml` files are read in each directory from the root down to `cwd`.

    Mistakes in files are added to `KnowledgeBase.problems`. Mistakes in arguments raise
    `UsageError` or `ConfigError`.
    """
    from kbtui.workspace import jp_config

    found = jp_config.read_config_layers(workspace, cwd)
    declared = MergedTopicDeclarations(workspace.root)
    for layer in found.layers:
        merge_topic_declarations_of_config_layer(declared, layer)
    problems = []
    for error in found.errors:
        place = (
            format_path_relative_to_root(workspace.root, Path(error.where)) if error.where else None
        )
        problems.append(KnowledgeProblem(error.message, where=place, hint=error.hint))
    problems += find_superseded_config_file_problems(workspace, TOPICS_FILE)
    assigned: dict[str, str] = {}
    for value in cfg:
        if "=" in value:
            name = apply_config_assignment(declared, value)
            if name is not None:
                assigned[name] = value
            continue
        done, failed = len(found.layers), len(found.errors)
        jp_config.add_named_config_layers(workspace, found, value)
        if len(found.errors) > failed:
            raise found.errors[failed]
        for layer in found.layers[done:]:
            merge_topic_declarations_of_config_layer(declared, layer)
    topics = build_declared_topics(declared)
    for name, value in assigned.items():
        if name not in topics:
            raise make_unknown_topic_error(topics, name, f"--cfg {value}")
    for value in knowledge:
        apply_preload_option(topics, value)
    published = load_published_topics(workspace)
    if published is not None:
        # The workspace's own declaration takes precedence, even if it has a mistake.
        own = declared.values.keys()
        topics |= {name: one for name, one in published.topics.items() if name not in own}
        found.files.append(published.mirror.facts_file)
    return KnowledgeBase(workspace, topics, problems + declared.problems, found.files, published)


class MirroredTopics(NamedTuple):
    """The topics in the mirror of the published library that a workspace subscribes to."""

    mirror: PublishedLibraryMirrorPaths
    topics: dict[str, Topic]

    def find_mirrored_topic_directory(self, topic: str) -> str | None:
        """Return the real path of a topic's directory in the mirror, or None if there is none."""
        if topic not in self.topics:
            return None
        directory = os.path.realpath(self.mirror.topics_directory / topic)
        return directory if os.path.isdir(directory) else None  # noqa: PTH112


def load_published_topics(workspace: Workspace) -> MirroredTopics | None:
    """Load the topics of the published library that a workspace subscribes to.

    They are read from the mirror of the library.

    Returns None if there is no mirror. Also returns None for a workspace that is itself a mirror,
    because a mirror declares its own topics.
    """
    mirror = find_existing_mirror_of_subscribed_library(workspace)
    if mirror is None or os.path.realpath(mirror.workspace_root) == os.path.realpath(
        workspace.root
    ):
        return None
    topics = {
        str(one["id"]): Topic(
            id=str(one["id"]),
            subjects=PUBLISHED_DIRECTORY,
            title=one["title"],
            introduction=one["introduction"],
            description=one["description"],
            origin=mirror.facts_file,
            is_published=True,
        )
        for one in mirror.read_mirror_facts().get("topics", ())
    }
    return MirroredTopics(mirror, topics)


PUBLISHED_DIRECTORY = "(published library)"
"""The text shown in place of a directory for topics that only the published library has."""


def find_superseded_config_file_problems(workspace: Workspace, name: str) -> list[KnowledgeProblem]:
    """Return a list with one problem if kbtui ignores `.kbtui/NAME` because `.jp` exists, else []."""
    path = workspace.find_config_file_superseded_by_jp_directory(name)
    if path is None:
        return []
    target = workspace.format_config_path(name)
    return [
        KnowledgeProblem(
            "not read, because this is a JP workspace now",
            where=format_path_relative_to_root(workspace.root, path),
            hint=f"move what you need to {target}, then delete the file",
        )
    ]


class KnowledgeBase:
    """The enabled and disabled topics of one workspace, and everything derived from them.

    `problems` contains the mistakes that were found. `files` contains the configuration files that
    were read; it also contains the paths of missing files, which kbtui would read if they existed.
    Each topic's directory is read only once; call `load_knowledge` again to see changes.
    """

    def __init__(
        self,
        workspace: Workspace,
        topics: dict[str, Topic],
        problems: list[KnowledgeProblem],
        files: list[Path],
        published: MirroredTopics | None = None,
    ) -> None:
        self.workspace = workspace
        self.topics = topics
        self.published = published
        self.problems = problems
        self.files = list(dict.fromkeys(files))
        self._resolved: dict[str, SubjectSlugsByVisibility] = {}
        self._records: dict[str, dict[str, Subject]] = {}
        self._root = os.path.realpath(workspace.root)
        self._folder = Path(self._root)
        self._is_mirror = find_mirror_with_root(self._folder) is not None
        for topic in topics.values():
            is_here = not topic.is_published and self._find_mirrored_directory(topic.id) is None
            if topic.enable and is_here:
                problem = find_topic_directory_or_problem(self._root, topic)[1]
                self._add_problems([problem] if problem else [])

    @property
    def hint_to_declare_topic(self) -> str:
        """The hint that tells the user how to declare a topic."""
        return f"declare one in {self.workspace.format_config_path(TOPICS_FILE)} as [kb.topic.ID]"

    def list_subjects(self, topic: str) -> list[Subject]:
        """Return all subjects of a topic, sorted by slug; raises `NothingFound`.

        Hidden and disabled subjects are included.
        """
        return list(self.iterate_subjects_of_topic(topic))

    def iterate_subjects_of_topic(self, topic: str) -> Iterator[Subject]:
        """Yield the same subjects as `list_subjects`, one by one, so that callers can stop early.

        Raises `NothingFound`.
        """
        slugs = self.get_topic_slugs_by_visibility(topic).scan.slugs
        get = self._load_subject_of_slug
        # A file may have vanished since the walk.
        return (subject for slug in slugs if (subject := get(topic, slug)).inode)

    def find_subject(self, topic: str, slug: str) -> Subject | None:
        """Return the subject with exactly this slug, or None if no subject has this slug.

        The subject can be hidden or disabled.
        """
        if topic not in self.topics or slug not in self.get_topic_slugs_by_visibility(topic).scan:
            return None
        subject = self._load_subject_of_slug(topic, slug)
        return subject if subject.inode else None

    def list_subject_slugs(self, topic: str, patterns: Iterable[str] | None = None) -> list[str]:
        """Return the slugs of a topic that match `patterns`. Raises `NothingFound`.

        Without patterns, the result contains the slugs that `learn` lists.
        """
        resolved = self.get_topic_slugs_by_visibility(topic)
        return (
            list(resolved.available) if patterns is None else resolved.list_matching_slugs(patterns)
        )

    def resolve_topic(self, name: str) -> Topic:
        """Return the enabled topic with this id or title; raises `NothingFound`."""
        return learn_tool_answers.find_enabled_topic(self.topics.values(), name)

    def learn(
        self,
        topic: str,
        subjects: str | list[str] | None = None,
        *,
        has_prompt: bool = False,
        max_chars: int | None = None,
        masked: bool = False,
    ) -> LearnToolResult:
        """Return the result of the `learn` tool. Never raises.

        `topic` can also be the reference of a search result, `topic/slug:lines`. `has_prompt` means
        that the caller's prompt already contains the pre-loaded subjects, so notes replace their
        texts. The result has at most `max_chars` characters. If `masked` is true, secrets are
        masked.
        """
        caller = learn_tool_answers.PropertiesOfLearnCaller(has_prompt, max_chars, masked)
        patterns = [subjects] if isinstance(subjects, str) else list(subjects or ())
        try:
            found, patterns = self._find_learn_topic_and_patterns(topic, patterns)
        except NothingFound as error:
            text = error.message
            if self.problems and not self.topics:
                # Without this sentence, an assistant would conclude that there are no topics.
                text += " The files that declare topics have errors: `kbtui doctor` shows them."
            return LearnToolResult(caller.mask_secrets_if_requested(text), is_error=True)
        resolved = self.get_topic_slugs_by_visibility(found.id)
        if not patterns:
            return LearnToolResult(learn_tool_answers.format_subject_listing(resolved, caller))
        return learn_tool_answers.answer_learn_call_with_patterns(
            resolved, patterns, lambda slug: self._load_subject_of_slug(found.id, slug), caller
        )

    def _find_learn_topic_and_patterns(
        self, topic: str, patterns: list[str]
    ) -> tuple[Topic, list[str]]:
        """Return the topic and the patterns that a call of `learn` asks for.

        If there are no patterns, `topic` can have the form `TOPIC/SLUG`; the slug then becomes the
        pattern. Raises `NothingFound`.
        """
        name, _, slug = topic.partition("/")
        try:
            return self.resolve_topic(topic), patterns
        except NothingFound:
            if slug and not patterns:
                with suppress(NothingFound):
                    return self.resolve_topic(name), [slug]
            raise

    def format_knowledge_section(self) -> str | None:
        """Return the `<knowledge>` section; None if there is nothing to list or pre-load."""
        topics = self._list_slugs_by_visibility_of_enabled_topics()
        return system_prompt_and_learn_tool.format_knowledge_prompt_section(
            topics, self._load_subject_of_slug
        )

    def format_preloaded_subjects(self, topic: str) -> str | None:
        """Return the part of the `<knowledge>` section that contains a topic's pre-loaded subjects.

        Returns None if the topic is disabled or has no pre-loaded subjects. Raises `NothingFound`
        if there is no such topic.
        """
        resolved = self.get_topic_slugs_by_visibility(topic)
        if not resolved.topic.enable or not resolved.learned:
            return None
        return system_prompt_and_learn_tool.format_preloaded_topic_block(
            resolved, self._load_subject_of_slug
        )

    def make_learn_tool_definition(self) -> dict[str, Any] | None:
        """Return the definition of the `learn` tool; None if there is nothing to learn."""
        return system_prompt_and_learn_tool.define_learn_tool(
            self._list_slugs_by_visibility_of_enabled_topics()
        )

    def read_jp_prompt_sections(self) -> list[JpPromptSection]:
        """Return JP's own prompt sections, which kbtui only reads."""
        return system_prompt_and_learn_tool.read_jp_prompt_sections(self.workspace)

    def copy_with_preload_or_disable_changes(
        self, marks: Iterable[PreloadOrDisableChange]
    ) -> KnowledgeBase:
        """Return a copy with the changes `marks` applied.

        Raises `NothingFound` or `UsageError`.
        """
        topics = dict(self.topics)
        file = self.workspace.format_config_path(TOPICS_FILE)
        for mark in marks:
            resolved = self.get_topic_slugs_by_visibility(mark.topic)
            topics[mark.topic] = copy_topic_with_preload_or_disable_change(
                topics[mark.topic], resolved, mark, file
            )
        return self._copy_with_topics(topics)

    def copy_with_preload_options(self, values: Iterable[str]) -> KnowledgeBase:
        """Return a copy with the values of the option `-k` applied; raises `UsageError`."""
        topics = dict(self.topics)
        for value in values:
            apply_preload_option(topics, value)
        return self._copy_with_topics(topics)

    def _copy_with_topics(self, topics: dict[str, Topic]) -> KnowledgeBase:
        other = KnowledgeBase(
            self.workspace, topics, list(self.problems), self.files, self.published
        )
        other._resolved = {
            name: SubjectSlugsByVisibility(topics[name], walked.scan, walked.folder)
            for name, walked in self._resolved.items()
        }
        return other

    def get_topic_slugs_by_visibility(self, topic: str) -> SubjectSlugsByVisibility:
        """Return the slugs of a topic, grouped by visibility; raises `NothingFound`."""
        found = self._resolved.get(topic)
        if found is None:
            if topic not in self.topics:
                hint = learn_tool_answers.suggest_similar_topics(topic, list(self.topics))
                raise NothingFound(f"unknown topic {topic!r}", hint=hint)
            mirrored = self._find_mirrored_directory(topic)
            found, problems = scan_topic_slugs(self._root, self.topics[topic], mirrored)
            self._resolved[topic] = found
            self._add_problems(problems)
        return found

    def _find_mirrored_directory(self, topic: str) -> str | None:
        return self.published.find_mirrored_topic_directory(topic) if self.published else None

    def _list_slugs_by_visibility_of_enabled_topics(self) -> list[SubjectSlugsByVisibility]:
        return [
            self.get_topic_slugs_by_visibility(topic.id)
            for topic in self.topics.values()
            if topic.enable
        ]

    def _add_problems(self, problems: list[KnowledgeProblem]) -> None:
        self.problems += [problem for problem in problems if problem not in self.problems]

    def _load_subject_of_slug(self, topic: str, slug: str) -> Subject:
        """Return the subject with the slug `slug`, which must exist.

        The subject's `inode` is 0 if the file has vanished.
        """
        records = self._records.setdefault(topic, {})
        if slug not in records:
            resolved = self.get_topic_slugs_by_visibility(topic)
            scan, relative = resolved.scan, resolved.scan.relative_paths[slug]
            is_published = slug in scan.published
            folder, root = resolved.folder, self._folder
            if is_published:
                folder = self._find_mirrored_directory(topic) or folder
                root = Path(folder)
            file = f"{folder}/{relative}"
            size = mtime_ns = inode = 0
            # `os.stat` is faster than `Path.stat`, and `try` is faster than `suppress`. This matters
            # because there can be 20,000 calls in a row.
            try:
                status = os.stat(file)  # noqa: PTH116
                size, mtime_ns, inode = status.st_size, status.st_mtime_ns, status.st_ino
            except OSError:
                pass
            records[slug] = Subject(
                topic=topic,
                slug=slug,
                file=file,
                relative=relative,
                hidden=slug in scan.hidden,
                disabled=slug in resolved.disabled,
                learned=slug in resolved.learned_set,
                shadowed=slug in scan.shadowed,
                size=size,
                mtime_ns=mtime_ns,
                inode=inode,
                is_published=is_published or self._is_mirror,
                root=root,
            )
        return records[slug]
