"""Citations: which turn used which subject, passage, conversation or file."""

from kbtui.citations.extract import FILE_TOOLS, CitationTargets, extract_citations
from kbtui.citations.models import Citation, Citations

__all__ = ["FILE_TOOLS", "Citation", "CitationTargets", "Citations", "extract_citations"]
