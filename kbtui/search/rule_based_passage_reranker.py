"""Reranks the best passages of a search by their texts and by their places in conversations.

The reranker considers two facts that the rankings by keywords and by meaning ignore: whether a
passage replies to a question that matches the query, and whether other passages of its conversation
match. With these facts, it reorders only the passages of turns, which exchange places in the
ranking with each other. Passages of subjects stay where they are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kbtui.light_named_tuple import NamedTuple
from kbtui.search.query_stemming_and_matching import list_tokens_except_function_words
from kbtui.search.search_request_and_answer import SCORE_DIGITS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
    from kbtui.search.query_stemming_and_matching import QueryWord, StemmingAnalyzer


RERANKED_PASSAGES = 100
"""This many of the best passages are reranked."""
# The values of these constants were measured: docs/search-quality.md.
TITLE_WEIGHT, LENGTH_WEIGHT = 0.75, 3.0
"""The maximum bonuses of a passage: for query words in the title of its entry, and for its length."""
FULL_LENGTH_BYTES = 100
"""A passage of at least this many bytes gets all of `LENGTH_WEIGHT`; a shorter one gets a proportional part."""
WORDS_WEIGHT = 3.0
"""The bonus for a turn's passage that contains every word of the query exactly as the query spells it.

A word that only has the same stem counts less (`OTHER_FORM_SHARE`).
"""
OTHER_FORM_SHARE = 0.5
"""The factor for a word that the passage contains only in another form, such as `sleeps` for `sleep`."""
REPLY_WEIGHT = 0.2
"""The bonus of a reply, as a share of the score of the question or request to which it replies."""
CONVERSATION_WEIGHT = 0.3
"""The bonus of a turn's passage, as a share of the mean score of the best other passages in its conversation."""
CONVERSATION_PASSAGES = 3
"""The bonus for a conversation is computed from at most this many other passages, the best ones."""
NEIGHBOUR_WEIGHTS = (0.07, 0.05, 0.02)
"""A turn's passage gets these shares of the scores of the passages one, two and three places away as a bonus."""

REASONING_BONUS = -3.0
"""The bonus for a passage of reasoning.

It is negative, because reasoning only restates the question, and the answer is in a later message.
"""

_QUESTION_MARKS = frozenset("?？؟")


class PassageToRerank(NamedTuple):
    """A passage with its fused score. `owner` is the same for all passages of an entry."""

    number: int
    score: float
    owner: Hashable
    entry: CatalogEntry
    chunk: Chunk


class RankBonuses(NamedTuple):
    """The bonuses that the reranker gives a passage.

    `title` and `length` are added to the score. `words`, `reply`, `conversation` and `role` determine
    the passage's place among the turns, and are 0 for subjects. `place` is the change of the score that
    results from the new place.
    """

    title: float = 0.0
    length: float = 0.0
    words: float = 0.0
    reply: float = 0.0
    conversation: float = 0.0
    role: float = 0.0
    place: float = 0.0

    @property
    def total(self) -> float:
        """The sum that the reranker adds to the score of the passage."""
        return self.title + self.length + self.place

    @property
    def turn_bonuses_total(self) -> float:
        """The sum of the bonuses that determine the place among the turns."""
        return self.words + self.reply + self.conversation + self.role


class RankBonusCalculator:
    """Computes the bonuses of the best passages of a search."""

    def __init__(
        self, words: Sequence[QueryWord], rarities: Mapping[str, float], language: StemmingAnalyzer
    ) -> None:
        """Prepare to rerank the passages of a query.

        `words` are the query's analyzed words. `rarities` maps their stems to inverse document frequencies.
        """
        self._language = language
        self._tokens = [(token, rarities[token.stem]) for word in words for token in word.tokens]
        self._title_stems = {
            token.stem: rarities[token.stem]
            for word in words
            for token in list_tokens_except_function_words(word)
        }

    def compute_bonuses(self, passages: Sequence[PassageToRerank]) -> dict[int, RankBonuses]:
        """Map the number of each passage to the bonuses of the passage. `passages` must be sorted, best first."""
        titles = {one.owner: one.entry.title for one in passages}
        by_title = {owner: self._compute_title_bonus(title) for owner, title in titles.items()}
        turns = [one for one in passages if one.chunk.turn is not None]
        parts = (
            self._compute_bonuses_for_query_words_in_turn_texts(turns),
            _compute_reply_bonuses(turns),
            _compute_bonuses_from_other_turns(turns),
            [REASONING_BONUS if one.chunk.role == "reasoning" else 0.0 for one in turns],
        )
        of_turns = dict(zip((one.number for one in turns), zip(*parts, strict=True), strict=True))
        found = {}
        for one in passages:
            length = len(one.chunk.text.encode("utf-8", "replace"))
            values = (
                by_title[one.owner],
                LENGTH_WEIGHT * min(1.0, length / FULL_LENGTH_BYTES),
                *of_turns.get(one.number, ()),
            )
            found[one.number] = RankBonuses(*(round(value, SCORE_DIGITS) for value in values))
        places = compute_score_changes_from_turn_reordering(
            {one.number: (one.score, found[one.number]) for one in turns}
        )
        return found | {
            number: found[number]._replace(place=place) for number, place in places.items()
        }

    def _compute_title_bonus(self, title: str) -> float:
        stems = self._title_stems.keys() & set(self._language.list_stems_of_text(title))
        share = sum(self._title_stems[stem] for stem in stems) / max(
            1.0, sum(self._title_stems.values())
        )
        return TITLE_WEIGHT * share

    def _compute_bonuses_for_query_words_in_turn_texts(
        self, turns: Sequence[PassageToRerank]
    ) -> list[float]:
        """Return the bonuses for the words of the query, weighted by rarity.

        Unlike the ranking by keywords, this bonus prefers words in the form that the query uses,
        ignores the text around the passage, and counts function words.
        """
        total = sum(rarity for _, rarity in self._tokens) or 1.0
        return [WORDS_WEIGHT * self._sum_word_rarities(one.chunk.text) / total for one in turns]

    def _sum_word_rarities(self, text: str) -> float:
        """Add up the rarities of those query words that occur in a text."""
        forms = set(self._language.split_into_unstemmed_words(text))
        stems = set(self._language.list_stems_of_text(text))
        return sum(
            rarity * (1.0 if token.plain in forms else OTHER_FORM_SHARE)
            for token, rarity in self._tokens
            if token.plain in forms or token.stem in stems
        )


def _compute_reply_bonuses(turns: Sequence[PassageToRerank]) -> list[float]:
    """Return the bonuses for replying to a question or request that matches the query.

    A question is the preceding passage, if it contains a question mark. A request is the last message
    of the user before a message of the assistant in the same turn.
    """
    places = {(one.owner, one.chunk.ordinal): one for one in turns}
    requests: dict[tuple[Hashable, int | None], list[PassageToRerank]] = defaultdict(list)
    for one in turns:
        if one.chunk.role == "user":
            requests[one.owner, one.chunk.turn].append(one)
    found = []
    for one in turns:
        score = 0.0
        before = places.get((one.owner, one.chunk.ordinal - 1))
        if before is not None and not _QUESTION_MARKS.isdisjoint(before.chunk.text):
            score = before.score
        if one.chunk.role == "assistant":
            earlier = [
                (request.chunk.ordinal, request.score)
                for request in requests[one.owner, one.chunk.turn]
                if request.chunk.ordinal < one.chunk.ordinal
            ]
            score = max(score, max(earlier)[1] if earlier else 0.0)
        found.append(REPLY_WEIGHT * score)
    return found


def _compute_bonuses_from_other_turns(turns: Sequence[PassageToRerank]) -> list[float]:
    """Return the bonus that each passage gets because other passages of its conversation match the query.

    The bonus has two parts: a share of the mean score of the best other passages, and a share of the
    score of each nearby passage.
    """
    scores: dict[Hashable, list[float]] = defaultdict(list)
    by_place = {(one.owner, one.chunk.ordinal): one.score for one in turns}
    for one in turns:
        scores[one.owner].append(one.score)
    best = {
        owner: sorted(of_entry, reverse=True)[: CONVERSATION_PASSAGES + 1]
        for owner, of_entry in scores.items()
    }
    found = []
    for one in turns:
        others = list(best[one.owner])
        others.remove(one.score if one.score in others else others[-1])
        bonus = CONVERSATION_WEIGHT * sum(others) / CONVERSATION_PASSAGES
        place = one.chunk.ordinal
        bonus += sum(
            weight * by_place.get((one.owner, near), 0.0)
            for distance, weight in enumerate(NEIGHBOUR_WEIGHTS, 1)
            for near in (place - distance, place + distance)
        )
        found.append(bonus)
    return found


def compute_score_changes_from_turn_reordering(
    turns: Mapping[int, tuple[float, RankBonuses]],
) -> dict[int, float]:
    """Map the number of each turn's passage to the change of its score when turns are reordered.

    `turns` contains the fused score and the bonuses of each passage. The turns are sorted once without
    the bonuses for turns, and once with them. The turn in place N of the second order receives the
    score of the turn in place N of the first order.
    """
    scores = {
        number: score + bonuses.title + bonuses.length for number, (score, bonuses) in turns.items()
    }
    order = sorted(
        turns, key=lambda number: -(scores[number] + turns[number][1].turn_bonuses_total)
    )
    return {
        number: round(score - scores[number], SCORE_DIGITS)
        for number, score in zip(order, sorted(scores.values(), reverse=True), strict=True)
    }
