use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::extract::extracted;

fn read(html: &str) -> Vec<String> {
    extracted(&Html, html.as_bytes()).0.into_iter().map(|(kind, text)| format!("{kind:?} {text}")).collect()
}

#[test]
fn blocks_of_a_page_are_read() {
    for (html, expected) in [
        ("plain &amp; simple", &["Paragraph plain & simple"][..]),
        ("<p>One\n  two<p>Three<b>!</b>", &["Paragraph One two", "Paragraph Three!"]),
        ("<title>T &mdash; x</title><h2>Head <a href=#h>¶</a></h2>Text", &["Heading(1) T — x", "Heading(2) Head", "Paragraph Text"]),
        ("<title>T</title><h1>Own</h1>", &["Heading(1) Own"]),
        ("<ul><li>one<li>two<p>more</p></ul>after", &["ListItem one", "ListItem two", "Paragraph more", "Paragraph after"]),
        ("<ol><li><p>one</p><ul><li>in it</ul></ol>", &["ListItem one", "ListItem in it"]),
        ("<pre>\n  x\n    y &lt;</pre>z", &["Code   x\n    y <", "Paragraph z"]),
        ("a<br>b<br/>c", &["Paragraph a\nb\nc"]),
        ("<a href='/x'>link</a><a>bare</a>, <img src=x alt='a picture'>!", &["Paragraph linkbare, a picture !"]),
        ("a<script>if (a < b) { '</p>' }</script>b<style>p{}</style><noscript>no</noscript>", &["Paragraph ab"]),
        ("<div hidden>no<p>no</div><span style='display: none'>no</span>yes<i aria-hidden=true>no</i>", &["Paragraph yes"]),
        ("<svg><style/><title/><g/></svg>text", &["Paragraph text"]),
        ("<dl><dt>term<dd>meaning</dl>", &["Paragraph term", "Paragraph meaning"]),
        ("cut <!-- never closed", &["Paragraph cut"]),
        ("cut <script> never closed", &["Paragraph cut"]),
        ("cut <a href=\"htt", &["Paragraph cut"]),
        ("&#65;&#x42;&nbsp;&unknown;&#0;&#xD800;&", &["Paragraph AB &unknown;\u{fffd}\u{fffd}&"]),
        ("<?xml version='1.0'?><html><body><a name='x'/><script src='s'/><p>text</p></body></html>", &["Paragraph text"]),
    ] {
        assert_eq!(read(html), expected, "{html}");
    }
}

#[test]
fn tables_keep_their_rows_and_headers() {
    for (html, expected) in [
        (
            "<table><caption>Sales</caption><tr><th>a<th>b<tr><td>1<td>2</table>",
            &["Paragraph Sales", "TableHead | a | b |", "TableRow | 1 | 2 |"][..],
        ),
        (
            "<table><thead><tr><th rowspan=2>y<th colspan=2>s<tr><th>n<th>o</thead><tr><td>1<td>2<td>3</table>",
            &["TableHead | y | s n | s o |", "TableRow | 1 | 2 | 3 |"],
        ),
        (
            "<table><tr><td>k<td>v<tr><td rowspan=0>x<td><p>1</p><p>2</p><tr><td>3</table>",
            &["TableHead | k | v |", "TableRow | x | 1 2 |", "TableRow | x | 3 |"],
        ),
        ("<table><tr><td><h2>News</h2><p>Text</table>", &["Heading(2) News", "Paragraph Text"]),
        ("<table role=presentation><tr><td>a<td>b</table>", &["Paragraph a", "Paragraph b"]),
        (
            "<table><tr><td>left<td><table><tr><th>a<th>b<tr><td>1<td>2|</table></table>",
            &["Paragraph left", "TableHead | a | b |", "TableRow | 1 | 2\\| |"],
        ),
        ("<table><tr><th>a<th>b<tr><td>1<td><table><tr><td>x|<td>y</table></table>", &["TableHead | a | b |", "TableRow | 1 | x\\| y |"]),
        ("<table><tr><td>only</table>", &["Paragraph only"]),
        ("<table><tr><th>a<th>b<tr><td>1<td>never closed", &["TableHead | a | b |", "TableRow | 1 | never closed |"]),
    ] {
        assert_eq!(read(html), expected, "{html}");
    }
}

#[test]
fn the_main_content_is_chosen() {
    let around = |content: &str| {
        format!(
            "<header>Site</header><nav><ul><li><a href=/>Home</a><li><a href=/b>Blog</a></ul></nav>{content}<aside>Ads</aside><footer>©</footer>"
        )
    };
    for (content, expected) in [
        ("<main><header><h1>Head</h1></header><p>Text</p></main><p>beside</p>", &["Heading(1) Head", "Paragraph Text"][..]),
        ("<div role=main><p>Text</p></div><div>beside</div>", &["Paragraph Text"]),
        (
            "<div>beside</div><article><h1>A</h1><p>All of the text of it.</p></article>",
            &["Heading(1) A", "Paragraph All of the text of it."],
        ),
        ("<p>Text</p>", &["Paragraph Text"]),
        (
            "<div><p>A text of some length with <a href=x>a link</a> in it.</p></div><div><a href=1>One</a> <a href=2>Two</a></div>",
            &["Paragraph A text of some length with a link in it."],
        ),
        ("<div class='sidebar left'>Side</div><div class=page-with-sidebar>Text</div>", &["Paragraph Text"]),
        // An index is its links.
        ("<ul><li><a href=1>One</a><li><a href=2>Two</a></ul>", &["ListItem One", "ListItem Two"]),
    ] {
        assert_eq!(read(&around(content)), expected, "{content}");
    }
    assert_eq!(read("<nav><a href=1>Only</a></nav>"), ["Paragraph Only"]);
}

#[test]
fn pages_are_read_in_their_encoding() {
    for (bytes, expected) in [
        (&b"<meta charset=iso-8859-2><p>\xb1"[..], "ą"),
        (b"<meta charset=utf-8><p>caf\xc3\xa9", "café"),
        (b"<p>caf\xe9", "café"),
        (b"\xff\xfe<\0p\0>\0x\0", "x"),
        (b"<meta http-equiv=content-type content='text/html; charset=Shift_JIS'><p>\x83e", "テ"),
    ] {
        assert_eq!(extracted(&Html, bytes).0, [(BlockKind::Paragraph, expected.to_owned())]);
    }
}

#[test]
fn what_is_no_page_is_refused() {
    for (bytes, says) in [
        (&b"%PDF-1.4\n"[..], "it is a PDF, not HTML"),
        (b"\x89PNG\r\n\x1a\n\0", "it is a PNG image, not HTML"),
        (&[7, 0, 0, 1].repeat(100), "it is a binary file, not HTML"),
    ] {
        assert_eq!(extracted(&Html, bytes).1.unwrap_err().to_string(), format!("the document is broken: {says}"));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(HTML_BYTES_MAX + 1).unwrap();
    let refusal = Html.extract(file.path(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap_err();
    assert_eq!(refusal.to_string(), "the document is too large: HTML of more than 32 MiB cannot be read");
}

#[test]
fn a_hostile_page_takes_time_by_its_length() {
    for piece in [
        "&",
        "<",
        "<div>",
        "<a href=http://x>",
        "<script></",
        "<!--",
        "<a x=\"",
        "<title><",
        "<pre>x",
        " ",
        "<table><tr><td>",
        "<td>x",
        "<p><table>",
        "</p>x",
        "<p><b><i>",
        "<table>x</p>",
        "<li>x<ul>",
        "<th colspan=1000 rowspan=1000>x<tr>",
    ] {
        let page = piece.repeat((256 << 10) / piece.len());
        let started = Instant::now();
        read(&page);
        assert!(started.elapsed() < Duration::from_secs(10), "{piece}: {:?}", started.elapsed());
    }
}

proptest! {
    #[test]
    fn no_page_makes_it_panic(
        html in "([a-zäé\u{212a}İ ]|<|>|/|&|;|#|\"|'|=|<a href=|<script|<!--|-->|<p>|<pre>|&#x|\n|<table>|<tr>|<td>|</td>|</table>|<li>|</ul>|<th rowspan=3>|<h2>){0,60}",
        any in any::<Vec<u8>>(),
    ) {
        let _ = (read(&html), extracted(&Html, &any));
    }

    #[test]
    fn scripts_never_show(before in "[a-z<> ]{0,20}", code in "[a-z(){};<>=&]{0,30}") {
        let page = read(&format!("{before}><script>SECRET{code}</script>after")).concat();
        prop_assert!(!page.contains("SECRET") || before.contains('<'));
    }

    #[test]
    fn no_word_of_plain_blocks_is_lost(words in prop::collection::vec("[a-z]{1,8}", 1..20), tags in prop::collection::vec(0..6_usize, 20)) {
        let tag = ["p", "div", "li", "h2", "blockquote", "td"];
        let elements: Vec<String> = words.iter().zip(tags).map(|(word, at)| format!("<{0}>{word}</{0}>", tag[at])).collect();
        let html = elements.concat();
        let text = read(&html).join(" ");
        for word in &words {
            prop_assert!(text.contains(word.as_str()), "{word} of {html}");
        }
    }
}
