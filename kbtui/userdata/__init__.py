"""Data that kbtui cannot rebuild from files: the query log, bookmarks, the state of the TUI, and the approvals and runs of sources."""

MARKS_FILE_NAME = "marks.sqlite"
"""The name of the file with the user's marks. The file is in the workspace's data directory."""
