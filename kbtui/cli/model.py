"""Show the embedding model: which one, where it lies, and whether it is what it should be."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json
from kbtui.cli.progress import working

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui model`."""
    parser.add_argument("action", choices=["show"], nargs="?", default="show")
    parser.add_argument("--json", action="store_true", help="as a JSON object")


def run(args: Namespace) -> int:
    """Find and verify the model, without loading it; 3 when it cannot be used, 0 when it is off."""
    from kbtui.index.embedding_model import ModelUnavailable, find_model, verify
    from kbtui.workspace import load_settings

    setting = load_settings().model
    facts: dict[str, object] = {"setting": setting, "source": None, "usable": False, "reason": None}
    try:
        model = find_model(setting)
        facts["source"] = model.source
        with working("checking the model's files"):
            verify(model)
        facts["usable"] = True
    except ModelUnavailable as error:
        facts["reason"] = str(error)
    if args.json:
        emit_json(facts)
    else:
        name = setting or "all-MiniLM-L6-v2, packaged"
        emit(f"model   {name}\nsource  {facts['source'] or '-'}\n")
        emit(f"state   {'usable, checksums verified' if facts['usable'] else facts['reason']}\n")
    return 0 if facts["usable"] or setting == "off" else 3
