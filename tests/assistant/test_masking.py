"""Secrets are masked, and what only looks like one is left alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.assistant.masking import mask, masks
from kbtui.errors import ConfigError
from kbtui.workspace import Settings

# Put together here, so that nobody's scanner takes this file for a leak.
HEX = "0123456789abcdef" * 4
MIXED = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 10
RANDOM = "q7Rz-41kP_x8Wm2T"


@pytest.mark.parametrize(
    ("secret", "what"),
    [
        ("AKIA" + "IOSFODNN7EXAMPLE".replace("1", "2").replace("0", "2"), "AWS access key"),
        ("gh" + "p_" + MIXED[:36], "GitHub token"),
        ("github" + "_pat_" + MIXED[:82], "GitHub token"),
        ("gl" + "pat-" + MIXED[:20], "GitLab token"),
        ("xo" + "xb-123456789012-" + MIXED[:24], "Slack token"),
        ("sk-" + "ant-api03-" + MIXED[:90], "Anthropic key"),
        ("sk-" + "proj-" + MIXED[:48], "OpenAI key"),
        ("sk" + "_live_" + MIXED[:24], "Stripe key"),
        ("AI" + "za" + MIXED[:35], "Google key"),
        ("np" + "m_" + MIXED[:36], "npm token"),
        ("py" + "pi-AgE" + MIXED[:60], "PyPI token"),
        ("SG" + "." + MIXED[:22] + "." + MIXED[:43], "SendGrid key"),
        ("xa" + "pp-1-" + MIXED[:40], "Slack token"),
        ("xo" + "xe.xo" + "xp-1-" + MIXED[:60], "Slack token"),
        ("gl" + "pat-" + MIXED[:24] + ".01." + MIXED[:9].lower(), "GitLab token"),
        ("ya" + "29." + MIXED[:60], "Google token"),
        ("GOC" + "SPX-" + MIXED[:28], "Google client secret"),
        ("wh" + "sec_" + MIXED[:32], "Stripe signing secret"),
        ("gs" + "k_" + MIXED[:52], "Groq key"),
        ("xa" + "i-" + MIXED[:80], "xAI key"),
        ("pp" + "lx-" + MIXED[:48], "Perplexity key"),
        ("r8" + "_" + MIXED[:37], "Replicate token"),
        ("dc" + "kr_pat_" + MIXED[:27], "Docker token"),
        ("do" + "p_v1_" + HEX, "DigitalOcean token"),
        ("da" + "pi" + HEX[:32], "Databricks token"),
        ("sh" + "pat_" + HEX[:32], "Shopify token"),
        ("hv" + "s." + MIXED[:90], "Vault token"),
        ("gl" + "sa_" + MIXED[:32] + "_" + HEX[:8], "Grafana token"),
        ("li" + "n_api_" + MIXED[:40], "Linear key"),
        ("nt" + "n_" + MIXED[:46], "Notion token"),
        ("fi" + "gd_" + MIXED[:43], "Figma token"),
        ("PM" + "AK-" + HEX[:24] + "-" + HEX[:34], "Postman key"),
        ("NR" + "AK-" + MIXED.upper()[:27], "New Relic key"),
        ("sn" + "trys_" + MIXED[:80], "Sentry token"),
        ("sb" + "p_" + HEX[:40], "Supabase token"),
        ("AT" + "ATT3" + MIXED[:180], "Atlassian token"),
        ("ru" + "bygems_" + HEX[:48], "RubyGems key"),
        ("sq" + "0atp-" + MIXED[:22], "Square token"),
        ("S" + "K" + HEX[:32], "Twilio key"),
        ("ke" + "y-" + HEX[:32], "Mailgun key"),
        ("AGE-" + "SECRET-KEY-1" + MIXED.upper()[:58], "age key"),
        ("ey" + "J" + MIXED[:20] + ".eyJ" + MIXED[:30] + "." + MIXED[:43], "JSON web token"),
    ],
)  # fmt: skip
def test_a_key_of_a_known_format_is_masked_wherever_it_stands(secret: str, what: str) -> None:
    for before, after in [
        ("", ""),
        ("the key is ", ", I think"),
        ('"', '"'),
        ("<content>", "</content>"),
        ("K=", "\n"),
    ]:
        assert mask(f"{before}{secret}{after}") == f"{before}[masked: {what}]{after}"


def test_a_private_key_is_masked_whole_and_also_when_it_is_cut_off() -> None:
    lines = "\n".join([MIXED[:64]] * 20)
    begin, end = "-----BEGIN RSA PRIVATE" + " KEY-----", "-----END RSA PRIVATE" + " KEY-----"
    assert mask(f"a\n{begin}\n{lines}\n{end}\nb") == "a\n[masked: private key]\nb"
    assert MIXED[:40] not in mask(f"a\n{begin}\n{lines}")
    rest = mask(f"{lines[-300:]}\n{end}\nb")
    assert rest.endswith("[masked: private key]\nb")
    assert MIXED[:40] not in rest
    for part in (f"{lines[-300:]}\n{end}", f"{begin}\n{lines}"):
        assert MIXED[:40] not in mask(json.dumps(json.dumps({"key": part})))
    # In a JSON string.
    escaped = f"{begin}\n{lines}\n{end}".replace("\n", "\\n")
    assert mask(f'{{"key": "{escaped}"}}') == '{"key": "[masked: private key]"}'
    mention = f"A file that starts with {begin} is a key. Never commit one, please."
    assert mask(mention) == mention


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
        ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [masked: credentials]"),
        (f"Authorization: {RANDOM}", "Authorization: [masked: secret]"),
        (f"a Bearer {RANDOM}.", "a Bearer [masked: secret]"),
        (f"Set-Cookie: sid={RANDOM}; Secure", "Set-Cookie: [masked: secret]; Secure"),
        (f"mysql --password {RANDOM} -h x", "mysql --password [masked: secret] -h x"),
        (f"the password is {RANDOM}", "the password is [masked: secret]"),
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
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "def parse_token(text: str) -> Token: ...",
        "token = parse_token(text)",
        "password = os.environ['DB_PASSWORD']",
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
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize("depth", range(4))
def test_json_within_json_is_masked_and_stays_json(depth: int) -> None:
    text = json.dumps(
        {"api_key": RANDOM, "note": f"password: {RANDOM}\nand \\ more", "last": "é\t"}
    )
    for _ in range(depth):
        text = json.dumps({"content": text})
    masked = mask(text)
    assert RANDOM not in masked
    for _ in range(depth):
        masked = json.loads(masked)["content"]
    found = json.loads(masked)
    assert found["api_key"] == "[masked: secret]"
    assert found["note"] == "password: [masked: secret]\nand \\ more"
    assert found["last"] == "é\t"


@given(st.text(max_size=300))
def test_masking_twice_is_masking_once_and_plain_text_stays(text: str) -> None:
    once = mask(text)
    assert mask(once) == once


@given(
    before=st.text("ab .\n\"'", max_size=30),
    after=st.text(" .\n\"'", max_size=30),
)
def test_no_text_around_a_key_lets_it_through(before: str, after: str) -> None:
    secret = "gh" + "p_" + MIXED[:36]
    assert secret not in mask(f"{before} {secret} {after}")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    ["token" * 100_000, "a" * 500_000, "-----BEGIN PRIVATE KEY-----" * 2_000, "eyJ" * 100_000, "-----END PRIVATE KEY-----" * 20_000, f"{MIXED[:64]}\n" * 8_000 + "-----END ",
     "x://" * 50_000, "password=" * 40_000, "sk-" * 100_000, "gh" + "p_" * 100_000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_a_long_hostile_text_is_masked_in_no_time(text: str) -> None:
    mask(text)


def test_the_setting_says_on_which_face() -> None:
    assert masks(Settings(), "mcp")
    assert not masks(Settings(), "jp")
    assert masks(Settings(mask_secrets="always"), "jp")
    assert not masks(Settings(mask_secrets="never"), "mcp")
    with pytest.raises(ConfigError, match="mask_secrets must be one of"):
        masks(Settings(mask_secrets="sometimes"), "mcp")
