"""Run the benchmarks that are named, or all: `python -m tests.bench [NAME…] [--times N]`."""

import argparse
import os
import platform
import sys
import tempfile
import traceback
from pathlib import Path

from tests.bench import (
    backlog,
    conversations,
    entries,
    files,
    lists,
    processes,
    reader,
    scale,
    searching,
)


def main() -> int:
    benches = {
        **files.BENCHES,
        **conversations.BENCHES,
        **processes.BENCHES,
        **searching.BENCHES,
        **backlog.BENCHES,
        **reader.BENCHES,
        **lists.BENCHES,
        **entries.BENCHES,
    }
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        help=f"of {', '.join(benches)}; and of the long {', '.join(scale.BENCHES)}",
    )
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--size", type=int, default=scale.size, help="chunks, for `million`")
    args = parser.parse_args()
    scale.size = args.size
    with tempfile.TemporaryDirectory(prefix="kbb-") as place:
        base = Path(place)
        for variable in ("CACHE_HOME", "CONFIG_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR"):
            (base / variable).mkdir(mode=0o700)
            os.environ[f"XDG_{variable}"] = str(base / variable)
        os.environ["JP_USER_DATA_DIR"] = str(base / "jp")
        print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        failed = 0
        for name in args.names or benches:
            try:
                for row in (benches | scale.BENCHES)[name](base / name, args.times):
                    print(row, flush=True)
            except Exception:
                failed += 1
                print(f"{name}: FAILED")
                traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
