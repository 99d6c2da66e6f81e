"""Widgets and helpers that know nothing about kbtui's data."""
