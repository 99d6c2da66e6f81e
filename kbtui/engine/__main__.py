"""Runs the engine. Clients start it with `python -P -m kbtui.engine ROOT`."""

import os
import sys
from pathlib import Path

from kbtui.engine.engine_process import run_engine

if __name__ == "__main__":
    code = run_engine(Path(sys.argv[1]))
    sys.stderr.flush()
    # `sys.exit` would wait for a thread that may still be loading the model.
    os._exit(code)
