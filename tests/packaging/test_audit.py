"""What `make audit` says of a report: a vulnerability fails, ignorance is said and does not."""

import importlib.util
from pathlib import Path
from typing import Any

_PLACE = Path(__file__).with_name("audit.py")
_SPEC = importlib.util.spec_from_file_location("audit_script", _PLACE)
assert _SPEC
assert _SPEC.loader
audit = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(audit)

FINE: dict[str, Any] = {"name": "fine", "version": "1.0", "vulns": []}
BAD: dict[str, Any] = {
    "name": "bad",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": [], "description": "x"}],
}
UNKNOWN: dict[str, Any] = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}


def test_a_known_vulnerability_fails_and_says_what_mends_it() -> None:
    lines, code = audit.verdict([FINE, BAD, UNKNOWN])
    assert code == 1
    assert lines == [
        "bad 2.0: PYSEC-1, mended in 2.1",
        "audit: 2 packages looked up, 1 known vulnerabilities",
        "audit: not looked up: torch",
    ]


def test_without_a_service_nothing_is_claimed_and_nothing_fails() -> None:
    for report in ([], [UNKNOWN]):
        lines, code = audit.verdict(report)
        assert code == 0
        assert lines == ["audit: no advisory service can be reached; nothing was looked up"]
