"""The version of kbtui. This module imports nothing."""

__version__ = "0.2.0.dev0"
