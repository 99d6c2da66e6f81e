"""Run the benchmarks that are named, or all: `python -m tests.bench [NAME…] [--times N]`."""

import argparse
import contextlib
import os
import platform
import sys
import tempfile
import traceback
from pathlib import Path

from kbtui.publishing import published_vector_table_update
from tests.arguments import make_name_parser
from tests.bench import (
    backlog,
    conversations,
    entries,
    files,
    idle_engine,
    lists,
    processes,
    projects,
    publishing,
    reader,
    rival,
    scale,
    searching,
)

USUAL = {
    **files.BENCHES,
    **conversations.BENCHES,
    **processes.BENCHES,
    **searching.BENCHES,
    **backlog.BENCHES,
    **reader.BENCHES,
    **lists.BENCHES,
    **entries.BENCHES,
    **rival.BENCHES,
    **projects.BENCHES,
    **idle_engine.BENCHES,
    **publishing.BENCHES,
}
"""The benchmarks that run when none is named."""
ALL = USUAL | scale.BENCHES


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        type=make_name_parser(ALL),
        metavar="NAME",
        help=f"of {', '.join(USUAL)}; and of the long {', '.join(scale.BENCHES)}",
    )
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--size", type=int, help="chunks, for `million` and `publish`")
    parser.add_argument("--updates", type=int, help="updates, for `publish-series`")
    parser.add_argument("--keep", type=Path, help="where to keep what is made, and find it again")
    parser.add_argument("--beside", type=int, help="most passages beside the table of vectors")
    args = parser.parse_args()
    if args.size is not None:
        scale.size = publishing.passages = args.size
    if args.updates is not None:
        publishing.updates = args.updates
    if args.beside is not None:
        published_vector_table_update.MAX_PASSAGES_MISSING_FROM_TABLE = args.beside
    with contextlib.ExitStack() as stack:
        base = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kbb-")))
        base = base.absolute()
        for variable in ("CACHE_HOME", "CONFIG_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR"):
            (base / variable).mkdir(mode=0o700, parents=True, exist_ok=True)
            os.environ[f"XDG_{variable}"] = str(base / variable)
        os.environ["JP_USER_DATA_DIR"] = str(base / "jp")
        os.environ.pop("KBTUI_MODEL", None)  # a benchmark without the model switches it off itself
        print(machine())
        failed = 0
        for name in args.names or USUAL:
            try:
                for row in ALL[name](base / name, args.times):
                    print(row, flush=True)
            except Exception:
                failed += 1
                print(f"{name}: FAILED")
                traceback.print_exc()
    return 1 if failed else 0


def machine() -> str:
    """What this runs on, in a line; how busy it is says how much to believe."""
    said = [platform.platform(), f"{os.cpu_count()} cores"]
    with contextlib.suppress(OSError):
        facts = dict(
            line.partition(":")[::2] for line in Path("/proc/cpuinfo").read_text().splitlines()
        )
        said += [value.strip() for name, value in facts.items() if name.startswith("model name")]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    said += [f"{pages / 1e9:.0f} GB", f"load {os.getloadavg()[0]:.1f}"]
    return ", ".join([*said, f"Python {platform.python_version()}"])


if __name__ == "__main__":
    sys.exit(main())
