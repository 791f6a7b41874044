"""The rules of the scan: what a definition should not say, as patterns by category and severity.

Most rules match a folded text (``characters.fold_text``): in lower case, without invisible characters, with Latin
letters for look-alikes. A rule is tried only on a text that has one of its words or signs, so most texts cost one set
lookup; its pattern is compiled then. No pattern has an unbounded repetition, so matching takes linear time.

``hide`` is for what no honest definition says. ``ask`` is for what some do: a person then approves the first use. If
two findings of different categories come together (an instruction and a secret; a concealment and another server's
tool), the definition is hidden (``scanner.combine_findings``). ``info`` changes nothing.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from trunkline.protocol.secret_patterns import SECRET_TERMS

__all__ = ["NAME_RULES", "PRIVATE_FILE", "READER_OWNED", "RULES", "Category", "Severity", "TextRule"]

Severity: TypeAlias = Literal["info", "ask", "hide"]
#: The category of a finding. The first four are goals of an attack; the others are means.
Category: TypeAlias = Literal["instruction", "concealment", "secret", "other server", "characters", "markup", "size"]

# A space in a pattern matches any gap, so that a line break, a dash or a quote does not hide a sentence.
_GAP = r"[\s\-_*`'\",.:;()]{1,6}"


# "Never go on without asking the user" means the opposite of "go on without asking the user".
_NEGATION = r"\b(?:never|not|cannot|nor|neither|(?:do|does|can|must|should)n't)\b[^.!?\n]{0,100}\Z"


class TextRule(Struct, frozen=True, kw_only=True):
    """One rule of the scan."""

    name: str
    category: Category
    severity: Severity
    pattern: str
    flags: int = 0
    message: str
    #: The text must have one of these words …
    words: frozenset[str] = frozenset()
    #: … or contain one of these strings, in lower case.
    signs: tuple[str, ...] = ()
    #: It matches the folded text, not the original.
    folded: bool = True
    #: A match is harmless if this matches right before it: a negation.
    unless_after: str | None = None
    #: It does not apply to a server's instructions, which are there to instruct.
    advice: bool = False
    #: A match is harmless in a definition that is about this topic, by its other texts.
    unless_about: str | None = None


def _word_rule(
    category: Category,
    severity: Severity,
    name: str,
    *,
    pattern: str,
    message: str,
    words: str = "",
    signs: tuple[str, ...] = (),
    unless_negated: bool = False,
    advice: bool = False,
) -> TextRule:
    return TextRule(
        name=name,
        category=category,
        severity=severity,
        words=frozenset(words.split()),
        signs=signs,
        pattern=pattern.replace(" ", _GAP),
        message=message,
        unless_after=_NEGATION if unless_negated else None,
        advice=advice,
    )


def _sign_rule(
    category: Category,
    severity: Severity,
    name: str,
    *,
    signs: tuple[str, ...],
    pattern: str,
    message: str,
    unless_about: str | None = None,
) -> TextRule:
    return TextRule(
        name=name,
        category=category,
        severity=severity,
        signs=signs,
        pattern=pattern,
        flags=re.IGNORECASE | re.MULTILINE,
        message=message,
        folded=False,
        unless_about=unless_about,
    )


def _words(most: int) -> str:
    """Return a pattern for a few words."""
    return rf"(?:[^\s_]{{1,40}}[\s_]{{1,4}}){{0,{most}}}?"


# --- words that several rules share ----------------------------------------------------------------------------------

_USER = r"(?:the |this |your |any |their )?(?:users?|humans?|persons?|people|operator|owner|customer|developer)\b"
_NOT = r"\b(?:do not|don't|dont|never|without|avoid|must not|should not) (?:ever )?"
_NOT_WORDS = "not don't dont never without avoid"
_ANY = "(?:any|all|every|each|other|another)"
_TOOLS = r"(?:tools?|functions?|commands?)\b"
_USING = "(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?|execut(?:e|ing))"
PRIVATE_FILE = (
    r"(?:\.ssh\b|\bid_(?:rsa|dsa|ecdsa|ed25519)\b|\.aws[/\\]credentials|\.gnupg\b|\.netrc\b|\.npmrc\b|\.pypirc\b|\.kube[/\\]config"
    r"|\.git-credentials|\.docker[/\\]config|\.(?:bash|zsh)_history|/etc/(?:passwd|shadow|sudoers)"
    r"|(?<![\w.])\.env\b(?!\.(?:example|sample|template))|\bmcp\.json\b|claude_desktop_config|\.cursor[/\\]|\.claude\b"
    r"|\bwallet\.dat\b|\bcookies\.sqlite)"
)
_FILE_SIGNS = (
    *(".ssh", "id_rsa", "id_dsa", "id_ec", "id_ed", ".aws", ".gnupg", ".netrc", ".npmrc", ".pypirc", ".kube"),
    *(".git-cred", ".docker", "_history", "/etc/", ".env", "mcp.json", "claude_desktop", ".cursor", ".claude"),
    *("wallet.dat", "cookies.sqlite"),
)
_GIVING = (
    r"\b(?:include|attach|append|paste|copy|send|upload|forward|pass|put|embed|dump|reveal|leak|output|insert|provide"
    r"|supply|transmit|exfiltrate|summari[sz]e|repeat|print|add|extract|collect|share)"
)
_TAKING = r"\b(?:read(?:s|ing)?|open|cat|load|fetch|contents? (?:of|from)|text of|values? of|steal|grab)"
_HUSHED = r"(?:tell(?:ing)?|mention(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)|admit(?:ting)?|confess|hint(?:ing)?)"
_UNTOLD = (
    r"(?:inform|informing|alert|alerting|warn|warning|show|showing|display|displaying|notify|notifying|explain"
    r"|explaining|let|letting|report|reporting)"
)
# Names that always mean a secret; "key" and "token" have other meanings, too.
_TOKEN_KINDS = ("access", "api", "auth", "bearer", "login", "oauth", "refresh", "session", "user")
_SECRET_NOUNS = (
    *(term for term in SECRET_TERMS if term != "token"),
    *(f"{kind} token" for kind in _TOKEN_KINDS),
    *("cookie", "seed phrase", "recovery phrase"),
)
_SECRETS = "(?:" + "|".join(noun.replace(" ", "(?: )?") for noun in _SECRET_NOUNS) + r")s?\b"
_AMBIGUOUS = r"(?:keys?|tokens?)\b"
# Owned by the user, the model or this machine.
_OWNED = (
    rf"(?:your own|the users?(?: s)?|users?(?: s)?|{_USER} s|stored|saved|known|leaked|local|personal|sensitive) "
    rf"{_words(2)}{_AMBIGUOUS}"
    rf"|(?:any|all|every|each) {_words(2)}{_AMBIGUOUS} {_words(3)}(?:(?:of|from|for|belonging to|owned by) {_USER}"
    rf"|(?:in|from|on|found in|stored (?:in|on)) {_words(2)}(?:environment|env|home|machine|computer|disk|keychain"
    r"|keyring|conversation|chat|memory|config(?:uration)?|browser|context|files?system|other (?:tools?|servers?))\b"
    r"|so far\b|you (?:know|can find|have access to|have seen)\b)"
)

# "Before any other tool of this server" is about the order of its own tools.
_UNSCOPED = (
    r"(?! (?:in|of|from|on|within|provided by|offered by) (?:this|the|our|that|its) (?:same )?(?:[a-z0-9]{1,30} )?"
    r"(?:server|workflow|toolset|toolkit|package|integration|api|group|category|suite|module|list|mcp|family|set)\b)"
)

# --- telling the model what to do beyond the tool --------------------------------------------------------------------

_INSTRUCTIONS = (
    _word_rule(
        "instruction",
        "hide",
        "ignore instructions",
        words="ignore disregard forget override overrides bypass discard supersede supersedes",
        pattern=rf"\b(?:ignore|disregard|forget|overrides?|bypass|discard|supersedes?) {_words(3)}"
        rf"(?:previous|prior|above|earlier|preceding|existing|other|original|system|safety|your) {_words(2)}"
        r"(?:instructions?|prompts?|rules?|guidelines?|directives?|guardrails?|polic(?:y|ies)|constraints?)\b",
        message="it tells the model to ignore its instructions",
    ),
    _sign_rule(
        "instruction",
        "hide",
        "speaks as the system",
        signs=("<|", "inst]", "<<", "sys", "dev"),
        pattern=r"<\|?(?:im_start|im_end|system|assistant|endoftext|eot_id|start_header_id)\|>|\[/?INST\]|<</?SYS>>"
        r"|</?(?:system|system[-_]?(?:prompt|reminder|message|note|instructions?)|developer[-_]?message)\s*/?>",
        message="it imitates a system or assistant message",
    ),
    _word_rule(
        "instruction",
        "ask",
        "speaks as the system",
        words="system assistant admin administrator developer",
        pattern=r"(?:^|\n)\s{0,4}(?:[#\[*]{1,4}\s?(?:system|assistant|admin(?:istrator)?|developer)"
        r"|(?:system|assistant|admin(?:istrator)?|developer) (?:message|prompt|instructions?|notice|override|note))"
        r"(?: (?:message|prompt|instructions?|notice|override|note))?\s?[\]*]{0,3}:",
        message="a line imitates a system message",
    ),
    _word_rule(
        "instruction",
        "ask",
        "new role",
        words="now longer hereby pretend jailbreak jailbroken unrestricted",
        pattern=r"\byou are (?:now|no longer|hereby) \w|\bpretend (?:to be|that you|you are)\b|\bjailbr(?:eak|oken)\b"
        r"|\bdo anything now\b|\bunrestricted (?:mode|assistant|ai)\b",
        message="it gives the model another role",
    ),
    _word_rule(
        "instruction",
        "ask",
        "before everything else",
        words="before prior first after every each whenever",
        pattern=rf"\b(?:before|prior to) (?:{_words(2)}{_USING} )?(?:any|all|every|each) (?:other )?{_TOOLS}{_UNSCOPED}"
        rf"|\b(?:must|always|never|have to|need to|required|mandatory)\b[^.!?\n]{{0,120}}\b(?:before|prior to) "
        rf"(?:{_words(2)}{_USING} )?(?:other|another) {_TOOLS}{_UNSCOPED}"
        rf"|\b(?:before|prior to) {_words(1)}(?:do|doing|using|calling) {_words(1)}(?:anything|everything)\b"
        rf"|\b(?:after|whenever|each time|every time) {_words(3)}{_USING} {_words(2)}{_ANY} {_words(1)}{_TOOLS}"
        rf"|\b(?:must|always|should|have to|need to) {_words(2)}{_USING} (?:this|it) {_words(2)}"
        r"(?:first\b(?! (?:when|if|to|for|in order|so|before) [a-z])|before (?:everything|anything)\b)",
        message="it wants to be used before or after everything else",
        advice=True,
    ),
    _word_rule(
        "instruction",
        "ask",
        "always call",
        words="always must required mandatory",
        pattern=rf"\b(?:always|must|must always|required to|mandatory to) (?:also )?{_USING} {_words(5)}"
        r"(?:(?:for|on|with|in|after|before) (?:every|each)|every (?:message|request|turn|response|time|conversation)"
        r"|no matter|regardless|afterwards|at the (?:start|end|beginning)|even if"
        r"|when(?:ever)? (?:a|an|the|each|every|any) (?:new )?"
        r"(?:conversation|chat|session|message|request|turn|answer))\b",
        message="it tells the model to call it whether or not it is needed",
        advice=True,
    ),
    _word_rule(
        "instruction",
        "ask",
        "whatever the user says",
        words="regardless matter even without",
        pattern=rf"\b(?:regardless of|no matter) {_words(3)}{_USER}"
        rf"|\beven (?:if|when|though) {_USER} (?:does|did|do|doesn't|didn't|says?|asks?|refuses?|objects?|declines?)\b"
        r"|\bwithout (?:ever )?(?:asking|consulting|confirming with|checking with|waiting for"
        rf"|(?:the )?(?:consent|permission|approval|knowledge) of) {_words(1)}{_USER}"
        rf"|\bwithout {_USER}(?:'s)? (?:consent|permission|approval|knowledge|noticing|knowing)",
        message="it tells the model to act against or without the user",
        unless_negated=True,
    ),
    _word_rule(
        "instruction",
        "info",
        "prefers itself",
        words="instead rather never not don't over",
        pattern=rf"\b(?:instead of|rather than|never use|do not use|don't use|over) {_words(2)}"
        rf"(?:any|all|other|another) {_words(1)}tools?\b",
        message="it wants to be used instead of others",
    ),
    _word_rule(
        "instruction",
        "ask",
        "other tools are bad",
        words="deprecated broken unsafe insecure malicious compromised disabled vulnerable",
        pattern=rf"\b(?:other|another|existing|original) {_words(2)}(?:tools?|servers?|functions?) {_words(3)}"
        r"(?:deprecated|broken|unsafe|insecure|malicious|compromised|disabled|vulnerable)\b",
        message="it discredits other tools",
    ),
    _word_rule(
        "instruction",
        "ask",
        "sends elsewhere",
        words="change replace set modify redirect forward bcc cc send route add copy",
        pattern=rf"\b(?:change|replace|set|modify|redirect|forward|bcc|cc|send|route|add|copy) {_words(8)}"
        r"(?:to|with|as|at) (?:[<\[])?[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}",
        message="it names an address that something should go to",
    ),
    _word_rule(
        "instruction",
        "ask",
        "sends elsewhere",
        words="forward upload exfiltrate leak beacon mirror transmit post",
        pattern=rf"\b(?:forward|upload|exfiltrate|leak|beacon|mirror|transmit|post) {_words(8)}"
        rf"(?:to|at) {_words(3)}(?:https?|ftp|wss?)://",
        message="it names an address that something should go to",
    ),
)

# --- hiding it from the person ---------------------------------------------------------------------------------------

_CONCEALMENTS = (
    _word_rule(
        "concealment",
        "hide",
        "not to be told",
        words=_NOT_WORDS,
        pattern=rf"{_NOT}{_words(1)}{_HUSHED} {_words(7)}{_USER}",
        message="it tells the model not to tell the user",
        unless_negated=True,
    ),
    _word_rule(
        "concealment",
        "ask",
        "not to be told",
        words=_NOT_WORDS,
        pattern=rf"{_NOT}{_words(1)}{_UNTOLD} {_words(2)}{_USER}"
        r"|\b(?:do not|don't|dont|never) (?:mention|reveal|disclose|acknowledge|refer to|talk about) "
        r"(?:this|that|these|it|any of|the (?:existence|contents?|instructions?|fact))\b",
        message="it tells the model to keep something from the user",
        unless_negated=True,
    ),
    _word_rule(
        "concealment",
        "hide",
        "keep it secret",
        words="secret secretly silently covertly hidden quietly invisibly stealthily invisible so",
        pattern=rf"\bkeep {_words(3)}(?:secret|hidden|invisible) (?:from|to)\b"
        rf"|\b(?:secretly|covertly|stealthily|invisibly|quietly|silently) {_words(1)}"
        r"(?:sends?|calls?|invoke|include|reads?|cop(?:y|ies)|forwards?|uploads?|append|adds?|collects?|exfiltrate"
        r"|transmit)\b"
        rf"|\bso (?:that )?{_USER} (?:does|do|will|won't|doesn't|don't|cannot|can't)(?: not)? "
        r"(?:notice|see|know|find|suspect)",
        message="it wants something done unnoticed",
    ),
)

# --- asking for what is private --------------------------------------------------------------------------------------

_PRIVATE = (
    _word_rule(
        "secret",
        "ask",
        "private files",
        signs=_FILE_SIGNS,
        pattern=rf"(?:{_TAKING}|{_GIVING})\b[^\n]{{0,80}}?{PRIVATE_FILE}|{PRIVATE_FILE}[^\n]{{0,60}}?{_GIVING}\b",
        message="it refers to files that hold secrets",
    ),
    _word_rule(
        "secret",
        "ask",
        "the conversation",
        words="conversation conversation's chat dialogue dialog session messages transcript history prompt context"
        " message prompts instructions calls results outputs",
        pattern=rf"{_GIVING} {_words(4)}(?:conversation|chat|dialog(?:ue)?|message|session)s? "
        r"(?:s )?(?:history|log|transcript|context|so far|messages)\b"
        rf"|{_GIVING} {_words(3)}(?:full|entire|complete|whole|verbatim|raw) "
        rf"{_words(1)}(?:conversation|chat|dialog(?:ue)?|transcript|message history|context window)\b"
        rf"|{_GIVING} {_words(3)}(?:system|developer|initial|hidden) (?:prompt|message|instructions?)\b"
        rf"|{_GIVING} {_words(3)}(?:previous|prior|earlier|all|preceding) {_words(1)}"
        r"(?:messages|conversation|prompts|tool (?:calls|results|outputs))\b",
        message="it asks for the conversation or for the model's instructions",
    ),
    _word_rule(
        "secret",
        "ask",
        "credentials",
        signs=(*(term.rpartition(" ")[2] for term in SECRET_TERMS), "key", "cookie", "phrase"),
        pattern=rf"{_GIVING} {_words(4)}(?:any|all|every|known|available|stored|found|user s|users|your own|other) "
        rf"{_words(2)}{_SECRETS}|{_GIVING} {_words(4)}(?:{_OWNED})"
        rf"|\b(?:give|tell|send|show|hand) (?:me|us|it) {_words(3)}{_SECRETS}|\b(?:seed|recovery|mnemonic) phrase\b",
        message="it asks for credentials",
    ),
    _word_rule(
        "secret",
        "ask",
        "the environment",
        words="environment env",
        pattern=rf"{_GIVING} {_words(2)}(?:all|any|every|the|your|their|current|full|local) {_words(2)}"
        r"(?:environment|env) (?:variables|vars)\b",
        message="it asks for environment variables",
    ),
)

# A path reads the same in every language, so it counts without a verb, unless the definition is about that topic.
_HOME = (
    r"(?:~|\$\{?home\}?|/home/[\w.-]{1,40}|/users/[\w.-]{1,40}|/root|%userprofile%|[a-z]:\\users\\[\w.-]{1,40})[/\\]"
)


def _path_rule(pattern: str, *, signs: tuple[str, ...], unless_about: str = "(?!)") -> TextRule:
    return TextRule(
        name="private files",
        category="secret",
        severity="ask",
        signs=signs,
        pattern=pattern,
        message="it names the path of a file that holds secrets",
        unless_about=rf"\b(?:{unless_about})\b",
    )


_PATHS = (
    _path_rule(
        r"\.ssh[/\\]|\bid_(?:rsa|dsa|ecdsa|ed25519)\b(?!\.pub)",
        signs=(".ssh", "id_rsa", "id_dsa", "id_ec", "id_ed"),
        unless_about=r"ssh|sftp|scp|rsync|git|ansible|vps|key ?pairs?|(?:private|identity|host) keys?"
        r"|remote (?:hosts?|servers?|machines?)",
    ),
    _path_rule(
        r"\.aws[/\\]credentials\b",
        signs=(".aws",),
        unless_about=r"aws|amazon|s3|buckets?|ec2|lambda|dynamodb|bedrock|boto3?|terraform|cloud\w*",
    ),
    _path_rule(r"\.kube[/\\]config\b", signs=(".kube",), unless_about=r"kube\w*|k8s|clusters?|helm|pods?|argo\w*"),
    _path_rule(
        r"\.docker[/\\]config\b", signs=(".docker",), unless_about=r"docker|containers?|registr(?:y|ies)|images?"
    ),
    _path_rule(r"\.gnupg\b", signs=(".gnupg",), unless_about=r"gpg|pgp|gnupg|encrypt\w*|decrypt\w*|sign\w*"),
    _path_rule(
        r"\.(?:netrc|git-credentials)\b",
        signs=(".netrc", ".git-cred"),
        unless_about=r"git\w*|repositor(?:y|ies)|curl|logins?",
    ),
    _path_rule(
        rf"{_HOME}\.(?:npmrc|pypirc)\b",
        signs=(".npmrc", ".pypirc"),
        unless_about=r"npm|node|packages?|pypi|pip|publish\w*|registr(?:y|ies)",
    ),
    _path_rule(r"/etc/(?:shadow|sudoers)\b", signs=("/etc/",)),
    _path_rule(r"\bwallet\.dat\b", signs=("wallet.dat",), unless_about=r"wallets?|bitcoin|crypto\w*"),
    _path_rule(r"\bcookies\.sqlite\b", signs=("cookies.sqlite",), unless_about=r"browsers?|firefox|cookies"),
    _path_rule(
        rf"{_HOME}\.(?:bash|zsh)_history\b",
        signs=("_history",),
        unless_about=r"shell|bash|zsh|terminal|command history",
    ),
    _path_rule(
        rf"{_HOME}\.env\b", signs=(".env",), unless_about=r"dotenv|env(?:ironment)?|variables?|config\w*|settings?"
    ),
    _path_rule(
        rf"{_HOME}(?:\.cursor[/\\]|\.claude\b)|\bclaude_desktop_config",
        signs=(".cursor", ".claude", "claude_desktop"),
        unless_about=r"mcp|claude|cursor|editors?|agents?|skills?",
    ),
)

# --- hiding it in markup ---------------------------------------------------------------------------------------------

_URGENT = "important|critical|urgent|hidden|secret|priority|mandatory|override|internal|confidential|instructions?"

# "<script> tags are removed" mentions an element; "<script>call collect</script>" is one: it has attributes or content,
# or the text after it is not about it.
_PLACEHOLDER = r"(?:comments?|\.{3}|…|text|more|notes?)"
_SPOKEN_OF = (
    r"[`'\")\],.;:/]|\Z|\s{0,2}(?:tags?|elements?|blocks?|nodes?|sections?|contents?|markup|html|injection|snippets?|embeds?"
    r"|and|or|is|are|was|were|will|can|to|in|from|with|without|if|unless|by|inside|within|for|that|which|as|at)\b"
    r"|\s{0,2}[-<,|]"
)
_JOINER = r"\s*(?:and|or|to|\.{3}|…|,|/|code|content)?\s*</"
_ELEMENT = (
    r"<(?:script|iframe|object|embed)(?:\s+[a-z:-]{1,20}\s*=|\s*/?>"
    rf"(?:(?!{_SPOKEN_OF})|(?!{_JOINER})[^<\n]{{1,400}}</(?:script|iframe|object|embed)))"
)

_MARKUP = (
    _sign_rule(
        "markup",
        "ask",
        "tags of urgency",
        signs=("<",),
        # In lower case and never closed, it is a placeholder: ``--client-secret <secret>``.
        pattern=rf"(?-i:<[A-Z_ -]{{0,20}}(?:{_URGENT.upper()})[A-Z_ -]{{0,20}}>)|</\s{{0,4}}(?:{_URGENT})\s{{0,4}}>"
        r"|<(?:ai[-_]?(?:only|instructions?)|llm[-_]?\w{0,12}|for[-_]?(?:ai|llm|model|assistant)\w{0,12})\s{0,4}>",
        message="a tag that is not displayed but read by a model",
    ),
    _sign_rule(
        "markup",
        "ask",
        "comment",
        signs=("<", "]:"),
        pattern=rf"<!--(?!\s{{0,4}}{_PLACEHOLDER}\s{{0,4}}-->)\s{{0,40}}(?=[^\s>-])[\s\S]{{0,400}}?(?:-->|\Z)"
        rf"|^\s{{0,3}}\[(?://|comment|_)\]:\s?[#<(][^\n]{{1,200}}|{_ELEMENT}",
        message="a comment or a script, which is not displayed with the text",
    ),
    _sign_rule(
        "markup",
        "hide",
        "hidden by style",
        signs=("style", "hidden", "\\color", "\\phantom"),
        pattern=r"style\s*=\s*[\"'][^\"'>]{0,200}?(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0"
        r"|opacity\s*:\s*0(?![.\d]*[1-9])|color\s*:\s*(?:white|transparent|#fff(?:fff)?\b)|left\s*:\s*-\d{3})"
        r"|<[a-z]{1,12}\s(?:[^>]{0,80}\s)?hidden(?:\s[^>]{0,40})?>|\\color\{white\}|\\phantom\{",
        message="a text that is styled to be invisible",
    ),
    _sign_rule(
        "markup",
        "ask",
        "fetched image",
        signs=("](", "<img"),
        pattern=r"!\[[^\]\n]{0,200}\]\(\s{0,4}<?https?://[^)\s]{1,300}|<img\b[^>]{0,200}?\bsrc\s*=\s*[\"']?https?://"
        r"|(?<!!)\[\s{0,4}\]\([^)\s]{1,300}\)",
        message="an image or an empty link that a page would fetch",
    ),
    _sign_rule(
        "markup",
        "ask",
        "pushed out of sight",
        signs=("\n",),
        pattern=r"\n(?:[ \t]{0,80}\r?\n){19}",
        message="a gap so large that what follows is out of sight",
    ),
    _sign_rule(
        "markup",
        "ask",
        "pushed out of sight",
        signs=(" " * 20, "\t" * 10, "\u00a0" * 10, "\u3000" * 10),
        pattern=r"[ \t\u00a0\u2000-\u200a\u3000]{100}",
        message="a gap so large that what follows is out of sight",
    ),
    _sign_rule(
        "markup",
        "ask",
        "escapes",
        signs=("\\x", "\\u", "%", "&#"),
        pattern=r"(?:\\x[0-9a-f]{2}){8}|(?:\\u[0-9a-f]{4}){8}|(?:%[0-9a-f]{2}){12}|(?:&#x?[0-9a-f]{1,6};){6}",
        message="an escaped text, which a model can read and a person cannot",
    ),
)

#: The rules for texts: descriptions, titles, enum values, defaults, instructions.
RULES: tuple[TextRule, ...] = (*_INSTRUCTIONS, *_CONCEALMENTS, *_PRIVATE, *_PATHS, *_MARKUP)

_ONE_WORD_SECRETS = "|".join(term for term in SECRET_TERMS if " " not in term)
_NAMED = "an argument is named after data that no tool needs"
#: Topics of definitions that legitimately have to do with models or conversations.
_ABOUT_MODELS = (
    r"\b(?:llms?|models?|gpt|claude|gemini|openai|anthropic|ollama|mistral|agents?|assistants?|chat ?bots?|bots?"
    r"|personas?|completions?|prompts?|temperature|ai|voices?|fine tun\w*|inference|playground)\b"
)
_ABOUT_TALKS = (
    rf"{_ABOUT_MODELS}|\b(?:conversations?|chats?|messages?|threads?|dialog(?:ue)?s?|channels?|tickets?|transcripts?|slack"
    r"|discord|telegram|calls?|meetings?|support|email)\b"
)
_ABOUT_KEYS = (
    r"\b(?:ssh|sftp|scp|certificates?|tls|ssl|wallets?|sign(?:ing|ed|s|atures?)?|jwt|encrypt\w*|decrypt\w*|deploy keys?"
    r"|service accounts?|key ?pairs?|instances?|virtual machines?|vms?|pem|pgp|gpg|clusters?|connections?|databases?"
    r"|snowflake|github apps?|repositor(?:y|ies))\b"
)
_ABOUT_PROGRAMS = (
    r"\b(?:deploy\w*|containers?|docker|functions?|lambda|services?|builds?|process(?:es)?|commands?|jobs?|tasks?|pods?"
    r"|apps?|applications?|runtimes?|workflows?|pipelines?|launch\w*|scripts?|servers?|projects?|sandbox\w*|stacks?"
    r"|infrastructure|cloud\w*|resources?|terraform|templates?)\b"
)
#: The description of an argument refers to data of the model that reads it, or of its user.
READER_OWNED = (
    r"\b(?:your (?:own|current|full|entire|complete|exact|system|initial|original|instructions?|conversation|chat"
    r"|context|prompt|session|history|reasoning|thoughts?|chain|available|previous|ssh|private|keys?|environment|shell)"
    r"|you (?:were|are|have|received|got|see)|this (?:conversation|chat|session)|so far"
    r"|(?:current|active|ongoing|calling|host|client|entire|full|complete|verbatim|exact) (?:\w+ ){0,2}"
    r"(?:conversation|chat|prompt|instructions?|context|session|history|messages?|transcript|assistant|model|agent|user)"
    r"|that (?:calls|called|uses|is calling)|the user s|user's|verbatim|word for word|of this machine|local machine"
    r"|home directory)|~/"
)
#: The rules for names of properties and arguments; they must match the whole name.
NAME_RULES: tuple[TextRule, ...] = (
    _sign_rule(
        "secret",
        "ask",
        "the conversation",
        signs=("",),
        pattern=r"(?:full|entire|raw|previous|prior|all)?[_-]?(?:conversation|chat|message|dialog(?:ue)?|tool_?calls?"
        r"|session|prompt)s?[_-]?(?:history|log|transcript|context|dump)",
        message=_NAMED,
        unless_about=_ABOUT_TALKS,
    ),
    _sign_rule(
        "secret",
        "ask",
        "the conversation",
        signs=("",),
        pattern=r"chain[_-]?of[_-]?thought|(?:hidden|internal)[_-]?reasoning|system[_-]?prompt"
        r"|(?:all|available|list_?of)[_-]?tools(?:[_-]?list)?|tools[_-]?list|developer[_-]?message"
        r"|model[_-]?instructions",
        message=_NAMED,
        unless_about=_ABOUT_MODELS,
    ),
    _sign_rule(
        "secret",
        "ask",
        "credentials",
        signs=("",),
        pattern=r"(?:host|local)?[_-]?(?:ssh|private)[_-]?keys?(?:[_-]?(?:file|contents?))?",
        message=_NAMED,
        unless_about=_ABOUT_KEYS,
    ),
    _sign_rule(
        "secret",
        "ask",
        "credentials",
        signs=("",),
        pattern=r"env(?:ironment)?[_-]?(?:variables|contents?)",
        message=_NAMED,
        unless_about=_ABOUT_PROGRAMS,
    ),
    _sign_rule(
        "secret",
        "ask",
        "credentials",
        signs=("",),
        pattern=r"(?:user|all)[_-]?(?:ssh|private)[_-]?keys?(?:[_-]?(?:file|contents?))?|env(?:ironment)?[_-]?dump"
        rf"|(?:seed|recovery)[_-]?phrase|(?:all|user)[_-]?(?:{_ONE_WORD_SECRETS}|cookie)s|id_rsa",
        message=_NAMED,
    ),
)
