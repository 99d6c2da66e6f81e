"""Embedding pauses depending on the computer's load and battery."""

from pathlib import Path

import pytest

from kbtui.engine.embedding_worker import (
    LOAD_CHECK_SECONDS,
    EmbeddingPausePolicy,
    is_computer_on_battery,
)


class Machine:
    """A computer whose state a test sets."""

    def __init__(self) -> None:
        self.battery, self.load, self.now = False, 0.0, 0.0

    def conditions(self, pause: str) -> EmbeddingPausePolicy:
        return EmbeddingPausePolicy(
            pause,
            on_battery=lambda: self.battery,
            load=lambda: self.load,
            cores=4,
            clock=lambda: self.now,
        )


@pytest.mark.parametrize(
    ("pause", "battery", "load", "reason"),
    [
        ("never", True, 99.0, None),
        ("battery", True, 0.0, "battery"),
        ("battery", False, 99.0, None),
        ("load", True, 0.0, None),
        ("load", False, 99.0, "busy"),
        ("either", True, 0.0, "battery"),
        ("either", False, 99.0, "busy"),
        ("either", False, 1.0, None),
    ],
)
def test_each_setting_waits_for_what_it_names(
    pause: str, battery: bool, load: float, reason: str | None
) -> None:
    machine = Machine()
    machine.battery, machine.load = battery, load
    assert machine.conditions(pause).find_embedding_pause_reason() == reason


def test_its_own_work_is_no_load_that_it_waits_for() -> None:
    machine = Machine()
    conditions = machine.conditions("load")
    machine.load = 4.5  # one program and ourselves on four cores
    assert conditions.find_embedding_pause_reason() is None
    machine.load, machine.now = 8.0, LOAD_CHECK_SECONDS
    assert conditions.find_embedding_pause_reason() == "busy"
    machine.load = 4.5  # now without us: others have all cores
    machine.now = 2 * LOAD_CHECK_SECONDS
    assert conditions.find_embedding_pause_reason() == "busy"
    machine.load, machine.now = 1.0, 3 * LOAD_CHECK_SECONDS
    assert conditions.find_embedding_pause_reason() is None


def supply(folder: Path, name: str, **facts: str) -> None:
    (folder / name).mkdir()
    for fact, text in facts.items():
        (folder / name / fact).write_text(text + "\n")


def test_a_battery_counts_only_while_it_is_emptied(tmp_path: Path) -> None:
    assert not is_computer_on_battery(tmp_path)
    assert not is_computer_on_battery(tmp_path / "none")
    supply(tmp_path, "BAT0", type="Battery", status="Discharging")
    supply(tmp_path, "hid", type="Battery")
    assert is_computer_on_battery(tmp_path)
    supply(tmp_path, "AC", type="Mains", online="1")
    assert not is_computer_on_battery(tmp_path)
    (tmp_path / "AC/online").write_text("0\n")
    assert is_computer_on_battery(tmp_path)
    (tmp_path / "BAT0/status").write_text("Full\n")
    assert not is_computer_on_battery(tmp_path)
