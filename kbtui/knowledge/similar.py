"""Finds subjects that say nearly the same: shared runs of words, sampled (issue 3, point 8)."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from typing import TYPE_CHECKING
from zlib import crc32

from kbtui.knowledge.records import Problem

if TYPE_CHECKING:
    from kbtui.knowledge.records import Subject

RUN, SAMPLE, BUCKETS = 4, 128, 16
"""Words in a run; runs kept of a text; of those, how many find candidates."""
NEAR = 0.8
"""Share of common runs from which two texts are near-duplicates."""
WORDS_LEAST, WORDS_MOST = 20, 20_000
"""Shorter texts are alike by chance; of longer ones the beginning decides."""
CROWD = 50
"""A run in more texts than this is boilerplate and finds no candidates."""

_WORD = re.compile(r"\w+")


def near_duplicates(subjects: list[Subject], texts: dict[tuple[str, str], str]) -> list[Problem]:
    """A problem for each subject that repeats an earlier one, naming the nearest."""
    problems = []
    same: dict[bytes, Subject] = {}
    seen: set[str] = set()
    samples: list[tuple[Subject, frozenset[int], list[int]]] = []
    buckets: dict[int, list[int]] = {}
    for subject in subjects:
        text = texts.get((subject.topic, subject.slug))
        real = os.path.realpath(subject.path)
        if text is None or real in seen:  # the same file by two ways repeats nothing
            continue
        seen.add(real)
        words = _WORD.findall(text.casefold())[:WORDS_MOST]
        if len(words) < WORDS_LEAST:
            continue
        first = same.setdefault(blake2b(" ".join(words).encode()).digest(), subject)
        if first is not subject:
            problems.append(_problem(subject, first, 1.0))
            continue
        ordered = _sample(words)
        sample = frozenset(ordered)
        candidates = {
            position
            for run in ordered[:BUCKETS]
            if len(buckets.get(run, ())) <= CROWD
            for position in buckets.get(run, ())
        }
        scored = [(_likeness(ordered, sample, *samples[at][1:]), at) for at in candidates]
        if scored and (best := max(scored))[0] >= NEAR:
            problems.append(_problem(subject, samples[best[1]][0], best[0]))
        for run in ordered[:BUCKETS]:
            buckets.setdefault(run, []).append(len(samples))
        samples.append((subject, sample, ordered))
    return problems


def _sample(words: list[str]) -> list[int]:
    """The smallest hashes of all runs of words: the same for the same runs, in every process."""
    runs = {
        crc32(" ".join(words[start : start + RUN]).encode())
        for start in range(len(words) - RUN + 1)
    }
    return sorted(runs)[:SAMPLE]


def _likeness(
    ordered: list[int], sample: frozenset[int], other: frozenset[int], other_ordered: list[int]
) -> float:
    """The estimated share of runs that two texts have in common (bottom-k of the union).

    0 where it is under `NEAR` for certain: of thousands of candidates most are.
    """
    most = max(len(ordered), len(other_ordered))
    common = len(sample & other)
    if common < NEAR * min(most, len(sample) + len(other) - common):
        return 0.0
    union = sorted(sample | other)[:most]
    return sum(run in sample and run in other for run in union) / len(union)


def _problem(subject: Subject, other: Subject, likeness: float) -> Problem:
    ref = f"{other.topic}/{other.slug}"
    if likeness == 1.0:
        message = f"has the same words as {ref}"
    else:
        message = f"is nearly the same as {ref} ({likeness:.0%})"
    return Problem(
        message,
        where=f"{subject.topic}/{subject.slug}",
        topic=subject.topic,
        hint="keep one, and mention it from the other",
    )
