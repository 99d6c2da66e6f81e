"""Which turn used which subject, chunk, conversation or file."""

from kbtui.citations.citing import cite_conversation
from kbtui.citations.records import Citation, Citations
from kbtui.citations.shelf import Shelf
from kbtui.citations.tools import FILE_TOOLS

__all__ = ["FILE_TOOLS", "Citation", "Citations", "Shelf", "cite_conversation"]
