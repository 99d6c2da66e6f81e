"""Finds problems in topics.

The problems are mentions of missing subjects, duplicates, patterns without matches, and an outdated
definition of the tool `learn`.
"""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal
from zlib import crc32

from kbtui.errors import KbtuiError, NothingFound
from kbtui.file_reading_and_writing import parse_toml_with_limited_key_depth, read_regular_file
from kbtui.knowledge.knowledge_data_types import KnowledgeProblem
from kbtui.knowledge.slug_patterns import (
    compile_slug_pattern,
    has_unclosed_glob_bracket,
    is_glob_pattern,
)
from kbtui.knowledge.subject_files import is_hidden_path, read_subject_text, split_file_extension
from kbtui.knowledge.system_prompt_and_learn_tool import estimate_token_count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kbtui.knowledge.knowledge_base import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Subject, Topic
    from kbtui.knowledge.subject_visibility import SubjectSlugsByVisibility


RUN_WORDS, SAMPLE_RUNS, CANDIDATE_RUNS = 4, 128, 16
"""Two texts are compared by samples of their words.

A sample has at most `SAMPLE_RUNS` sequences of `RUN_WORDS` adjacent words. Two texts are compared
only if their samples share one of their first `CANDIDATE_RUNS` sequences.
"""
MIN_SIMILARITY = 0.8
MIN_WORDS, MAX_WORDS = 20, 20_000
"""Texts with fewer than `MIN_WORDS` words are not compared. Only the first `MAX_WORDS` words count.
"""
MAX_TEXTS_PER_RUN = 50
"""A sequence of words that more than this many texts share does not lead to a comparison of these texts."""

_WORD = re.compile(r"\w+")


def _find_near_duplicate_subjects(texts: list[tuple[Subject, str]]) -> Iterator[KnowledgeProblem]:
    """Yield a problem for each subject whose text equals or nearly equals that of an earlier subject.

    The method is bottom-k sketching (Broder, "On the resemblance and containment of documents",
    1997).
    """
    hint = "keep one and refer to it from the other"
    first_by_hash: dict[bytes, Subject] = {}
    seen_files: set[str] = set()
    samples: list[tuple[Subject, frozenset[int]]] = []
    samples_by_run: dict[int, list[int]] = {}
    for subject, text in texts:
        real = os.path.realpath(subject.path)
        words = _WORD.findall(text.casefold())[:MAX_WORDS]
        if (
            real in seen_files or len(words) < MIN_WORDS
        ):  # a file that is in two topics is not a duplicate
            continue
        seen_files.add(real)
        first = first_by_hash.setdefault(blake2b(" ".join(words).encode()).digest(), subject)
        if first is not subject:
            message = f"has the same text as {first.ref}"
            yield _make_subject_problem(subject, message, hint)
            continue
        hashes = _sample_word_run_hashes(words)
        sample, runs = frozenset(hashes), hashes[:CANDIDATE_RUNS]
        found = [samples_by_run.setdefault(run, []) for run in runs]
        candidates = {at for some in found if len(some) <= MAX_TEXTS_PER_RUN for at in some}
        scored = [(_estimate_text_similarity(sample, samples[at][1]), at) for at in candidates]
        similarity, at = max(scored, default=(0.0, 0))
        if similarity >= MIN_SIMILARITY:
            other = samples[at][0]
            message = f"is nearly the same as {other.ref} ({similarity:.0%})"
            yield _make_subject_problem(subject, message, hint)
        for some in found:
            some.append(len(samples))
        samples.append((subject, sample))


def _sample_word_run_hashes(words: list[str]) -> list[int]:
    """Hash each run of `RUN_WORDS` adjacent words, and return the `SAMPLE_RUNS` smallest hashes."""
    runs = {
        crc32(" ".join(words[start : start + RUN_WORDS]).encode())
        for start in range(len(words) - RUN_WORDS + 1)
    }
    return sorted(runs)[:SAMPLE_RUNS]


def _estimate_text_similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """Estimate the similarity of two texts: a number from 0 to 1.

    `one` and `other` are the hashes that `_sample_word_run_hashes` returns for the texts.
    """
    common, union = one & other, one | other
    most = max(len(one), len(other))
    if len(common) < MIN_SIMILARITY * min(most, len(union)):
        return 0.0  # avoid the slow sorting for most candidates
    return sum(run in common for run in sorted(union)[:most]) / min(most, len(union))


_CODE_FENCE = re.compile(
    r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]* *$|\Z)", re.MULTILINE | re.DOTALL
)
_QUOTED_SLUG = re.compile(r"(?<!`)`([\w.@+-]+(?:/[\w.@+-]+)+)`(?!`)")
_LEARN_CALL = re.compile(
    r"learn\(\s*topic\s*[:=]\s*[\"']([^\"'\n]+)[\"']\s*,\s*subjects\s*[:=]\s*"
    r"(\[[^\]\n]*\]|\"[^\"\n]*\"|'[^'\n]*')"
)
_QUOTED_STRING = re.compile(r"[\"']([^\"']+)[\"']")


def _find_mentions_of_missing_subjects(
    knowledge: KnowledgeBase, texts: list[tuple[Subject, str]]
) -> Iterator[KnowledgeProblem]:
    """Yield a problem for each mention of a subject that does not exist.

    A mention is a quoted slug or a call of `learn`.
    """
    folders_by_topic = {
        topic: {
            slug.partition("/")[0]
            for slug in knowledge.get_topic_slugs_by_visibility(topic).scan.slugs
        }
        for topic in {subject.topic for subject, _ in texts}
    }
    for subject, text in texts:
        if "/" not in text and "learn(" not in text:
            continue
        prose = _CODE_FENCE.sub("", text)
        names = _list_missing_subjects_in_prose(knowledge, subject, prose, folders_by_topic)
        for name in dict.fromkeys(names):
            message = f"mentions {name}, which does not exist"
            hint = "correct the mention, or add the subject"
            yield _make_subject_problem(subject, message, hint)


def _list_missing_subjects_in_prose(
    knowledge: KnowledgeBase, subject: Subject, prose: str, folders_by_topic: dict[str, set[str]]
) -> Iterator[str]:
    for token in _QUOTED_SLUG.findall(prose):
        folder, _, rest = token.partition("/")
        bases = (knowledge.workspace.root, subject.path.parent)
        is_topic, is_folder = folder in folders_by_topic, folder in folders_by_topic[subject.topic]
        # A topic can have the name of another topic's folder.
        is_alive = (
            any(os.path.lexists(base / token) for base in bases)
            or (is_topic and _does_slug_exist(knowledge, folder, rest))
            or (is_folder and _does_slug_exist(knowledge, subject.topic, token))
        )
        if (is_topic or is_folder) and not is_alive:
            yield f"`{token}`"
    for name, slugs in _LEARN_CALL.findall(prose):
        try:
            topic = knowledge.resolve_topic(name).id
        except NothingFound:
            continue  # an example, or a topic of another workspace
        for slug in _QUOTED_STRING.findall(slugs):
            if not is_glob_pattern(slug) and not _does_slug_exist(knowledge, topic, slug):
                yield f"{slug!r} in {topic}"


def _does_slug_exist(knowledge: KnowledgeBase, topic: str, slug: str) -> bool:
    """Return whether a topic has a subject or a folder with this slug. Disabled subjects count, too."""
    slugs = knowledge.get_topic_slugs_by_visibility(topic).scan
    return slug in slugs or any(name.startswith(f"{slug}/") for name in slugs.slugs)


MAX_PRELOAD_TOKENS = 10_000


def lint_knowledge(knowledge: KnowledgeBase) -> list[KnowledgeProblem]:
    """Return the problems of topics and subjects.

    The problems of the configuration are not included; they are in `KnowledgeBase.problems`.
    """
    problems = list(_find_duplicate_topic_titles(knowledge))
    texts: list[tuple[Subject, str]] = []
    for topic in knowledge.topics.values():
        if not topic.enable:
            continue
        resolved = knowledge.get_topic_slugs_by_visibility(topic.id)
        problems += _find_slug_collisions(resolved)
        problems += _find_topic_patterns_without_match(resolved, "learned")
        problems += _find_topic_patterns_without_match(resolved, "disabled")
        problems += _find_problem_of_topic_without_visible_subjects(knowledge, resolved)
        for subject in knowledge.list_subjects(topic.id):
            if subject.disabled:
                continue
            try:
                text = read_subject_text(subject)
            except KbtuiError as error:
                if not subject.hidden:
                    message = f"cannot be learned: {error.message}"
                    problems.append(_make_subject_problem(subject, message))
                continue
            texts.append((subject, text))
            tokens = estimate_token_count(text)
            if subject.learned and tokens > MAX_PRELOAD_TOKENS:
                message = f"is too large to pre-load: about {tokens:,} tokens in every request"
                hint = "remove it from `learned` or split it"
                problems.append(_make_subject_problem(subject, message, hint))
    return [
        *problems,
        *_find_near_duplicate_subjects(texts),
        *_find_mentions_of_missing_subjects(knowledge, texts),
    ]


def _make_subject_problem(
    subject: Subject, message: str, hint: str | None = None
) -> KnowledgeProblem:
    return KnowledgeProblem(message, where=subject.ref, topic=subject.topic, hint=hint)


def _find_duplicate_topic_titles(knowledge: KnowledgeBase) -> Iterator[KnowledgeProblem]:
    """Yield a problem for each topic whose title already refers to another topic.

    This is the case if the title is the id of another topic, or the title of an earlier one.
    """
    enabled = {topic.id: topic for topic in knowledge.topics.values() if topic.enable}
    first: dict[str, Topic] = {}
    for topic in enabled.values():
        if topic.title is None:
            continue
        winner = first.setdefault(topic.title.casefold(), topic)
        if winner is not topic:
            clash = f"is also the title of the topic {winner.id}; this title always refers to {winner.id}"
        elif enabled.get(topic.title, topic) is not topic:
            clash = "is also the id of another topic; this name refers to the other topic"
        else:
            continue
        key = f"kb.topic.{topic.id}.title"
        message = f"'{topic.title}' {clash}"
        yield KnowledgeProblem(message, key=key, topic=topic.id, hint="choose another title")


def _find_slug_collisions(resolved: SubjectSlugsByVisibility) -> Iterator[KnowledgeProblem]:
    scan = resolved.scan
    losers: dict[str, list[str]] = {}
    for name, slug in scan.shadowed.items():
        losers.setdefault(slug, []).append(name)
    for slug, names in sorted(losers.items()):
        winner = scan.relative_paths[slug]
        others = ", ".join(sorted(names))
        yield KnowledgeProblem(
            f"{winner} and {others} have the same slug, which refers to {winner}",
            where=f"{resolved.topic.id}/{slug}",
            topic=resolved.topic.id,
            hint="rename the others, or refer to them by their paths",
        )


def _find_topic_patterns_without_match(
    resolved: SubjectSlugsByVisibility, field: str
) -> Iterator[KnowledgeProblem]:
    topic, scan = resolved.topic, resolved.scan
    for pattern in getattr(topic, field) if scan.slugs else ():
        is_alive = bool(resolved.list_matching_slugs([pattern]))
        if field == "disabled":
            is_alive = pattern in scan or any(map(compile_slug_pattern(pattern), scan.slugs))
        if not is_alive:
            hint = explain_pattern_without_match(resolved, pattern)
            key = f"kb.topic.{topic.id}.{field}"
            yield KnowledgeProblem(
                f"'{pattern}' matches no subject", key=key, topic=topic.id, hint=hint
            )


def explain_pattern_without_match(resolved: SubjectSlugsByVisibility, pattern: str) -> str | None:
    """Return a hint about a pattern that matches nothing: the reason, or a similar slug.

    Returns None if there is no hint.
    """
    scan = resolved.scan
    matches = compile_slug_pattern(pattern)
    reached = [slug for slug in scan.slugs if slug == pattern or matches(slug)]
    if any(slug in resolved.disabled for slug in reached):
        return "the matching subjects are disabled"
    if reached:
        return f"a glob does not match hidden subjects; write '{reached[0]}' instead"
    folder, slash, name = pattern.rpartition("/")
    bare = folder + slash + split_file_extension(name)[0]
    if bare != pattern and (bare in scan or any(map(compile_slug_pattern(bare), scan.slugs))):
        return f"slugs have no extension: write '{bare}'"
    if is_hidden_path(pattern):
        return "a slug cannot start with a dot"
    if has_unclosed_glob_bracket(pattern):
        return "a [ without ] matches only the character ["
    if is_glob_pattern(pattern):
        return None
    from difflib import get_close_matches

    near = get_close_matches(pattern, scan.slugs[:5000], n=1)
    return f"did you mean '{near[0]}'?" if near else None


def _find_problem_of_topic_without_visible_subjects(
    knowledge: KnowledgeBase, resolved: SubjectSlugsByVisibility
) -> Iterator[KnowledgeProblem]:
    topic = resolved.topic
    key = f"kb.topic.{topic.id}.subjects"
    if resolved.visible or any(problem.key == key for problem in knowledge.problems):
        return
    count = len(resolved.scan.slugs)
    if count:
        subjects = "the only subject is" if count == 1 else f"all {count} subjects are"
        message = f"{subjects} hidden or disabled"
    else:
        message = f"{topic.subjects} has no subjects"
    yield KnowledgeProblem(
        message, key=key, topic=topic.id, hint="add a file, or set enable = false"
    )


TOOLS_DIRECTORY = ".jp/mcp/tools/kbtui"
"""The directory in the workspace where JP finds the definitions of kbtui's tools."""
LEARN_TOOL_FILE = f"{TOOLS_DIRECTORY}/learn.toml"
_MAX_DEFINITION_BYTES = 1 << 20

LearnToolProblem = Literal["missing", "outdated", "unneeded"]
"""A problem of the installed tools.

* `missing`: other tools are installed, but not `learn`, although a topic has subjects to learn.
* `outdated`: the definition of `learn` describes other topics.
* `unneeded`: `learn` is installed, but no topic has a subject to learn.
"""


def find_installed_learn_tool_problem(
    root: Path, knowledge: KnowledgeBase
) -> LearnToolProblem | None:
    """Return what is wrong with the tool `learn` installed in a workspace, or None.

    If the installed definition of `learn` cannot be read or has an unknown form, the result is
    None.
    """
    try:
        names = os.listdir(root / TOOLS_DIRECTORY)  # noqa: PTH208
    except OSError:
        return None
    definition = knowledge.make_learn_tool_definition()
    if "learn.toml" not in names:
        has_tools = any(name.endswith(".toml") for name in names)
        return "missing" if has_tools and definition is not None else None
    try:
        data = read_regular_file(root / LEARN_TOOL_FILE, _MAX_DEFINITION_BYTES)
        installed = parse_toml_with_limited_key_depth(data.decode("utf-8"))["conversation"][
            "tools"
        ]["learn"]["summary"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if definition is None:
        return "unneeded"
    return "outdated" if installed != definition["description"] else None
