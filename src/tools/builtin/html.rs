//! HTML as plain text: headings, paragraphs, lists, links and tables. html5gum tokenizes as the HTML standard defines. No tree
//! is built, so that deeply nested pages cost nothing extra. Scripts are not run.

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, State, Tokenizer};

const HIDDEN_ELEMENTS: [&[u8]; 10] =
    [b"script", b"style", b"noscript", b"template", b"svg", b"iframe", b"object", b"canvas", b"select", b"textarea"];
const BLOCK_ELEMENTS: [&[u8]; 28] = [
    b"address",
    b"article",
    b"aside",
    b"blockquote",
    b"body",
    b"dd",
    b"details",
    b"div",
    b"dl",
    b"dt",
    b"fieldset",
    b"figcaption",
    b"figure",
    b"footer",
    b"form",
    b"header",
    b"hr",
    b"main",
    b"nav",
    b"ol",
    b"p",
    b"pre",
    b"section",
    b"summary",
    b"table",
    b"tr",
    b"ul",
    b"caption",
];
const SOFT_HYPHEN: char = '\u{ad}';

/// What of a page counts. Of all attributes `href` alone is kept.
enum Token {
    Text(String),
    Start { name: Vec<u8>, href: Option<String>, is_self_closing: bool },
    End(Vec<u8>),
}

pub(super) fn readable(html: &str) -> String {
    let mut emitter = emitter();
    // Elements such as script, style and title contain text without tags.
    emitter.naively_switch_states(true);
    let mut page = Page::default();
    // The open hidden element.
    let mut hidden: Option<Vec<u8>> = None;
    let mut tokens = Tokenizer::new_with_emitter(html, emitter);
    while let Some(Ok(token)) = tokens.next() {
        match token {
            // A self-closing element in SVG has no text content.
            Token::Start { is_self_closing: true, .. } if hidden.as_deref() == Some(b"svg") => tokens.set_state(State::Data),
            Token::End(name) if hidden.as_ref() == Some(&name) => hidden = None,
            _ if hidden.is_some() => {}
            Token::Text(text) => page.text(&text),
            Token::Start { name, href, .. } => {
                page.tag(&name, true, href);
                if HIDDEN_ELEMENTS.contains(&&*name) {
                    hidden = Some(name);
                }
            }
            Token::End(name) => page.tag(&name, false, None),
        }
    }
    page.finish()
}

fn emitter() -> CallbackEmitter<impl FnMut(CallbackEvent<'_>, Span<()>) -> Option<Token>, Token> {
    let (mut name, mut href, mut is_href) = (Vec::new(), None, false);
    CallbackEmitter::new(move |event: CallbackEvent<'_>, _: Span<()>| match event {
        CallbackEvent::OpenStartTag { name: opened } => {
            (name, href, is_href) = (opened.to_vec(), None, false);
            None
        }
        CallbackEvent::AttributeName { name: attribute } => {
            // Of two attributes of one name the first counts.
            is_href = attribute == b"href" && href.is_none();
            None
        }
        CallbackEvent::AttributeValue { value } => {
            if is_href {
                href = Some(String::from_utf8_lossy(value).into_owned());
            }
            None
        }
        CallbackEvent::CloseStartTag { self_closing } => {
            Some(Token::Start { name: std::mem::take(&mut name), href: href.take(), is_self_closing: self_closing })
        }
        CallbackEvent::EndTag { name } => Some(Token::End(name.to_vec())),
        CallbackEvent::String { value } => Some(Token::Text(String::from_utf8_lossy(value).into_owned())),
        CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => None,
    })
}

#[derive(Default)]
struct Page {
    out: String,
    /// Line breaks to write before the next text.
    breaks: usize,
    /// Whether to write a space before the next text.
    space: bool,
    /// How many `pre` elements are open.
    preformatted: usize,
    /// The targets of open `a` elements.
    links: Vec<Option<String>>,
}

impl Page {
    fn text(&mut self, text: &str) {
        let text = text.replace(SOFT_HYPHEN, "");
        if self.preformatted > 0 {
            for (index, line) in text.split('\n').enumerate() {
                if index > 0 {
                    self.breaks = 0;
                    self.out.push('\n');
                }
                self.push(line.trim_end_matches('\r'));
            }
            return;
        }
        for (index, word) in text.split(char::is_whitespace).enumerate() {
            self.space |= index > 0;
            self.push(word);
        }
    }

    fn push(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        if self.breaks > 0 && !self.out.is_empty() {
            self.out.push_str(&"\n".repeat(self.breaks.min(2)));
        } else if self.space && !self.out.is_empty() && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
        (self.breaks, self.space) = (0, false);
        self.out.push_str(word);
    }

    fn tag(&mut self, name: &[u8], opens: bool, href: Option<String>) {
        match (name, opens) {
            (b"br", _) => self.breaks = (self.breaks + 1).min(2),
            (b"title", false) => self.breaks = 2,
            (b"li", true) => {
                self.breaks = self.breaks.max(1);
                self.push("- ");
            }
            (b"td" | b"th", false) => {
                self.push(" |");
                self.space = true;
            }
            ([b'h', level @ b'1'..=b'6'], opens) => {
                self.breaks = 2;
                if opens {
                    self.push(&format!("{} ", "#".repeat(usize::from(level - b'0'))));
                }
            }
            (b"pre", opens) => {
                self.breaks = 2;
                self.preformatted = if opens { self.preformatted + 1 } else { self.preformatted.saturating_sub(1) };
            }
            (b"a", true) => self.links.push(href.filter(|href| href.starts_with("http://") || href.starts_with("https://"))),
            (b"a", false) => {
                if let Some(Some(href)) = self.links.pop() {
                    self.space = true;
                    self.push(&format!("({href})"));
                }
            }
            (b"tr" | b"dt" | b"dd" | b"li", _) => self.breaks = self.breaks.max(1),
            (name, _) if BLOCK_ELEMENTS.contains(&name) => self.breaks = 2,
            _ => {}
        }
    }

    fn finish(self) -> String {
        let lines: Vec<&str> = self.out.lines().map(str::trim_end).collect();
        lines.join("\n").trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_become_text() {
        for (html, expected) in [
            ("plain &amp; simple", "plain & simple"),
            ("<p>One\n  two</p><p>Three</p>", "One two\n\nThree"),
            ("<html><head><title>T &mdash; x</title><style>p{}</style></head><body><h2>Head</h2>Text</body>", "T — x\n\n## Head\n\nText"),
            ("a<script>if (a < b) { '</p>' }</script>b", "ab"),
            ("a<SCRIPT src='x'>evil</ScRiPt >b", "ab"),
            ("<ul><li>one<li>two</ul>after", "- one\n- two\n\nafter"),
            ("<a href=\"https://x.example/?a=1&amp;b=2\">link</a>!", "link (https://x.example/?a=1&b=2)!"),
            ("<a data-href='https://no.example/' href='/rel'>rel</a> <a>bare</a>", "rel bare"),
            ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "a | b |\n1 | 2 |"),
            ("<pre>  x\n    y</pre>z", "x\n    y\n\nz"),
            ("a<br>b<br/>c", "a\nb\nc"),
            ("a<!-- <p>no</p> -->b<!doctype html>c", "abc"),
            ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
            ("<img alt=\"a > b\" src=x>text", "text"),
            ("&#65;&#x42;&nbsp;&unknown;&#0;&#xD800;&", "AB &unknown;\u{fffd}\u{fffd}&"),
            ("<b>bo</b>ld", "bold"),
            ("<svg><style/><title/><g/></svg>text", "text"),
            ("cut <a href=\"htt", "cut"),
            ("cut <!-- never closed", "cut"),
            ("cut <script> never closed", "cut"),
        ] {
            assert_eq!(readable(html), expected, "{html}");
        }
    }

    #[test]
    fn a_hostile_page_takes_time_by_its_length() {
        for piece in ["&", "<", "<div>", "<a href=http://x>", "<script></", "<!--", "<a x=\"", "<title><", "<pre>", " "] {
            let page = piece.repeat((256 << 10) / piece.len());
            let started = Instant::now();
            readable(&page);
            assert!(started.elapsed() < Duration::from_secs(10), "{piece}: {:?}", started.elapsed());
        }
    }

    proptest! {
        #[test]
        fn no_page_makes_it_panic(html in "([a-zäé\u{212a}İ ]|<|>|/|&|;|#|\"|'|=|a href|script|<!--|-->|<p|pre|&#x|\n){0,60}", any in any::<String>()) {
            let _ = (readable(&html), readable(&any));
        }

        #[test]
        fn scripts_never_show(before in "[a-z<> ]{0,20}", code in "[a-z(){};<>=&]{0,30}") {
            let page = readable(&format!("{before}><script>SECRET{code}</script>after"));
            prop_assert!(!page.contains("SECRET") || before.contains('<'));
        }
    }
}
