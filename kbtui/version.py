"""The version, importable by every room at no cost."""

__version__ = "0.1.0"
