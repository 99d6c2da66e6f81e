"""Data that kbtui cannot rebuild from files: query log, bookmarks, sessions, approvals and runs."""

from kbtui.userdata.user_data_store import UserData

__all__ = ["UserData"]
