"""Text that would command a terminal, break markup or hide: each piece with a canary.

A canary stands where it is seen only if the piece was obeyed or let through:
inside the sequence, or as a colour that no theme has.
"""

import base64
from pathlib import Path

from support import Builder, asked, called, said

CANARY = "K4N4RY"
COLOUR = "13;37;77"
"""A colour in the numbers of escape sequences; markup for it is `#0d254d`."""
COPIED = base64.b64encode(CANARY.encode()).decode()

SEQUENCES = {
    "title": f"\x1b]0;{CANARY}\x07",
    "icon": f"\x1b]2;{CANARY}\x1b\\",
    "unended": f"\x1b]0;{CANARY} to the end",
    "link": f"\x1b]8;;https://{CANARY}.example/\x1b\\a link\x1b]8;;\x1b\\",
    "clipboard": f"\x1b]52;c;{COPIED}\x07",
    "notify": f"\x1b]9;{CANARY}\x07\x1b]777;notify;{CANARY};x\x07",
    "iterm": f"\x1b]1337;File=inline=1:{COPIED}\x07",
    "palette": f"\x1b]4;1;{CANARY}\x07\x1b]10;?\x07",
    "dcs": f"\x1bP$q{CANARY}\x1b\\",
    "apc": f"\x1b_G{CANARY}\x1b\\",
    "pm": f"\x1b^{CANARY}\x1b\\",
    "sos": f"\x1bX{CANARY}\x1b\\",
    "colour": f"\x1b[38;2;{COLOUR}mcoloured\x1b[0m",
    "conceal": "\x1b[8mhidden\x1b[28m",
    "report": "\x1b[6n\x1b[c\x1b[>q\x1b[21t\x1b[?1;1;0S",
    "print": "\x1b[5i\x1b[4i",
    "erase": "\x1b[2J\x1b[3J\x1b[1;1H\x1b[99A",
    "modes": "\x1b[?1049l\x1b[?1000h\x1b[?25l\x1b[4h\x1b[20h",
    "reset": "\x1bc\x1b[!p",
    "charset": "\x1b(0qqq\x1b(B\x0e\x0f\x1b#8\x1bN\x1bO",
    "tmux": f"\x1bk{CANARY}\x1b\\",
    "lone": "\x1b",
    "twice": f"\x1b\x1b]0;{CANARY}\x07",
    "split": f"\x1b\u200b]0;visible\x07 \x1b[\x1b[38;2;{COLOUR}m",
    "c1 csi": f"\x9b38;2;{COLOUR}mx\x9b0m",
    "c1 osc": f"\x9d0;{CANARY}\x9c",
    "c1 dcs": f"\x90q{CANARY}\x9c",
    "c1 others": f"\x98{CANARY}\x9c\x9e{CANARY}\x9c\x9f{CANARY}\x9c\x84\x85\x8d",
    "c0": "\x01\x02\x05\x07\x08\x0b\x0c\x0e\x0f\x11\x13\x18\x1a\x1c\x1f\x7f",
    "return": "seen\roverwritten",
    "bidi": "\u202egpj.exe\u202c \u2066x\u2069 \u2067y\u2069 \u200fz\u200e \u061c",
    "zero width": "a\u200bb\u2060c\ufeffd\u00ade\u180ef\u2061g\u034f" + "\u200d" * 40,
    "fillers": "\u3164\u115f\u1160\uffa0 \U0001d173\U0001bca0",
    "tags": "".join(chr(0xE0000 + ord(letter)) for letter in CANARY),
    "marks": "z" + "\u0301" * 60 + "e" + "\u0489" * 60 + "\u0e01" + "\u0e49" * 60,
    "variations": "v" + "\ufe0f" * 40 + "".join(chr(0xE0100 + n) for n in range(40)),
    "separators": "one\u2028two\u2029three",
    "rich": "[/b] [bold [#0d254d]x[/] [link=https://link.example]l[/link] [blink]y[/]",
    "textual": "[@click=app.bell]c[/] [on #0d254d]z[/] [$error]e[/] \\[ ]] [[ [/]",
    "markdown": "[a](https://link.example) <b>html</b> &#x1b;[31m `&#27;`",
}
"""What a piece attempts, and the piece. None has a NUL, which makes a file binary."""

ALL = " ".join(SEQUENCES.values())
# What is shown as JSON has its escapes spelled out, so that a canary would be seen.
_SPELLED = ALL.replace(CANARY, "spelled").replace(COPIED, "spelled")
ONE_LINE = ALL.replace("\u2028", "").replace("\u2029", "").replace("\r", "")
# A file's name: no slash, and 255 bytes at most.
FILE_NAMES = [
    "osc \x1b]0;named\x07 name",
    f"colour \x1b[38;2;{COLOUR}m name",
    "bidi \u202egnp name",
    "markup [@click=app.bell][#0d254d]x[",
    "c1 \x9b5i\x85 name",
    "zero \u200b\u200b\ufeff name",
    "line\nbreak\r\ttab",
    "marks z" + "\u0301" * 40,
]


def hostile_workspace(root: Path) -> Builder:
    """A workspace in which every place that text can stand in has all of it."""
    builder = Builder(root)
    builder.topics(
        bad={"title": f"Bad {ONE_LINE}", "introduction": ALL, "description": ALL},
        good={"title": "The good topic", "learned": ["plain"], "disabled": [f"x{ONE_LINE}"]},
    )
    builder.subject("good/plain.md", f"# Plain\n\nharmless first line\n\n{ALL}\n")
    for number, name in enumerate(FILE_NAMES):
        builder.subject(f"bad/{number} {name}.md", f"# Named {name}\n\nharmless {ALL}\n")
    builder.subject(
        "bad/front.md",
        f"---\ntitle: {_quoted(ONE_LINE)}\ntype: {_quoted(ONE_LINE[:90])}\ntags: [{_quoted(ONE_LINE)}]\n"
        f"source: {_quoted(ONE_LINE)}\nsource_url: {_quoted(ONE_LINE)}\n---\n\n# Head {ONE_LINE}\n\n"
        f"```{ONE_LINE}\n{ALL}\n```\n\n| {ONE_LINE} | b |\n|---|---|\n| {ONE_LINE} | [x]({ONE_LINE}) |\n",
    )
    builder.subject("bad/code.py", f"x = '''{ALL}'''\n")
    builder.subject("bad/table.toml", f"x = '''\n{ALL}\n'''\n")
    (builder.root / "docs/bad/binary.md").write_bytes(b"\x00" + ALL.encode())
    builder.conversation(
        1,
        [
            [
                {**asked(f"Ask harmless {ALL}"), "author": f"Eve {ONE_LINE}"},
                {"type": "chat_response", "reasoning": ALL},
                {"type": "chat_response", "data": {_SPELLED: _SPELLED}},
                *called("a", f"tool {ONE_LINE}", ALL, **{"path": _SPELLED, _SPELLED: _SPELLED}),
                *called("b", "learn", ALL, topic="bad", subjects=f"front {ONE_LINE}"),
                *called("c", "learn", "text", topic="good", subjects="plain"),
                *called("d", f"failing {ONE_LINE}", ALL, error=True),
                said(f"harmless {ALL}"),
            ],
            [asked(ALL), {"type": f"unknown {_SPELLED}", "content": _SPELLED}, said("A calm end.")],
        ],
        title=f"Evil talk {ONE_LINE}",
        metadata={"labels": {ONE_LINE: ONE_LINE, "k": ONE_LINE}},
    )
    broken = builder.conversation(2, [[asked("half")]], title=f"Broken {ONE_LINE}")
    (broken / "events.json").write_text('[{"type": "half')
    (builder.root / ".jp/kb-sources.toml").write_text(
        f"[source.web]\nkind = 'url_crawl'\ntopic = 'good'\nurl = \"https://x.example/\"\n"
        f"[source.{_quoted(ONE_LINE)}]\nkind = {_quoted(ONE_LINE)}\ntopic = {_quoted(ONE_LINE)}\n"
    )
    return builder


def _quoted(text: str) -> str:
    """As a double-quoted scalar, of YAML and of TOML alike; its canaries would be seen in the file."""
    text = text.replace(CANARY, "quoted").replace(COPIED, "quoted")
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000:
        return f"\\u{code:04x}"
    return character
