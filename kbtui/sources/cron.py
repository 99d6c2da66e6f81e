"""Cron expressions of five fields, in local time."""

from __future__ import annotations

from datetime import datetime

from kbtui.errors import ConfigError


def check_cron(expression: str) -> None:
    """Raise `ConfigError` for an expression that is none, or that never comes."""
    from cronsim import CronSim, CronSimError

    reason = "it never comes"
    try:
        # A sixth field would be seconds: nobody's pages want that.
        if len(expression) < 200 and len(expression.split()) == 5:
            next(CronSim(expression, datetime.now()))
            return
        reason = "it has not five fields"
    except (CronSimError, ValueError, AssertionError) as error:
        reason = str(error) or reason
    except StopIteration:
        pass
    raise ConfigError(
        f"{expression!r} is not a cron expression: {reason}",
        where="cron",
        hint='minute hour day month weekday, such as "0 4 * * 1"',
    )


def next_time(expression: str, after: float) -> float | None:
    """The first time of an expression after Unix time `after`; None where there is none any more."""
    from cronsim import CronSim

    for moment in CronSim(expression, datetime.fromtimestamp(after)):
        # In the hour that summer's end repeats, wall clock times lie behind as well as ahead.
        if (seconds := moment.timestamp()) > after:
            return seconds
    return None
