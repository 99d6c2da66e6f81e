"""Runs one source of a workspace: what the engine starts when it is due."""

import contextlib
import os
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Run the source `words[1]` of the workspace at `words[0]`; 0 when it ended well."""
    from kbtui.errors import KbtuiError
    from kbtui.sources.runner import run_source
    from kbtui.workspace import open_root

    with contextlib.suppress(OSError):
        os.nice(10)
    try:
        run = run_source(open_root(Path(words[0])), words[1])
    except KbtuiError as error:
        print(f"source {words[1]}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    print(f"source {words[1]}: {run.status}: {run.error or 'done'}", file=sys.stderr)
    return 0 if run.status == "ok" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
