"""The engine's process: `python -P -m kbtui.engine ROOT`, started by clients."""

import os
import sys
from pathlib import Path

from kbtui.engine.lifecycle import run_engine

if __name__ == "__main__":
    code = run_engine(Path(sys.argv[1]))
    sys.stderr.flush()
    # Not `sys.exit`: it would wait for a thread that is still loading the model.
    os._exit(code)
