"""Data that kbtui cannot rebuild from files: the query log, bookmarks, the saved state of the TUI, approvals and runs of sources."""

MARKS_FILE_NAME = "marks.sqlite"
"""The file of the user's marks in a workspace's data directory."""
