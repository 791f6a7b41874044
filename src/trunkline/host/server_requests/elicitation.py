"""Elicitation: questions of servers to the user, by a form or by a page to open.

A prompter shows them to a person, and gets only checked questions: forms are flat and ask for no credentials, URLs are
http or https and come with their warnings, and the server that asks is always named. What is typed into a form goes
through the host, so passwords, keys, tokens and codes are never entered in one: the specification wants them entered on
a page of the server itself. A field is judged by its name, title, description and format, and by the message above the
form; that finds requests that say what they are, and is no proof against a server that lies. A URL that programs read
in more than one way is rejected. Nothing is fetched, looked up or opened here. Without a prompter the answer is to
decline.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

import trunkline.types as t
from trunkline.errors import LocalProtocolError
from trunkline.host.authorization.authorizer import act_for_server_request
from trunkline.host.config.model import ServerEntry
from trunkline.host.server_requests.handlers import OnReviewed, ReviewOutcome, UserNotice
from trunkline.net.addresses import is_loopback, special_range
from trunkline.protocol.json_schema import SchemaError, check_form_schema, inline_references
from trunkline.protocol.secret_patterns import ASKED_IN_OTHER_SCRIPTS, ASKED_SECRET, asks_for_secret, names_secret

__all__ = [
    "ElicitationHandler",
    "ElicitationPrompter",
    "FormDenied",
    "FormPrompt",
    "InvalidPageUrl",
    "PageUrl",
    "UrlPrompt",
    "credentials_in",
    "parse_form",
    "parse_page_url",
]

_MOST_FIELDS = 100  # More than a person fills in.
_LONGEST_TEXT = 20_000  # Some pages of text; more is not read before a form is filled in.

# Compiled when the first form arrives: that takes longer than importing the rest of this module.
_NEGATED = (
    r"\b(?:do not|don t|dont|does not|doesn t|never|not|no|without)"
    r"(?: (?:a|an|any|the|your|my|need|needs|enter|type|provide|put|ask|asks|for|share|send|include|use|to|is))*"
    rf" {ASKED_SECRET}\b"
)
_ASKED = (
    r"\b(?:enter|provide|type|paste|supply|give|share|send|input|insert|submit|tell|need|needs|require|requires|confirm"
    rf"|what is|your)\b(?: \w+){{0,6}}? {ASKED_SECRET}\b|{ASKED_IN_OTHER_SCRIPTS}"
)
# Digits and symbols used in place of letters, mapped back.
_LOOKALIKES = str.maketrans("013457@$!", "oieastasi")


class FormDenied(ValueError):
    """A form is not shown to the user; the message says why."""


def parse_form(question: t.ElicitRequestParams) -> dict[str, Any]:
    """Return the schema of a form, simplified: without references, and without nullable fields.

    Raises:
        FormDenied: it asks for credentials, or is not a form that a person can fill in.
    """
    schema = question.requested_schema
    if not isinstance(schema, dict):
        raise FormDenied("the form has no schema")
    if len(question.message) > _LONGEST_TEXT:
        raise FormDenied(f"the message has more than {_LONGEST_TEXT} characters")
    # Checked first: if the form has other faults too, this is the one that a person has to know.
    asked = credentials_in(question.message, schema)
    if asked:
        named = ", ".join(asked)
        raise FormDenied(
            f"it asks for credentials ({named}), which must be entered on a page of the server itself, never in a form"
        )
    try:
        plain = inline_references(schema)
        fields = plain.get("properties")
        if isinstance(fields, dict):
            if len(fields) > _MOST_FIELDS:
                raise FormDenied(f"the form has {len(fields)} fields, and {_MOST_FIELDS} are allowed")
            plain["properties"] = {name: _never_null(field) for name, field in fields.items()}
        check_form_schema(plain)
    except (SchemaError, RecursionError) as error:
        raise FormDenied(f"the form cannot be shown: {error}") from error
    return plain


def _never_null(field: Any) -> Any:
    """Return a field that is not nullable: leaving it out means the same."""
    if not isinstance(field, dict):
        return field
    kinds, forms = field.get("type"), field.get("anyOf")
    plain = field
    if isinstance(kinds, list) and len(kinds) == 2 and "null" in kinds:
        plain = {**field, "type": next(kind for kind in kinds if kind != "null")}
    elif isinstance(forms, list) and len(forms) == 2 and {"type": "null"} in forms:
        form = next(each for each in forms if each != {"type": "null"})
        rest = {key: value for key, value in field.items() if key != "anyOf"}
        plain = {**form, **rest} if isinstance(form, dict) else field
    if plain is not field and plain.get("default", "") is None:
        plain = {key: value for key, value in plain.items() if key != "default"}
    return plain


# --- credentials -----------------------------------------------------------------------------------------------------


def credentials_in(message: str, schema: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields of a form that ask for credentials, or ``the message`` if that does."""
    fields = schema.get("properties")
    free = {
        str(name): field
        for name, field in (fields.items() if isinstance(fields, dict) else ())
        if isinstance(field, dict) and _is_free(field)
    }
    found = [name for name, field in free.items() if _asks(name, field)]
    if not found and free and re.search(_ASKED, _without_negations(message)):
        found = ["the message"]
    return tuple(found)


def _is_free(field: dict[str, Any]) -> bool:
    """Return True if a field accepts free text: a choice or a switch cannot take a password."""
    return field.get("type") not in ("boolean", "array") and not {"enum", "oneOf"} & field.keys()


def _asks(name: str, field: dict[str, Any]) -> bool:
    if names_secret(str(field.get("format", ""))) or field.get("writeOnly") is True:
        return True
    labels = [_words(name), _words(name.translate(_LOOKALIKES)), _words(str(field.get("title") or ""))]
    if names_secret(name) or any(map(asks_for_secret, labels)):
        return True
    return asks_for_secret(_without_negations(str(field.get("description") or "")))


def _without_negations(text: str) -> str:
    """Return the words of a text without negated mentions ("never enter your password")."""
    return re.sub(_NEGATED, " ", _words(text))


def _words(text: str) -> str:
    """Return a text or an identifier as lower-case words, one space apart, without invisible characters."""
    seen = "".join(
        each for each in unicodedata.normalize("NFKC", text[:_LONGEST_TEXT]) if unicodedata.category(each) != "Cf"
    )
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", seen)
    return re.sub(r"[\W_]+", " ", apart.casefold()).strip()


_MAX_URL_LENGTH = 16_384  # Browsers accept longer ones, but authorization URLs stay far below.
_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})
# Characters that browsers drop or reinterpret.
_UNREADABLE = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
_NUMBERS = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]*))*", re.IGNORECASE)
# Common top-level domains; in the middle of a host they only look like its end.
_ENDS = frozenset({"app", "com", "dev", "edu", "gov", "io", "net", "org"})


class InvalidPageUrl(ValueError):
    """A URL must not be opened; the message says why."""


class PageUrl(Struct, frozen=True, kw_only=True):
    """A parsed URL, split so that its host can be highlighted."""

    #: The whole URL, as the server sent it.
    url: str
    #: Its parts: the text before the host, the host as written, and the rest.
    before: str
    host: str
    after: str
    #: The host as it is looked up: non-ASCII letters in their ``xn--`` form.
    ascii_host: str
    #: Why it may not be what it seems, a sentence each.
    warnings: tuple[str, ...] = ()


def parse_page_url(url: str) -> PageUrl:
    """Parse the URL of a page.

    Raises:
        InvalidPageUrl: a browser should not be sent there.
    """
    if len(url) > _MAX_URL_LENGTH:
        raise InvalidPageUrl(f"the URL has {len(url)} characters; the limit is {_MAX_URL_LENGTH}")
    if _UNREADABLE.search(url) or any(unicodedata.category(each) == "Cf" for each in url):
        raise InvalidPageUrl("the URL has spaces, backslashes, control or invisible characters in it")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidPageUrl(f"the URL cannot be parsed: {error}") from error
    if parts.scheme not in _PORTS:
        raise InvalidPageUrl("only http and https pages can be opened")
    if not host or not url[len(parts.scheme) :].startswith("://"):
        raise InvalidPageUrl("the URL has no host")
    ascii_host = _ascii(host)
    before, written, after = _cut(url, parts)
    return PageUrl(
        url=url,
        before=before,
        host=written,
        after=after,
        ascii_host=ascii_host,
        warnings=tuple(_warnings(parts, host, ascii_host, port=port)),
    )


def _cut(url: str, parts: SplitResult) -> tuple[str, str, str]:
    start = url.index("://") + 3
    authority = parts.netloc
    start += authority.rfind("@") + 1
    rest = authority[authority.rfind("@") + 1 :]
    end = rest.index("]") + 1 if rest.startswith("[") else rest.find(":") if ":" in rest else len(rest)
    return url[:start], url[start : start + end], url[start + end :]


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    # IDNA treats the ideographic full stop as a dot.
    plain = unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    try:
        return plain.encode("idna").decode().lower()
    except UnicodeError as error:
        raise InvalidPageUrl("the host name cannot be looked up") from error


def _warnings(parts: SplitResult, host: str, ascii_host: str, *, port: int | None) -> Iterator[str]:
    loopback = is_loopback(ascii_host)
    if parts.scheme == "http" and not loopback:
        yield "it is not encrypted (http): others on the network can read and change the page"
    if "@" in parts.netloc:
        yield f"the part before the @ is not the host: the page is at {ascii_host}"
    if port is not None and port != _PORTS[parts.scheme]:
        yield f"it uses an unusual port, {port}"
    if loopback:
        yield "it is on this machine"
    yield from _address_warnings(ascii_host, loopback=loopback)
    yield from _script_warnings(host, ascii_host)
    labels = ascii_host.rstrip(".").split(".")
    if _ENDS & set(labels[1:-1]) and len(labels) > 3:
        yield f"the owner of the page is named at the end of the host: {'.'.join(labels[-2:])}"


def _address_warnings(host: str, *, loopback: bool) -> Iterator[str]:
    try:
        address = str(ip_address(host))
    except ValueError:
        if _NUMBERS.fullmatch(host):
            yield "the host is a number, which browsers read as an address"
        return
    what = None if loopback else special_range(address)
    yield "the host is an IP address, not a name" + (f": {what}" if what else "")


def _script_warnings(host: str, ascii_host: str) -> Iterator[str]:
    shown = ".".join(map(_unicode, ascii_host.split(".")))
    if shown == ascii_host:
        return
    yield f"its letters may imitate another name: it is {ascii_host}, which browsers may show as {shown}"
    for label in shown.split("."):
        scripts = sorted(set(_scripts(label)))
        if len(scripts) > 1:
            yield f"one word of the host mixes scripts: {', '.join(scripts)}"


def _unicode(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label


def _scripts(label: Iterable[str]) -> Iterator[str]:
    """Yield the script of each letter: the first word of its Unicode name."""
    for each in label:
        if each.isalpha():
            yield unicodedata.name(each, "UNKNOWN").split(" ")[0].capitalize()


if TYPE_CHECKING:
    from trunkline.host.session import HostSession


log = logging.getLogger("trunkline.host")

_DECLINE = t.ElicitResult(action="decline")
_CANCEL = t.ElicitResult(action="cancel")
_MODES: Mapping[str, Any] = MappingProxyType({"form": {}, "url": {}})


class FormPrompt(Struct, frozen=True, kw_only=True):
    """A form for a person: the server that asks, its message, and the fields as a flat schema."""

    server: str
    #: The server's whole command or URL, without secrets.
    command: str
    message: str
    schema: dict[str, Any]


class UrlPrompt(Struct, frozen=True, kw_only=True):
    """A page for a person to open: the server that asks, its message, and the URL."""

    server: str
    command: str
    message: str
    page_url: PageUrl


#: Shows a prompt to a person; None: no answer. It is cancelled when the question is withdrawn.
ElicitationPrompter: TypeAlias = Callable[["FormPrompt | UrlPrompt"], Awaitable["t.ElicitResult | None"]]


class ElicitationHandler:
    """Answers elicitation requests through a prompter."""

    def __init__(
        self, prompter: ElicitationPrompter | None, *, notice: UserNotice | None = None, tell: OnReviewed | None = None
    ) -> None:
        """Use this prompter, or None; ``notice`` is called with what was declined, ``tell`` with every outcome."""
        self._prompter = prompter
        self._notice = notice
        self._tell = tell

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities to declare: none without a prompter."""
        return {} if self._prompter is None else {"elicitation": dict(_MODES)}

    async def answer(self, entry: ServerEntry, question: t.ElicitRequestParams, session: HostSession) -> t.ElicitResult:
        """Answer a server's request.

        Raises:
            LocalProtocolError: the prompter returned an answer that does not match the form.
        """
        by, note = "policy", None
        try:
            asked = _parse_prompt(entry, question)
        except (FormDenied, InvalidPageUrl) as refusal:
            what, note = "page" if question.mode == "url" else "form", str(refusal)
            self._say(f"The {what} of {entry.name} was declined: {note}.")
            result = _DECLINE
        else:
            if self._prompter is None:
                note = "there is no terminal or client to ask"
                self._say(f"A question of {entry.name} was declined: {note}.")
                result = _DECLINE
            else:
                by, result = "user", _checked(await self._prompter(asked) or _CANCEL, asked)
        if self._tell is not None:
            act = act_for_server_request(entry, "elicitation/create", question, session)
            self._tell(ReviewOutcome(act=act, allowed=result.action == "accept", by=by, note=note or result.action))
        return result

    def _say(self, text: str) -> None:
        log.info("%s", text)
        if self._notice is not None:
            self._notice(text)


def _parse_prompt(entry: ServerEntry, question: t.ElicitRequestParams) -> FormPrompt | UrlPrompt:
    if question.mode == "url":
        return UrlPrompt(
            server=entry.name,
            command=entry.shown,
            message=question.message,
            page_url=parse_page_url(question.url or ""),
        )
    return FormPrompt(server=entry.name, command=entry.shown, message=question.message, schema=parse_form(question))


def _checked(result: t.ElicitResult, question: FormPrompt | UrlPrompt) -> t.ElicitResult:
    """Check that the answer has what the form asks for, and nothing else."""
    if result.action != "accept" or isinstance(question, UrlPrompt):
        return t.ElicitResult(action=result.action)
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    content, fields = result.content or {}, question.schema["properties"]
    unknown = [name for name in content if name not in fields]
    if unknown:
        raise LocalProtocolError(f"The answer has a field {unknown[0]!r} that the form does not have.")
    try:
        problem = compile_schema(question.schema).first_violation(content)
    except SchemaError as error:
        raise LocalProtocolError(f"The form cannot be checked: {error}") from error
    if problem is not None:
        where = problem.path or "the whole"
        raise LocalProtocolError(f"The answer does not fit the form at {where}: {problem.message}")
    return t.ElicitResult(action="accept", content=content)
