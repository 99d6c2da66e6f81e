"""Tests that checks, `kbtui config`, its example and the documentation agree on the settings."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from kbtui.cli.main import main
from kbtui.errors import ConfigError
from kbtui.workspace.user_settings import (
    SETTING_KEYS,
    Settings,
    format_example_settings,
    format_toml_value,
    get_settings_path,
    load_settings,
)

GUIDE = Path(__file__).parents[2] / "docs/guide/configuration.md"


@pytest.fixture
def file() -> Path:
    get_settings_path().parent.mkdir(parents=True, exist_ok=True)
    return get_settings_path()


def test_the_example_uncommented_gives_the_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KBTUI_ENGINE_IDLE")
    names = "|".join(key.name for key in SETTING_KEYS)
    lines = re.sub(
        rf"^# (?=(?:{names}) = |\[(?:{names})\]$)",
        "",
        format_example_settings(),
        flags=re.MULTILINE,
    )
    assert set(tomllib.loads(lines)) == {key.name for key in SETTING_KEYS}
    file.write_text(lines)
    assert load_settings() == Settings()
    file.write_text(format_example_settings())
    assert load_settings() == Settings()


@pytest.mark.parametrize("key", SETTING_KEYS, ids=lambda key: key.name)
def test_the_guide_has_every_key_with_its_default(key: object) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert dict(rows)[key.name] == format_toml_value(key.default)  # type: ignore[attr-defined]


def test_config_says_where_each_value_comes_from(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('# mine\nquery_log = false\ntheme = "x"\n[keys]\nsearch = "ctrl+f"\n')
    monkeypatch.setenv("KBTUI_MODEL", "off")
    assert main(["config", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    origins = {one["key"]: (one["value"], one["origin"]) for one in told["keys"]}
    assert origins["query_log"] == (False, f"{file}:2")
    assert origins["keys"] == ({"search": "ctrl+f"}, f"{file}:4")
    assert origins["model"] == ("off", "KBTUI_MODEL")
    assert origins["language"] == ("english", "default")
    assert main(["config", "theme"]) == 0
    assert capsys.readouterr().out == "x\n"
    assert main(["config"]) == 0
    text = capsys.readouterr().out
    assert all(key.name in text for key in SETTING_KEYS)
    assert str(file) in text


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('model = ""\n\nlanugage = "x"\n', 3, "unknown key 'lanugage'"),
        ("query_log_days = 1.5\n", 1, "query_log_days must be a whole number"),
        ("query_log = 1\n", 1, "query_log must be true or false"),
        ('model = "off"\nmask_secrets = "sometimes"\n', 2, "mcp, always, never"),
        ("\n[theem]\ndark = true\n", 2, "unknown key 'theem'"),
        ('"engine_idel" = 3\n', 1, "unknown key 'engine_idel'"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_the_nearest_key(
    file: Path, text: str, line: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert caught.value.where == f"{file}:{line}"
    assert words in caught.value.message
    if "unknown" in words:
        assert caught.value.hint is not None
        assert "did you mean" in caught.value.hint
    assert main(["config"]) == 2
    assert f"{file}:{line}" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_mistake(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfquery_log = false\n")
    assert load_settings().query_log is False


def test_no_such_key_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "modle"]) == 2
    assert "did you mean 'model'?" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"\xff\xfe", b"model = ", b"[", b"a" * 100])
def test_a_file_that_is_no_toml_is_told(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert str(file) in (caught.value.where or "")
