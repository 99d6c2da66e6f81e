"""Looks up known vulnerabilities of the held versions (`make audit`): pip-audit, asked of PyPI and else of OSV.

Exit code 1 when there is one. Where neither service can be reached, or pip-audit cannot be
installed, nothing is known: that is said, and is no failure.
"""

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "audit"
PIP_AUDIT = "pip-audit>=2.10,<3"
SECONDS = 300


def main() -> int:
    """Ask, and say what came of it."""
    if not _installed():
        print("audit: pip-audit cannot be installed here; nothing was looked up", file=sys.stderr)
        return 0
    for service in ("pypi", "osv"):
        report = _asked(service)
        if report and any("vulns" in found for found in report):
            break
    lines, code = verdict(report)
    print("\n".join(lines))
    return code


def verdict(report: list[dict[str, Any]]) -> tuple[list[str], int]:
    """What pip-audit's report means, in lines, and the exit code."""
    known = [found for found in report if "vulns" in found]
    lines = [line for found in known for line in _vulnerabilities(found)]
    bad = len(lines)
    unknown = [found["name"] for found in report if "vulns" not in found]
    if not known:
        lines.append("audit: no advisory service can be reached; nothing was looked up")
    else:
        lines.append(f"audit: {len(known)} packages looked up, {bad} known vulnerabilities")
        if unknown:
            lines.append(f"audit: not looked up: {', '.join(unknown)}")
    return lines, 1 if bad else 0


def _vulnerabilities(found: dict[str, Any]) -> Iterator[str]:
    for vulnerability in found["vulns"]:
        fixed = ", ".join(vulnerability.get("fix_versions") or ["no version yet"])
        yield f"{found['name']} {found['version']}: {vulnerability['id']}, mended in {fixed}"


def _installed() -> bool:
    """An environment of its own: none of what pip-audit stands on is ours."""
    if (HOME / "bin/pip-audit").exists():
        return True
    try:
        venv.create(HOME, with_pip=True, clear=True)
        subprocess.run(
            [HOME / "bin/pip", "install", "--quiet", "--disable-pip-version-check", PIP_AUDIT],
            check=True,
            timeout=SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _asked(service: str) -> list[dict[str, Any]]:
    """The packages of constraints.txt as the service knows them; [] where it cannot be reached."""
    command = [HOME / "bin/pip-audit", "--vulnerability-service", service, "--format", "json"]
    command += ["--progress-spinner", "off", "--no-deps", "--disable-pip"]
    command += ["--requirement", ROOT / "constraints.txt"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        report: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (subprocess.SubprocessError, ValueError, KeyError):
        return []
    return report


if __name__ == "__main__":
    sys.exit(main())
