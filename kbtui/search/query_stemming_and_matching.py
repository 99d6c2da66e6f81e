"""Analyzes the words of a query, and finds their matches in texts."""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from kbtui.index.identifier_and_cjk_tokenizer import (
    CodeFieldWordForms,
    get_code_word_forms,
    normalize_unicode,
)
from kbtui.index.keyword_index_writer import (
    list_further_language_fields,
    make_text_analyzer,
    parse_language_setting,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.search.near_spellings import (
    MAX_ENDING_LETTERS,
    MIN_LETTERS_OF_FREE_START,
    find_near_spellings,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kbtui.search.near_spellings import NearSpelling, TextsWithStem

_FUNCTION_WORDS = {
    "english": """a about after again all also am an and any are as at be because been before being
        both but by can could did do does doing done down during each either ever every few for from
        further get gets go goes got had has have having he her here hers him his how i if in instead
        into is it its itself just let like may me might more most much must my no nor not now of off
        on once only onto or other our out over own s same she should so some such t than that the
        their them then there these they this those through to too under until up upon us very via was
        we were what when where whether which while who whom whose why will with within without would
        you your""",
    "german": """ab aber alle allem allen aller alles als also am an andere anderem anderen anderer
        auch auf aus bei beim bin bis bist da dabei dadurch dafür damit dann daran darauf darf das dass
        davon dazu dein deine dem den denn der des dessen die dies diese diesem diesen dieser dieses dir
        doch dort du durch ein eine einem einen einer eines er es etwas euch euer für gegen gibt hab habe
        haben hast hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre im immer in ins ist ja
        jede jedem jeden jeder jedes jetzt kann kannst kein keine keinen könnte können machen macht man
        mein meine mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne sehr sein seine
        seit sich sie sind so soll sollte sollen sondern sonst über um und uns unser unter vom von vor
        war waren warum was wann wegen weil welche welchem welchen welcher welches wenn wer werden wie
        wieder will wir wird wo wohin wurde wurden würde zu zum zur zwischen""",
    "french": """à au aucun aussi autre aux avec avoir avait c ce ceci cela celle celui ces cet cette
        chaque ci comme comment d dans de depuis des donc dont du elle elles en encore entre est et
        était être eu eux fait faire fois il ils j je l la le les leur leurs lui là m ma mais me même mes
        moi mon n ne ni non nos notre nous on ont ou où par parce pas peu peut plus pour pourquoi qu
        quand que quel quelle quelles quels qui quoi s sa sans se ses si soit son sont sous sur t ta te
        tes toi ton tous tout toute toutes très tu un une vers vos votre vous y""",
    "spanish": """a al algo algún alguna ante antes aquí así aunque cada como cómo con contra cual cuál
        cuando cuándo cuánto de del desde después donde dónde durante e el él ella ellas ellos en entre
        era eran es esa ese eso esta está están este esto estos fue fueron ha hace hacer hacia han hasta
        hay la las le les lo los más me mi mientras mis mucho muy nada ni no nos nosotros nuestro o os
        otra otro para pero poco por porque puede puedo que qué quien quién se sea según ser si sí sido
        sin sobre son su sus también tan tanto te tiene todo todos tu tus un una uno unos ya y yo""",
    "italian": """a ad agli ai al alla alle allo altra altri altro anche ancora avere c che chi ci
        ciò col come con cosa così cui d da dagli dai dal dalla dalle dallo degli dei del della delle
        dello deve di dopo dove due e è ed era essere fa fare fra gli ha hanno ho i il in io l la le lei
        li lo loro lui ma me mi mia mio molto ne nei nel nella nelle nello no noi non nostro o ogni
        per perché però più poi prima può quale quali quando quanto quel quella quelle quello questa
        queste questi questo qui se sei senza si sia sì solo sono sopra sotto su sua sue sugli sui sul
        sulla suo te ti tra tu tutti tutto un una uno vi voi""",
    "dutch": """aan al alle als altijd andere ben bij daar dan dat de der deze die dit doch doen door
        dus een eens en er ge geen geweest haar had heb hebben heeft hem het hier hij hoe hun iemand iets
        ik in is ja je kan kon kunnen maar me meer men met mij mijn moet na naar niet niets nog nu of om
        omdat onder ons ook op over reeds te tegen toch toen tot u uit uw van veel voor waar waarom
        wanneer want waren was wat we wel werd wezen wie wij wil worden wordt zal ze zelf zich zij zijn
        zo zonder zou""",
    "portuguese": """a à ao aos aquela aquele aqui as às assim até cada com como da das de dela dele
        deles depois desde do dos e é ela elas ele eles em entre era essa esse esta está este eu faz
        fazer foi for foram há isso isto já lhe mais mas me mesmo meu minha muito na não nas nem no nos
        nós nossa nosso num numa o os ou para pela pelas pelo pelos pode por porque qual quando quanto
        que quem se sem ser será seu seus só sobre sua suas são também te tem ter todo todos tu tudo um
        uma você""",
}


FUNCTION_WORD_WEIGHT = 0.3
MIN_CORRECTED_LETTERS = 6
"""The spelling of an unknown word is corrected only if the word has at least this many letters."""
FEW_KEYWORD_HITS = 3
"""With fewer keyword hits than this, a search also tries near spellings of the query's rare words."""
MIN_NEAR_LETTERS = 4
"""Only words with at least this many letters get near spellings. Shorter words would have too many of them."""
MAX_PREFIX_TERMS = 32


class StemmedQueryWordPart(NamedTuple):
    """A token: a run of letters and digits in a word of a query. The word `don't` has two tokens.

    * `stem` is the token's stem in the first language of the setting `language`.
    * `others` contains a pair `(field, term)` for each further language.
    * `corrected` contains the stems of similar words, if the word is rare or missing in the index.
    """

    plain: str
    stem: str
    others: tuple[tuple[str, str], ...]
    weight: float
    corrected: tuple[NearSpelling, ...] = ()

    @property
    def terms_by_field(self) -> list[tuple[str, str]]:
        """The fields that can contain the token, each with the token's term in that field."""
        return [("body", self.stem), ("title", self.stem), ("code", self.plain), *self.others]


class QueryWord(NamedTuple):
    """A word in a query.

    * `forms` are the forms in which the word can occur in the index's field `code`.
    * `completions` are the indexed terms that can complete the word if the user is still typing it,
      as pairs `(field, term)`.
    """

    text: str
    tokens: tuple[StemmedQueryWordPart, ...]
    forms: CodeFieldWordForms
    completions: tuple[tuple[str, str], ...] = ()


def list_tokens_except_function_words(word: QueryWord) -> list[StemmedQueryWordPart]:
    """Return the tokens of a word that are not function words."""
    return [token for token in word.tokens if token.weight == 1.0]


class StemmingAnalyzer:
    """Splits text into stems, and recognizes function words, in the languages that the user has set.

    The argument is the value of the setting `language`.
    """

    def __init__(self, setting: str) -> None:
        names = parse_language_setting(setting)
        self._plain = make_text_analyzer("")
        self._first = make_text_analyzer(names[0]) if names else self._plain
        self._others = {
            field: make_text_analyzer(name)
            for field, name in list_further_language_fields(setting).items()
        }
        # Some languages have no entry. `analyze` removes accents, as the index does.
        known = [_FUNCTION_WORDS.get(name, "") for name in names or ["english"]]
        self.function_words = frozenset(self._plain.analyze(" ".join(known)))

    def list_stems_of_text(self, text: str) -> list[str]:
        """Return the stems of a text, in order."""
        return list(self._first.analyze(normalize_unicode(text)))

    def split_into_unstemmed_words(self, text: str) -> list[str]:
        """Return the words of a text, in order, without accents and in lower case."""
        return list(self._plain.analyze(normalize_unicode(text)))

    def locate_stems(self, text: str) -> list[tuple[str, int, int]]:
        """Return the stem of each token, and the character offsets of its start and end."""
        tokens = self._first.pre_tokenize(text).tokens
        return [(token.text, token.char_offset_from, token.char_offset_to) for token in tokens]

    def find_spans_of_stems(self, text: str, wanted: Collection[str]) -> list[CharacterSpan]:
        """Return the character offsets of each token whose stem is in `wanted`."""
        return [
            (token.char_offset_from, token.char_offset_to)
            for token in self._first.pre_tokenize(text).tokens
            if token.text in wanted
        ]

    def make_letter_run_token(self, text: str) -> StemmedQueryWordPart | None:
        """Return the token of a run of letters and digits, or None if the run is too long for the index."""
        stems = self._first.analyze(text)
        if not stems:
            return None
        others = tuple(
            (field, found[0])
            for field, other in self._others.items()
            if (found := other.analyze(text))
        )
        weight = FUNCTION_WORD_WEIGHT if text in self.function_words else 1.0
        return StemmedQueryWordPart(text, stems[0], others, weight)

    def analyze_query_word(self, word: str) -> list[StemmedQueryWordPart]:
        """Return the distinct tokens of a word; for example, `don't` has two tokens."""
        runs = dict.fromkeys(self._plain.analyze(word))
        return [token for run in runs if (token := self.make_letter_run_token(run))]


def analyze_and_correct_query_words(
    words: Sequence[str],
    searcher: Any,
    language: StemmingAnalyzer,
    texts: TextsWithStem,
    *,
    completes_last: bool = False,
) -> list[QueryWord]:
    """Analyze the words of a query for one index, and correct words that are not in the index.

    `texts` returns texts of the index that contain a stem. If `completes_last` is true, the last
    word may be unfinished: it is corrected only if no word of the index can complete it.
    """
    found = []
    for position, text in enumerate(words, 1):
        word = normalize_unicode(text)
        tokens = language.analyze_query_word(word)
        completions: list[tuple[str, str]] = []
        if completes_last and position == len(words) and len(word) > 1:
            completions = _complete_word_prefix(word, tokens, searcher)
        if not completions:
            tokens = [_correct_spelling(token, searcher, language, texts) for token in tokens]
        forms = get_code_word_forms(word)
        found.append(QueryWord(text, tuple(tokens), forms, tuple(completions)))
    return found


def _complete_word_prefix(
    word: str, tokens: Sequence[StemmedQueryWordPart], searcher: Any
) -> list[tuple[str, str]]:
    """Return the terms of the index that can complete an unfinished word, as `(field, term)`."""
    found: list[tuple[str, str]] = []
    if tokens and tokens[-1].weight == 1.0:
        run = tokens[-1].plain
        found = list_terms_with_prefix(searcher, "body", run)
        # An unfinished word can be longer than its stem: `configurati` has the stem `configur`.
        lengths = range(len(run) - 1, max(3, len(run) - 1 - MAX_ENDING_LETTERS), -1)
        stems = (run[:length] for length in lengths if searcher.doc_freq("body", run[:length]))
        found += [("body", stem) for stem in islice(stems, 1)]
    code = word.lower()
    if len(code) > 2 and not code.isalpha():
        found += list_terms_with_prefix(searcher, "code", code)
    return found


def list_terms_with_prefix(searcher: Any, field: str, prefix: str) -> list[tuple[str, str]]:
    """Return `(field, term)` for up to `MAX_PREFIX_TERMS` indexed terms that begin with `prefix`."""
    found = searcher.terms_with_prefix(field, prefix, limit=MAX_PREFIX_TERMS)
    return [(field, term) for term, _ in found]


def _correct_spelling(
    token: StemmedQueryWordPart, searcher: Any, language: StemmingAnalyzer, texts: TextsWithStem
) -> StemmedQueryWordPart:
    word = token.plain
    if len(word) < MIN_CORRECTED_LETTERS or not (word.isascii() and word.isalpha()):
        return token
    if any(searcher.doc_freq(field, term) for field, term in token.terms_by_field):
        return token
    near = find_near_spellings(
        word,
        searcher,
        language.list_stems_of_text,
        texts,
        function_words=language.function_words,
        keeps_first_letter=False,
        compares_similar=False,
    )
    return token._replace(corrected=near)


def add_near_spellings_to_rare_token(
    token: StemmedQueryWordPart, searcher: Any, language: StemmingAnalyzer, texts: TextsWithStem
) -> StemmedQueryWordPart:
    """Return the token, with near spellings in `corrected` if fewer than `FEW_KEYWORD_HITS` passages contain it."""
    word = token.plain
    if token.corrected or token.weight < 1.0 or len(word) < MIN_NEAR_LETTERS:
        return token
    if not (word.isascii() and word.isalpha()):
        return token
    if count_passages_with_token(token, searcher) >= FEW_KEYWORD_HITS:
        return token
    near = find_near_spellings(
        word,
        searcher,
        language.list_stems_of_text,
        texts,
        function_words=language.function_words,
        keeps_first_letter=len(word) < MIN_LETTERS_OF_FREE_START,
        excluded=token.stem,
    )
    return token._replace(corrected=near)


def count_passages_with_token(token: StemmedQueryWordPart, searcher: Any) -> int:
    """Return how many passages contain a token, in the field for which this number is highest."""
    return max(int(searcher.doc_freq(field, term)) for field, term in token.terms_by_field)


def compute_rarity(count: int, total: int) -> float:
    """Return the inverse document frequency, as BM25 defines it, of a term that `count` of `total` documents contain."""
    return math.log1p(max(0.0, total - count + 0.5) / (count + 0.5))


CharacterSpan = tuple[int, int]


class QueryMatchFinder:
    """Finds the matches of a query in texts. It compares stems, as the ranking does."""

    def __init__(
        self, words: Sequence[QueryWord], phrases: Sequence[str], language: StemmingAnalyzer
    ) -> None:
        tokens = [token for word in words for token in word.tokens]
        telling = [token for token in tokens if token.weight == 1.0]
        self._stems = {token.stem for token in telling or tokens}
        self._stems.update(near.stem for token in telling for near in token.corrected)
        self._stems.update(
            term for word in words for field, term in word.completions if field == "body"
        )
        parts = {part for word in words for part in word.forms.parts}
        self._stems.update(stem for part in parts for stem in language.list_stems_of_text(part))
        self._phrases = [
            stems for phrase in phrases if (stems := language.list_stems_of_text(phrase))
        ]
        literal = {pair for word in words for pair in word.forms.pairs}
        literal |= {whole for word in words for whole in word.forms.wholes if not whole.isalnum()}
        literal |= {phrase for phrase in phrases if not phrase.isascii() or not phrase.isalnum()}
        parts |= {token.plain for token in telling}
        self._literal = _compile_any_word_pattern(literal, flags=re.IGNORECASE)
        # This pattern finds `subject` in `readSubject`.
        self._humps = {part.capitalize() for part in parts if len(part) > 2}
        # `re` is fast if a pattern begins with literal text, so the word comes before the
        # lookbehind.
        self._hump_pattern = _compile_any_word_pattern(self._humps, "{0}(?<=[a-z0-9]{0})(?![a-z])")
        self._language = language

    def find_matches(self, text: str) -> list[CharacterSpan]:
        """Return the character offsets of all matches, in order and without overlaps."""
        spans = self._language.find_spans_of_stems(text, self._stems)
        tokens = self._language.locate_stems(text) if self._phrases else []
        for phrase in self._phrases:
            spans += [
                (tokens[at][1], tokens[at + len(phrase) - 1][2])
                for at in range(len(tokens) - len(phrase) + 1)
                if all(tokens[at + step][0] == stem for step, stem in enumerate(phrase))
            ]
        if self._literal:
            spans += [match.span() for match in self._literal.finditer(text)]
        # Most texts contain no such word; a check without the pattern finds this out faster.
        if self._hump_pattern and any(hump in text for hump in self._humps):
            spans += [match.span() for match in self._hump_pattern.finditer(text)]
        return merge_overlapping_spans(spans)


def _compile_any_word_pattern(
    words: Iterable[str], around: str = "{0}", flags: int = 0
) -> re.Pattern[str] | None:
    """Return a pattern that matches any of the words, longer ones first; None if there are no words.

    `around` is a regular expression in which `{0}` stands for a word.
    """
    longest_first = sorted({word for word in words if word}, key=lambda word: (-len(word), word))
    if not longest_first:
        return None
    patterns = [around.replace("{0}", re.escape(word)) for word in longest_first]
    return re.compile("|".join(patterns), flags)


def merge_overlapping_spans(spans: list[CharacterSpan]) -> list[CharacterSpan]:
    """Sort spans, and merge those that touch or overlap."""
    result: list[CharacterSpan] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif end > start:
            result.append((start, end))
    return result
