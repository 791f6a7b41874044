"""Bytes as text: the choice of the encoding, and binary content."""

from __future__ import annotations

import pytest

from trunkline_servers.fetch.page_fetcher import binary_type, decode_text, kind_of


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        pytest.param("text/plain; charset=UTF-8", "ü".encode(), "ü", id="header"),
        pytest.param('text/html; charset="iso-8859-1"', b"\x93\xfc\x94", "\u201cü\u201d", id="latin-1-is-windows-1252"),
        pytest.param("text/html; charset=Shift_JIS", "川".encode("shift_jis"), "川", id="japanese"),
        pytest.param("text/html; charset=Shift_JIS", b"\x87\x40", "①", id="japanese-of-browsers"),
        pytest.param("text/html; charset=gb2312", "河".encode("gbk"), "河", id="chinese"),
        pytest.param("text/html; charset=gbk", "㐂".encode("gb18030"), "㐂", id="chinese-of-browsers"),
        pytest.param("text/html; charset=euc-kr", "똠".encode("cp949"), "똠", id="korean-of-browsers"),
        pytest.param("text/html; charset=big5", "㗎".encode("big5hkscs"), "㗎", id="cantonese-of-browsers"),
        pytest.param("text/html; charset=x-cp1251", "река".encode("cp1251"), "река", id="another-label"),
        pytest.param("text/html; charset=koi8-r", "река".encode("koi8-r"), "река", id="russian"),
        pytest.param("text/html; charset=latin1", b"\xef\xbb\xbf\xc3\xbc", "ü", id="mark-over-header"),
        pytest.param("text/plain", b"\xff\xfe\xfc\x00", "ü", id="utf-16-mark"),
        pytest.param("text/plain; charset=utf-16le", b"\xfc\x00", "ü", id="utf-16-header"),
        pytest.param(
            "text/html", b'<meta charset="windows-1251"><p>\xf0', '<meta charset="windows-1251"><p>\u0440', id="meta"
        ),
        pytest.param("text/html", b"<meta charset=utf-16>\xc3\xbc", "<meta charset=utf-16>ü", id="meta-that-lies"),
        pytest.param(
            "text/xml",
            b'<?xml version="1.0" encoding="koi8-r"?><t>\xc1',
            '<?xml version="1.0" encoding="koi8-r"?><t>\u0430',
            id="xml",
        ),
        pytest.param("text/html", b"\xc3\xbc", "ü", id="utf-8-that-is-not-told"),
        pytest.param("text/html", b"\xfc", "ü", id="neither-told-nor-utf-8"),
        pytest.param("text/plain; charset=utf-8", b"a\xffb", "a\ufffdb", id="bad-bytes"),
        pytest.param("text/plain", b"\xc3\xbc\xc3", "ü", id="cut-in-a-character"),
        pytest.param("text/plain; charset=punycode", "ü".encode(), "ü", id="no-encoding-of-text"),
        pytest.param("text/plain; charset=unicode_escape", b"\\u0041", "\\u0041", id="no-encoding-of-browsers"),
        pytest.param("text/plain; charset=zlib", b"x", "x", id="no-encoding-at-all"),
    ],
)
def test_a_body_is_read_in_its_encoding(content_type: str, body: bytes, expected: str) -> None:
    assert decode_text(content_type, body).text == expected


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        pytest.param("text/html", b"\x89PNG\r\n\x1a\nxx", "image/png", id="png"),
        pytest.param("", b"\xff\xd8\xff\xe0xx", "image/jpeg", id="jpeg"),
        pytest.param("text/plain", b"%PDF-1.7 xx", "application/pdf", id="pdf"),
        pytest.param("text/html", b"PK\x03\x04xx", "application/zip", id="zip"),
        pytest.param("text/html", b"\x1f\x8bxx", "application/gzip", id="gzip"),
        pytest.param("text/html", b"RIFFxxxxWEBPxx", "image/webp", id="webp"),
        pytest.param("text/html", b"\0\0\0\x18ftypisom", "video/mp4", id="mp4"),
        pytest.param("text/html", b"GIF89a\x01\0\x01\0", "image/gif", id="gif"),
        pytest.param("text/html", b"ID3\x03\0", "audio/mpeg", id="mp3"),
        pytest.param("text/plain", b"The ftyp box comes first.", None, id="text-about-mp4"),
        pytest.param("text/plain", b"GIF89a is a format of pictures.", None, id="text-about-gif"),
        pytest.param("text/html", b"ID3 tags, explained", None, id="text-about-mp3"),
        pytest.param("", b"BZh was here", None, id="text-of-no-type"),
        pytest.param("application/x-thing", b"a\x00b", "application/x-thing", id="null-byte"),
        pytest.param("", b"a\x00b", "application/octet-stream", id="null-byte-of-no-type"),
        pytest.param("application/octet-stream", bytes(range(1, 200)), "application/octet-stream", id="noise"),
        pytest.param("application/octet-stream", b"plain words", None, id="text-by-its-looks"),
        pytest.param("text/plain", b"\xff\xfea\x00", None, id="utf-16"),
        pytest.param("application/json", b"{}", None, id="json"),
        pytest.param("text/html", b"", None, id="nothing"),
    ],
)
def test_binary_content_is_recognized_by_its_bytes(content_type: str, body: bytes, expected: str | None) -> None:
    assert binary_type(content_type, body) == expected


@pytest.mark.parametrize(
    ("content_type", "text", "expected"),
    [
        pytest.param("text/html; charset=utf-8", "x", "html", id="told"),
        pytest.param("application/xhtml+xml", "x", "html", id="xhtml"),
        pytest.param("text/plain", "<!doctype html><HTML>", "html", id="page-that-is-told-to-be-text"),
        pytest.param("text/plain", "<p>x", "text", id="text"),
        pytest.param("", " <!DOCTYPE html>", "html", id="not-told-but-a-page"),
        pytest.param("", "words", "text", id="not-told-and-no-page"),
        pytest.param("application/json", "{}", "text", id="json"),
    ],
)
def test_a_page_is_known_by_its_type_or_looks(content_type: str, text: str, expected: str) -> None:
    assert kind_of(content_type, text) == expected
