"""Runs the engine. Clients start it with `python -P -m kbtui.engine CACHE`.

The argument CACHE only identifies the engine in a list of processes. The engine and its clients find
the cache directory through environment variables. An engine that restarts itself adds the fields of
`EngineRestartHandover` as arguments.
"""

import os
import sys

from kbtui.engine.engine_main import EngineRestartHandover, run_engine

if __name__ == "__main__":
    state = sys.argv[2:]
    code = run_engine(EngineRestartHandover(*map(int, state)) if state else None)
    sys.stderr.flush()
    # `sys.exit` would wait for a thread that may still be loading the model.
    os._exit(code)
