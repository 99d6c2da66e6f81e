"""The engine's process: `python -P -m kbtui.engine ROOT`, started by clients."""

import sys
from pathlib import Path

from kbtui.engine.process import run_engine

if __name__ == "__main__":
    sys.exit(run_engine(Path(sys.argv[1])))
