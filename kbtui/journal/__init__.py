"""What cannot be rebuilt: the query log, approvals, run states, bookmarks, sessions; and what they tell."""

from kbtui.journal.journal import Journal

__all__ = ["Journal"]
