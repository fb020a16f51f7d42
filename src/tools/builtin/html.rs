//! HTML as a reader would see it: headings, paragraphs, lists, links and tables as plain text. It is a scanner that takes
//! any input, not a browser: what only a script would show is not there.

const UNSEEN: [&str; 10] = ["script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select", "textarea"];
const BLOCKS: [&str; 28] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "tr",
    "ul",
    "caption",
];

pub(super) fn readable(html: &str) -> String {
    let mut page = Page::default();
    let mut rest = html;
    while let Some(open) = rest.find('<') {
        page.text(&rest[..open]);
        rest = &rest[open..];
        rest = match markup(rest) {
            Markup::Skip(length) => &rest[length..],
            Markup::Text => {
                page.text("<");
                &rest[1..]
            }
            Markup::Tag { tag, length } => {
                let after = &rest[length..];
                page.tag(&tag);
                if tag.opens && UNSEEN.contains(&tag.name.as_str()) { &after[closing(after, &tag.name)..] } else { after }
            }
        };
    }
    page.text(rest);
    page.finish()
}

struct Tag {
    name: String,
    opens: bool,
    href: Option<String>,
}

enum Markup {
    Skip(usize),
    Text,
    Tag { tag: Tag, length: usize },
}

/// What stands at the start of `text`, which is a `<`.
fn markup(text: &str) -> Markup {
    if let Some(comment) = text.strip_prefix("<!--") {
        return Markup::Skip(comment.find("-->").map_or(text.len(), |end| end + 7));
    }
    let inner = &text[1..];
    if inner.starts_with(['!', '?']) {
        return Markup::Skip(text.find('>').map_or(text.len(), |end| end + 1));
    }
    let opens = !inner.starts_with('/');
    let start = inner.trim_start_matches('/');
    let name: String = start.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    if name.is_empty() {
        return Markup::Text;
    }
    // A > within quotes does not end the tag.
    let mut quote = None;
    let mut end = text.len();
    for (at, char) in text.char_indices().skip(1) {
        match (quote, char) {
            (None, '>') => {
                end = at + 1;
                break;
            }
            (None, '"' | '\'') if text[..at].trim_end().ends_with('=') => quote = Some(char),
            (Some(open), char) if char == open => quote = None,
            _ => {}
        }
    }
    let href = if name == "a" && opens { attribute(&text[..end], "href") } else { None };
    Markup::Tag { tag: Tag { name, opens, href }, length: end }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let lower = tag.to_ascii_lowercase();
    let mut from = 0;
    while let Some(found) = lower[from..].find(name).map(|at| from + at) {
        from = found + name.len();
        let value = tag[from..].trim_start();
        if !lower[..found].ends_with(|char: char| char.is_ascii_whitespace()) {
            continue;
        }
        let Some(value) = value.strip_prefix('=') else { continue };
        let value = value.trim_start();
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
            _ => value.split(|char: char| char.is_ascii_whitespace() || char == '>').next(),
        };
        return value.map(decode);
    }
    None
}

/// Where the element that was just opened is closed; what stands between is not for readers.
fn closing(text: &str, name: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = text[at..].find("</").map(|found| at + found) {
        let after = found + 2;
        if bytes.get(after..after + name.len()).is_some_and(|close| close.eq_ignore_ascii_case(name.as_bytes())) {
            return text[after..].find('>').map_or(text.len(), |end| after + end + 1);
        }
        at = after;
    }
    text.len()
}

#[derive(Default)]
struct Page {
    out: String,
    /// Line breaks owed before the next text.
    breaks: usize,
    space: bool,
    raw: usize,
    links: Vec<Option<String>>,
}

impl Page {
    fn text(&mut self, text: &str) {
        let text = decode(text);
        if self.raw > 0 {
            for (index, line) in text.split('\n').enumerate() {
                if index > 0 {
                    self.breaks = 0;
                    self.out.push('\n');
                }
                self.push(line.trim_end_matches('\r'));
            }
            return;
        }
        for (index, word) in text.split(|char: char| char.is_whitespace() && char != '\u{a0}').enumerate() {
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

    fn tag(&mut self, tag: &Tag) {
        match (tag.name.as_str(), tag.opens) {
            ("br", _) => self.breaks = (self.breaks + 1).min(2),
            ("title", false) => self.breaks = 2,
            ("li", true) => {
                self.breaks = self.breaks.max(1);
                self.push("- ");
            }
            ("td" | "th", false) => {
                self.push(" |");
                self.space = true;
            }
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", opens) => {
                self.breaks = 2;
                if opens {
                    let level = tag.name.as_bytes()[1] - b'0';
                    self.push(&format!("{} ", "#".repeat(level.into())));
                }
            }
            ("pre", opens) => {
                self.breaks = 2;
                self.raw = if opens { self.raw + 1 } else { self.raw.saturating_sub(1) };
            }
            ("a", true) => self.links.push(tag.href.clone().filter(|href| href.starts_with("http://") || href.starts_with("https://"))),
            ("a", false) => {
                if let Some(Some(href)) = self.links.pop() {
                    self.space = true;
                    self.push(&format!("({href})"));
                }
            }
            ("tr" | "dt" | "dd" | "li", _) => self.breaks = self.breaks.max(1),
            (name, _) if BLOCKS.contains(&name) => self.breaks = 2,
            _ => {}
        }
    }

    fn finish(self) -> String {
        let lines: Vec<&str> = self.out.lines().map(str::trim_end).collect();
        lines.join("\n").trim().to_owned()
    }
}

/// Character references: numbers, and the names that pages use.
fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest[1..].split(';').next().filter(|name| name.len() < 12 && rest.len() > name.len() + 1).unwrap_or_default();
        if let Some(decoded) = reference(name) {
            out.push_str(&decoded);
            rest = &rest[name.len() + 2..];
        } else {
            out.push('&');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

fn reference(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).filter(|char| *char != '\0').map(String::from);
    }
    let text = match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        "nbsp" | "ensp" | "emsp" | "thinsp" => " ",
        "shy" | "zwnj" | "zwj" => "",
        "ndash" => "–",
        "mdash" => "—",
        "hellip" => "…",
        "bull" => "•",
        "middot" => "·",
        "lsquo" => "‘",
        "rsquo" => "’",
        "ldquo" => "“",
        "rdquo" => "”",
        "laquo" => "«",
        "raquo" => "»",
        "copy" => "©",
        "reg" => "®",
        "trade" => "™",
        "deg" => "°",
        "times" => "×",
        "euro" => "€",
        "pound" => "£",
        "sect" => "§",
        "rarr" => "→",
        "larr" => "←",
        "auml" => "ä",
        "ouml" => "ö",
        "uuml" => "ü",
        "Auml" => "Ä",
        "Ouml" => "Ö",
        "Uuml" => "Ü",
        "szlig" => "ß",
        "eacute" => "é",
        "egrave" => "è",
        "agrave" => "à",
        "ccedil" => "ç",
        "ntilde" => "ñ",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
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
            ("&#65;&#x42;&nbsp;&unknown;&#0;&#xD800;&", "AB &unknown;&#0;&#xD800;&"),
            ("<b>bo</b>ld", "bold"),
            ("cut <a href=\"htt", "cut"),
            ("cut <!-- never closed", "cut"),
            ("cut <script> never closed", "cut"),
        ] {
            assert_eq!(readable(html), expected, "{html}");
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
