"""Secrets are masked, and similar texts are not."""

import base64
import json
from typing import Any

import pytest
from assistant_support import CERTIFICATE, HEX, KEYS, MIXED, PHRASE, PRIVATE_KEY, RANDOM
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_texts import PLANTED

from kbtui.assistant.assistant_tools import should_mask_secrets
from kbtui.errors import ConfigError
from kbtui.secret_detection import (
    find_secrets,
    mask_secrets,
    mask_secrets_in_excerpt,
    mask_secrets_in_json,
    mask_secrets_in_text_part,
)
from kbtui.workspace import Settings


@pytest.mark.parametrize(
    ("secret", "what"),
    KEYS,
)
def test_a_key_of_a_known_format_is_masked_wherever_it_stands(secret: str, what: str) -> None:
    for before, after in [
        ("", ""),
        ("the key is ", ", I think"),
        ('"', '"'),
        ("<content>", "</content>"),
        ("K=", "\n"),
    ]:
        assert mask_secrets(f"{before}{secret}{after}") == f"{before}[masked: {what}]{after}"


def test_a_private_key_is_masked_whole_and_also_when_it_is_cut_off() -> None:
    lines = "\n".join([MIXED[:64]] * 20)
    begin, end = "-----BEGIN RSA PRIVATE" + " KEY-----", "-----END RSA PRIVATE" + " KEY-----"
    assert mask_secrets(f"a\n{begin}\n{lines}\n{end}\nb") == "a\n[masked: private key]\nb"
    assert MIXED[:40] not in mask_secrets(f"a\n{begin}\n{lines}")
    rest = mask_secrets(f"{lines[-300:]}\n{end}\nb")
    assert rest.endswith("[masked: private key]\nb")
    assert MIXED[:40] not in rest
    for part in (f"{lines[-300:]}\n{end}", f"{begin}\n{lines}"):
        assert MIXED[:40] not in mask_secrets(json.dumps(json.dumps({"key": part})))
    # In a JSON string.
    escaped = f"{begin}\n{lines}\n{end}".replace("\n", "\\n")
    assert mask_secrets(f'{{"key": "{escaped}"}}') == '{"key": "[masked: private key]"}'
    mention = f"A file that starts with {begin} is a key. Never commit one, please."
    assert mask_secrets(mention) == mention


@pytest.mark.parametrize(
    "start",
    ["{:6}→", "{:6}\t", "{:4} | ", "> ", "# ", "+", "│ ", "id_rsa:{}:", "\x1b[32m+\x1b[m\x1b[32m"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\\n", '\\n" +\n'])
def test_a_private_key_is_masked_when_its_lines_have_numbers_or_marks(start: str, end: str) -> None:
    lines = PRIVATE_KEY.splitlines()
    text = end.join(start.format(number) + line for number, line in enumerate(lines, 1))
    masked = mask_secrets(f"before\n{text}\nafter")
    assert not any(line in masked for line in lines[1:-1])
    assert masked.startswith("before\n")
    assert masked.endswith("after")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("API_KEY=9f86d081884c7d65", "API_KEY=[masked: secret]"),
        ('"clientSecret": "Zx81-Spectrum-48K!"', '"clientSecret": "[masked: secret]"'),
        ("password: S3cr3t!Passw0rd", "password: [masked: secret]"),
        ("db.password = 'hunter2hunter3'", "db.password = '[masked: secret]'"),
        (
            "AWS_SECRET_ACCESS_KEY := wJalrXUtnFEMI/K7MDENG",
            "AWS_SECRET_ACCESS_KEY := [masked: secret]",
        ),
        (
            "postgres://app:s3cret@db.internal/main",
            "postgres://app:[masked: password]@db.internal/main",
        ),
        (
            "HTTPS://app:p@ss9Kd2q@db.internal/main",
            "HTTPS://app:[masked: password]@db.internal/main",
        ),
        ('password = "Tr0ub4dor&3(zebra)x9"', 'password = "[masked: secret]"'),
        (r"{\"token\": \"Xk9;mP2{qL7}wR4\"}", r"{\"token\": \"[masked: secret]\"}"),
        ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [masked: credentials]"),
        (f"Authorization: {RANDOM}", "Authorization: [masked: secret]"),
        (f"a Bearer {RANDOM}.", "a Bearer [masked: secret]"),
        (f"Set-Cookie: sid={RANDOM}; Secure", "Set-Cookie: [masked: secret]; Secure"),
        (f"mysql --password {RANDOM} -h x", "mysql --password [masked: secret] -h x"),
        (f"the password is {RANDOM}", "the password is [masked: secret]"),
        (f"the password is: `{RANDOM}`", "the password is: `[masked: secret]`"),
        (f"das Kennwort lautet {RANDOM}", "das Kennwort lautet [masked: secret]"),
        (f"API key: {RANDOM}", "API key: [masked: secret]"),
        (f"curl -u me:{RANDOM} x", "curl -u me:[masked: password] x"),
        (f"DB_PASS={RANDOM}", "DB_PASS=[masked: secret]"),
        (f'"pwd": "{RANDOM}"', '"pwd": "[masked: secret]"'),
        (f"SECRET_KEY_BASE={RANDOM}", "SECRET_KEY_BASE=[masked: secret]"),
        (f"<apiKey>{RANDOM}</apiKey>", "<apiKey>[masked: secret]</apiKey>"),
        (f"&lt;token&gt;{RANDOM}&lt;/token&gt;", "&lt;token&gt;[masked: secret]&lt;/token&gt;"),
        (f"token = &quot;{RANDOM}&quot;;", "token = &quot;[masked: secret]&quot;;"),
        (f"https://h/x?sig={RANDOM}&v=1", "https://h/x?sig=[masked: secret]&v=1"),
    ],
)
def test_a_value_given_to_a_secret_name_is_masked(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "def parse_token(text: str) -> Token: ...",
        "token = parse_token(text)",
        "password = os.environ['DB_PASSWORD']",
        "password = '{user2.password}'",
        ".map(CancellationToken::is_cancelled2)",
        "fn run(cancellation_token: &CancellationToken)",
        "if token == 'a1b2c3d4e5f6':",
        "password: str | None = None",
        "The secret: patience and a good night's sleep.",
        "api_key = ANTHROPIC_API_KEY",
        "secret_path = /run/secrets/database",
        "token_count = 123456789012",
        f"sha256:{HEX}",
        f"commit {HEX[:40]}",
        "[entry s0123456789ab · chunk 879ce52dc22a56c7 · score 0.0909] Choosing chunk sizes",
        "see https://example.org:8080/path@2x.png",
        "user@example.org",
        "task-force-one-is-a-very-long-identifier-with-many-words",
        "sk-learn-style-estimators-and-their-many-parameters",
        "scheme://host/path?key=value&other=123456",
        "the token is parsed2times and the password Reset2023 was a word",
        "SKETCHES and key-value-stores, bypass=enabled4all, compass: N45W3-north",
        "bearer tokens2023 are checked; cookie: yes; authorization: required",
        "| key | action |\n|---|---|\n| `ctrl+r` | reload2 |\n| token | a word |",
        "password: The password must have 8 characters",
        'password="The password is at least 8 characters long"',
        "def login(self, rdns=True, username=None, password=None): ...",
        "tokens = [split_word(word) for word in words2]",
        "class Ed25519PrivateKey(metaclass=ABCMeta):\n    @abstractmethod2",
        "MAX_TOKENS=4096 TOKEN_COUNT=12 PASSWORD_HASHERS=default",
        "Secrets:\n\n- never commit them\n- rotate them every 90 days",
        "the password for the account is checked by check2FA()",
        f"{CERTIFICATE}",
        "    'ssh2_connect',\n    'token_get_all',\n    'ssh2_disconnect',",
        "the secret is sha256-hashed, and the token to base64url text",
        "name,secret\nbread,the yeast",
        "mysql -p asks for it; docker login asks, too; curl -u $USER:$PASS x",
        "see ghp_tokens and npm_config_registry2 and hf_transfer",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert mask_secrets(text) == text


@pytest.mark.parametrize("kind", PLANTED)
def test_a_secret_is_masked_where_people_and_programs_write_it(kind: str) -> None:
    text, cores = PLANTED[kind]
    for shown in (text, f"Here, as asked:\n\n```\n{text}\n```\n\nand *thanks*."):
        for masked in (mask_secrets(shown), json.dumps(mask_secrets_in_json({"output": shown}))):
            assert [core for core in cores if core in masked] == []
            assert "[masked: " in masked


@pytest.mark.parametrize("depth", range(4))
def test_json_within_json_is_masked_and_stays_json(depth: int) -> None:
    text = json.dumps(
        {"api_key": RANDOM, "note": f"password: {RANDOM}\nand \\ more", "last": "é\t"}
    )
    for _ in range(depth):
        text = json.dumps({"content": text})
    masked = mask_secrets(text)
    assert RANDOM not in masked
    for _ in range(depth):
        masked = json.loads(masked)["content"]
    found = json.loads(masked)
    assert found["api_key"] == "[masked: secret]"
    assert found["note"] == "password: [masked: secret]\nand \\ more"
    assert found["last"] == "é\t"


@given(st.text(max_size=300))
def test_masking_twice_is_masking_once_and_plain_text_stays(text: str) -> None:
    once = mask_secrets(text)
    assert mask_secrets(once) == once


@given(
    before=st.text("ab .\n\"'", max_size=30),
    after=st.text(" .\n\"'", max_size=30),
)
def test_no_text_around_a_key_lets_it_through(before: str, after: str) -> None:
    secret = "gh" + "p_" + MIXED[:36]
    assert secret not in mask_secrets(f"{before} {secret} {after}")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    ["token" * 50_000, "a" * 250_000, "-----BEGIN PRIVATE KEY-----" * 2_000, "eyJ" * 50_000, "-----END PRIVATE KEY-----" * 10_000, f"{MIXED[:64]}\n" * 4_000 + "-----END ",
     "x://" * 25_000, "password=" * 20_000, "sk-" * 50_000, "gh" + "p_" * 50_000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_a_long_hostile_text_is_masked_in_no_time(text: str) -> None:
    mask_secrets(text)


def test_the_setting_says_on_which_face() -> None:
    assert should_mask_secrets(Settings(), "mcp")
    assert not should_mask_secrets(Settings(), "jp")
    assert should_mask_secrets(Settings(mask_secrets="always"), "jp")
    assert not should_mask_secrets(Settings(mask_secrets="never"), "mcp")
    with pytest.raises(ConfigError, match="mask_secrets must be one of"):
        should_mask_secrets(Settings(mask_secrets="sometimes"), "mcp")


@pytest.mark.parametrize(
    "before", ["\\n", "\\t", "\\\\n", "\\u0009", "%3D", "\x1b[31m", "\x1b[0;1m", "x=", "\n"]
)
def test_an_escape_before_a_key_does_not_hide_it(before: str) -> None:
    for secret, what in KEYS:
        assert mask_secrets(f"a{before}{secret} b") == f"a{before}[masked: {what}] b"


@pytest.mark.parametrize(
    "text",
    [f"a\\nDB_PASS={RANDOM}", f"a\\npwd: {RANDOM}", f"a\\nBearer {RANDOM}",
     f"a\\nAuthorization: Basic {RANDOM}"],
)  # fmt: skip
def test_an_escape_before_a_secret_name_does_not_hide_its_value(text: str) -> None:
    assert RANDOM not in mask_secrets(text)


@settings(max_examples=15)
@given(
    before=st.text("ab .:\n\t\"'\\é<&", max_size=12),
    after=st.text(" .\n\"'<&", max_size=12),
    depth=st.integers(0, 3),
)
def test_a_secret_within_json_at_any_depth_is_masked(before: str, after: str, depth: int) -> None:
    for secret in [*(secret for secret, _ in KEYS), PRIVATE_KEY, PHRASE]:
        value: Any = f"{before}\n{secret}\n{after}"
        for level in range(depth):
            value = {"rows": [value]} if level % 2 else json.dumps({"text": value})
        for text in (json.dumps(mask_secrets_in_json(value)), mask_secrets(json.dumps(value))):
            assert secret not in text
            assert secret[-30:] not in text
            for line in secret.splitlines()[1:-1]:
                assert line not in text


def test_values_are_masked_before_anything_escapes_them() -> None:
    odd = 'q7Rz"41k<P_&8Wm2T'
    assert mask_secrets_in_json(
        {"password": odd, "rows": [{"api_key": odd}], "n": 1, "x": None}
    ) == {
        "password": "[masked: secret]",
        "rows": [{"api_key": "[masked: secret]"}],
        "n": 1,
        "x": None,
    }
    assert mask_secrets_in_json(["login", "--token", RANDOM]) == [
        "login",
        "--token",
        "[masked: secret]",
    ]
    assert mask_secrets_in_json({"tokens": 12, "token": "string", "passed": "true"}) == {
        "tokens": 12, "token": "string", "passed": "true",
    }  # fmt: skip
    kept = {"text": "plain words", "rows": ["a", {"b": "c"}]}
    assert mask_secrets_in_json(kept) == kept


def test_each_part_of_a_private_key_is_masked_by_the_whole() -> None:
    text = f"before\n{PRIVATE_KEY}\nafter\n"
    found = find_secrets(text)
    assert [one.what for one in found] == ["private key"]
    for start in range(0, len(text), 37):
        part = mask_secrets_in_text_part(text, start, start + 200, found)
        assert MIXED[:20] not in part
    assert mask_secrets_in_text_part(text, 0, 7, found) == "before\n"
    assert mask_secrets_in_text_part(text, len(text) - 6, len(text), found) == "after\n"


def test_a_passage_from_the_middle_of_a_private_key_is_masked() -> None:
    for text in (PRIVATE_KEY, PRIVATE_KEY.replace("\n", "\\n")):
        whole = f"before\n\n{text}\n\nafter"
        for start in range(0, len(text) - 300, 41):
            assert MIXED[10:50] not in mask_secrets_in_excerpt(text[start : start + 300], whole)
    listing = "\n".join([f"{HEX[:40]}  one.txt", f"{HEX[:40]}  two.txt", HEX, HEX, HEX])
    assert mask_secrets_in_excerpt(listing, "") == listing, "hashes are no key"
    for secret, what in KEYS:
        whole = f"a {secret}\n\n\nb"
        assert mask_secrets_in_excerpt(f"{secret[9:]}\n\nb", whole) == f"[masked: {what}]\n\nb"
        assert mask_secrets_in_excerpt(f"a\n{secret[:-5]}", whole) == f"a\n[masked: {what}]"


def test_kubernetes_secrets_are_masked_whatever_their_names() -> None:
    manifest = """\
apiVersion: v1
kind: ConfigMap
data:
  colour: aGVsbG8=
---
apiVersion: v1
kind: Secret
metadata:
  name: plain
data:
  colour: aGVsbG8=
  other: "d29ybGQ="
stringData:
  motto: open sesame
type: Opaque
---
kind: ConfigMap
data:
  colour: aGVsbG8=
"""
    masked = mask_secrets(manifest)
    assert masked.count("aGVsbG8=") == 2
    for hidden in ("d29ybGQ", "open sesame"):
        assert hidden not in masked
    assert "colour: [masked: Kubernetes secret]\n" in masked
    assert "name: plain\n" in masked
    assert masked.count("ConfigMap") == 2
    value = {"kind": "Secret", "data": {"a": "b"}, "metadata": {"name": "x"}}
    expected = {**value, "data": {"a": "[masked: Kubernetes secret]"}}
    assert mask_secrets_in_json(value) == expected
    for indent in (None, 2):
        assert '"a": "b"' not in mask_secrets(json.dumps(value, indent=indent))
    assert mask_secrets("kubeadm join --token abcdef.0123456789abcdef x") == (
        "kubeadm join --token [masked: Kubernetes token] x"
    )
    assert mask_secrets("bundle.0123456789abcdef.js") == "bundle.0123456789abcdef.js"
    encoded = base64.b64encode(PRIVATE_KEY.encode()).decode()
    assert (
        mask_secrets(f"client-key-data: {encoded}\n") == "client-key-data: [masked: private key]\n"
    )
    public = base64.b64encode(CERTIFICATE.encode()).decode()
    assert (
        mask_secrets(f"client-certificate-data: {public}") == f"client-certificate-data: {public}"
    )


@pytest.mark.parametrize("between", [" ", "\n", "  ", ", ", "\\n", '", "'])
def test_the_phrase_of_a_wallet_is_masked(between: str) -> None:
    words = between.join(PHRASE.split())
    assert mask_secrets(f'The phrase: "{words}".') == 'The phrase: "[masked: mnemonic]".'
    numbered = "\n".join(f"{at}. {word}" for at, word in enumerate(PHRASE.split(), 1))
    assert "legal winner" not in mask_secrets(numbered)
    assert "winner" not in mask_secrets(numbered)
    few = " ".join(PHRASE.split()[:11])
    assert mask_secrets(few) == few
    assert mask_secrets_in_json(PHRASE.split()) == ["[masked: mnemonic]"]
    numbers = [f"row {number}" for number in range(12)]
    assert mask_secrets_in_json(numbers) == numbers
