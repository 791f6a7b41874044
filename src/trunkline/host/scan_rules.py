"""What a definition should not say: patterns in words, by what they are about and how bad they are.

Each row is about a text that was folded first (``scan_characters.fold``): in small letters, without what is not seen,
with one letter for each look-alike. A row is tried only on a text that has one of its words, so most texts cost one
look. Patterns are bounded: none repeats without an end, so the time they take grows with the text alone.

``hide`` is for what no honest definition says. ``ask`` is for what some do: one such finding has a person look before
the first use. Where two findings of different kinds come together (an instruction, and a secret; a concealment, and
another server's tool) the whole is hidden (``scan.py``). ``info`` changes nothing.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["NAME_RULES", "RULES", "Category", "Severity", "TextRule"]

Severity: TypeAlias = Literal["info", "ask", "hide"]
#: What a finding is about. The first four are what somebody would want; the others are how they would do it.
Category: TypeAlias = Literal["instruction", "concealment", "secret", "other server", "characters", "markup", "size"]


class TextRule(Struct, frozen=True, kw_only=True):
    """One row."""

    name: str
    category: Category
    severity: Severity
    #: One of these words must be in the text; none: it is tried on every text.
    words: frozenset[str]
    pattern: re.Pattern[str]
    message: str
    #: The pattern is about the text as it was given, not folded; then one of these must be in it.
    raw: bool = False
    signs: tuple[str, ...] = ()
    #: What is only advice in a server's instructions, which are there to instruct.
    advice: bool = False


def _row(
    name: str,
    category: Category,
    severity: Severity,
    *,
    words: str = "",
    pattern: str,
    message: str,
    signs: tuple[str, ...] = (),
    advice: bool = False,
) -> TextRule:
    raw = bool(signs)
    return TextRule(
        name=name,
        category=category,
        severity=severity,
        words=frozenset(words.split()),
        # The spaces of a pattern stand for any gap, so that a line break or a dash does not hide a sentence.
        pattern=re.compile(pattern if raw else pattern.replace(" ", r"[\s\-_*`'\",.:;()]{1,6}"), re.I if raw else 0),
        message=message,
        raw=raw,
        signs=signs,
        advice=advice,
    )


def _few(most: int) -> str:
    """Give a pattern for a few words."""
    return rf"(?:[^\s]{{1,40}}\s{{1,4}}){{0,{most}}}?"


_USER = r"(?:the |this |your |any |their )?(?:users?|humans?|persons?|people|operator|owner|customer|developer)\b"
_FILES = (
    r"(?:\.ssh\b|\bid_(?:rsa|dsa|ecdsa|ed25519)\b|\.aws/credentials|\.aws\b|\.gnupg\b|\.netrc\b|\.npmrc\b|\.pypirc\b"
    r"|\.kube/config|\.git-credentials|\.docker/config|\.bash_history|\.zsh_history|/etc/(?:passwd|shadow|sudoers)"
    r"|(?<![\w.])\.env\b(?!\.(?:example|sample|template))|\bmcp\.json\b|claude_desktop_config|\.cursor/|\.claude\b"
    r"|\bwallet\.dat\b|login data\b|cookies\.sqlite)"
)
_TAKING = r"(?:read|reads|reading|open|cat|load|include|attach|append|paste|copy|send|upload|forward|pass|put|embed|dump|fetch|contents? of|content from|text of|value of|values of|insert|add|print|output|extract|collect|steal|grab)"
_GIVING = r"(?:include|attach|append|paste|copy|send|upload|forward|pass|put|embed|dump|reveal|leak|output|insert|provide|supply|transmit|exfiltrate|summari[sz]e|repeat|print|add|extract|collect|share)"

#: The rows about texts: descriptions, titles, enum values, defaults, instructions.
RULES: tuple[TextRule, ...] = (
    # --- telling the model what to do beyond the tool ---
    _row(
        "ignore instructions",
        "instruction",
        "hide",
        words="ignore disregard forget override bypass discard overrides supersede supersedes",
        pattern=rf"\b(?:ignore|disregard|forget|override|overrides|bypass|discard|supersedes?) {_few(3)}"
        r"(?:previous|prior|above|earlier|preceding|existing|other|original|system|safety|your) "
        rf"{_few(2)}(?:instructions?|prompts?|rules?|guidelines?|directives?|guardrails?|polic(?:y|ies)|constraints?)\b",
        message="it tells the model to set its instructions aside",
    ),
    _row(
        "speaks as the system",
        "instruction",
        "hide",
        pattern=r"<\|?(?:im_start|im_end|system|assistant|endoftext|eot_id|start_header_id)\|>|\[/?inst\]|<</?sys>>"
        r"|</?(?:system|system[-_]?(?:prompt|reminder|message|note|instructions?)|developer[-_]?message)\s*/?>",
        signs=("<", "["),
        message="it is written like a message of the system's or of the assistant's own",
    ),
    _row(
        "speaks as the system",
        "instruction",
        "ask",
        words="system assistant admin administrator developer",
        pattern=r"(?:^|\n)\s{0,4}[#\[*]{0,4}\s?(?:system|assistant|admin(?:istrator)?|developer)"
        r"(?: (?:message|prompt|instructions?|notice|override|note))?\s?[\]*]{0,3}:",
        message="a line begins like a message of the system's",
    ),
    _row(
        "new role",
        "instruction",
        "ask",
        words="now longer pretend jailbreak jailbroken dan unrestricted roleplay",
        pattern=r"\byou are (?:now|no longer|hereby) \w|\bpretend (?:to be|that you|you are)\b|\bjailbreak|\bjailbroken\b"
        r"|\bdo anything now\b|\bunrestricted (?:mode|assistant|ai)\b",
        message="it gives the model another role",
    ),
    _row(
        "before everything else",
        "instruction",
        "ask",
        words="before prior first after every each whenever",
        pattern=rf"\b(?:before|prior to) {_few(4)}(?:any|all|every|each|other|another) {_few(1)}(?:tools?|functions?|commands?)\b"
        rf"|\b(?:before|prior to) {_few(1)}(?:do|doing|using|calling) {_few(1)}(?:anything|everything)\b"
        rf"|\b(?:after|whenever|each time|every time) {_few(3)}(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?|execut(?:e|ing)) "
        rf"{_few(2)}(?:any|all|every|each|other|another) {_few(1)}(?:tools?|functions?|commands?)\b"
        rf"|\b(?:must|always|should|have to|need to) {_few(2)}(?:call|use|invoke|run|execute) (?:this|it) {_few(2)}(?:first|before (?:any|all|every|each|other))\b",
        message="it wants to be used before or after everything else",
        advice=True,
    ),
    _row(
        "always call",
        "instruction",
        "ask",
        words="always must every mandatory required each",
        pattern=rf"\b(?:always|must|must always|required to|mandatory to) (?:also )?(?:call|invoke|run|execute|trigger) {_few(5)}"
        r"(?:for every|on every|with every|in every|after every|before every|for each|on each|every (?:message|request|turn|response|time|conversation)"
        r"|first|no matter|regardless|afterwards|at the (?:start|end|beginning)|even if|before)\b",
        message="it tells the model to call it whether or not it is needed",
        advice=True,
    ),
    _row(
        "whatever the user says",
        "instruction",
        "ask",
        words="regardless even without no user users permission",
        pattern=rf"\b(?:regardless of|no matter) {_few(3)}(?:what|whether|if)?(?: )?{_few(2)}{_USER}"
        rf"|\beven (?:if|when|though) {_USER} (?:does|did|do|has|have|says?|asks?|refuses?|objects?|declines?|is)"
        rf"|\bwithout (?:ever )?(?:asking|consulting|confirming with|checking with|(?:the )?(?:consent|permission|approval|knowledge)"
        rf" of|waiting for) {_few(1)}{_USER}|\bwithout {_USER} (?:consent|permission|approval|knowledge|noticing|knowing)",
        message="it tells the model to act against or without the user",
    ),
    _row(
        "prefers itself",
        "instruction",
        "info",
        words="instead only prefer preferred never",
        pattern=rf"\b(?:instead of|rather than|never use|do not use|don't use|over) {_few(2)}(?:any|all|other|another) {_few(1)}tools?\b",
        message="it wants to be used instead of others",
    ),
    _row(
        "other tools are bad",
        "instruction",
        "ask",
        words="deprecated broken unsafe insecure malicious compromised disabled vulnerable replaced",
        pattern=rf"\b(?:other|all other|another|the other|any other|existing|original) {_few(2)}(?:tools?|servers?|functions?) {_few(3)}"
        r"(?:deprecated|broken|unsafe|insecure|malicious|compromised|disabled|vulnerable|replaced)\b",
        message="it speaks ill of other tools",
    ),
    _row(
        "changes what others do",
        "instruction",
        "ask",
        words="bcc cc recipient redirect forward recipients addresses instead",
        pattern=rf"\b(?:change|replace|set|modify|redirect|forward|bcc|cc|send|route|add|copy) {_few(8)}(?:to|with|as|at) "
        r"['\"<`]{0,2}[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}",
        message="it names an address that something should go to",
    ),
    _row(
        "sends elsewhere",
        "instruction",
        "ask",
        words="forward upload exfiltrate leak beacon bcc mirror transmit",
        pattern=rf"\b(?:forward|upload|exfiltrate|leak|beacon|mirror|transmit) {_few(8)}(?:to|at) {_few(3)}(?:https?|ftp|wss?)[\s\-_*`'\",.:;()/]{{1,6}}",
        message="it names an address that something should go to",
    ),
    # --- hiding it from the person ---
    _row(
        "not to be told",
        "concealment",
        "hide",
        words="not don't never without avoid dont",
        pattern=rf"\b(?:do not|don't|dont|never|without|avoid|must not|should not) (?:ever )?{_few(1)}(?:tell|telling|mention|mentioning"
        rf"|reveal|revealing|disclose|disclosing|admit|admitting|confess|hint|hinting) {_few(7)}{_USER}",
        message="it tells the model not to tell the user",
    ),
    _row(
        "not to be told",
        "concealment",
        "ask",
        words="not don't never without avoid dont",
        pattern=rf"\b(?:do not|don't|dont|never|without|avoid|must not|should not) (?:ever )?{_few(1)}(?:inform|informing|alert|alerting|warn|warning|show|showing"
        rf"|display|displaying|notify|notifying|explain|explaining|let|letting|ask|asking|report|reporting) {_few(5)}{_USER}"
        r"|\b(?:do not|don't|never) (?:mention|reveal|disclose|acknowledge|refer to|talk about) (?:this|that|these|it|any of|the (?:existence|contents?|instructions?|fact))\b",
        message="it tells the model to keep something to itself",
    ),
    _row(
        "keep it secret",
        "concealment",
        "hide",
        words="secret secretly silently covertly hidden quietly invisibly stealthily unnoticed",
        pattern=rf"\bkeep {_few(3)}(?:secret|hidden|invisible) {_few(1)}(?:from|to)\b|\b(?:secretly|covertly|stealthily|invisibly|quietly|silently) {_few(1)}"
        r"(?:send|sends|call|calls|invoke|include|read|reads|copy|copies|forward|forwards|upload|uploads|append|add|adds|collect|collects|exfiltrate|log the conversation|transmit)\b"
        rf"|\bso (?:that )?{_USER} (?:does|do|will|won't|will not|doesn't|don't|cannot|can't)(?: not)? (?:notice|see|know|find|suspect)",
        message="it wants something done that nobody notices",
    ),
    # --- asking for what is private ---
    _row(
        "private files",
        "secret",
        "ask",
        pattern=rf"\b{_TAKING}\b[^\n]{{0,80}}?{_FILES}|~/{_FILES}|{_FILES}[^\n]{{0,60}}?\b(?:and|then) {_GIVING}\b",
        words="ssh id_rsa id_dsa id_ecdsa id_ed25519 aws gnupg netrc npmrc pypirc kube git-credentials git docker bash_history zsh_history"
        " passwd shadow sudoers env mcp claude_desktop_config cursor claude wallet login cookies",
        message="it speaks of files that hold secrets",
    ),
    _row(
        "the conversation",
        "secret",
        "ask",
        words="conversation chat dialogue dialog messages transcript history prompt context",
        pattern=rf"\b{_GIVING} {_few(4)}(?:conversation|chat|dialog(?:ue)?|message|session)s?(?: |'s )(?:history|log|transcript|context|so far|messages)\b"
        rf"|\b(?:full|entire|complete|whole|verbatim|raw) {_few(1)}(?:conversation|chat|dialog(?:ue)?|transcript|message history|context window)\b"
        rf"|\b{_GIVING} {_few(3)}(?:system|developer|initial|hidden) (?:prompt|message|instructions?)\b"
        rf"|\b{_GIVING} {_few(3)}(?:previous|prior|earlier|all|preceding) {_few(1)}(?:messages|conversation|prompts|tool (?:calls|results|outputs))\b",
        message="it asks for the conversation or for the model's instructions",
    ),
    _row(
        "credentials",
        "secret",
        "ask",
        words="password passwords token tokens key keys credential credentials secret secrets cookie cookies phrase passphrase",
        pattern=rf"\b{_GIVING} {_few(4)}(?:any|all|every|known|available|stored|found|the user's|user's|users|your own|other) {_few(2)}"
        r"(?:passwords?|(?:access |api |auth |bearer |session |oauth )?(?:tokens?|keys?)|credentials?|secrets?|cookies?|(?:seed|recovery|pass)(?: )?phrases?)\b"
        r"|\b(?:seed|recovery|mnemonic) phrase\b",
        message="it asks for credentials",
    ),
    _row(
        "the environment",
        "secret",
        "ask",
        words="environment env",
        pattern=rf"\b{_GIVING} {_few(4)}(?:environment|env) (?:variables?|vars?)\b",
        message="it asks for the environment's variables",
    ),
    # --- hiding it in markup ---
    _row(
        "tags of urgency",
        "markup",
        "ask",
        pattern=r"</?(?:important|critical|urgent|hidden|secret|priority|mandatory|admin|root|override|internal|confidential"
        r"|instructions?|ai[-_]?(?:only|instructions?)|llm[-_]?\w{0,12}|for[-_]?(?:ai|llm|model|assistant)\w{0,12})\s*/?>",
        signs=("<",),
        message="a tag that a page would not show and a model obeys",
    ),
    _row(
        "comment",
        "markup",
        "ask",
        pattern=r"<!--\s*(?=[^\s>-])[\s\S]{0,400}?(?:-->|\Z)|^\s{0,3}\[(?://|comment|_)\]:\s?[#<(][^\n]{1,200}|<(?:script|iframe|object|embed)\b",
        signs=("<", "["),
        message="a comment, which is not shown where the text is",
    ),
    _row(
        "hidden by style",
        "markup",
        "hide",
        pattern=r"style\s*=\s*[\"'][^\"'>]{0,200}?(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?![.\d]*[1-9])"
        r"|color\s*:\s*(?:white|transparent|#fff(?:fff)?\b)|left\s*:\s*-\d{3,})|<[a-z]{1,12}\s[^>]{0,80}?\bhidden\b[^>]{0,40}?>|\\color\{white\}|\\phantom\{",
        signs=("=", "<", "\\"),
        message="a text that is styled not to be seen",
    ),
    _row(
        "fetched image",
        "markup",
        "ask",
        pattern=r"!\[[^\]\n]{0,200}\]\(\s*<?https?://[^)\s]{1,300}|<img\b[^>]{0,200}?\bsrc\s*=\s*[\"']?https?://|(?<!!)\[\s*\]\([^)\s]{1,300}\)",
        signs=("](", "<"),
        message="an image or an empty link that a page would fetch",
    ),
    _row(
        "pushed out of sight",
        "markup",
        "ask",
        pattern=r"(?:[ \t]*\r?\n){20,}\s*\S|[ \t\u00a0]{100,}\S",
        signs=("\n\n", "\n \n", "     ", "\r\n", "\t\t"),
        message="a gap so large that what follows is out of sight",
    ),
    _row(
        "escapes",
        "markup",
        "ask",
        pattern=r"(?:\\x[0-9a-f]{2}){8,}|(?:\\u[0-9a-f]{4}){8,}|(?:%[0-9a-f]{2}){12,}|(?:&#x?[0-9a-f]{1,6};){6,}",
        signs=("",),
        message="a text in escapes, which a model reads and a person does not",
    ),
)

_NAMES = "names an argument after what no tool needs"
#: The rows about names of properties and arguments.
NAME_RULES: tuple[TextRule, ...] = (
    _row(
        "the conversation",
        "secret",
        "ask",
        pattern=r"(?:full|entire|raw|previous|prior|all)?[_-]?(?:conversation|chat|message|dialog(?:ue)?|tool_?calls?|session|prompt)s?"
        r"[_-]?(?:history|log|transcript|context|dump)|chain[_-]?of[_-]?thought|(?:hidden|internal)[_-]?reasoning|system[_-]?prompt"
        r"|(?:all|available|list_?of)[_-]?tools(?:[_-]?list)?|tools[_-]?list|developer[_-]?message|model[_-]?instructions",
        signs=("",),
        message=_NAMES,
    ),
    _row(
        "credentials",
        "secret",
        "ask",
        pattern=r"(?:user|host|local|all)?[_-]?(?:ssh|private)[_-]?keys?(?:[_-]?(?:file|contents?))?|env(?:ironment)?[_-]?(?:dump|variables|contents?)"
        r"|(?:seed|recovery)[_-]?phrase|(?:all|user)[_-]?(?:passwords|credentials|tokens|secrets|cookies)|id_rsa",
        signs=("",),
        message=_NAMES,
    ),
)
