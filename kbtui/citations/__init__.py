"""Citations: which turn used which subject, passage, conversation or file."""

from kbtui.citations.extract import FILE_TOOLS, CitationTargetLookup, extract_citations
from kbtui.citations.models import Citation, Citations

__all__ = ["FILE_TOOLS", "Citation", "CitationTargetLookup", "Citations", "extract_citations"]
