"""Detection of secrets: the one table for configuration, audit trail, logs, recordings, reference servers and forms.

It answers three questions: does a *name* (of a variable, header, flag, query parameter or member) denote a secret;
which parts of a *text* look like one; and does a *sentence* ask a person for one. The answers are heuristics, and
prefer to hide too much. All of them use one vocabulary, so a name that hides a member of an object also hides
``NAME=value`` in a command line, and a form that asks for it in words is rejected.

Pure. Names and texts are untrusted, so every pattern runs in time linear in its input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

__all__ = [
    "ASKED_IN_OTHER_SCRIPTS",
    "ASKED_SECRET",
    "SECRET_TERMS",
    "SecretSpan",
    "asks_for_secret",
    "find_secrets",
    "hide_secrets",
    "holds_secret",
    "looks_secret",
    "names_secret",
    "secret_path_segments",
]

# --- the vocabulary --------------------------------------------------------------------------------------------------


def _split(terms: str) -> tuple[str, ...]:
    """Split a list of terms at its bars, or else at its spaces."""
    return tuple(terms.split("|" if "|" in terms else None))


# Terms are written in lower case with one space between their words; ``api key`` is found in API_KEY, apiKey, x-api-key
# and apikey alike.

#: Terms that denote a secret at the end of any name, in an assignment within a text, and in a sentence.
SECRET_TERMS = _split(
    "password|passwd|passphrase|pass phrase|passcode|pass code|pwd|secret|token|credential|client secret|jwt"
    "|api key|access key|secret key|private key|signing key|encryption key|ssh key|gpg key|pgp key|master key"
    "|account key|shared key|shared access key|auth key|service key|subscription key|license key|deploy key"
    "|storage key|session key|recovery key|admin key|webhook key|hmac key|aws key|app key|application key"
    "|connection string|shared access signature|personal access token"
)
#: Terms that denote a secret in a name: a word of it, or several consecutive words.
_NAME_TERMS = frozenset(
    _split(
        "dsn|otp|totp|bearer|auth|oauth|authentication|authorization|cookie|cookies|signature"
        "|session id|session secret|session cookie|set cookie|private pem|passwort|kennwort|contrasena|senha|wachtwoord"
        "|ssn|social security|card number|cvv|cvv2|cvc|cvc2|pin code|seed phrase|seed words|recovery phrase"
        "|recovery code|recovery codes|mnemonic|verification code|mfa code|security code|one time code"
    )
)
#: Words that denote a secret at the end of a name: ``DB_PASS``, but not ``pass_through``.
_LAST_WORDS = frozenset(_split("pat pass cred creds"))
#: Words that denote a secret if they are the whole name of a setting, or its last word: an environment variable, a
#: header, a flag, a query parameter. A tool argument called ``key`` is one to look up.
_SETTING_WORDS = frozenset(_split("key keys pin cert salt sig session tokens sid"))
#: What a sentence may ask for, besides the terms.
_SENTENCE_TERMS = (
    r"bearer|ssn|social security(?: number)?|(?:credit|debit|bank|payment) ?cards?|card (?:number|no|verification)"
    r"|cvv2?|cvc2?|t?otp|one time (?:codes?|pins?|pass\w*)"
    r"|(?:2fa|mfa|sms|verification|authenticator|authentication|security) codes?"
    r"|security answers?|(?:card|sim|bank|atm) pin|pin (?:codes?|numbers?)|seed (?:phrase|words?)"
    r"|recovery (?:phrase|codes?|words?)|mnemonic(?: phrase)?|session cookies?|(?:github|gitlab|azure) pats?"
    r"|passwort|kennwort|contrasena|contraseña|mot de passe|senha|wachtwoord|hasło|пароль"
)
#: The same in scripts without spaces between words.
ASKED_IN_OTHER_SCRIPTS = "密码|密碼|パスワード|暗証番号|비밀번호"

#: Last words that make a name harmless: it says how a secret is handled, not what it is.
_ABOUT = frozenset(
    _split(
        "type types policy policies length size strength limit limits count counts budget expiry expires expiration"
        " expire ttl timeout lifetime age rotation format required enabled disabled enable disable method methods mode"
        " scheme hint hints label labels name names alias aliases manager provider providers issuer audience algorithm"
        " alg url uri endpoint host port domain region scope scopes user username email seconds minutes hours days ms"
        " prefix suffix pattern schema vault ring column columns field fields usage per realm callback redirect"
        " version consent banner samesite secure httponly backend retries attempts strategy parallelism"
    )
)
#: Words before ``key`` that make it an identifier and not a secret.
_PLAIN_KEYS = frozenset(
    _split(
        "primary foreign partition sort range row hash unique composite cache object public idempotency project issue"
        " epic space parent child file node page cursor lookup index map dict json yaml config setting property"
        " attribute field column metadata tag label group order bucket redis item record entity event message routing"
        " shard join natural surrogate candidate translation locale feature flag hot shortcut arrow function press"
        " modifier keyboard enter tab meta registry variable component style team board product price dedup dedupe"
        " deduplication distinct start end last next previous first min max left right evaluated exclusive global"
        " secondary filter query search data document doc image video path section kv memory chart"
        " series sheet cell collection table job task step ticket repo repository branch dictionary"
        " cluster aggregation dimension metric measure topic stream conversation thread"
    )
)
#: Words that make ``tokens`` a number of model tokens.
_COUNTED = frozenset(
    _split(
        "max min num number total prompt completion input output count limit budget reasoning thinking cached usage"
        " used per n context chunk overlap stop special new generated response maximum minimum estimated remaining"
        " design"
    )
)
#: Words before ``token`` that make it a cursor in a list, or the name of a request.
_PLACES = frozenset(_split("page next continuation pagination progress"))
#: Words before ``signature`` and ``pass`` that make it one of code, of a graphics engine, or of a test.
_OF_CODE = frozenset(_split("function method type call first second multi single two render by"))
#: Words that end like a term but are not one.
_LOOKS_ALIKE = frozenset(
    _split(
        "bypass compass encompass overpass underpass trespass surpass lowpass highpass bandpass multipass"
        " monkey turkey donkey hotkey whiskey hockey jockey"
        " lackey turnkey nontoken subtoken tokenizer"
    )
)
#: The current and the previous directory of a shell.
_SHELL_FOLDERS = frozenset({"PWD", "OLDPWD"})

# --- names -----------------------------------------------------------------------------------------------------------

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
# No variable, header or argument has a longer name; a value under such a name is always hidden.
_LONGEST_NAME = 256
_JOINED = frozenset(term.replace(" ", "") for term in SECRET_TERMS)
_PLURALS = frozenset(f"{term}s" for term in _JOINED) - {"tokens"}
_NAME_JOINED = frozenset(term.replace(" ", "") for term in _NAME_TERMS)
_ENDS = ("pass", *sorted(each for each in _JOINED | _PLURALS if len(each) >= 5))
_KEY_QUALIFIERS = frozenset(term.removesuffix(" key") for term in SECRET_TERMS if term.endswith(" key"))
_IDS = frozenset({("client", "id"), ("user", "id"), ("tenant", "id")})
_DESKTOPS = frozenset({"desktop", "xdg", "gdm"})
# Terms have at most three words.
_MOST_WORDS = 3


def names_secret(name: str, *, setting: bool = False) -> bool:
    """Return True if a value with this name is likely to be a secret.

    A ``setting`` is an environment variable, a header, a flag or a query parameter, where a bare ``key`` grants access;
    otherwise it is a member of an object, such as an argument of a tool.
    """
    return len(name) > _LONGEST_NAME or _is_secret_name(name, setting)


@lru_cache(maxsize=4096)
def _is_secret_name(name: str, setting: bool) -> bool:
    if name in _SHELL_FOLDERS:
        return False
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    if not words or words[-1] in _ABOUT or tuple(words[-2:]) in _IDS:
        return False
    return _has_term(words) or _names_key(words, setting=setting) or (setting and _names_setting(words))


def _has_term(words: list[str]) -> bool:
    """Return True if a name contains a term of the vocabulary."""
    for start in range(len(words)):
        before = words[start - 1] if start else ""
        for end in range(start + 1, min(start + _MOST_WORDS, len(words)) + 1):
            joined = "".join(words[start:end])
            if joined in _JOINED or joined in _PLURALS:
                return joined != "token" or before not in _PLACES
            if joined in _NAME_JOINED and before not in _OF_CODE:
                return True
    # No other word ends like bindpw; PW_BROWSER is a setting of Playwright.
    if words[-1].endswith("pw") or (words[-1] in _LAST_WORDS and (len(words) == 1 or words[-2] not in _OF_CODE)):
        return True
    return any(word.endswith(_ENDS) and word != "pass" and word not in _LOOKS_ALIKE for word in words)


def _names_key(words: list[str], *, setting: bool) -> bool:
    """Return True if a name means a key or tokens, and not an identifier or a number of tokens."""
    for before, word in pairwise(words):
        if word == "key" and before not in _PLAIN_KEYS and not before.isdigit():
            return True
        if word == "keys" and (before in _KEY_QUALIFIERS or (setting and before not in _PLAIN_KEYS)):
            return True
        if word == "tokens" and _COUNTED.isdisjoint(words):
            return True
    return False


def _names_setting(words: list[str]) -> bool:
    """Return True if the name of a setting is, or ends with, a word that denotes a secret only in settings."""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _SETTING_WORDS:
        return before not in _PLAIN_KEYS and before not in _DESKTOPS and _COUNTED.isdisjoint(words)
    ends = last.endswith(("key", "keys", "keyfile")) and last.removesuffix("s") not in _LOOKS_ALIKE
    return ends or words[0] == "key" or "private" in words


# --- texts -----------------------------------------------------------------------------------------------------------

#: The prefixes of known services' tokens, each with the minimum length of the rest.
_TOKENS = (
    r"eyJ[\w-]{6,}(?:\.[\w-]*){0,4}",
    r"sk-(?:[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{8,}(?![\w-]))",
    r"(?:sk|pk|rk)_(?:(?:live|test|prod)_\w{4,}|[A-Za-z0-9]{16,})",
    r"[pr]k-[A-Za-z0-9_-]{16,}",
    r"gh[pousr]_[\w-]{6,}",
    r"github_pat_\w{6,}",
    r"gl(?:pat|dt|rt|ptt|ft|soat|agent|cbt|imt)-[\w-]{6,}",
    r"xox[abceoprs]-[A-Za-z0-9-]{6,}",
    r"xapp-[A-Za-z0-9-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{8,}",
    r"AIza[\w-]{6,}",
    r"ya29\.[\w-]{6,}",
    r"GOCSPX-[\w-]{10,}",
    r"npm_[A-Za-z0-9]{10,}(?!\w)",
    r"pypi-(?:AgE[\w-]{5,}|[\w-]{30,})",
    r"hf_(?!transfer\b|hub\b)[A-Za-z0-9]{8,}(?!\w)",
    r"SG\.[\w-]{16,}\.[\w-]{16,}",
    r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{16,}",
    r"do[opr]_v1_[a-f0-9]{16,}",
    r"(?:glsa|glc|ntn|sbp|gsk|figd|nfp|rubygems|whsec|phx|sntry[su]|dckr_pat|lin_api|secret)_[A-Za-z0-9_+/=-]{20,}",
    r"(?:pplx|tvly|xai|fc|key|PMAK|CFPAT)-(?:[a-z]{2,5}-)?[A-Za-z0-9]{28,}",
    r"hv[sb]\.[\w-]{20,}",
    r"dapi[a-f0-9]{32}",
    r"r8_[A-Za-z0-9]{30,}",
    r"ATATT3x[\w=-]{10,}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{20,}",
    r"nvapi-[\w-]{20,}",
    r"tskey-(?:[a-z]{2,12}-)?[A-Za-z0-9-]{12,}",
    r"pscale_(?:tkn|pw|oauth)_[\w.=-]{16,}",
    r"dp\.(?:st|pt|ct|sa|scim|audit)\.[\w.-]{16,}",
    r"[A-Za-z0-9]{10,20}\.atlasv1\.[\w-]{16,}",
    # Telegram (the id and the token of a bot), Facebook, Twilio (a key, an account).
    r"(?:bot)?\d{8,10}:AA[\w-]{30,}",
    r"EAA[A-Za-z0-9]{30,}",
    r"(?:SK|AC)[0-9a-f]{32}(?!\w)",
)
_SIGNS_PLAIN = ("eyJ", "AKIA", "ASIA", "AIza", "-----BEGIN", "ATATT3x", "AGE-SECRET", "dapi", ":AA", "EAA")
_SIGNS_UNDERSCORE = (
    *("sk_", "pk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "b_pat_", "npm_", "hf_", "shp", "_v1_", "glsa_"),
    *("glc_", "ntn_", "sbp_", "gsk_", "figd_", "nfp_", "rubygems_", "whsec_", "phx_", "sntry", "dckr_", "lin_api_"),
    *("secret_", "r8_", "pscale_"),
)
_SIGNS_DASH = (
    *("sk-", "pk-", "rk-", "glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glsoat-", "glagent-", "glimt-"),
    *("xox", "xapp-", "GOCSPX-", "pypi-", "pplx-", "tvly-", "xai-", "fc-", "key-", "PMAK-", "CFPAT-"),
    *("nvapi-", "tskey-"),
)
_SIGNS_DOT = ("ya29.", "SG.", "hvs.", "hvb.", "dp.", ".atlasv1.")
# Two patterns that begin with a literal, which is searched for faster than an alternative.
_TWILIO = (re.compile("SK[0-9a-f]{32}"), re.compile("AC[0-9a-f]{32}"))

_SHAPE = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}KEY(?: BLOCK)?-----|\Z)"
    rf"|\b(?:{'|'.join(_TOKENS)}"
    # Any word may follow "basic"; base64 has capitals, digits or signs.
    r"|(?:(?i:bearer)|(?i:basic)(?=[ ]{1,4}[a-z._~/-]{0,256}[A-Z0-9+=]))[ ]{1,4}[A-Za-z0-9._~+/=-]{8,})"
)
#: Ends of host names, with the slash behind them.
_PATH_HOSTS = (
    *("mcp.zapier.com/", "actions.zapier.com/", "hooks.zapier.com/", ".composio.dev/", ".pipedream.net/"),
    *(".make.com/", "maker.ifttt.com/", ".webhook.office.com/"),
)
_ADDRESS = re.compile(
    # A user and a password in a URL: a port is followed by a path, not a password.
    r"(?<=://)[^\s/@:\[]{0,256}:(?!\d{1,5}[/?#])[^\s@]{1,256}+(?=@)"
    # For a web server a user without a password is a token.
    r"|(?:(?<=http://)|(?<=https://))[^\s/@:?#\[]{1,256}+(?=@)"
    # Webhook URLs: knowing one is enough to post.
    r"|(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/-]{16,}|(?<=/api/webhooks/)\d{10,}/[\w-]{16,}"
    # Services whose URLs have the credential in their path; a path without digits is that of a page.
    rf"|(?:{'|'.join(f'(?<={re.escape(host)})' for host in _PATH_HOSTS)})"
    r"(?=[^\s\"'<>?#]{0,256}?\d)[\w/.~%=+:-]{12,512}"
)
#: A part of a path, or all of it, that no person chose: a UUID, or letters and digits in disorder.
_RANDOM = re.compile(
    r"(?<![A-Za-z0-9])(?:(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16,}"
    r"|[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![0-9A-Za-z]))"
)
# ``-pVALUE`` of a program that takes a password so; of others if the value has letters and digits in disorder, since
# ``-p8080`` is a port, and ``-print0`` and ``-python3`` are options.
_SHORT_FLAG = re.compile(
    r"-p(?<![^\s\"']-p)(?P<value>(?![a-z]+\d{1,2}(?![^\s\"',]))(?=[^\s\"'=/:,]{0,64}\d)(?=[^\s\"'=/:,]{0,64}[A-Za-z])"
    r"[^\s\"'=/:,]{6,128})(?=[\s\"',]|\Z)"
)
_PASSWORD_PROGRAMS = ("mysql", "mariadb", "sshpass")
_PROGRAM_FLAG = re.compile(r"\b(?:mysql|mariadb|sshpass)[^\n|;&]{0,256}?[ ][\"']?-p(?P<value>[^\s\"']{1,128})")
# A name and the sign between it and its value, or a flag and the space behind it. The value is not part of the match,
# since that of a harmless name may hold a secret too: URL=https://host/?token=x
_ASSIGNMENT = re.compile(
    r"(?<![A-Za-z0-9_])(?P<name>[A-Za-z_][\w.-]{0,63}+)"
    r"(?:(?P<sign>[\"']?[ ]{0,3}(?:=(?!=)|:(?!//|:))[ ]{0,3}[\"']?)|(?P<space>[ ]{1,3}[\"']?(?=[^\s\"'-])))(?=\S)"
)
# A quoted value ends with its quote.
_VALUE = re.compile(r"(?<=\")[^\"\n]{1,1024}|(?<=')[^'\n]{1,1024}|[^\s\"'&;,]+")
_COOKIES = re.compile(r"[\w.-]{1,64}=[^\r\n'\"]{1,4096}")
_IN_QUERY = frozenset({"sig", "key", "sid", "auth"})
# As long as ``pwd=x``.
_SHORTEST_LOOK = 5
_MENTIONED = (
    *("pass", "pw", "secret", "token", "key", "credential", "jwt", "connection", "auth", "signature", "cookie"),
    *("pat=", "dsn", "sig=", "sid=", "session", "otp", "cred"),
)


class SecretSpan(NamedTuple):
    """The place of a secret in a text, and where the sign between its name and its value begins."""

    start: int
    end: int
    sign: int


def find_secrets(text: str) -> list[SecretSpan]:
    """Return the parts of a text that look like secrets, in order; nearly all texts have none and cost little."""
    if len(text) < _SHORTEST_LOOK:
        return []
    lowered = text.lower()
    spans: list[SecretSpan] = []
    if _may_have_shape(text, lowered):
        spans += [SecretSpan(*found.span(), found.start()) for found in _SHAPE.finditer(text)]
    if "://" in text and ("@" in text or "hook" in text or _has_any(_PATH_HOSTS, text)):
        spans += [SecretSpan(*found.span(), found.start()) for found in _ADDRESS.finditer(text)]
    if ("=" in text or ":" in text or "--" in text) and _has_any(_MENTIONED, lowered):
        spans += _assigned(text)
    if "-p" in text:
        spans += _short_flags(text)
    return _merged(spans) if len(spans) > 1 else spans


def holds_secret(text: str) -> bool:
    """Return True if a text looks like a secret or contains one, such as the password in a URL."""
    return bool(find_secrets(text))


def hide_secrets(text: str, cover: str = "***") -> str:
    """Return a text in which each part that looks like a secret is replaced by ``cover``."""
    kept: list[str] = []
    at = 0
    for span in find_secrets(text):
        kept += (text[at : span.start], cover)
        at = span.end
    return "".join([*kept, text[at:]]) if kept else text


def looks_secret(name: str, value: str) -> bool:
    """Return True if the value of a setting should not be shown, by its name or its own form; an empty one may."""
    return bool(value) and (names_secret(name, setting=True) or holds_secret(value))


def secret_path_segments(url: str) -> list[str]:
    """Return the parts of the path of a configured URL that look random; elsewhere those may be ids or digests."""
    path = re.split("[?#]", url, maxsplit=1)[0].partition("://")[2].partition("/")[2]
    return [segment for segment in path.split("/") if _RANDOM.search(segment)]


def _short_flags(text: str) -> Iterator[SecretSpan]:
    """Yield the values of ``-pVALUE`` that are passwords."""
    for pattern in (_SHORT_FLAG, *((_PROGRAM_FLAG,) if _has_any(_PASSWORD_PROGRAMS, text) else ())):
        for found in pattern.finditer(text):
            start, end = found.span("value")
            yield SecretSpan(start, end, start)


def _may_have_shape(text: str, lowered: str) -> bool:
    return (
        _has_any(_SIGNS_PLAIN, text)
        or ("_" in text and _has_any(_SIGNS_UNDERSCORE, text))
        or ("-" in text and _has_any(_SIGNS_DASH, text))
        or ("." in text and _has_any(_SIGNS_DOT, text))
        or any(pattern.search(text) is not None for pattern in _TWILIO)
        or "bearer " in lowered
        or "basic " in lowered
    )


def _has_any(signs: tuple[str, ...], text: str) -> bool:
    # A plain loop: a generator costs more than most of these tests.
    for sign in signs:  # noqa: SIM110
        if sign in text:
            return True
    return False


def _merged(spans: list[SecretSpan]) -> list[SecretSpan]:
    """Return the spans in order, with overlapping ones merged."""
    spans.sort(key=lambda span: (span.start, -span.end))
    merged = [spans[0]]
    for span in spans[1:]:
        last = merged[-1]
        if span.start < last.end:
            merged[-1] = last._replace(end=max(last.end, span.end))
        else:
            merged.append(span)
    return merged


def _assigned(text: str) -> Iterator[SecretSpan]:
    """Yield the secret values that a text assigns: in a command line, a query, a connection string or JSON."""
    taken = 0
    for found in _ASSIGNMENT.finditer(text):
        # Most names are harmless; this is the cheap test.
        if not _may_be_assigned(found["name"]) or found.start() < taken:
            continue
        at = found.end()
        if found["name"].lower().endswith("cookie"):
            value = _COOKIES.match(text, at)
        else:
            value = _VALUE.match(text, at) if _names_assigned(text, found) else None
        if value is not None:
            taken = value.end()
            yield SecretSpan(at, taken, at if found["sign"] is None else found.start("sign"))


def _names_assigned(text: str, found: re.Match[str]) -> bool:
    """Return True if the name in an assignment, or of a flag, denotes a secret."""
    name, sign = found["name"], found["sign"]
    before = text[max(0, found.start() - 2) : found.start()]
    if sign is None:
        return before == "--" and names_secret(name, setting=True)
    if _ends_with_term(name):
        return True
    if before[-1:] in ("?", "&", ";") and name.lower() in _IN_QUERY:
        return True
    # In prose and code, auth and signature are common words; in "name": and NAME= they denote a value.
    return (sign[0] in "\"'" or (sign[0] == "=" and " " not in sign)) and names_secret(name)


@lru_cache(maxsize=4096)
def _may_be_assigned(name: str) -> bool:
    return names_secret(name, setting=True) or _ends_with_term(name) or name.lower() in _IN_QUERY


@lru_cache(maxsize=4096)
def _ends_with_term(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    tails = ("".join(words[-count:]) for count in range(1, _MOST_WORDS + 1))
    return any(tail in _JOINED or tail in _PLURALS for tail in tails) or (
        bool(words) and words[-1].endswith((*_ENDS[1:], "pw"))
    )


# --- sentences -------------------------------------------------------------------------------------------------------

#: A term in a sentence, in lower case with single spaces. Not if the sentence is about its name, length and so on.
ASKED_SECRET = (
    "(?:(?:"
    + "|".join(
        f"{term.replace(' ', ' ?')}{'' if term == 'token' else 's?'}"
        for term in sorted(SECRET_TERMS, key=len, reverse=True)
    )
    + rf")|{_SENTENCE_TERMS})"
    r"(?! (?:names?|ids?|types?|polic(?:y|ies)|lengths?|managers?|strength|limits?|counts?|budgets?|labels?"
    r"|alias(?:es)?|expiry|expirations?|rotations?|formats?|stores?|vaults?|references?|providers?|required|hints?)\b)"
)
_ASKED = rf"\b{ASKED_SECRET}\b|{ASKED_IN_OTHER_SCRIPTS}"  # Compiled at its first use: few programs need it.
_PIN = re.compile(r"(?:your |the |a )?pins?")


def asks_for_secret(words: str) -> bool:
    """Return True if a label, in lower case and with single spaces, asks for a secret."""
    return re.search(_ASKED, words) is not None or _PIN.fullmatch(words) is not None
