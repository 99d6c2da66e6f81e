"""Reads the text of a subject that a turn was given, and the text that the subject has now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbtui.errors import NothingFound
from kbtui.library.reference_reader import ReferenceReader, open_cited_subject

if TYPE_CHECKING:
    from kbtui.citations import Citation
    from kbtui.citations.citation_extraction import CitationKey


class GivenAndCurrentText(NamedTuple):
    """The text of a subject that a turn was given, and its text now (None if the subject is gone).

    Tags, code fences, line numbers and notes around the text are removed from both. If the turn was
    given only a part, `now` is only the part of the subject that corresponds to it.
    """

    cite: Citation
    given: str
    now: str | None

    def format_as_unified_difference(self) -> str:
        """Return the difference in the format of `diff -u`; "" if both texts are equal."""
        from kbtui.text_difference import format_unified_difference

        now_name = "/dev/null" if self.now is None else self.cite.target
        given_name = f"{self.cite.target} (given to {self.cite.source})"
        return format_unified_difference(self.given, self.now or "", given_name, now_name)


class SubjectVersionReader(ReferenceReader):
    """Reads the texts of subjects that turns were given."""

    def find_citation(self, key: CitationKey) -> Citation:
        """Find a citation of an existing conversation; raises `NothingFound`."""
        for cite in self.extract_citations(self.load_conversation(key.conversation)):
            if cite.key == key:
                return cite
        raise NothingFound(f"the turn does not cite {key.target} any more", where=key.conversation)

    def read_given_and_current_text(self, cite: Citation) -> GivenAndCurrentText:
        """Read the text of a subject that a citing turn was given, and the text of the subject now.

        Raises `NothingFound` if the citation is not of a subject, if the turn no longer exists, or if
        it is not known what the turn was given. Raises `KbtuiError` if the subject cannot be read.
        """
        from kbtui.citations.given_text import find_corresponding_text

        given = cite.given or self.find_citation(cite.key).given
        if given is None:
            raise NothingFound("it is not known what the turn was given", where=cite.source)
        subject = open_cited_subject(self.load_knowledge(), cite.target)
        if subject is None:
            return GivenAndCurrentText(cite, given.text_without_fence, None)
        text = given.text.strip() if subject.is_prose else given.text_without_fence
        now = find_corresponding_text(text, given.extent, subject.plain)
        return GivenAndCurrentText(cite, text, now)
