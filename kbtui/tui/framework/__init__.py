"""Widgets and helpers that do not depend on kbtui's data."""
