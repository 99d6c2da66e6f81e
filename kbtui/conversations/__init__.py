"""Conversations: their data classes, their formats, and the search for lines in them."""
