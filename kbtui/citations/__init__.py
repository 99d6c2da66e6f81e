"""Citations: which turn used which subject, passage, conversation or file."""

from kbtui.citations.citation_extraction import (
    Citation,
    Citations,
    CitationTargetLookup,
    extract_citations,
)

__all__ = ["Citation", "CitationTargetLookup", "Citations", "extract_citations"]
