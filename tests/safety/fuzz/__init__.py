"""Fuzzing: `python -m tests.safety.fuzz` runs atheris; tests/safety/test_fuzz.py the same targets with hypothesis."""
