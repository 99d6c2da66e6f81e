"""Finds secrets by the text before them: a name such as `password`, an option, or a header."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from kbtui.light_named_tuple import NamedTuple
from kbtui.secret_key_detection import (
    DetectedSecret,
    compile_secret_search_pattern,
    make_any_word_expression,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAME_START = r"(?:(?<![A-Za-z])|(?<=\\[nrt]))"
# Words for a password, and other names of secrets. What follows one of the other names is more often an
# ordinary word, so the rules for those names are stricter.
_PASSWORD_WORDS = (
    r"pass(?:wor[dt]|wd|phrase|code)|kennwort|contrase(?:ñ|n)a|mot de passe|wachtwoord|senha|密码|密碼|パスワード|пароль"
    rf"|(?:(?<=store)|(?<=key)|{_NAME_START})pass(?![a-z])|{_NAME_START}pwd"
)
_SECRET_WORDS = (
    r"secret|token|credentials?|authorization|cookie"
    rf"|{_NAME_START}bearer(?=[ \t])|(?:(?<=[?&;])|(?<=x-amz-)|(?<=x-goog-))(?:sig|signature|key)(?==)"
    rf"|(?<=_)auth|{_NAME_START}psk|connection[_-]?string|(?:recovery|backup)[ _-]?codes?"
    r"|(?:api|access|private|auth|account|signing|encryption|master|service|license|app|deploy|storage"
    r"|subscription|shared|webhook|preshared|jwt|hmac)[_. -]?key"
)
_NAME_ENDING = (
    r"(?:[_.-]?(?:key|id|value|base|hash|text|str(?:ing)?|plain(?:text)?|prod|dev|test|staging|root|admin"
    r"|access[_.-]?key|\d{1,3})){0,2}s?"
)
# A quote or a mark of Markdown. A quote may be escaped for a JSON string, XML or a URL.
_QUOTE = r"(?:\\{0,7}[\"'`]|&(?:quot|apos|#3[49]);|%22)"
_MARK = r"[*_~]{1,3}"
_CLOSE = rf"(?:{_QUOTE}|{_MARK}|\]|[ \t]?\([^()\n]{{1,40}}\)){{0,4}}"
_OPEN = rf"(?:{_QUOTE}|{_MARK}|&\w{{1,20}}[ \t]){{0,4}}"
# API_KEY = "…", \"clientSecret\": \"…\", **password:** …, <token>…, --token …, the password is …
_ASSIGNED = (
    rf"(?:(?P<password>{_PASSWORD_WORDS})|{_SECRET_WORDS}){_NAME_ENDING}{_CLOSE}"
    # A type between the name and the value, as in Rust and TypeScript.
    r"(?:(?P<strong>:[ \t]?[&A-Za-z][\w<>\[\]| .&']{0,30}=[ \t]{0,4}(?=[\"'`])|(?:[ \t]{1,4}(?:is|was|ist|lautet))?\s{0,4}(?::?=>|:(?!:)=?|：|=(?!=)|%3[AD])(?:\*\*|__)?\s{0,12}|>|&gt;"
    # A name and a value as two pairs.
    r"|[\s,;]{1,40}\\{0,7}[\"']?value\\{0,7}[\"']?\s{0,4}[:=]\s{0,4}"
    r"|\s{0,4}\{[^{}]{0,200}?default\s{0,4}=\s{0,4})"
    # A call: set_password(…) or getenv(API_KEY, …) with quotes.
    r"|(?P<call>\(\s{0,4}(?=[\"'])|\s{0,4},\s{0,4}(?=[\"']))"
    r"|(?P<weak>[ \t]{0,4}(?:(?<=[ \t])\|(?=[ \t])|[-=]>|→|—|–|[ \t]-(?=[ \t]))[ \t]{0,40}"
    r"|[ \t](?:for|of|to|on|at|von|für)[ \t][^\n:=|;`\"]{1,50}?(?:[ \t]is[ \t]{1,4}|:[ \t]{1,4}))"
    rf"|(?P<blank>[ \t]{{1,4}}(?P<verb>(?:is|was|to|ist|lautet)[ \t]{{1,4}})?)){_OPEN}"
    # Within quotes, a password can contain spaces; a value with a digit can contain brackets and
    # semicolons.
    r"(?P<value>(?(password)(?<=[\"'])(?![{<(\[$ ])(?:[^\"'\n\\]|''){1,60}[ ](?:[^\"'\n\\]|''){1,60}(?=\\{0,7}[\"'])|(?!))"
    r"|(?<=[\"'`])(?![{<(\[$])(?=[^\s\"'`\\]{0,200}\d)[^\s\"'`\\]{6,200}(?=\\{0,7}[\"'`])"
    r"|\[(?=[^\[\]]{8,4000}\])(?P<list>[^\[\]]{8,4000})"
    r"|(?:[^\s\"'`,;<>{}()\[\]:\\&|%]|:(?=\w)|[&%](?!\w{1,30}[=;]|#\d|22|2C|3[AB]|7D|0A)|\|(?=\w)|\\(?![\s\"'`\\nrt])){6,500})"
)
# The beginnings of secrets' names, for RE2. A common word such as `key` counts only with the text that makes it
# such a name.
_NAME_BEGINNINGS = (
    r"pass|pwd|secret|token|credential|cookie|bearer|kennwort|contrase|mot de passe|wachtwoord"
    r"|senha|psk|sig=|signature=|key=|connection[_-]?string|(?:recovery|backup)[ _-]?code"
    r"|(?:api|access|private|auth|account|signing|encryption|master|service|license|app|deploy|storage"
    r"|subscription|shared|webhook|preshared|jwt|hmac)[_. -]?key"
)
_OTHER_SCRIPTS = re.compile("密码|密碼|パスワード|пароль", re.IGNORECASE)
_FUNCTION_WORDS = re.compile(
    r"\b(?:the|an?|is|are|was|be|must|should|can|cannot|not|no|your|you|my|for|of|to|in|on|with|and|or|this|that"
    r"|enter|please|invalid|wrong|has|have|at|least|required|needs?|from|if|does|did|will)\b",
    re.IGNORECASE,
)
# A UUID, or lower-case letters and digits.
_LONG_CODE = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[a-z]{0,40}\d)[0-9a-z]{24,200}"
)
_LIST_VALUE = re.compile(r"[^\s\"'`,\\]{6,500}")
_MIN_VALUE_CHARACTERS, _MIN_WEAK_CHARACTERS, _MIN_BLANK_CHARACTERS = 8, 8, 12


class _SecretContextPattern(NamedTuple):
    """A kind of text that precedes secrets, such as an option or a header.

    `words` are in lower case; a text of this kind contains at least one of them. `pattern` must match
    at one of these words. If `back` is not 0, the match may begin up to `back` characters before
    the word. The groups `value`, `value2` and `value3` of the pattern match the secret.
    """

    what: str
    words: tuple[str, ...]
    pattern: str
    back: int = 0
    accepts: Callable[[str, re.Match[str], str], bool] | None = None


def _is_encoded_user_and_password(text: str, match: re.Match[str], value: str) -> bool:
    try:
        decoded = b64decode(value + "=" * (-len(value) % 4)).decode()
    except ValueError:
        return False
    return ":" in decoded and decoded.isprintable()


def _is_in_connection_string(text: str, match: re.Match[str], value: str) -> bool:
    """Return whether the line of a password also contains other keys of a connection string."""
    line = text[max(0, match.start() - 300) : match.start()].rpartition("\n")[2]
    return bool(_KEYS_BEFORE.search(line) or _KEYS_AFTER.match(text, match.end()))


_ARGUMENT = (
    r"(?:'(?P<value>[^'\n]{3,200})'|\"(?P<value2>[^\"\n]{3,200})\""
    r"|(?P<value3>(?![-$<{'\"])[^\s\"'`<>|;&\\]{3,200}))"
)
_OPTIONS = r"\b(?:[^\n\\;|]|\\.|\\\n){0,2000}?[ \t\"']"
_USER = r"[^\s:\"'/]{1,100}"
_CONTEXTS = (
    _SecretContextPattern(
        "credentials",
        ("authorization",),
        rf"{_NAME_START}(?i:authorization)\\{{0,7}}[\"']?\s{{0,4}}(?:[:=]|,\s{{0,9}}[\"']value[\"']:)\s{{0,4}}[a-z]?\\{{0,7}}[\"']?"
        r"(?i:(?:bearer|basic|token)\s{1,4}(?P<value>[\w.~+/=-]{8,2000})"
        r"|(?:digest|aws4[\w-]{0,20}|hawk|oauth|signature|sharedkey\w{0,10}|negotiate|ntlm|api-?key|ssws|key"
        r"|hmac[\w-]{0,20})[ \t]{1,4}"
        r"(?P<value2>(?:[^\n'\"\\<>{}]|(?<==)\"[^\"\n]{0,400}\"|\\[^nrt]){8,2000}))",
    ),
    _SecretContextPattern(
        "credentials",
        ("basic ",),
        r"(?i:basic)[ \t]{1,4}(?P<value>[A-Za-z0-9+/]{8,400}={0,2})(?![\w+/=])",
        accepts=_is_encoded_user_and_password,
    ),
    # ~/.docker/config.json
    _SecretContextPattern(
        "credentials",
        ("auth",),
        r"(?<=[\"'])auth\\{0,7}[\"']\s{0,4}:\s{0,4}\\{0,7}[\"']"
        r"(?P<value>[A-Za-z0-9+/]{8,4000}={0,2})(?=\\{0,7}[\"'])",
        accepts=_is_encoded_user_and_password,
    ),
    _SecretContextPattern(
        "Telegram token",
        (":aa",),
        r"(?:(?<!\d)|(?<=\\u[0-9a-fA-F]{4}))(?P<value>\d{8,10}:AA[\w-]{32,33})(?![\w-])",
        back=10,
    ),
    _SecretContextPattern(
        "Kubernetes token",
        ("token", "kubeadm"),
        r"(?i:token|kubeadm)[^\n]{0,80}?(?<![\w.-])"
        r"(?P<value>[A-Za-z0-9]{6}\.[A-Za-z0-9]{16})(?![\w.-])",
    ),
    # scheme://user:password@host and scheme://token@host. A port and a path with @ are not a password.
    _SecretContextPattern(
        "password",
        ("://",),
        r"(?<=[A-Za-z0-9])://(?:"
        r"(?P<value3>(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[A-Za-z])[\w-]{20,255})(?=(?::x-oauth-basic|:)?@)"
        r"|[^\s/:@\"'<>]{0,100}:(?![$<{%])(?:(?P<value>[^\s/\"'<>]{1,200})(?=@)"
        r"|(?!\d{1,5}/)(?P<value2>[^\s\"'<>@]{1,200})(?=@[\w.-]{1,200}[:/?])))",
    ),
    _SecretContextPattern(
        "password",
        ("curl",),
        rf"curl{_OPTIONS}(?:-u|--user|-U|--proxy-user)(?:[ =]{{1,2}}|(?=[\"'])|[\"'],\s?[\"'])"
        r"(?:(?P<quote>[\"'])[^:\"'\n]{1,100}:(?P<value>[^\n\"']{3,200})(?P=quote)"
        rf"|{_USER}:(?![$<{{])(?P<value2>[^\s\"'`<>\\]{{4,200}}))",
    ),
    _SecretContextPattern(
        "cookie",
        ("curl",),
        rf"curl{_OPTIONS}(?:-b|--cookie)(?:[ =]{{1,2}}|(?=[\"'])|[\"'],\s?[\"'])"
        r"(?:'(?P<value>[^'\n=]{1,80}=[^'\n]{3,4000})'|\"(?P<value2>[^\"\n=]{1,80}=[^\"\n]{3,4000})\""
        r"|(?P<value3>[^\s\"'=]{1,80}=[^\s\"']{6,4000}))",
    ),
    _SecretContextPattern(
        "password",
        ("http ", "https "),
        rf"https? (?:[^\n;|]{{0,400}}[ \t])?(?:-a|--auth)[ =][\"']?{_USER}:(?P<value>[^\s\"'`<>\\]{{3,200}})",
    ),
    _SecretContextPattern(
        "password", ("sshpass",), rf"sshpass[ \t]{{1,4}}-p[ \t]{{0,4}}{_ARGUMENT}"
    ),
    _SecretContextPattern(
        "password",
        ("mysql", "mariadb"),
        rf"(?:mysql|mariadb)[a-z]{{0,12}}(?:-[a-z]{{1,12}})?{_OPTIONS}-p{_ARGUMENT}",
    ),
    _SecretContextPattern(
        "password", ("redis-cli",), rf"redis-cli{_OPTIONS}-a[ \t]{{1,4}}{_ARGUMENT}"
    ),
    _SecretContextPattern(
        "password",
        ("ldap",),
        rf"ldap(?:search|modify|add|delete|whoami|passwd|compare){_OPTIONS}-w[ \t]{{0,4}}{_ARGUMENT}",
    ),
    _SecretContextPattern("password", ("zip ",), rf"(?:un)?zip{_OPTIONS}-P[ \t]{{0,4}}{_ARGUMENT}"),
    _SecretContextPattern(
        "password",
        ("docker login", "podman login"),
        rf"(?:docker|podman) login{_OPTIONS}-p[ =]{{1,2}}{_ARGUMENT}",
    ),
    _SecretContextPattern(
        "password", ("mongo",), rf"mongo[a-z]{{0,8}}{_OPTIONS}-p[ \t]{{1,4}}{_ARGUMENT}"
    ),
    _SecretContextPattern(
        "password",
        ("smbclient",),
        rf"smbclient{_OPTIONS}-U[ \t]{{1,4}}[\"']?[^\s%\"']{{1,80}}%(?P<value>[^\s\"']{{3,200}})",
    ),
    _SecretContextPattern(
        "password",
        ("echo ",),
        r"echo[ \t]{1,4}[\"']?[\w.-]{1,40}:(?P<value>[^\s\"']{3,200})[\"']?"
        r"[ \t]{0,4}\|[ \t]{0,4}(?:sudo[ \t]{1,4})?chpasswd",
    ),
    _SecretContextPattern(
        "password",
        ("sqlplus", "jdbc:oracle"),
        r"(?:sqlplus[ \t](?:-\w{1,3}[ \t])?|jdbc:oracle:\w{1,10}:)[\w.]{1,40}/(?P<value>[^\s@\"']{3,100})(?=@)",
    ),
    # ~/.netrc
    _SecretContextPattern(
        "password",
        ("machine ", "default login", "default account"),
        r"(?:machine\s{1,20}[\w.:-]{1,200}|default)(?:\s{1,20}(?:login|account)\s{1,4}\S{1,200}){1,2}"
        r"\s{1,20}password\s{1,4}(?P<value>[^\s\"'\\]{3,200})",
    ),
    _SecretContextPattern(
        "password",
        ("credential",),
        r"(?i:credentials?)(?: are|:)?[ \t]{1,4}[`\"']?[\w.@-]{1,60}:(?P<value>(?=[^\s`\"']{0,90}\d)[^\s`\"']{6,100})",
    ),
    # requests.get(…, auth=(user, password))
    _SecretContextPattern(
        "password",
        ("auth",),
        r"auth\s?=\s?\(\s?[\"'][^\"'\n]{1,100}[\"']\s?,\s?[\"'](?P<value>[^\"'\n]{3,200})[\"']",
    ),
    _SecretContextPattern(
        "password",
        ('type="password', "type='password", "type=password"),
        r"type=[\"']?password\b[^<>]{0,200}?\bvalue=[\"'](?P<value>[^\"'\n]{3,200})[\"']",
    ),
    _SecretContextPattern(
        "Teams webhook",
        (".webhook.office.com/",),
        r"\.webhook\.office\.com/webhookb2/[\w@-]{20,100}/IncomingWebhook/(?P<value>\w{20,40}/[\w-]{20,60})",
    ),
    # ~/.pgpass
    _SecretContextPattern(
        "password", (":5432:",), r":5432:[^:\s]{1,64}:[^:\s]{1,64}:(?P<value>[^\s\"']{3,200})"
    ),
    _SecretContextPattern(
        "password",
        ("identified",),
        r"(?i:identified\s{1,4}(?:with\s{1,4}\S{1,60}\s{1,4})?(?:by|as)\s{1,4}(?:password\s{1,4})?)"
        r"['\"](?P<value>[^'\"\n]{3,200})",
    ),
    _SecretContextPattern(
        "password",
        ("convertto-securestring",),
        r"(?i:convertto-securestring\s{1,4}(?:-string\s{1,4})?)[\"'](?P<value>[^\"'\n$]{3,200})",
    ),
    _SecretContextPattern(
        "password",
        (".login(",),
        r"\.login\(\s{0,20}[\"'][^\"'\n]{1,100}[\"']\s{0,4},\s{0,20}[\"'](?P<value>[^\"'\n]{3,200})[\"']",
    ),
    _SecretContextPattern(
        "password",
        ("password", "pwd"),
        r"(?<=[;\s\"'])(?i:password|pwd) ?= ?(?P<value>(?![\"'${<])[^;\s\"'][^;\n\"']{1,100})(?=[;\"'])",
        accepts=_is_in_connection_string,
    ),
    _SecretContextPattern(
        "password",
        ("password",),
        r"(?<=[\s\"'])(?i:password)=(?P<value>(?![\"'${<])[^\s\"';,)]{3,100})",
        accepts=_is_in_connection_string,
    ),
    # ~/.aws/accessKeys.csv
    _SecretContextPattern(
        "secret",
        ("akia", "asia"),
        r"(?:AKIA|ASIA)[A-Z0-9]{16}\\{0,7}[\"']?[\s,;:|&/]{1,8}(?:[\w ]{0,30}[\"'\s:=,|]{1,6})?"
        r"(?P<value>[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])",
    ),
    # The first cookie of Set-Cookie, and all cookies of Cookie; see `_find_secret_cookies`.
    # The cookies of a browser or of curl as a table.
    _SecretContextPattern(
        "cookie",
        ("\ttrue\t", "\tfalse\t"),
        r"\t(?:TRUE|FALSE)\t/[^\t\n]{0,200}\t(?:TRUE|FALSE)\t\d{1,12}\t[^\t\n]{1,200}\t"
        r"(?P<value>[^\t\n]{3,4000})",
    ),
    _SecretContextPattern(
        "secret",
        ("totp", "2fa", "secret"),
        r"(?i:totp|2fa|secret)[^\n:=]{0,20}[:=]\s{0,4}[\"'`]?(?P<value>[A-Z2-7]{4}(?:[ -][A-Z2-7]{4}){3,12})\b",
    ),
)
# Server=db;User ID=me; and host=db user=me
_KEYS_BEFORE = re.compile(
    r"\w=[^;,\"'\s]{1,200};\s?\Z|(?:host|hostaddr|user|dbname|port)=[^\s,;\"']{1,100}(?: [a-z_]{2,30}=[^\s,;\"']{1,100}){0,9} \Z"
)
_KEYS_AFTER = re.compile(
    r";\s?(?:server|data source|user id|uid|database|initial catalog)=", re.IGNORECASE
)
_COOKIE_HEADER = re.compile(
    rf"{_CLOSE}\s{{0,4}}[:=]\s{{0,4}}\\{{0,7}}[\"'`]?(?P<pairs>[\w!#$%&'*.^`|~+-]{{1,100}}=[^\n\"'\\]{{3,8000}})",
)
_COOKIE_TABLE = re.compile(r"s\s{0,4}[:=]\s{0,4}\{(?P<pairs>[^{}]{3,4000})\}")
_COOKIE_VALUE = re.compile(r":\s{0,4}\\{0,7}[\"'](?P<value>[^\"'\s\\]{6,4000})")
_COOKIE = re.compile(r"(?P<name>[^\s=;,]{1,100})=(?P<value>[^;\s]{1,4000})")
# NAME=value on a line of its own in a file of environment variables, in a shell, or after -e.
_VARIABLE_LINE = (
    r"(?m)(?:^|[\s\"';&])(?:[A-Z][A-Z0-9_]*_)?(?:PASS|PGPASSWORD|[A-Z]*PASSWORD|PASSWD|PASSPHRASE|PWD|SECRET|SECRETS?_KEY"
    r"|TOKEN|API_?KEY|CREDENTIALS?|[A-Z]+_KEY)(?:_(?:PROD|DEV|TEST|STAGING|ROOT|ADMIN|\d{1,3}))?="
)
_VARIABLE_VALUE = re.compile(
    r"(?P<quote>[\"'])(?P<quoted>[^\"'\n]{4,400})(?P=quote)|(?P<plain>[^\s\"'`$<{%][^\n]{3,400})"
)
_PLAIN_WORDS = frozenset(
    ("true", "false", "none", "null", "required", "optional", "string", "changed", "unset", "empty")
)
_LIST_START = (
    r"(?im)^[ \t]*(?:#{1,6}[ \t]|[-*][ \t])?[\"'*_]{0,3}[\w. -]{0,40}?(?:passwor[dt]s?|passphrases?|secrets?|tokens?"
    r"|api[ _-]?keys?|private[ _-]?keys?|credentials?|(?:recovery|backup)[ _-]?codes?)(?:[_.-][\w.-]{1,30})?[\"'*_]{0,3}"
    r"[ \t]*:?[\"'*_]{0,3}[ \t]*(?:[|>][+-]?\d?)?[ \t]*\r?\n"
)
_LIST_LINE = re.compile(
    r"(?P<indent>[ \t]*)(?P<bullet>(?:[-*•+]|\d{1,3}[.)])[ \t]+(?:\[[ x]\][ \t])?)?[\"'`]?"
    r"(?P<value>[^\s\"'`]{1,4000})?[\"'`]?,?[ \t]*\r?(?:\n|\Z)"
)
_TABLE_RULE = r"(?m)^[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)+\|?[ \t]*$"
_COLUMN_HEADINGS = (
    r"(?im)^[\w\"][\w ,;\t\".-]*(?:passwor[dt]|passwd|secret|token|api[_ -]?key)[\w ,;\t\".-]*\r?\n"
)
_COLUMN_NAME = re.compile(r"\"?\w[\w .-]{0,40}\"?")
_CELL = re.compile(r"(?<!\\)\|")
_SECRET_HEADING = rf"[*_`\"'\s]*(?:[\w/-]+ ){{0,2}}[\w-]*?(?:{_PASSWORD_WORDS}|{_SECRET_WORDS}){_NAME_ENDING}[*_`\"'\s]*"
# A key as JSON: RFC 7517.
_WEB_KEY = re.compile(
    r"[\"'](?:d|p|q|dp|dq|qi|k)\\{0,7}[\"']\s{0,4}:\s{0,4}\\{0,7}[\"'](?P<value>[\w-]{16,4000})"
)
_MAX_WEB_KEY_CHARACTERS = 8_000
_CONTEXT_BEGINNING = 3
"""Contexts are looked up by this many characters at the beginning of a word. No word is shorter."""
_CONTEXT_WORDS = sorted(
    {'"kty', *(word for context in _CONTEXTS for word in context.words)}, key=len
)


@cache
def _map_word_beginnings_to_secret_patterns() -> dict[
    bytes, list[tuple[bytes, _SecretContextPattern, re.Pattern[str]]]
]:
    """Map the first characters of context words to the words that begin with these characters.

    Each word comes with its context and the context's compiled pattern.
    """
    found: dict[bytes, list[tuple[bytes, _SecretContextPattern, re.Pattern[str]]]] = {}
    for context in _CONTEXTS:
        pattern = re.compile(context.pattern)
        for word in context.words:
            found.setdefault(word[:_CONTEXT_BEGINNING].encode(), []).append(
                (word.encode(), context, pattern)
            )
    return found


_ANY_WORD = f"{make_any_word_expression(_CONTEXT_WORDS)}|{_NAME_BEGINNINGS}|auth"


@cache
def _compile_assignment_pattern() -> re.Pattern[str]:
    return re.compile(_ASSIGNED, re.IGNORECASE)


def find_secrets_by_context(text: str, data: bytes) -> Iterator[DetectedSecret]:
    """Yield the secrets that are recognizable by the text before them. Secrets may overlap.

    `data` is the text encoded with one byte for each character, so offsets are the same in both.
    """
    lower = data.lower()
    contexts = _map_word_beginnings_to_secret_patterns()
    assignment = _compile_assignment_pattern()
    end = 0
    for word in compile_secret_search_pattern(_ANY_WORD).finditer(lower):
        at = word.start()
        for whole, context, pattern in contexts.get(lower[at : at + _CONTEXT_BEGINNING], ()):
            if lower.startswith(whole, at):
                yield from _find_secrets_in_context(text, at, context, pattern)
        if lower.startswith(b'"kty', at):
            yield from _find_secrets_in_json_web_key(text, at)
        if lower.startswith(b"cookie", at):
            yield from _find_secret_cookies(text, at)
        if at >= end and (assigned := assignment.match(text, at)):
            values = list(_find_assigned_secrets(assigned))
            end = assigned.end() if values else end
            yield from values
    if not text.isascii():
        for name in _OTHER_SCRIPTS.finditer(text):
            if assigned := assignment.match(text, name.start()):
                yield from _find_assigned_secrets(assigned)
    yield from _find_secrets_in_environment_variable_lines(text, data)
    yield from _find_secrets_in_lists_after_heading(text, data)
    yield from _find_secrets_in_markdown_tables(text, data)
    yield from _find_secrets_in_csv_columns(text, data)


def _find_secrets_in_context(
    text: str, at: int, context: _SecretContextPattern, pattern: re.Pattern[str]
) -> Iterator[DetectedSecret]:
    match = (
        pattern.search(text, max(0, at - context.back), at + 100)
        if context.back
        else pattern.match(text, at)
    )
    if match is None:
        return
    for group in ("value", "value2", "value3"):
        value = match.groupdict().get(group)
        if value and (context.accepts is None or context.accepts(text, match, value)):
            yield DetectedSecret(*match.span(group), context.what)


def _find_assigned_secrets(assigned: re.Match[str]) -> Iterator[DetectedSecret]:
    if assigned["list"]:
        start = assigned.start("list")
        for item in _LIST_VALUE.finditer(assigned["list"]):
            if len(item[0]) >= _MIN_VALUE_CHARACTERS and _is_key_like(item[0]):
                yield DetectedSecret(start + item.start(), start + item.end(), "secret")
    elif not assigned["value"].startswith("@") and _is_secret_assignment(assigned):
        start, end = assigned.span("value")
        opening = assigned.string[start - 1 : start]
        if opening in ("*", "_", "~"):
            end = start + len(assigned["value"].rstrip("*_~."))
        yield DetectedSecret(start, end, "secret")


def _is_secret_assignment(match: re.Match[str]) -> bool:
    """Return whether an assigned value looks like a secret.

    The rules are stricter if neither `=` nor `:` precedes the value.
    """
    value = match["value"]
    if " " in value:
        words = len(value.split())
        has_mark = re.search(r"[^\w\s.,:'()/-]|\d", value) is not None
        return (
            not _FUNCTION_WORDS.search(value)
            and words <= 8
            and (has_mark or (words >= 4 and value.islower()))
        )
    digits = len(re.findall(r"\d", value))
    if match["blank"]:
        has_all = all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
        is_code = _LONG_CODE.fullmatch(value) is not None and digits >= 4
        is_long = len(value) >= _MIN_BLANK_CHARACTERS and has_all
        is_told = (
            match["password"] and match["verb"] and digits and len(value) >= _MIN_WEAK_CHARACTERS
        )
        return bool(is_code or is_long or is_told) and is_random_looking(value)
    if match["weak"] or match["call"]:
        has_sign = re.search(r"\d", value) and re.search(r"[^\w./:%|+-]", value)
        is_password = match["weak"] and match["password"] and digits >= 2
        is_key = bool((match["weak"] and has_sign) or is_password) or _is_key_like(value)
        return len(value) >= _MIN_WEAK_CHARACTERS and is_key and is_random_looking(value)
    if len(value) < _MIN_VALUE_CHARACTERS and not match["password"]:
        return False
    return is_random_looking(value)


def _is_key_like(value: str) -> bool:
    """Return whether a value looks like a key.

    It must contain lower-case letters, capital letters and digits, or be a long hexadecimal number.
    """
    if re.search(r"[(){}\[\]]", value) or not is_random_looking(value):
        return False
    is_hex = len(value) >= 16 and re.fullmatch("[0-9a-f]+", value)
    return bool(is_hex) or all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", "[0-9]"))


def _find_secret_cookies(text: str, at: int) -> Iterator[DetectedSecret]:
    after = at + len("cookie")
    if table := _COOKIE_TABLE.match(text, after):
        for value in _COOKIE_VALUE.finditer(text, *table.span("pairs")):
            if is_random_looking(value["value"]):
                yield DetectedSecret(*value.span("value"), "cookie")
    header = _COOKIE_HEADER.match(text, after)
    if header is None:
        return
    sets_one = text[max(0, at - 4) : at].lower() == "set-"
    start, end = header.span("pairs")
    for cookie in _COOKIE.finditer(text, start, end):
        if len(cookie["value"]) >= 6 and is_random_looking(cookie["value"]):
            yield DetectedSecret(*cookie.span("value"), "cookie")
        if sets_one:
            return


def _find_secrets_in_json_web_key(text: str, at: int) -> Iterator[DetectedSecret]:
    start = text.rfind("{", max(0, at - _MAX_WEB_KEY_CHARACTERS), at)
    end = text.find("}", at, at + _MAX_WEB_KEY_CHARACTERS)
    if start >= 0:
        for value in _WEB_KEY.finditer(text, start, end if end >= 0 else at):
            yield DetectedSecret(*value.span("value"), "private key")


def _find_secrets_in_environment_variable_lines(text: str, data: bytes) -> Iterator[DetectedSecret]:
    """Yield the secrets in lines that set an environment variable, such as `DB_PASSWORD=…`.

    A password is found even if it looks like an ordinary word.
    """
    for name in compile_secret_search_pattern(_VARIABLE_LINE).finditer(data):
        match = _VARIABLE_VALUE.match(text, name.end())
        if match is None:
            continue
        is_password = re.search(rb"PASS|PWD|SECRET=", name[0]) is not None
        if match["quoted"]:
            start, end = match.span("quoted")
        else:
            start, end = match.span("plain")
            word = re.match(r"\S+", match["plain"])
            # A shell ends an unquoted value at these characters, so the line is not a shell command.
            if word and (not re.search(r"[(){};&|]", word[0]) or not is_password):
                end = start + len(re.split(r"[;&|)\"',\\]", word[0])[0])
        value = text[start:end].rstrip()
        is_word = value.lower() in _PLAIN_WORDS or value.startswith(("(", "{", "[", "os.", "env"))
        is_call = re.search(r"\w\(", value[:40]) is not None and not re.search(r"\d", value[:40])
        if is_word or is_call:
            continue
        is_long = len(value) >= _MIN_VALUE_CHARACTERS and is_random_looking(value)
        if is_long or (is_password and len(value) >= 4):
            yield DetectedSecret(start, start + len(value), "secret")


def _find_secrets_in_lists_after_heading(text: str, data: bytes) -> Iterator[DetectedSecret]:
    """Yield the secrets in lists below a line that names them, such as `recovery codes:`.

    A list can be a YAML block, a YAML list or a Markdown list.
    """
    for name in compile_secret_search_pattern(_LIST_START).finditer(data):
        at = name.end()
        while match := _LIST_LINE.match(text, at):
            if not match[0]:
                break
            value = match["value"]
            if value is None and at != name.end():
                break
            has_digit = re.search(r"\d", value) if value else None
            if value and len(value) >= 6 and has_digit and not re.search("[:/(=]", value):
                if not is_random_looking(value):
                    break
                yield DetectedSecret(*match.span("value"), "secret")
            elif value:
                break
            at = match.end()


def _find_secrets_in_markdown_tables(text: str, data: bytes) -> Iterator[DetectedSecret]:
    """Yield the secrets in Markdown tables: values in columns with a heading such as `password`."""
    for rule in compile_secret_search_pattern(_TABLE_RULE).finditer(data):
        end = rule.start() - 1
        heading = text[text.rfind("\n", 0, max(0, end)) + 1 : max(0, end)]
        columns = {
            number
            for number, (start, end) in enumerate(_list_table_cells(heading))
            if re.fullmatch(_SECRET_HEADING, heading[start:end], re.IGNORECASE)
        }
        at = rule.end() + 1
        while columns and at < len(text):
            end = text.find("\n", at)
            line = text[at : end if end >= 0 else len(text)]
            if "|" not in line:
                break
            for number, (start, end_of_cell) in enumerate(_list_table_cells(line)):
                value = line[start:end_of_cell].strip("`*_ ")
                if number in columns and _is_secret_cell(value):
                    first = at + start + line[start:end_of_cell].index(value)
                    yield DetectedSecret(first, first + len(value), "secret")
            at += len(line) + 1


def _find_secrets_in_csv_columns(text: str, data: bytes) -> Iterator[DetectedSecret]:
    """Yield the secrets in CSV or similar text: values in columns with a heading such as `password`."""
    for heading in compile_secret_search_pattern(_COLUMN_HEADINGS).finditer(data):
        line = text[heading.start() : heading.end()].strip("\r\n")
        separator = next((sign for sign in "\t;," if sign in line), None)
        if separator is None:
            continue
        names = line.split(separator)
        if len(names) < 2 or not all(map(_COLUMN_NAME.fullmatch, names)):
            continue
        columns = [
            number
            for number, name in enumerate(names)
            if re.fullmatch(_SECRET_HEADING, name, re.IGNORECASE)
        ]
        at = heading.end()
        while columns and at < len(text):
            end = text.find("\n", at)
            row = text[at : end if end >= 0 else len(text)]
            cells = row.split(separator)
            if len(cells) != len(names):
                break
            for number in columns:
                value = cells[number].strip("\"' \r")
                if _is_secret_cell(value):
                    start = at + sum(len(cell) + 1 for cell in cells[:number])
                    start += cells[number].index(value)
                    yield DetectedSecret(start, start + len(value), "secret")
            at += len(row) + 1


def _is_secret_cell(value: str) -> bool:
    is_token = len(value) >= 6 and re.fullmatch(r"(?=\S*\d)\S+", value) is not None
    return is_token and is_random_looking(value)


def _list_table_cells(line: str) -> list[tuple[int, int]]:
    """Return the start and end of the text in each cell of a table's row."""
    first = re.match(r"\s*\|?", line)
    start = first.end() if first else 0
    cells = []
    for border in (*_CELL.finditer(line, start), None):
        end = border.start() if border else len(line)
        inner = line[start:end]
        left = start + len(inner) - len(inner.lstrip())
        cells.append((left, max(left, start + len(inner.rstrip()))))
        start = border.end() if border else end
    return cells


def is_random_looking(value: str) -> bool:
    """Return whether a value looks like a key, not like a word, name, path or placeholder."""
    # In code, these operators can precede a variable.
    value = value.lstrip("&*!")
    if value.startswith(("$", "%", "/", "./", "~", "http", "env.", "os.", "process.", "[masked")):
        return False
    kinds = sum(
        bool(re.search(kind, value)) for kind in (r"[a-zß-öø-ÿ]", "[A-Z]", "[0-9]", r"[^\w]")
    )
    if kinds < 2 or not re.search(r"[0-9]|[^\w.-]", value):
        return False
    counts = Counter(value).values()
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    # A value with fewer bits of entropy per character than this counts as an ordinary word.
    return bits >= min(2.5, math.log2(len(value)) * 0.8)
