"""How big a text is for a model: an estimate, the same wherever a size is shown."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a text costs: a quarter of its UTF-8 bytes, rounded up.

    Bytes, because a script of three bytes a letter takes more tokens than its
    letters suggest. Models differ by a third either way.
    """
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4
