"""Data that cannot be rebuilt from files: the query log, bookmarks, sessions, approvals and runs."""

from kbtui.userdata.userdata import UserData

__all__ = ["UserData"]
