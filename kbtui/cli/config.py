"""The command `config`."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure_config(parser: ArgumentParser) -> None:
    """The arguments of `kbtui config`."""
    parser.add_argument("key", nargs="?", metavar="KEY", help="only this key's value")
    parser.add_argument("--example", action="store_true", help="a commented file with every key")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_config(args: Namespace) -> int:
    """Show the settings: each key, its value, and where that comes from.

    kbtui config                 every key
    kbtui config theme           one value alone
    kbtui config --example       a commented file to begin with
    """
    from kbtui.errors import UsageError
    from kbtui.workspace.settings import (
        SETTING_KEYS,
        explain_settings,
        format_example,
        format_toml_value,
        settings_path,
    )

    if args.example:
        emit(format_example())
        return 0
    known = [key.name for key in SETTING_KEYS]
    if args.key is not None and args.key not in known:
        from difflib import get_close_matches

        near = get_close_matches(args.key, known, n=1)
        raise UsageError(
            f"there is no key {args.key!r}",
            hint=f"did you mean {near[0]!r}?" if near else "known keys: " + ", ".join(known),
        )
    found = [one for one in explain_settings() if args.key in (None, one.key.name)]
    if args.json:
        emit_json(
            {
                "file": str(settings_path()),
                "exists": settings_path().exists(),
                "keys": [
                    {
                        "key": one.key.name,
                        "value": one.value,
                        "default": one.key.default,
                        "origin": one.origin,
                        "text": one.key.text,
                    }
                    for one in found
                ],
            }
        )
    elif args.key is not None:
        emit(
            f"{found[0].value if isinstance(found[0].value, str) else format_toml_value(found[0].value)}\n"
        )
    else:
        width = max(len(format_toml_value(one.value)) for one in found)
        lines = [
            f"{one.key.name:<19} {format_toml_value(one.value):<{min(width, 40)}}  {one.origin}"
            for one in found
        ]
        missing = "" if settings_path().exists() else "  (not there yet: every key has its default)"
        emit("\n".join([*lines, "", f"file: {settings_path()}{missing}"]) + "\n")
    return 0
