"""Finds, parses, searches, marks and archives the conversations of all agents."""
