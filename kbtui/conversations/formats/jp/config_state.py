"""What a conversation's configuration says about it: assistant, model, attachments.

The configuration is a base and a row of deltas over it (jp-format 2.5 and 3);
all but these three facts is JP's own business.
"""

from typing import Any


class ConversationFacts:
    """The facts in force after the configurations applied so far."""

    def __init__(self) -> None:
        self.assistant: str | None = None
        self.model: str | None = None
        self.attachments: list[str] = []

    def apply(self, config: Any) -> None:
        """Merge a base configuration or a delta; whatever has another form is passed over."""
        if not isinstance(config, dict):
            return
        assistant = config.get("assistant")
        if isinstance(assistant, dict):
            if isinstance(name := assistant.get("name"), str):
                self.assistant = name
            if isinstance(model := assistant.get("model"), dict):
                self.model = _model(model.get("id")) or self.model
        conversation = config.get("conversation")
        if isinstance(conversation, dict):
            self._attach(conversation.get("attachments"))

    def _attach(self, value: Any) -> None:
        """A list, or `{value, strategy}`; only "replace" drops what was attached before."""
        replace = False
        if isinstance(value, dict):
            replace = value.get("strategy") == "replace"
            value = value.get("value")
        if not isinstance(value, list):
            return
        kept = [] if replace else self.attachments
        named = [name for item in value if (name := _attachment(item))]
        self.attachments = list(dict.fromkeys([*kept, *named]))


def _model(value: Any) -> str | None:
    """An alias as it stands, or `provider/name`."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, dict):
        parts = [part for key in ("provider", "name") if isinstance(part := value.get(key), str)]
        return "/".join(parts) or None
    return None


def _attachment(item: Any) -> str | None:
    """One attachment as a URL; JP writes URLs and `{type, path, params}`."""
    if isinstance(item, str):
        return item or None
    if not isinstance(item, dict) or not isinstance(kind := item.get("type"), str):
        return None
    path = item.get("path")
    params = item.get("params")
    arguments = params.get("args") if isinstance(params, dict) else None
    url = f"{kind}://{path if isinstance(path, str) else ''}"
    if isinstance(arguments, list):
        from urllib.parse import quote

        url += "".join(
            f"{'&' if number else '?'}arg={quote(str(argument), safe='')}"
            for number, argument in enumerate(arguments)
        )
    return url
