"""Pages as Markdown: what is kept, how it is written, and what is left out."""

from __future__ import annotations

import pytest

from trunkline_servers.fetch.markdown import html_to_markdown

BASE = "https://site.example/a/b.html"


def markdown(html: str) -> str:
    return html_to_markdown(html, BASE, max_chars=1_000_000).text


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        pytest.param("<p>one</p><p>two\n  three</p>", "one\n\ntwo three", id="paragraphs"),
        pytest.param("<h1>A</h1><h2>B <i>c</i></h2><h6>D</h6>", "# A\n\n## B *c*\n\n###### D", id="headings"),
        pytest.param("<p>a<br>b</p>", "a\nb", id="line-break"),
        pytest.param("a<hr>b", "a\n\n---\n\nb", id="rule"),
        pytest.param(
            "<p><b>x</b> <em> y</em> <del>z</del><code>c</code></p>", "**x** *y* ~~z~~`c`", id="words-in-a-line"
        ),
        pytest.param('<h2>A<a href="#a">¶</a></h2>', "## A", id="link-of-a-heading-to-itself"),
        pytest.param("<p><b></b>x<i> </i></p>", "x", id="empty-marks-are-left-out"),
        pytest.param("<ul><li>a<li>b<ul><li>c</ul></ul>d", "* a\n* b\n  * c\n\nd", id="lists-in-lists"),
        pytest.param("<ol start=9><li>a</li><li>b</li></ol>", "9. a\n10. b", id="numbered-list"),
        pytest.param("<ul><li><p>a</p><p>b</p></li></ul>", "* a\n\n  b", id="paragraphs-in-a-list"),
        pytest.param("<blockquote><p>a</p><p>b</p></blockquote>", "> a\n>\n> b", id="quote"),
        pytest.param("<pre>a\n  b\n</pre>", "```\na\n  b\n```", id="code-block"),
        pytest.param(
            '<pre><code class="language-py">x = `1`</code></pre>', "```py\nx = `1`\n```", id="code-with-a-language"
        ),
        pytest.param("<pre>```</pre>", "````\n```\n````", id="fence-in-a-fence"),
        pytest.param(
            "<table><tr><th>A<th>B<tr><td>1|2<td>x<br>y</table>",
            "| A | B |\n| --- | --- |\n| 1\\|2 | x y |",
            id="table",
        ),
        pytest.param(
            "<table><tr><td colspan=2>A<tr><td>1<td>2</table>",
            "| A |  |\n| --- | --- |\n| 1 | 2 |",
            id="cell-over-two-columns",
        ),
        pytest.param("<table><tr><td><h2>A</h2><p>b</p></table>", "## A\n\nb", id="table-for-layout"),
        pytest.param("<dl><dt>T<dd>D</dl>", "**T**\n\nD", id="definitions"),
        pytest.param("a &lt;b&gt; &amp; &eacute; &#x263a; &#0;", "a <b> & é ☺ \ufffd", id="references"),
        pytest.param(f"a &#{'9' * 5000}; b &#x{'f' * 5000};", "a \ufffd b \ufffd", id="references-without-an-end"),
        pytest.param("1 < 2 and a<3", "1 < 2 and a<3", id="signs-that-are-no-tags"),
        pytest.param("<P>A<DIV>B</DIV>", "A\n\nB", id="capitals-and-missing-ends"),
        pytest.param("<p>a<!-- b -->c<!-->d<?php e ?></p>", "acd", id="comments"),
        pytest.param("<title>T</title><p>x</p>", "# T\n\nx", id="title-where-there-is-no-heading"),
        pytest.param("<title>T</title><h1>H</h1><p>x</p>", "# H\n\nx", id="no-title-where-there-is-a-heading"),
        pytest.param("<p>a</p><a href='/c'><h3>Card</h3><p>text</p></a>", "a\n\n[Card text](https://site.example/c)"),
        pytest.param('<p>a <img src="/i.png" alt="A cat"></p>', "a ![A cat](https://site.example/i.png)", id="image"),
        pytest.param('<p>a <img src="data:image/png;base64,AA" alt="A cat"></p>', "a A cat", id="inline-image"),
        pytest.param('<p>a <img src="/pixel.gif"></p>', "a", id="image-without-text"),
        pytest.param('<p><a href="/c"><img src="/i" alt="B"></a></p>', "[B](https://site.example/c)", id="image-link"),
        pytest.param('<base href="/x/"><p><a href="z">z</a></p>', "[z](https://site.example/x/z)", id="base"),
        pytest.param("<p>a\x1b[31mb\x07\u202ec\x9b</p><pre>d\x1be</pre>", "a[31mbc\n\n```\nde\n```", id="unseen"),
        pytest.param(
            '<p><a href="/c">a](http://evil.example) [b</a></p>',
            "[a\\](http://evil.example) \\[b](https://site.example/c)",
            id="link-in-the-text-of-a-link",
        ),
        pytest.param("<div>" * 500 + "deep <b>words</b>" + "</div>" * 500, "deep words", id="very-deep"),
    ],
)
def test_html_becomes_markdown(html: str, expected: str) -> None:
    assert markdown(html) == expected


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        pytest.param("c.html", "[x](https://site.example/a/c.html)", id="relative"),
        pytest.param("/c?d=1&amp;e=2", "[x](https://site.example/c?d=1&e=2)", id="absolute-path"),
        pytest.param("//other.example/", "[x](https://other.example/)", id="other-host"),
        pytest.param("mailto:a@b.example", "[x](mailto:a@b.example)", id="mail"),
        pytest.param("/a b(c", "[x](https://site.example/a%20b%28c)", id="marks-of-markdown"),
        pytest.param("/wiki/A_(b)", "[x](https://site.example/wiki/A_(b))", id="paired-brackets"),
        pytest.param("#part", "x", id="fragment"),
        pytest.param("javascript:alert(1)", "x", id="script"),
        pytest.param("JaVaScRiPt:alert(1)", "x", id="script-in-capitals"),
        pytest.param("java&#10;script:alert(1)", "x", id="script-with-a-line-break"),
        pytest.param("data:text/html,x", "x", id="data"),
        pytest.param("file:///etc/passwd", "x", id="file"),
        pytest.param("http://e.example/&#7;\x1b[31m", "x", id="control-characters"),
        pytest.param("http://e.example/\u202egpj.exe", "x", id="turned-writing"),
        pytest.param("http://[::1", "x", id="no-url"),
        pytest.param("/" + "a" * 3000, "x", id="too-long"),
    ],
)
def test_a_link_comes_out_whole_or_not_at_all(href: str, expected: str) -> None:
    assert markdown(f'<p><a href="{href}">x</a></p>') == expected


_STORY = "<p>" + "A sentence of the story, which is long enough. " * 10 + "</p>"


@pytest.mark.parametrize(
    "frame",
    [
        "<nav>FRAME</nav>",
        "<aside>FRAME</aside>",
        "<footer>FRAME</footer>",
        "<header>FRAME</header>",
        "<form>FRAME <input><button>Go</button></form>",
        '<div role="navigation">FRAME</div>',
        '<div class="cookie-banner">FRAME</div>',
        '<ul id="main_menu"><li>FRAME</ul>',
        "<div hidden>FRAME</div>",
        '<div style="display: none">FRAME</div>',
        '<p aria-hidden="true">FRAME</p>',
        "<script>FRAME</script>",
        "<style>FRAME</style>",
        "<noscript>FRAME</noscript>",
        "<iframe>FRAME</iframe>",
        "<select><option>FRAME</select>",
        "<svg><text>FRAME</text></svg>",
        "<template>FRAME</template>",
        "<textarea>FRAME</textarea>",
        "<!-- FRAME -->",
    ],
)
def test_boilerplate_around_the_content_is_left_out(frame: str) -> None:
    text = markdown(f"<body>{frame}<div id=content>{_STORY}</div>{frame}</body>")
    assert ("FRAME" in text, "A sentence of the story" in text) == (False, True)


@pytest.mark.parametrize(
    "page",
    [
        f"<body><div>Elsewhere</div><main>{_STORY}</main></body>",
        f"<body><div>Elsewhere</div><article>{_STORY}</article></body>",
        f"<body><div>Elsewhere</div><div role=main>{_STORY}</div></body>",
        f"<body><div>Elsewhere</div><div><div>{_STORY}</div></div></body>",
        f"<body><table><tr><td>Elsewhere<td>{_STORY}</table></body>",
    ],
    ids=["main", "article", "role", "densest", "layout-table"],
)
def test_the_element_with_the_content_is_chosen(page: str) -> None:
    text = markdown(page)
    assert ("Elsewhere" in text, text.startswith("A sentence")) == (False, True)


@pytest.mark.parametrize(
    "page",
    [
        f"<body><form action=/>{_STORY}</form></body>",
        f"<body><aside>{_STORY}</aside></body>",
        f'<body><div class="menu">{_STORY}</div></body>',
        f"<body><header><h1>Top</h1></header>{_STORY}</body>",
        "<body><ul><li><a href=/a>A</a><li><a href=/b>A sentence</a></ul></body>",
    ],
    ids=["page-in-a-form", "page-in-an-aside", "page-with-a-bad-name", "heading-in-a-header", "links-alone"],
)
def test_a_page_is_never_taken_for_a_frame(page: str) -> None:
    assert "A sentence" in markdown(page)
