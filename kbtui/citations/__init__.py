"""Citations: which turn used which subject, passage, conversation or file."""

from kbtui.citations.citation_extraction import CitationTargetLookup, extract_citations
from kbtui.citations.models import Citation, Citations

__all__ = ["Citation", "CitationTargetLookup", "Citations", "extract_citations"]
