"""User data, which kbtui cannot rebuild from files: bookmarks, marks, the query log, approvals and so on."""

MARKS_FILE_NAME = "marks.sqlite"
"""The name of the file with the user's marks in the workspace's data directory."""
