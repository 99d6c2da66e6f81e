"""Formats of conversations: one module or package for each agent."""
