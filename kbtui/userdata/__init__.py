"""What cannot be rebuilt: the query log, approvals, run states, bookmarks, sessions; and what they tell."""

from kbtui.userdata.userdata import UserData

__all__ = ["UserData"]
