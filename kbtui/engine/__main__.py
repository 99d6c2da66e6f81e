"""Runs the engine. Clients start it with `python -P -m kbtui.engine CACHE`.

The argument only shows in lists of processes which engine it is. The engine finds the cache directory
by its environment variables, as its clients do. An engine that starts itself anew adds the fields of
`InheritedState`.
"""

import os
import sys

from kbtui.engine.engine_process import InheritedState, run_engine

if __name__ == "__main__":
    state = sys.argv[2:]
    code = run_engine(InheritedState(*map(int, state)) if state else None)
    sys.stderr.flush()
    # `sys.exit` would wait for a thread that may still be loading the model.
    os._exit(code)
