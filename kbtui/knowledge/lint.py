"""Finds problems in knowledge: dead references, duplicates, patterns that match nothing."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from typing import TYPE_CHECKING
from zlib import crc32

from kbtui.errors import KbtuiError, NothingFound
from kbtui.knowledge.loader import TOPIC_FIELDS
from kbtui.knowledge.models import Problem
from kbtui.knowledge.prompt import estimate_tokens
from kbtui.knowledge.subject_files import read_subject_text
from kbtui.knowledge.topic_scan import is_hidden_path, split_file_extension
from kbtui.knowledge.visibility import compile_slug_pattern, has_unclosed_bracket, is_glob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.knowledge.loader import Knowledge
    from kbtui.knowledge.models import Subject, Topic
    from kbtui.knowledge.visibility import SubjectSlugsByVisibility


RUN_WORDS, SAMPLE_RUNS, CANDIDATE_RUNS = 4, 128, 16
"""Words per run; runs sampled per text; and how many of the sampled runs are used to find candidates."""
MIN_SIMILARITY = 0.8
"""The minimum share of runs that two near-duplicates have in common."""
MIN_WORDS, MAX_WORDS = 20, 20_000
"""The minimum and maximum number of words that are compared. Shorter texts are similar by chance; of longer
texts, only the beginning is compared."""
MAX_TEXTS_PER_RUN = 50
"""A run in more texts than this is boilerplate and is not used to find candidates."""

_WORD = re.compile(r"\w+")


def find_near_duplicates(
    subjects: list[Subject], texts: dict[tuple[str, str], str]
) -> list[Problem]:
    """Return a problem for each subject that repeats an earlier one, naming the most similar one.

    The algorithm is bottom-k sketching (Broder, "On the resemblance and containment of documents",
    1997).
    """
    problems = []
    same: dict[bytes, Subject] = {}
    seen: set[str] = set()
    samples: list[tuple[Subject, frozenset[int], list[int]]] = []
    buckets: dict[int, list[int]] = {}
    for subject in subjects:
        text = texts.get((subject.topic, subject.slug))
        real = os.path.realpath(subject.path)
        if text is None or real in seen:  # one file in two topics is not a duplicate
            continue
        seen.add(real)
        words = _WORD.findall(text.casefold())[:MAX_WORDS]
        if len(words) < MIN_WORDS:
            continue
        first = same.setdefault(blake2b(" ".join(words).encode()).digest(), subject)
        if first is not subject:
            problems.append(_make_duplicate_problem(subject, first, 1.0))
            continue
        ordered = _sample_word_run_hashes(words)
        sample = frozenset(ordered)
        candidates = {
            position
            for run in ordered[:CANDIDATE_RUNS]
            if len(buckets.get(run, ())) <= MAX_TEXTS_PER_RUN
            for position in buckets.get(run, ())
        }
        scored = [
            (_estimate_similarity(ordered, sample, *samples[at][1:]), at) for at in candidates
        ]
        if scored and (best := max(scored))[0] >= MIN_SIMILARITY:
            problems.append(_make_duplicate_problem(subject, samples[best[1]][0], best[0]))
        for run in ordered[:CANDIDATE_RUNS]:
            buckets.setdefault(run, []).append(len(samples))
        samples.append((subject, sample, ordered))
    return problems


def _sample_word_run_hashes(words: list[str]) -> list[int]:
    """Return the smallest hashes of a text's runs of words. A run has the same hash in every process."""
    runs = {
        crc32(" ".join(words[start : start + RUN_WORDS]).encode())
        for start in range(len(words) - RUN_WORDS + 1)
    }
    return sorted(runs)[:SAMPLE_RUNS]


def _estimate_similarity(
    ordered: list[int], sample: frozenset[int], other: frozenset[int], other_ordered: list[int]
) -> float:
    """Estimate the share of runs that two texts have in common (bottom-k of the union).

    Returns 0 early if the share is certainly below `MIN_SIMILARITY`, which is true of most
    candidates.
    """
    most = max(len(ordered), len(other_ordered))
    common = len(sample & other)
    if common < MIN_SIMILARITY * min(most, len(sample) + len(other) - common):
        return 0.0
    union = sorted(sample | other)[:most]
    return sum(run in sample and run in other for run in union) / len(union)


def _make_duplicate_problem(subject: Subject, other: Subject, likeness: float) -> Problem:
    ref = f"{other.topic}/{other.slug}"
    if likeness == 1.0:
        message = f"has the same text as {ref}"
    else:
        message = f"is nearly the same as {ref} ({likeness:.0%})"
    return Problem(
        message,
        where=f"{subject.topic}/{subject.slug}",
        topic=subject.topic,
        hint="keep one and refer to it from the other",
    )


_CODE_FENCE = re.compile(
    r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]* *$|\Z)", re.MULTILINE | re.DOTALL
)
_QUOTED_SLUG = re.compile(r"(?<!`)`([\w.@+-]+(?:/[\w.@+-]+)+)`(?!`)")
_LEARN_CALL = re.compile(
    r"learn\(\s*topic\s*[:=]\s*[\"']([^\"'\n]+)[\"']\s*,\s*subjects\s*[:=]\s*"
    r"(\[[^\]\n]*\]|\"[^\"\n]*\"|'[^'\n]*')"
)
_QUOTED_STRING = re.compile(r"[\"']([^\"']+)[\"']")


def find_dead_mentions(
    knowledge: Knowledge, subjects: list[Subject], texts: dict[tuple[str, str], str]
) -> list[Problem]:
    """Return a problem for each mention of a subject that does not exist.

    Mentions are `` `topic/slug` ``, `` `folder/slug` `` if the topic has that folder, and calls
    of `learn`. Code blocks and paths of existing files are ignored.
    """
    firsts = {
        topic: {slug.partition("/")[0] for slug in knowledge.get_topic_slugs(topic).scan.slugs}
        for topic in dict.fromkeys(subject.topic for subject in subjects)
    }
    problems = []
    for subject in subjects:
        text = texts.get((subject.topic, subject.slug), "")
        if "/" not in text and "learn(" not in text:
            continue
        prose = _CODE_FENCE.sub("", text)
        problems += [
            Problem(
                f"mentions {name}, which does not exist",
                where=f"{subject.topic}/{subject.slug}",
                topic=subject.topic,
                hint="correct the mention, or add the subject",
            )
            for name in dict.fromkeys(_iterate_dead_mentions(knowledge, subject, prose, firsts))
        ]
    return problems


def _iterate_dead_mentions(
    knowledge: Knowledge, subject: Subject, prose: str, firsts: dict[str, set[str]]
) -> Iterator[str]:
    for match in _QUOTED_SLUG.finditer(prose):
        token = match[1]
        first, _, rest = token.partition("/")
        if _is_existing_path(knowledge, subject, token):
            continue
        # Try `topic/slug` first: a topic can have the name of another topic's folder.
        if first in firsts and _slug_exists(knowledge, first, rest):
            continue
        if first in firsts[subject.topic]:
            if not _slug_exists(knowledge, subject.topic, token):
                yield f"`{token}`"
        elif first in firsts:
            yield f"`{token}`"
    for match in _LEARN_CALL.finditer(prose):
        try:
            topic = knowledge.resolve_topic(match[1]).id
        except NothingFound:
            continue  # an example, or a topic of another workspace
        for slug in _QUOTED_STRING.findall(match[2]):
            if not is_glob(slug) and not _slug_exists(knowledge, topic, slug):
                yield f"{slug!r} in {topic}"


def _slug_exists(knowledge: Knowledge, topic: str, slug: str) -> bool:
    """Return whether a slug or a folder of slugs exists, disabled or not."""
    slugs = knowledge.get_topic_slugs(topic).scan
    return slug in slugs or any(name.startswith(f"{slug}/") for name in slugs.slugs)


def _is_existing_path(knowledge: Knowledge, subject: Subject, token: str) -> bool:
    folders = (knowledge.workspace.root, subject.path.parent)
    return any(os.path.lexists(folder / token) for folder in folders)


MAX_PRELOAD_TOKENS = 10_000
"""The estimated number of tokens above which a pre-loaded subject is reported as too large."""


def lint_knowledge(knowledge: Knowledge) -> list[Problem]:
    """Return all problems of the topics and their subjects; reads every enabled subject.

    These are collisions, patterns that match nothing, empty topics, subjects that cannot be
    read or are too large to pre-load, near-duplicates, mentions of unknown subjects, and titles
    that two topics share. Mistakes in the configuration itself are in `Knowledge.problems`.
    """
    problems = list(_find_title_clashes(knowledge))
    texts: dict[tuple[str, str], str] = {}
    subjects: list[Subject] = []
    for topic in knowledge.topics.values():
        if not topic.enable:
            continue
        resolved = knowledge.get_topic_slugs(topic.id)
        problems += _find_slug_collisions(resolved)
        problems += _find_dead_patterns(resolved, "learned")
        problems += _find_dead_patterns(resolved, "disabled")
        problems += _find_empty_topic(knowledge, resolved)
        for subject in knowledge.list_subjects(topic.id):
            if subject.disabled:
                continue
            subjects.append(subject)
            try:
                text = read_subject_text(subject)
            except KbtuiError as error:
                if not subject.hidden:
                    problems.append(
                        _make_subject_problem(subject, f"cannot be learned: {error.message}")
                    )
                continue
            texts[subject.topic, subject.slug] = text
            problems += _find_large_preload(subject, text)
    problems += find_near_duplicates(subjects, texts)
    problems += find_dead_mentions(knowledge, subjects, texts)
    return problems


def _make_subject_problem(subject: Subject, message: str, hint: str | None = None) -> Problem:
    return Problem(message, where=f"{subject.topic}/{subject.slug}", topic=subject.topic, hint=hint)


def _find_title_clashes(knowledge: Knowledge) -> Iterator[Problem]:
    """Yield a problem for each title that is also the title or id of another topic.

    An id takes precedence over a title, and the topic that is declared first over later ones.
    """
    enabled = [topic for topic in knowledge.topics.values() if topic.enable]
    first: dict[str, Topic] = {}
    for topic in enabled:
        if topic.title is None:
            continue
        winner = first.setdefault(topic.title.casefold(), topic)
        other = knowledge.topics.get(topic.title)
        if winner is not topic:
            message = f"has the same title as {winner.id}, which takes precedence: '{topic.title}'"
        elif other is not None and other is not topic and other.enable:
            message = (
                f"its title is the id of another topic, which takes precedence: '{topic.title}'"
            )
        else:
            continue
        key = f"kb.topic.{topic.id}.title"
        yield Problem(message, key=key, topic=topic.id, hint="choose another title")


def _find_slug_collisions(resolved: SubjectSlugsByVisibility) -> Iterator[Problem]:
    scan = resolved.scan
    losers: dict[str, list[str]] = {}
    for name, slug in scan.shadowed.items():
        losers.setdefault(slug, []).append(name)
    for slug, names in sorted(losers.items()):
        winner = scan.relative_paths[slug]
        others = ", ".join(sorted(names))
        yield Problem(
            f"{winner} and {others} have the same slug, which refers to {winner}; use paths for the others",
            where=f"{resolved.topic.id}/{slug}",
            topic=resolved.topic.id,
            hint="rename one of them",
        )


def _find_dead_patterns(resolved: SubjectSlugsByVisibility, field: str) -> Iterator[Problem]:
    """Yield patterns that match nothing."""
    assert field in TOPIC_FIELDS
    topic, scan = resolved.topic, resolved.scan
    for pattern in getattr(topic, field):
        if field == "learned":
            alive = bool(resolved.match([pattern]))
        else:
            matches = compile_slug_pattern(pattern)
            alive = pattern in scan or any(map(matches, scan.slugs))
        if not alive and scan.slugs:
            hint = explain_dead_pattern(resolved, pattern)
            key = f"kb.topic.{topic.id}.{field}"
            yield Problem(f"'{pattern}' matches no subject", key=key, topic=topic.id, hint=hint)


def explain_dead_pattern(resolved: SubjectSlugsByVisibility, pattern: str) -> str | None:
    """Return why a pattern matches nothing, or what may have been meant; None if unknown."""
    scan = resolved.scan
    matches = compile_slug_pattern(pattern)
    reached = [slug for slug in scan.slugs if slug == pattern or matches(slug)]
    if any(slug in resolved.disabled for slug in reached):
        return "the subjects that it matches are disabled"
    if reached:
        return f"a glob does not match hidden subjects: write '{reached[0]}'"
    folder, slash, name = pattern.rpartition("/")
    bare = folder + slash + split_file_extension(name)[0]
    if bare != pattern and (bare in scan or any(map(compile_slug_pattern(bare), scan.slugs))):
        return f"slugs have no extension: write '{bare}'"
    if is_hidden_path(pattern):
        return "slugs have no leading dots"
    if has_unclosed_bracket(pattern):
        return "a [ without ] is literal"
    if is_glob(pattern):
        return None
    from difflib import get_close_matches

    near = get_close_matches(pattern, scan.slugs[:5000], n=1)
    return f"did you mean '{near[0]}'?" if near else None


def _find_empty_topic(
    knowledge: Knowledge, resolved: SubjectSlugsByVisibility
) -> Iterator[Problem]:
    topic = resolved.topic
    key = f"kb.topic.{topic.id}.subjects"
    if resolved.visible or any(problem.key == key for problem in knowledge.problems):
        return
    count = len(resolved.scan.slugs)
    if count:
        message = f"all {count} subjects are hidden or disabled"
    else:
        message = f"{topic.subjects} has no subjects"
    yield Problem(message, key=key, topic=topic.id, hint="add a file, or set enable = false")


def _find_large_preload(subject: Subject, text: str) -> Iterator[Problem]:
    tokens = estimate_tokens(text)
    if subject.learned and tokens > MAX_PRELOAD_TOKENS:
        yield _make_subject_problem(
            subject,
            f"is too large to pre-load: about {tokens:,} tokens in every request",
            "remove it from `learned` or split it",
        )
