"""Helpers for the tests of the tools: a small workspace, and stopping its engine."""

from collections.abc import Sequence

from support import Builder, asked, called, said

LIVE, OTHER, ARCHIVED = 17_800_000_001, 17_800_000_002, 17_800_000_003


# Joined from parts, so that secret scanners do not report this file.
HEX = "0123456789abcdef" * 4
MIXED = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 10
RANDOM = "q7Rz-41kP_x8Wm2T"
KEYS: list[tuple[str, str]] = [
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
    ("M" + "TIzNDU2Nzg5MDEyMzQ1Njc4" + ".Gx" + "Yz12." + MIXED[:38], "Discord token"),
    ("mf" + "a." + MIXED[:84], "Discord token"),
    ("https://disc" + "ord.com/api/webhooks/123456789012345678/" + MIXED[:68], "Discord webhook"),
    ("tske" + "y-auth-" + MIXED[:40], "Tailscale key"),
    ("nv" + "api-" + MIXED[:64], "NVIDIA key"),
    ("pc" + "sk_" + MIXED[:70], "Pinecone key"),
    ("lsv2" + "_pt_" + MIXED[:43], "LangSmith key"),
    ("tv" + "ly-dev-" + MIXED[:32], "Tavily key"),
    ("HR" + "KU-" + MIXED[:60], "Heroku key"),
    ("pscale" + "_tkn_" + MIXED[:43], "PlanetScale token"),
    ("nf" + "p_" + MIXED[:36], "Netlify token"),
    ("CCI" + "PAT_" + MIXED[:40], "CircleCI token"),
    ("xkey" + "sib-" + HEX + "-" + MIXED[:16], "Brevo key"),
    ("ph" + "x_" + MIXED[:43], "PostHog key"),
    ("dp" + ".pt." + MIXED[:43], "Doppler token"),
    ("110201543" + ":AA" + MIXED[:33], "Telegram token"),
]  # fmt: skip
_BODY = "\n".join((MIXED[at:] + MIXED)[:64] for at in range(24))
PRIVATE_KEY = f"-----BEGIN RSA PRIVATE {'KEY'}-----\n{_BODY}\n-----END RSA PRIVATE {'KEY'}-----"
CERTIFICATE = f"-----BEGIN CERTIFICATE-----\n{_BODY}\n-----END CERTIFICATE-----"
PHRASE = "legal winner thank year wave sausage worth useful legal winner thank yellow"


def fill(builder: Builder) -> None:
    """Write a topic with all kinds of subjects, two live conversations and an archived one."""
    builder.topics(
        guide={
            "title": "User Guide",
            "description": "How to use it.",
            "learned": ["basics"],
            "disabled": ["retired"],
        },
        off={"enable": False},
    )
    builder.subject("guide/start.md", "# Getting started\n\nFeed the aardvark at dusk.\n")
    builder.subject("guide/basics.md", "# Basics\n\nAn aardvark is not a badger.\n")
    builder.subject("guide/.inner.md", "# Inner\n\nThe hidden aardvark has a zebra.\n")
    builder.subject("guide/retired.md", "# Retired\n\nThe disabled aardvark has a walrus.\n")
    builder.subject("off/other.md", "# Other\n\nThe switched off aardvark has a narwhal.\n")
    builder.conversation(
        1,
        [
            [asked("Where does the badger live?"), said("In its sett.")],
            [
                asked("And the aardvark?"),
                *called("a", "learn", "Feed it.", topic="guide", subjects="start"),
                said("In a <burrow> & nowhere else."),
            ],
        ],
        title="Badgers & friends",
    )
    builder.conversation(2, [[asked("Only a badger."), said("Yes.")]], title="More badgers")
    builder.conversation(3, [[asked("An old badger."), said("Gone.")]], title="Old", archived=True)


def without_lines(text: str, beginnings: Sequence[str]) -> str:
    """Remove the lines that begin with these words, such as times, which differ in each run."""
    kept = [line for line in text.split("\n") if not line.strip().startswith(tuple(beginnings))]
    return "\n".join(kept)
