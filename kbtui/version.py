"""The version, importable by every package at no cost."""

__version__ = "0.2.0.dev0"
