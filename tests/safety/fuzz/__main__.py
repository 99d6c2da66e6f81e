"""`python -m tests.safety.fuzz [TARGET…] [--seconds N]`: atheris, one target after the other."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.arguments import make_name_parser
from tests.safety.fuzz.targets import SEEDS, TARGETS

MEMORY_MB = 2048


def one(name: str, seconds: int, corpus: Path) -> None:
    """Fuzz one target in this process, which atheris ends."""
    import atheris

    with atheris.instrument_imports(include=["kbtui"]):
        import kbtui.assistant.assistant_tools
        import kbtui.assistant.jp_local_tools
        import kbtui.conversations
        import kbtui.engine.engine_server
        import kbtui.index.indexable_entry_reader
        import kbtui.knowledge
        import kbtui.references
        import kbtui.search.query_parsing_and_filter_application
        import kbtui.sources.document_source_definitions
        import kbtui.tui.reader.subject_document_builder  # noqa: F401
    options = [f"-max_total_time={seconds}", "-timeout=5", f"-rss_limit_mb={MEMORY_MB}"]
    found = f"-artifact_prefix={corpus.parent}/found-{name}-"
    atheris.Setup([sys.argv[0], *options, found, "-max_len=4096", str(corpus)], TARGETS[name])
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.safety.fuzz", description=__doc__)
    parser.add_argument(
        "targets",
        nargs="*",
        type=make_name_parser(TARGETS),
        metavar="TARGET",
        help=", ".join(TARGETS),
    )
    parser.add_argument("--seconds", type=int, default=120, help="for each target (120)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=Path, help="where inputs and findings are kept")
    args = parser.parse_args()
    base = args.keep or Path(tempfile.mkdtemp(prefix="kb-fuzz-"))
    if args.here:
        one(args.targets[0], args.seconds, base / args.targets[0])
        return 0
    failed = []
    for name in args.targets or TARGETS:
        corpus = base / name
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(SEEDS[name]):
            (corpus / f"seed{number}").write_bytes(seed)
        print(f"== {name}, {args.seconds} s; findings in {base}", flush=True)
        # Directories of its own, so that nothing of the person's is touched.
        places = {
            variable: str(base / variable.lower())
            for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
                             "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "JP_USER_DATA_DIR")
        }  # fmt: skip
        for place in places.values():
            Path(place).mkdir(exist_ok=True, mode=0o700)
        command = [sys.executable, "-m", "tests.safety.fuzz", name, "--here", "--keep", str(base)]
        done = subprocess.run(
            [*command, "--seconds", str(args.seconds)], env={**os.environ, **places}, check=False
        )
        if done.returncode:
            failed.append(name)
    print("findings: " + (", ".join(failed) or "none"))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
