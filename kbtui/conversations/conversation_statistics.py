"""Summarizes a conversation: its turns, events, models and tokens, and the cost of the tokens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kbtui.conversations.conversation_data_types import (
    TokenUsage,
    sum_token_usage,
    sum_token_usage_by_model,
)
from kbtui.conversations.conversation_repository import (
    find_subagents,
    get_conversation_format,
)
from kbtui.dates import format_time_as_rfc3339_utc
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kbtui.conversations.conversation_data_types import Conversation, ConversationInfo
    from kbtui.conversations.formats.conversation_format import ConversationFormat
    from kbtui.workspace import Settings, Workspace


WHOLE_BYTES_MAX = 8 << 20
"""A conversation with more than this many bytes is loaded in parts of this size, if its format supports this."""


@dataclass
class ConversationStatistics:
    """Statistics of a conversation: its models, its token usage, and how many turns and events it has.

    * `project` is the directory in which the agent ran.
    * `usage` counts the tokens of the conversation, without those of its subagents.
    * `usage_by_model` is empty if the files do not say which models used the tokens.
    """

    info: ConversationInfo
    project: str
    turns: int = 0
    rewound_turns: int = 0
    """The number of turns that the user left behind by going back to an earlier turn."""
    events: Counter[str] = field(default_factory=Counter)
    """The number of events of each kind."""
    compactions: int = 0
    models: dict[str, None] = field(default_factory=dict)
    """The names of the models that answered, as the keys of a dictionary. The values are not used."""
    usage_by_model: dict[str | None, TokenUsage] = field(default_factory=dict)
    usage: TokenUsage | None = None
    subagents: list[ConversationStatistics] = field(default_factory=list)
    """The statistics of the subagents' conversations, including those of nested subagents."""
    ended_at: datetime | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def subagent_usage(self) -> TokenUsage | None:
        """The tokens that all subagents used; None if there are no subagents or no token counts."""
        return sum_token_usage(one.usage for one in self.subagents if one.usage is not None)

    @property
    def subagent_usage_by_model(self) -> dict[str | None, TokenUsage]:
        """The tokens that the subagents used with each model.

        The key None stands for an unknown model.
        """
        return sum_token_usage_by_model(
            item for one in self.subagents for item in one.usage_by_model.items()
        )

    def as_json(self) -> dict[str, object]:
        """Return the statistics as a JSON object with the documented keys, without the costs."""
        return {
            "agent": self.info.agent,
            "id": self.info.id,
            "parent_id": self.info.parent,
            "title": self.info.title,
            "project": self.project,
            "started_at": format_time_as_rfc3339_utc(self.info.created_at),
            "ended_at": format_time_as_rfc3339_utc(self.ended_at),
            "turns": self.turns,
            "rewound_turns": self.rewound_turns,
            "tool_calls": self.events["tool_call_request"],
            "tool_results": self.events["tool_call_response"],
            "attachments": self.events["attachment"],
            "compactions": self.compactions,
            "subagents": len(self.subagents),
            "models": list(self.models),
            "usage": (self.usage or TokenUsage())._asdict(),
            "subagent_usage": (self.subagent_usage or TokenUsage())._asdict(),
        }


def compute_conversation_statistics(
    workspace: Workspace, info: ConversationInfo
) -> ConversationStatistics:
    """Summarize a conversation and its subagents. Never raises: `problems` contains the errors."""
    statistics = _compute_statistics_without_subagents(workspace, info)
    for one in find_subagents(workspace, info):
        subagent = _compute_statistics_without_subagents(workspace, one)
        statistics.subagents.append(subagent)
        statistics.problems += [
            f"the subagent {one.ref}: {problem}" for problem in subagent.problems
        ]
    return statistics


def _compute_statistics_without_subagents(
    workspace: Workspace, info: ConversationInfo
) -> ConversationStatistics:
    """Read a whole conversation, and summarize it. Its subagents are not included."""
    conversation_format = get_conversation_format(info)
    project = info.working_directory or str(workspace.root)
    statistics = ConversationStatistics(info, project)
    if not _add_long_conversation_to_statistics(statistics, conversation_format):
        statistics = ConversationStatistics(info, project)
        _add_conversation_part_to_statistics(
            statistics, conversation_format.load_conversation(info)
        )
    statistics.usage = sum_token_usage(statistics.usage_by_model.values())
    if not statistics.usage_by_model:
        found = conversation_format.read_conversation_tools_and_models(info).models
        statistics.models = dict.fromkeys(sorted(found))
    return statistics


def _add_long_conversation_to_statistics(
    statistics: ConversationStatistics, conversation_format: ConversationFormat
) -> bool:
    """Add a long conversation to its statistics, part by part.

    Returns False if the conversation is short, or must be loaded as a whole.
    """
    info = statistics.info
    if info.size <= WHOLE_BYTES_MAX:
        return False
    if not conversation_format.should_load_conversation_in_segments(info):
        return False
    mark = None
    while True:
        part = conversation_format.load_conversation_segment(info, mark, WHOLE_BYTES_MAX)
        if part is None or (mark is not None and part.start is None):
            return False
        mark = part.resume_point
        if not part.is_last:
            if mark is None:
                return False
            if mark.open_turn is not None:
                # The next part contains the rest of this turn, and the usage of the whole turn.
                turn = part.conversation.turns[-1]
                turn.usage, turn.is_rewound = {}, False
        _add_conversation_part_to_statistics(statistics, part.conversation)
        if part.is_last:
            return True


def _add_conversation_part_to_statistics(
    statistics: ConversationStatistics, part: Conversation
) -> None:
    statistics.turns = part.turns[-1].number if part.turns else statistics.turns
    statistics.rewound_turns += sum(turn.is_rewound for turn in part.turns)
    statistics.compactions += len(part.compactions)
    statistics.problems += part.problems
    for turn in part.turns:
        if turn.model:
            statistics.models[turn.model] = None
        for event in turn.events:
            statistics.events[event.kind] += 1
            statistics.ended_at = event.timestamp or statistics.ended_at
    used = [item for turn in part.turns for item in turn.usage.items()]
    statistics.models |= dict.fromkeys(model for model, _ in used if model is not None)
    statistics.usage_by_model = sum_token_usage_by_model(
        [*statistics.usage_by_model.items(), *used]
    )


TOKENS_PER_PRICE = 1_000_000
"""A price in the settings is the price of this many tokens."""


class ModelPrice(NamedTuple):
    """The prices of a model per million tokens, in a currency that the user chooses."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    def compute_cost(self, usage: TokenUsage) -> float | None:
        """Return the cost of the tokens; None if the count of input or output tokens is unknown."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cost = (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + (usage.cache_read_tokens or 0) * self.cache_read
            + (usage.cache_write_tokens or 0) * self.cache_write
        )
        return cost / TOKENS_PER_PRICE


class PricesByModel:
    """The prices of models in the user's settings. A model's name can be a pattern with `*`."""

    def __init__(self, settings: Settings) -> None:
        self._prices = {
            name: ModelPrice(
                price["input"],
                price["output"],
                price.get("cache_read", price["input"]),
                price.get("cache_write", price["input"]),
            )
            for name, price in settings.prices.items()
        }

    def __bool__(self) -> bool:
        return bool(self._prices)

    def find_price(self, model: str | None) -> ModelPrice | None:
        """Return the price of a model, or None if no pattern in the settings matches its name.

        If several patterns match, the longest one applies. A pattern can omit the name of the provider,
        such as `anthropic/` in `anthropic/claude-opus-4`.
        """
        for name in (model, model.rpartition("/")[2]) if model is not None else ():
            if name in self._prices:
                return self._prices[name]
            patterns = [pattern for pattern in self._prices if fnmatchcase(name, pattern)]
            if patterns:
                return self._prices[max(patterns, key=len)]
        return None

    def compute_total_cost(
        self, usage_by_model: Mapping[str | None, TokenUsage]
    ) -> tuple[float | None, list[str]]:
        """Return the total cost of tokens, and the models without a known cost.

        The total does not include these models; it is None if no model has a known cost.
        """
        costs: list[float] = []
        unpriced = []
        for model, usage in usage_by_model.items():
            price = self.find_price(model)
            cost = price.compute_cost(usage) if price is not None else None
            if cost is not None:
                costs.append(cost)
            else:
                unpriced.append(model or "unknown model")
        return (sum(costs) if costs else None), sorted(unpriced)


def format_cost(cost: float) -> str:
    """Format a cost in the currency of the user's prices; costs below 1 have more decimals."""
    return f"{cost:,.2f}" if cost >= 1 or cost == 0 else f"{cost:.4f}"
