"""TOML that somebody else wrote: what the standard reader would take minutes for is refused."""

import re
from typing import Any

PARTS_MOST = 100
"""Parts of a dotted key: the reader's time grows with their square."""
_CHAIN = re.compile(r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*)+""")


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text; raises `ValueError` with the reason, or `RecursionError`."""
    import tomllib

    if any(found[0].count(".") >= PARTS_MOST for found in _CHAIN.finditer(text)):
        raise ValueError(f"a key has more than {PARTS_MOST} parts")
    return tomllib.loads(text)
