"""What the documentation takes from the code is up to date."""

import pytest

from kbtui.cli.main import COMMANDS
from tests.documentation.api_page import API_PAGE, make_api_page
from tests.documentation.tables import COMMAND_PAGES, insert_table, make_pages

TABLE = "| a |\n|---|\n| 1 |"


def test_tables_of_keys_commands_and_settings_are_up_to_date() -> None:
    stale = [path.name for path, text in make_pages().items() if path.read_text("utf-8") != text]
    assert stale == [], "run `make docs`"


def test_the_api_page_is_up_to_date() -> None:
    assert API_PAGE.read_text("utf-8") == make_api_page(), "run `make docs`"


def test_every_command_has_a_page() -> None:
    assert COMMAND_PAGES.keys() == COMMANDS.keys()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# T\n\n## A\n\n| b |\n|---|\n| 2 |\n\nEnd.\n", f"# T\n\n## A\n\n{TABLE}\n\nEnd.\n"),
        ("# T\n\n## A\n\nText.\n\n## B\n", f"# T\n\n## A\n\nText.\n\n{TABLE}\n\n## B\n"),
        ("# T\n\n## A\n\nText.\n", f"# T\n\n## A\n\nText.\n\n{TABLE}\n"),
    ],
)
def test_a_table_is_inserted_or_replaced(before: str, after: str) -> None:
    assert insert_table(before, "A", TABLE) == after
    assert insert_table(after, "A", TABLE) == after


def test_a_missing_section_is_an_error() -> None:
    with pytest.raises(ValueError, match="no section 'B'"):
        insert_table("# T\n\n## A\n", "B", TABLE)
