"""Which turn used which subject, chunk, conversation or file."""

from kbtui.citations.extract import FILE_TOOLS, CitationTargets, cite_conversation
from kbtui.citations.models import Citation, Citations

__all__ = ["FILE_TOOLS", "Citation", "CitationTargets", "Citations", "cite_conversation"]
