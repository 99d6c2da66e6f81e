"""Whatever strangers write: refused in words or read, never a crash, a hang, or a flood of memory."""

import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.safety.fuzz.targets import DENSE, SEEDS, TARGETS

CPU_SECONDS, MEMORY = 1.0, 200 << 20
SIGNS = list("[]{}()<>*?!/\\:;,.\"'`~#|&%$@^-+=_\n\t \r\x00\x1b\u202e\u0301é東0aZ9")
PIECES = ["---\n", "```", "**", "type:", "jp-c", "[kb.topic.", "timestamp", "null", "1e9", "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape"), "subjects"]  # fmt: skip

plain = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from([*SIGNS, *PIECES]), max_size=80).map(
        lambda parts: "".join(parts).encode("utf-8", "surrogateescape")
    ),
)


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed with pieces taken out, doubled, or put in."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + 40)))
        data = draw(
            st.sampled_from([data[:at] + data[end:], data[:end] + data[at:]])
            | plain.map(lambda piece, at=at, end=end, data=data: data[:at] + piece + data[end:])
        )
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_crashes_it(name: str) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=plain | mutated(SEEDS[name]))
    def tried(data: bytes) -> None:
        TARGETS[name](data)

    tried()


@pytest.mark.parametrize("name", TARGETS)
def test_no_dense_input_hangs_it_or_takes_much_memory(name: str) -> None:
    TARGETS[name](SEEDS[name][0])  # what is imported and made once is not counted
    for data in [*SEEDS[name], *DENSE]:
        began = time.process_time()
        TARGETS[name](data)
        took = time.process_time() - began
        assert took < CPU_SECONDS, (took, data[:60])


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_memory_stays_within_bounds(name: str) -> None:
    TARGETS[name](SEEDS[name][0])
    for data in DENSE:
        tracemalloc.start()
        try:
            TARGETS[name](data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < MEMORY, (peak, data[:60])
