"""Which turn used which subject, chunk, conversation or file."""

from kbtui.citations.citing import cite_conversation
from kbtui.citations.records import Citation
from kbtui.citations.shelf import Shelf
from kbtui.citations.tools import FILE_TOOLS

__all__ = ["FILE_TOOLS", "Citation", "Shelf", "cite_conversation"]
