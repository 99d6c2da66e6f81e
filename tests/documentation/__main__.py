"""`make docs`: write the generated tables of the guide and the page about the Python API."""

from __future__ import annotations

import sys

from tests.documentation.api_page import API_PAGE, make_api_page
from tests.documentation.tables import make_pages


def main() -> int:
    """Write what differs, and name it."""
    for path, text in {**make_pages(), API_PAGE: make_api_page()}.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
