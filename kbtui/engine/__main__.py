"""Runs the engine. Clients start it with `python -P -m kbtui.engine CACHE`.

The argument only shows in lists of processes which engine it is. The engine finds the cache directory
by its environment variables, as its clients do.
"""

import os
import sys

from kbtui.engine.engine_process import run_engine

if __name__ == "__main__":
    code = run_engine()
    sys.stderr.flush()
    # `sys.exit` would wait for a thread that may still be loading the model.
    os._exit(code)
