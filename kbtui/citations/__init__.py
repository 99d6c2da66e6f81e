"""Which turn used which subject, chunk, conversation or file."""

from kbtui.citations.extract import FILE_TOOLS, cite_conversation
from kbtui.citations.models import Citation, Citations
from kbtui.citations.targets import Shelf

__all__ = ["FILE_TOOLS", "Citation", "Citations", "Shelf", "cite_conversation"]
