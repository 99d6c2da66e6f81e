"""Finds out which turns used which subjects, conversations and files."""
