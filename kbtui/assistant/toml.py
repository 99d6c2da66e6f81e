"""The tools as JP's configuration has them: one definition file each, and a skill (jp-format 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.assistant.definitions import Parameter, Tool

# Off unless named: JP's older spelling of it, which every version reads.
_ENABLE = "explicit"
_COMMAND = "kbtui tool {{context}} {{tool}}"
_STYLE = {"inline_results": "off", "results_file_link": "off", "parameters": "function_call"}


def tool_toml(tool: Tool) -> str:
    """The definition file of one tool."""
    table: dict[str, Any] = {
        "enable": _ENABLE,
        "run": "unattended",
        "source": "local",
        "command": _COMMAND,
        # JP always sends the summary, and the description only when asked for it.
        "summary": tool.summary,
    }
    if tool.details:
        table["description"] = tool.details
    table["style"] = _STYLE
    table["parameters"] = {one.name: _parameter(one) for one in tool.parameters}
    return _dump({"conversation": {"tools": {tool.name: table}}})


def _parameter(one: Parameter) -> dict[str, Any]:
    """As JSON Schema has it, in the keys that JP knows."""
    table: dict[str, Any] = {
        "type": one.types[0] if len(one.types) == 1 else list(one.types),
        "summary": one.description,
    }
    if one.required:
        table["required"] = True
    if one.default is not None:
        table["default"] = one.default
    if one.items:
        table["items"] = {"type": one.items}
        if one.enum:
            table["items"]["enum"] = list(one.enum)
    elif one.enum:
        table["enum"] = list(one.enum)
    return table


def skill_toml(tools: Iterable[Tool]) -> str:
    """The skill file: a section of the prompt, and the tools switched on."""
    from kbtui.assistant.definitions import DATA

    tools = list(tools)
    lines = [f"- {tool.name}: {_first_sentence(tool)}" for tool in tools]
    content = "\n".join(
        [
            "You can look up what this workspace knows and what was said in past conversations:",
            "",
            *lines,
            "",
            f"Look before you ask the user what was decided or discussed. {DATA}",
            "",
        ]
    )
    section = {"tag": "kbtui_skill", "title": "Skill: Knowledge and recall", "content": content}
    on = {"enable": True, "run": "unattended", "result": "unattended"}
    return _dump(
        {
            "assistant": {"system_prompt_sections": [section]},
            "conversation": {"tools": {tool.name: on for tool in tools}},
        }
    )


def _first_sentence(tool: Tool) -> str:
    return tool.summary.split(". ")[0].rstrip(".") + "."


def _dump(document: dict[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(document, multiline_strings=True)
