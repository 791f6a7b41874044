"""URI templates: what expands to what, what matches what, and the cost of hostile URIs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.protocol.uri_template import UriTemplate, Value

#: The variables of the examples in RFC 6570, section 3.2.
VALUES: dict[str, Value] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": [],
}

EXPANSIONS = [
    ("plain", "plain"),
    ("{var}", "value"),
    ("{hello}", "Hello%20World%21"),
    ("{half}", "50%25"),
    ("O{empty}X", "OX"),
    ("O{undef}X", "OX"),
    ("{x,y}", "1024,768"),
    ("{x,hello,y}", "1024,Hello%20World%21,768"),
    ("?{x,empty}", "?1024,"),
    ("?{x,undef}", "?1024"),
    ("?{undef,y}", "?768"),
    ("{var:3}", "val"),
    ("{var:30}", "value"),
    ("{list}", "red,green,blue"),
    ("{list*}", "red,green,blue"),
    ("{keys}", "semi,%3B,dot,.,comma,%2C"),
    ("{keys*}", "semi=%3B,dot=.,comma=%2C"),
    ("{+var}", "value"),
    ("{+hello}", "Hello%20World!"),
    ("{+half}", "50%25"),
    ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
    ("{+base}index", "http://example.com/home/index"),
    ("{+path}/here", "/foo/bar/here"),
    ("up{+path}{var}/here", "up/foo/barvalue/here"),
    ("{+x,hello,y}", "1024,Hello%20World!,768"),
    ("{+path:6}/here", "/foo/b/here"),
    ("{+list*}", "red,green,blue"),
    ("{+keys}", "semi,;,dot,.,comma,,"),
    ("{+keys*}", "semi=;,dot=.,comma=,"),
    ("{#var}", "#value"),
    ("{#half}", "#50%25"),
    ("foo{#empty}", "foo#"),
    ("foo{#undef}", "foo"),
    ("{#path,x}/here", "#/foo/bar,1024/here"),
    ("{#list}", "#red,green,blue"),
    ("{.who,who}", ".fred.fred"),
    ("www{.dom*}", "www.example.com"),
    ("X{.list}", "X.red,green,blue"),
    ("X{.keys*}", "X.semi=%3B.dot=..comma=%2C"),
    ("X{.empty_keys}", "X"),
    ("X{.empty_keys*}", "X"),
    ("{/who,dub}", "/fred/me%2Ftoo"),
    ("{/var,empty}", "/value/"),
    ("{/list}", "/red,green,blue"),
    ("{/list*}", "/red/green/blue"),
    ("{/list*,path:4}", "/red/green/blue/%2Ffoo"),
    ("{/keys*}", "/semi=%3B/dot=./comma=%2C"),
    ("{;v,empty,who}", ";v=6;empty;who=fred"),
    ("{;v,bar,who}", ";v=6;who=fred"),
    ("{;hello:5}", ";hello=Hello"),
    ("{;list}", ";list=red,green,blue"),
    ("{;list*}", ";list=red;list=green;list=blue"),
    ("{;keys}", ";keys=semi,%3B,dot,.,comma,%2C"),
    ("{;keys*}", ";semi=%3B;dot=.;comma=%2C"),
    ("{?x,y,empty}", "?x=1024&y=768&empty="),
    ("{?x,y,undef}", "?x=1024&y=768"),
    ("{?var:3}", "?var=val"),
    ("{?list*}", "?list=red&list=green&list=blue"),
    ("{?keys}", "?keys=semi,%3B,dot,.,comma,%2C"),
    ("{?keys*}", "?semi=%3B&dot=.&comma=%2C"),
    ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
    ("{&x,y,empty}", "&x=1024&y=768&empty="),
    ("{&list*}", "&list=red&list=green&list=blue"),
    ("größe/{var}", "gr%C3%B6%C3%9Fe/value"),
    ("a%20b/{var}", "a%20b/value"),
]


@pytest.mark.parametrize(("template", "uri"), EXPANSIONS, ids=[template for template, _ in EXPANSIONS])
def test_a_template_expands_as_the_rfc_shows(template: str, uri: str) -> None:
    assert UriTemplate.parse(template).expand(VALUES) == uri


def test_an_empty_text_in_an_exploded_mapping_keeps_its_key() -> None:
    template = UriTemplate.parse("{;m*}{?m*}{m*}")
    assert template.expand({"m": {"a": ""}}) == ";a?a=a="


def test_an_escape_in_a_reserved_value_is_kept() -> None:
    assert UriTemplate.parse("{+p}").expand({"p": "a%2Fb%zz"}) == "a%2Fb%25zz"


def test_a_prefix_of_a_list_is_an_error() -> None:
    with pytest.raises(ValueError, match='"list:3" needs a string'):
        UriTemplate.parse("{list:3}").expand(VALUES)


def test_a_value_that_is_not_unicode_is_an_error() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        UriTemplate.parse("{x}").expand({"x": "\ud800"})


BROKEN = [
    ("x{a", 'offset 1: "{" is never closed'),
    ("x}y", "offset 1: '}' is not allowed"),
    ("a b", "offset 1: ' ' is not allowed in a URI. Write it percent-encoded"),
    ("50%{a}", "offset 2: '%' is not allowed"),
    ("{}", "offset 1: '' is not a variable name"),
    ("{?}", "offset 2: '' is not a variable name"),
    ("{a,}", "offset 3: '' is not a variable name"),
    ("{a,b-c}", "offset 3: 'b-c' is not a variable name"),
    ("{a{b}", "offset 1: 'a{b' is not a variable name"),
    ("{=a}", 'offset 1: the operator "=" is reserved'),
    ("{a:0}", "offset 1: 'a:0' has an invalid modifier"),
    ("{a:}", "offset 1: 'a:' has an invalid modifier"),
    ("{a:10000}", "offset 1: 'a:10000' has an invalid modifier"),
    ("{a:3*}", "offset 1: 'a:3*' has an invalid modifier. Use one of a, a:3"),
]


@pytest.mark.parametrize(("text", "reason"), BROKEN, ids=[text for text, _ in BROKEN])
def test_a_broken_template_is_rejected_with_its_offset_and_the_fix(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        UriTemplate.parse(text)


def test_a_template_tells_its_text_and_its_names_once_each_in_order() -> None:
    template = UriTemplate.parse("x://{b}/{a:2}/{b}{?c.d,e*}")
    assert (template.text, template.names) == ("x://{b}/{a:2}/{b}{?c.d,e*}", ("b", "a", "c.d", "e"))


MATCHES = [
    ("plain", "plain", {}),
    ("plain", "plains", None),
    ("plain", "", None),
    ("", "", {}),
    ("", "x", None),
    ("city://{name}/map", "city://Oslo/map", {"name": "Oslo"}),
    ("city://{name}/map", "city://Oslo/maps", None),
    ("city://{name}/map", "town://Oslo/map", None),
    ("city://{name}/map", "city:///map", None),
    ("city://{name}", "city://a/b", None),
    ("city://{name}", "city://a?b", None),
    ("city://{name}", "city://a%20b%C3%A9", {"name": "a bé"}),
    ("city://{name}", "city://Málaga", {"name": "Málaga"}),
    ("stra%c3%9fe/{n}", "stra%C3%9Fe/1", {"n": "1"}),
    ("straße/{n}", "stra%C3%9Fe/1", {"n": "1"}),
    ("%7Euser/{n}", "~user/%31", {"n": "1"}),
    ("a/{n}", "a/%C3", None),
    ("a/{n}", "a/%zz", None),
    ("a/{n}", "a/5%", None),
    ("a/{n}", "a/\ud800", None),
    ("{a}2{b}", "x%2020y", {"a": "x ", "b": "0y"}),
    ("{a}-{b}", "1-2-3", {"a": "1-2", "b": "3"}),
    ("{a}{b}{c}x", "hellox", {"a": "hel", "b": "l", "c": "o"}),
    ("{a}{b}{c}x", "hox", None),
    ("{a,b}", "1,2", {"a": "1", "b": "2"}),
    ("{a,b}", "1,2,3", None),
    ("{a}", "1,2", {"a": "1,2"}),
    ("{+path}/{name}", "a/b/c", {"path": "a/b", "name": "c"}),
    ("file:///{+path}", "file:///a/b?c#d", {"path": "a/b?c#d"}),
    ("file:///{+path}", "file:///", None),
    ("file:///{path*}", "file:///a/b", {"path": "a/b"}),
    ("file:///{path*}", "file:///a%2Fb", {"path": "a/b"}),
    ("{path*}/edit", "a/b/edit", {"path": "a/b"}),
    ("{+path}{?q}", "a/b?q=1", {"path": "a/b", "q": "1"}),
    ("{+path}{#part}", "a/b#c/d", {"path": "a/b", "part": "c/d"}),
    ("{#a,b}", "#x,y", {"a": "x", "b": "y"}),
    ("n{.ext}", "n.gz", {"ext": "gz"}),
    ("{name}{.ext}", "file.tar.gz", {"name": "file.tar", "ext": "gz"}),
    ("n{.ext*}", "n.tar.gz", {"ext": ["tar", "gz"]}),
    ("n{.ext*}", "n", {}),
    ("{/a,b}", "/x/y", {"a": "x", "b": "y"}),
    ("x{/path*}", "x/a/b", {"path": ["a", "b"]}),
    ("x{/path*}", "x", {}),
    ("x{/path*}{?q}", "x/a?q=1", {"path": ["a"], "q": "1"}),
    ("x{/path*}", "y/a", None),
    ("x{/path*}/end", "x/a/b/end", {"path": ["a", "b"]}),
    ("{a}{;p,q}", "x;q=2;p=1", {"a": "x", "p": "1", "q": "2"}),
    ("{;p}/x{;q}", ";p=1/x;q=2", {"p": "1", "q": "2"}),
    ("{;p}", ";p", {"p": ""}),
    ("{a,b}{.e*}", "1,f.g,h", {"a": "1", "b": "f", "e": ["g,h"]}),
    ("x{?q,lang}", "x?lang=en&q=a%26b", {"q": "a&b", "lang": "en"}),
    ("x{?q,lang}", "x?q=1", {"q": "1"}),
    ("x{?q,lang}", "x", {}),
    ("x{?q}", "x?", {}),
    ("x{?q}", "x?q=a=b&utm=1", {"q": "a=b"}),
    ("x{?q}", "x?q=1&q=2", None),
    ("x{?q}", "x&q=1", None),
    ("x{?q*}", "x?q=1&r=0&q=2", {"q": ["1", "2"]}),
    ("x{?q*}", "x?r=0", {}),
    ("x{?q}{&r}{&s}", "x?s=3&q=1&r=2", {"q": "1", "r": "2", "s": "3"}),
    ("x?fixed=1{&q}", "x?fixed=1&q=2", {"q": "2"}),
    ("x?a={a}{&b}", "x?a=1&b=2", {"a": "1", "b": "2"}),
    ("x{?q}{#f}", "x?q=1#top", {"q": "1", "f": "top"}),
    ("x{?na%6de}", "x?name=1", {"na%6de": "1"}),
    ("{a}/{a}", "1/1", {"a": "1"}),
    ("{a}/{a}", "1/2", None),
    ("{a:1}/{a}", "h/hello", {"a": "hello"}),
    ("{a:1}/{a}", "x/hello", None),
    ("{a:2}", "hi", {"a": "hi"}),
    ("{a:2}", "his", None),
    ("{a:1}/{a:2}", "h/he", {"a": "he"}),
]


@pytest.mark.parametrize(("template", "uri", "values"), MATCHES, ids=[f"{row[0]} {row[1]!a}" for row in MATCHES])
def test_a_uri_matches_as_the_table_says(template: str, uri: str, values: dict[str, str | list[str]] | None) -> None:
    assert UriTemplate.parse(template).match(uri) == values


UNSAFE = [
    ("f/{n}", "f/a%2Fb", {"n": "a/b"}),
    ("f/{n}", "f/a%5Cb", {"n": "a\\b"}),
    ("f/{n}", "f/a\\b", {"n": "a\\b"}),
    ("f/{n}", "f/%00", {"n": "\0"}),
    ("f/{n}", "f/%2e", {"n": "."}),
    ("f/{n}", "f/..", {"n": ".."}),
    ("f/{+p}", "f/a/../b", {"p": "a/../b"}),
    ("f/{+p}", "f/a%2f%2E%2e", {"p": "a/.."}),
    ("f/{+p}", "f/..%5Cb", {"p": "..\\b"}),
    ("f/{p*}", "f/a%00", {"p": "a\0"}),
    ("f{/p*}", "f/a/..", {"p": ["a", ".."]}),
    ("f{/p*}", "f/a/b%2Fc", {"p": ["a", "b/c"]}),
    ("f{;p}", "f;p=a%2Fb", {"p": "a/b"}),
    ("f{?p}", "f?p=../b", {"p": "../b"}),
    ("f{?p}", "f?p=%00", {"p": "\0"}),
]


@pytest.mark.parametrize(("template", "uri", "values"), UNSAFE, ids=[f"{row[0]} {row[1]}" for row in UNSAFE])
def test_a_value_that_could_leave_its_folder_is_rejected_unless_the_caller_checks_for_itself(
    template: str, uri: str, values: dict[str, str | list[str]]
) -> None:
    assert UriTemplate.parse(template).match(uri) is None
    assert UriTemplate.parse(template).match(uri, safe=False) == values


HARMLESS = [
    ("f/{n}", "f/...", {"n": "..."}),
    ("f/{n}", "f/a..b", {"n": "a..b"}),
    ("f/{+p}", "f/./a/..b", {"p": "./a/..b"}),
    ("f{?q}", "f?q=and/or", {"q": "and/or"}),
    ("f{?q}", "f?q=.", {"q": "."}),
]


@pytest.mark.parametrize(("template", "uri", "values"), HARMLESS, ids=[f"{row[0]} {row[1]}" for row in HARMLESS])
def test_dots_and_slashes_that_lead_nowhere_are_data(template: str, uri: str, values: dict[str, str]) -> None:
    assert UriTemplate.parse(template).match(uri) == values


#: Long enough that a cost above linear would take minutes.
MEGABYTE = 300_000

HOSTILE = [
    ("{a}{b}{c}x", "y" * MEGABYTE),
    ("{a}{b}{c}x", "x" * MEGABYTE + "y"),
    ("{+a}/{b}/{+c}/{d}", "/" * MEGABYTE + "?"),
    ("{+a}aab{+b}aab{+c}#", "aab" * (MEGABYTE // 3)),
    ("{/a*}{.b*}x{;c}{?d}#", "/.x;x?" * (MEGABYTE // 6)),
    ("{a}2{b}2{c}z", "%32%20" * (MEGABYTE // 6)),
    ("{?q}z#", "?" + "q&" * (MEGABYTE // 2)),
]


@pytest.mark.parametrize(("template", "uri"), HOSTILE, ids=[template for template, _ in HOSTILE])
def test_a_hostile_megabyte_costs_no_more_than_its_length(template: str, uri: str) -> None:
    assert UriTemplate.parse(template).match(uri) is None


TEMPLATES = ["{a}", "{+a}", "x{#a}", "{a}{b}/{+c}", "{/a*}{?b,c*}{&d}{#e}", "x{;a,b*}{.c*}", "%41{a:2}é{a}"]


@pytest.mark.parametrize("template", TEMPLATES)
@given(uri=st.text(st.characters(), max_size=60) | st.text("a/?#&;=.%2Fx", max_size=60))
def test_no_text_makes_matching_raise(template: str, uri: str) -> None:
    values = UriTemplate.parse(template).match(uri)
    assert values is None or set(values) <= set(UriTemplate.parse(template).names)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
# In a reserved expansion a percent sign may already be an escape, and separators are not encoded.
reserved_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="%,?#"), min_size=1, max_size=20)


@given(a=texts, b=texts)
@pytest.mark.parametrize(
    "template", ["x://{a}/{b}", "x:{a,b}", "x{/a,b}", "x{;a,b}", "x{?a,b}", "x?y=1{&b,a}", "{a}{?b}"]
)
def test_an_expanded_uri_matches_back(template: str, a: str, b: str) -> None:
    parsed = UriTemplate.parse(template)
    assert parsed.match(parsed.expand({"a": a, "b": b}), safe=False) == {"a": a, "b": b}


@given(a=reserved_texts, b=reserved_texts)
@pytest.mark.parametrize("template", ["{+a}#{+b}", "{+a}{#b}", "x{#a,b}", "{+a,b}", "{+a}{?b}"])
def test_a_uri_expanded_with_reserved_characters_matches_back(template: str, a: str, b: str) -> None:
    parsed = UriTemplate.parse(template)
    assert parsed.match(parsed.expand({"a": a, "b": b}), safe=False) == {"a": a, "b": b}


@given(items=st.lists(texts, min_size=1, max_size=5))
@pytest.mark.parametrize("template", ["x{/a*}", "x{?a*}", "x{;a*}", "x?b=1{&a*}"])
def test_an_exploded_list_matches_back(template: str, items: list[str]) -> None:
    parsed = UriTemplate.parse(template)
    assert parsed.match(parsed.expand({"a": items}), safe=False) == {"a": items}


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "file://C:/secrets", "file://%2Fetc/passwd"])
def test_an_absolute_path_is_no_safe_value(uri: str) -> None:
    assert UriTemplate.parse("file://{+path}").match(uri) is None
