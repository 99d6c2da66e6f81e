"""Computes the cost of tokens from the prices in the user's settings."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.conversations.models import ConversationUsage
    from kbtui.workspace import Settings

TOKENS_PER_PRICE = 1_000_000
"""A price in the settings is for this number of tokens."""


class ModelPrice(NamedTuple):
    """The prices of a model per million tokens, in a currency that the user chooses."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    def compute_cost(self, usage: ConversationUsage) -> float | None:
        """Return the cost of tokens; None if only the total of the tokens is known."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cost = (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + (usage.cache_read_tokens or 0) * self.cache_read
            + (usage.cache_write_tokens or 0) * self.cache_write
        )
        return cost / TOKENS_PER_PRICE


class ModelPrices:
    """The prices of all models in the user's settings. The name of a model can be a pattern with `*`."""

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

        If several patterns match, the longest one applies. A pattern can leave out the provider before
        the model's name, such as `anthropic/` in `anthropic/claude-opus-4`.
        """
        for name in (model, model.rpartition("/")[2]) if model is not None else ():
            if name in self._prices:
                return self._prices[name]
            patterns = [pattern for pattern in self._prices if fnmatchcase(name, pattern)]
            if patterns:
                return self._prices[max(patterns, key=len)]
        return None

    def compute_cost(
        self, usage_by_model: Mapping[str | None, ConversationUsage]
    ) -> tuple[float | None, list[str]]:
        """Return the total cost of tokens, and the models that the total leaves out because their cost is unknown.

        The total is None if all models are left out.
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
