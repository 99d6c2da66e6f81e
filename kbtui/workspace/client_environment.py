"""The environment variables that apply to a thread or task: those of this process or of a client.

An engine serves clients with different environments, for example with different values of HOME.
Threads and tasks that work for a client run within `ClientEnvironment.apply_to_thread_or_task`, which makes
`paths.read_client_environment_variable` return the client's variables.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Thread
from typing import TYPE_CHECKING

from kbtui.workspace import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_current: ContextVar[ClientEnvironment | None] = ContextVar("client_environment", default=None)


class ClientEnvironment:
    """The values of the variables in `paths.CLIENT_VARIABLES` that are set in an environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.variables = {
            name: environment[name] for name in paths.CLIENT_VARIABLES if name in environment
        }

    @contextmanager
    def apply_to_thread_or_task(self) -> Iterator[None]:
        """Make this thread or task read these variables instead of the process's variables.

        This also applies to tasks and calls of `asyncio.to_thread` that begin within this context,
        but not to other threads and executors. For a new thread that reads the same variables, call
        `make_thread_with_client_environment`.
        """
        paths.set_environment_variable_source(_get_client_environment_variables)
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)


def make_thread_with_client_environment(target: Callable[[], object], name: str) -> Thread:
    """Return a daemon thread that runs in the caller's client environment."""
    return Thread(target=copy_context().run, args=(target,), name=name, daemon=True)


def make_client_environment_for_child_process() -> dict[str, str]:
    """Return the environment for a new process that works in the current client environment.

    In the engine, this new environment contains no credentials for the stores of published libraries.
    """
    if (current := _current.get()) is None:
        return dict(os.environ)
    own = os.environ.keys() - set(paths.CLIENT_VARIABLES)
    kept = (name for name in own if not name.startswith(paths.STORE_VARIABLE_PREFIXES))
    return {name: os.environ[name] for name in kept} | current.variables


def _get_client_environment_variables() -> Mapping[str, str]:
    current = _current.get()
    return os.environ if current is None else current.variables
