"""No import cycles: a reader can start at the lowest layer and go up."""

from __future__ import annotations

import grimp
import pytest


def find_cycles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Find the groups of two or more modules that all import each other, directly or not."""
    found: list[set[str]] = []
    for module in sorted(graph.modules):
        if any(module in group for group in found):
            continue
        group = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if group - {module}:
            found.append(group | {module})
    return found


def test_a_cycle_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("c", "e")]:
        graph.add_import(importer=importer, imported=imported)
    assert find_cycles(graph) == [{"a", "b", "c"}]


def test_no_modules_import_each_other() -> None:
    """Imports for type checking and inside functions count: a reader follows those too."""
    graph = grimp.build_graph("kbtui", cache_dir=None)
    cycles = [", ".join(sorted(cycle)) for cycle in find_cycles(graph)]
    if cycles:
        pytest.fail("\n".join(f"these import each other: {cycle}" for cycle in cycles))
