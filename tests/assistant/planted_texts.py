"""Texts with secrets in the places where people and programs write them."""

import base64
import json

from assistant_support import HEX, KEYS, MIXED, PRIVATE_KEY

VALUE, OTHER = "Xk9mP2qL7wR4tZ8", "8Zt4Rw7Lq2Pm9kX"
UUID, LOWER, SIGNS = "6f1c2b7e-93d4-4c1a-8f3e-2d9a7b5c4e10", "tr0ub4dor3x9q", "kX7#pQ!z"
GITHUB = "gh" + "p_" + MIXED[:36]
LONG = "sk-" + "ant-api03-" + MIXED[:90]
TOKEN = next(key for key, kind in KEYS if kind == "JSON web token")
KEY_LINES = PRIVATE_KEY.splitlines()[1:-1]


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_LOGIN = _encode("me:hunter2go")
_ENVIRONMENT = _encode(f"DB_HOST=x\nDB_PASSWORD={VALUE}\n")
_LONG_FILE = _encode(f"{'# config ' * 8}\npassword: {VALUE}\n{'x=1 ' * 10}")
_WRAPPED_FILE = "\n".join(_LONG_FILE[at : at + 76] for at in range(0, len(_LONG_FILE), 76))
_V = [VALUE]
_BOTH = [VALUE, OTHER]

PLANTED: dict[str, tuple[str, list[str]]] = {
    # Wrapped, cut and joined keys.
    "wrapped key": (f"the key:\n  {GITHUB[:22]}\n  {GITHUB[22:]}\nok", [GITHUB[8:22], GITHUB[24:38]]),
    "key with backslash": (f"export K={LONG[:40]}\\\n{LONG[40:]}", [LONG[12:38], LONG[45:]]),
    "key in quote": (f"> {LONG[:60]}\n> {LONG[60:]}\n", [LONG[14:50], LONG[62:]]),
    "wrapped token": ("\n".join(TOKEN[at : at + 40] for at in range(0, len(TOKEN), 40)), [TOKEN[10:35], TOKEN[-12:]]),
    "cut key": (f"got {GITHUB[:20]}… from", [GITHUB[6:20]]),
    "key cut at the end": (f"token {LONG[:34]}", [LONG[14:34]]),
    "key after underscore": (f"MY_{GITHUB} x_{LONG}", [GITHUB[6:], LONG[14:]]),
    "colour in key": (f"{GITHUB[:12]}\x1b[31m{GITHUB[12:]}\x1b[0m", [GITHUB[14:]]),
    "zero width in key": (f"{GITHUB[:12]}\u200b{GITHUB[12:]}", [GITHUB[14:]]),
    # Markdown.
    "bold name": (f"**Password:** {VALUE}", _V),
    "bold name, colon outside": (f"**Password**: {VALUE}", _V),
    "bold value": (f"- Password: **{VALUE}**", _V),
    "code value": (f"* __API key__: `{VALUE}`", _V),
    "row": (f"| key | value |\n|---|---|\n| password | `{VALUE}` |\n", _V),
    "column": (f"| host | user | password |\n|---|---|---|\n| db | me | {VALUE} |\n| b | c | {OTHER} |\n", _BOTH),
    "column without edges": (f"user | password\n--- | ---\nme | {VALUE}\n", _V),
    "recovery codes": ("Recovery codes:\n1a2b3-4c5d6\n7e8f9-0a1b2\n", ["1a2b3-4c5d6", "7e8f9-0a1b2"]),
    "prose": (f"The password for the staging database is {VALUE}.", _V),
    "dash": (f"API key — {VALUE}", _V),
    "other languages": (f"Kennwort: {VALUE}\nPasswort: Größe2024!\n密码：{OTHER}", [*_BOTH, "Größe2024"]),
    # YAML, JSON and XML.
    "literal block": (f"db:\n  password: |\n    {VALUE}\n  host: x\n", _V),
    "folded block": (f"token: >-\n  {VALUE}\n  {OTHER}\nhost: db\n", _BOTH),
    "next line": (f"password:\n    {VALUE}\n", _V),
    "quoted with spaces": ('password: "open sesame 42!"\n', ["open sesame"]),
    "quoted with quote": (f"password: 'it''s {VALUE}'\n", _V),
    "passphrase": ('passphrase: "correct horse battery staple"', ["horse battery"]),
    "anchor": (f"password: &pw {VALUE}\n", _V),
    "list": (f"tokens:\n- {VALUE}\n- {OTHER}\n", _BOTH),
    "flow list": (f"tokens: [{VALUE}, {OTHER}]\n", _BOTH),
    "pair in YAML": (f"env:\n  - name: API_TOKEN\n    value: {VALUE}\n", _V),
    "pair in JSON": (json.dumps({"env": [{"name": "DB_PASSWORD", "value": VALUE}]}, indent=2), _V),
    "pair in XML": (f'<add key="ApiKey" value="{VALUE}"/>', _V),
    "docker config": (json.dumps({"auths": {"https://x/v1/": {"auth": _LOGIN}}}), [_LOGIN]),
    "JSON in JSON": (json.dumps(json.dumps({"password": VALUE, "auth": _LOGIN})), [VALUE, _LOGIN]),
    "web key": (json.dumps({"kty": "RSA", "n": "abc", "d": MIXED[:80]}), [MIXED[3:70]]),
    # HTTP.
    "Cookie": (f"Cookie: theme=dark1; sid={VALUE}; csrf={OTHER}", _BOTH),
    "Set-Cookie": (f"Set-Cookie: JSESSIONID={VALUE}; Path=/\r\nset-cookie: __Secure-x={OTHER}; Secure", _BOTH),
    "curl -b": (f"curl -b 'session={VALUE}' https://x", _V),
    "curl -H": (f"curl -H 'Authorization: ApiKey {VALUE}' -H \"PRIVATE-TOKEN: {OTHER}\"", _BOTH),
    "Digest": (f'Authorization: Digest username="me", realm="r", response="{HEX[:32]}"', [HEX[4:30]]),
    "AWS4": (f"Authorization: AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature={HEX}", [HEX[4:60]]),
    "curl -u": ("curl -u me:s3cr3t https://x", ["s3cr3t"]),
    "httpie": (f"http -a me:{VALUE} GET https://x", _V),
    "Basic": (f"Basic {_LOGIN}", [_LOGIN]),
    "signed address": (f"https://b.s3.amazonaws.com/k?X-Amz-Signature={HEX}&x=1", [HEX[3:60]]),
    "percent": (f"https://x/?q=%22password%22%3A%22{VALUE}%22&password%3D{OTHER}", _BOTH),
    "arguments": (json.dumps({"cmd": ["curl", "-u", f"me:{VALUE}", "https://x"]}), _V),
    # Addresses and connection strings.
    "address with slash": (f"postgresql+psycopg://me:p{VALUE}/x@db:5432/x", _V),
    "short password": ("mongodb+srv://u:pw@cluster0.x.net/db", [":pw@"]),
    "token as user": (f"git clone https://{MIXED[:32]}:x-oauth-basic@github.com/x/y", [MIXED[3:30]]),
    "ADO": ("Server=tcp:x.windows.net;Database=d;User ID=sa;Password=letmein;Encrypt=True;", ["letmein"]),
    "libpq": ("host=db dbname=x user=me password=letmein", ["letmein"]),
    "Oracle": (f"jdbc:oracle:thin:scott/{VALUE}@//h:1521/x", _V),
    # Private keys without their first line.
    "end of key": ("\n".join(KEY_LINES[3:9]) + "\n-----END RSA PRIVATE KEY" + "-----", [KEY_LINES[4][5:50]]),
    "lines of key": ("x:\n" + "\n".join(KEY_LINES[3:9]) + "\nrest", [line[5:50] for line in KEY_LINES[3:9]]),
    "numbered lines": ("\n".join(f"{at:6}→{line}" for at, line in enumerate(KEY_LINES[3:9], 7)), [KEY_LINES[4][5:50]]),
    "OpenSSH": ("b3BlbnNzaC1rZXktdjE" + "AAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n" + MIXED[:60], [MIXED[3:50]]),
    "PKCS 8": ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" + MIXED[:200], [MIXED[3:150]]),
    "PuTTY": (f"PuTTY-User-Key-File-3: x\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 1\n{MIXED[:48]}\n", [MIXED[3:40]]),
    # Files of programs.
    ".netrc": ("machine api.x.com login me password letmein\nmachine y\n  login a\n  password hunterx\n", ["letmein", "hunterx"]),
    ".pgpass": (f"db.example.com:5432:app:me:{VALUE}", _V),
    "AWS table": ("Access key ID,Secret access key\nAKIA" + f"IOSFODNN7EXAMPLE,{MIXED[:40]}\n", [MIXED[3:37]]),
    "cookie table": (f".x.com\tTRUE\t/\tTRUE\t1999999999\tsid\t{VALUE}", _V),
    "variables": ("DB_PASSWORD=letmein\nexport APP_SECRET=swordfish\n", ["letmein", "swordfish"]),
    "variable with signs": ("SMTP_PASSWORD=Xk9(mP2{q}L7 z;w\n", ["mP2", "L7 z"]),
    "shadow": (f"root:$6$saltsalt${MIXED[:86]}:19000:0:99999:7:::", [MIXED[3:80]]),
    "Laravel": (f"APP_KEY=base64:{_encode(MIXED[:32])}", [_encode(MIXED[:32])[3:40]]),
    # Commands and code.
    "sshpass": (f"sshpass -p '{VALUE}' ssh me@x", _V),
    "mysql": ("mysqldump -u root -pletmein db", ["letmein"]),
    "redis-cli": (f"redis-cli -h x -a {VALUE} ping", _V),
    "chpasswd": (f"echo 'root:{VALUE}' | chpasswd", _V),
    "SQL": (f"CREATE USER me IDENTIFIED BY '{VALUE}'; ALTER ROLE x WITH PASSWORD '{OTHER}'", _BOTH),
    "index": (f"os.environ[\"API_KEY\"] = \"{VALUE}\"; config['password'] = '{OTHER}'", _BOTH),
    "call": (f'client.setPassword("{VALUE}"); os.getenv("SECRET_KEY", "{OTHER}")', _BOTH),
    "login": (f'server.login("me@x.com", "{VALUE}")', _V),
    "Terraform": (f'variable "db_password" {{\n  default = "{VALUE}"\n}}', _V),
    # Encoded.
    "key in base64": (f"data: {_encode(GITHUB)}", [_encode(GITHUB)[4:40]]),
    "file in base64": (_ENVIRONMENT, [_ENVIRONMENT[4:40]]),
    "file in wrapped base64": (_WRAPPED_FILE, [_LONG_FILE[100:130]]),
    "key in hexadecimal": (GITHUB.encode().hex(), [GITHUB.encode().hex()[8:60]]),
    # Found by the second set of planted texts.
    "told in prose": (f"the password is \"{SIGNS}\"; I set the password to `{SIGNS}`; Wifi password is {LOWER}", [SIGNS, LOWER]),
    "credentials in prose": (f"Use the credentials admin:{LOWER} to log in", [LOWER]),
    "option with code": (f"set -gx OPENAI_API_KEY {UUID}; az login --token {MIXED[:52].lower()}", [UUID, MIXED[3:45].lower()]),
    "separated values": (f"host,user,password\ndb,me,{LOWER}\n\nuser\tpassword\nme\t{SIGNS}1\n", [LOWER, SIGNS]),
    "typed constant": (f'const PASSWORD: &str = "{SIGNS}"; const token: string = "{UUID}"', [SIGNS, UUID]),
    "keystore": (f"signing.keyPassword={LOWER}\nstorePassword={SIGNS}", [LOWER, SIGNS]),
    "requests": (f'get(u, auth=("me", "{LOWER}"), headers={{"Authorization": f"Bearer {UUID}"}}, cookies={{"sid": "{HEX[:32]}"}})', [LOWER, UUID, HEX[:32]]),
    "form": (f'<input type="password" name="p" value="{LOWER}">', [LOWER]),
    "webhook": (f"https://x.webhook.office.com/webhookb2/{UUID}@{UUID}/IncomingWebhook/{HEX[:32]}/{UUID}", [HEX[3:30]]),
    "OpenVPN": ("-----BEGIN OpenVPN Static key V1-----\n" + f"{HEX[:32]}\n" * 6, [HEX[3:30]]),
    "added lines": ("\n".join(f"+{line}" for line in KEY_LINES[2:9]), [KEY_LINES[4][5:50]]),
    "trace of curl": (f"> Authorization: Basic {_LOGIN}\n> Cookie: _session={UUID}\n< Set-Cookie: id={HEX[:32]}; Path=/", [_LOGIN, UUID, HEX[:32]]),
    "base64 twice": (_encode(_ENVIRONMENT), [_encode(_ENVIRONMENT)[5:40]]),
}  # fmt: skip
"""Kind of place -> a text, and the parts of its secrets that must not be shared."""
