"""Command-line arguments of the tools in `tests`."""

import argparse
from collections.abc import Callable, Collection


def make_name_parser(known: Collection[str]) -> Callable[[str], str]:
    """Return a `type` for argparse that accepts the known names.

    `choices` cannot be used: with `nargs="*"`, argparse checks the empty list against it, too.
    """

    def parse_name(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown name {text!r}; known: {', '.join(known)}")
        return text

    return parse_name
