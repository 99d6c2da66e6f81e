"""Stands in for a program: the server of `running.serve_programs` forks that program with these streams.

usage: stand_in.py SOCKET WORDS…  (the words of a kbtui command, or a Python file and its words)
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
            asked = (sys.argv[2:], os.getcwd(), dict(os.environ))  # noqa: PTH109 (its import takes long)
            print(json.dumps(asked), file=messages, flush=True)
            sys.exit(int(messages.readline() or 1))
