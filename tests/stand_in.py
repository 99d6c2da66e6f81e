"""Stands in for a program: `program_server.py` forks that program with these streams.

usage: stand_in.py SOCKET PYTHON WORDS…  (the words of a kbtui command, a Python file and its words, or what starts an engine)

PYTHON starts the engines of that program.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect(sys.argv[1])
        socket.send_fds(server, [b"."], [0, 1, 2])
        with server.makefile("rw") as messages:
            asked = {
                "words": sys.argv[3:],
                "cwd": os.getcwd(),  # noqa: PTH109 (its import takes long)
                "environment": dict(os.environ),
                "engine_python": sys.argv[2],
                "is_on_terminal": False,
            }
            print(json.dumps(asked), file=messages, flush=True)
            code = int(messages.readline() or 1)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)
