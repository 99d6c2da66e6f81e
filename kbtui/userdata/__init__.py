"""User data, which kbtui cannot rebuild from files, such as bookmarks, marks and the query log."""

MARKS_FILE_NAME = "marks.sqlite"
"""The name of the file, in a workspace's data directory, that contains the user's marks."""
