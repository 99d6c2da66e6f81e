"""The parser that reads an ordinary `kbtui search` without `argparse` never reads it in another way."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbtui.cli.fast_argument_parser import SimpleArgumentParser
from kbtui.cli.main import load_command_parser_and_runner
from kbtui.cli.search_command import declare_search_command_arguments
from kbtui.errors import KbtuiError

NAMES = [
    *("-w", "--workspace", "--mode", "--since", "--before", "--topic", "-t", "--agent", "--all"),
    *("--archived", "--hidden", "--limit", "--per-entry", "--wait", "--explain", "--why", "--like"),
    *(
        "--save",
        "--saved",
        "--remove-saved",
        "--json",
        "--jso",
        "--help",
        "-h",
        "-",
        "--",
        "-x",
        "-1",
    ),
]
VALUES = ["", "lexical", "hybrid", "5", "1.5", "word", "two words", "a=b", "=", "-word of two", "é"]
options = st.sampled_from(NAMES)
values = st.sampled_from(VALUES)
words = st.one_of(options, values, st.builds("{}={}".format, options, values), st.text(max_size=4))


def parse_simply(given_words: list[str]) -> dict[str, object] | None:
    parser = SimpleArgumentParser(None)
    declare_search_command_arguments(parser)
    args = parser.parse_words(given_words)
    return None if args is None else vars(args)


@given(st.lists(words, max_size=6))
@example(["--saved"])
@example(["--limit=", "word"])
def test_both_parsers_read_the_same_arguments(given_words: list[str]) -> None:
    simple = parse_simply(given_words)
    if simple is None:
        return
    parser, _ = load_command_parser_and_runner("search")
    parser.set_defaults(workspace=None)
    assert simple == vars(parser.parse_intermixed_args(given_words))


@pytest.mark.parametrize(
    "given_words",
    [
        ["retry", "policy"],
        ["--topic", "a", "retry", "--topic=b", "--json", "--limit", "5"],
        ["-w", "x", "--since", "3d", "--explain", "retry"],
        ["--mode=lexical", "--saved"],
    ],
)
def test_ordinary_words_need_no_argparse(given_words: list[str]) -> None:
    assert parse_simply(given_words) is not None


@pytest.mark.parametrize(
    "given_words",
    [
        ["--limit", "many", "x"],
        ["--mode", "best", "x"],
        ["--unknown", "x"],
        ["x", "--limit"],
        ["--all=1"],
    ],
)
def test_argparse_explains_each_mistake(given_words: list[str]) -> None:
    assert parse_simply(given_words) is None
    with pytest.raises(KbtuiError):
        load_command_parser_and_runner("search")[0].parse_intermixed_args(given_words)
