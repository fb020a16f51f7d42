//! The encoding that a page says it is in.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252, X_USER_DEFINED};
use html5gum::Tokenizer;

use super::tokens::{Tag, Token, emitter};

/// How much of a page is looked at. Browsers look at a kilobyte; some pages begin with long comments.
const HEAD_BYTES: usize = 64 * 1024;

/// None for UTF-8 too: a page that only claims to be UTF-8 is looked at.
pub(super) fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = WINDOWS_1252.decode_without_bom_handling(&bytes[..bytes.len().min(HEAD_BYTES)]).0;
    let label = xml(&head).or_else(|| meta(&head))?;
    let encoding = Encoding::for_label(label.as_bytes()).filter(|encoding| *encoding != UTF_8)?;
    // What could read this could not be in UTF-16.
    match encoding {
        _ if encoding == X_USER_DEFINED => Some(WINDOWS_1252),
        _ if encoding.name().starts_with("UTF-16") => None,
        _ => Some(encoding),
    }
}

fn xml(head: &str) -> Option<String> {
    let declaration = head.strip_prefix("<?xml")?.split_once("?>")?.0;
    let rest = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    Some(rest[1..].split_once(quote)?.0.to_owned())
}

fn meta(head: &str) -> Option<String> {
    let mut emitter = emitter();
    emitter.naively_switch_states(true);
    let mut tokens = Tokenizer::new_with_emitter(head, emitter);
    while let Some(Ok(token)) = tokens.next() {
        match token {
            Token::Start(tag) if tag.name.is(&["body"]) => return None,
            Token::Start(tag) if tag.name.is(&["meta"]) => {
                if let Some(label) = of_tag(&tag) {
                    return Some(label);
                }
            }
            _ => {}
        }
    }
    None
}

fn of_tag(tag: &Tag) -> Option<String> {
    let known = |label: &str| Encoding::for_label(label.as_bytes()).map(|_| label.to_owned());
    if let Some(label) = tag.attribute("charset") {
        return known(label.trim());
    }
    let is_type = tag.attribute("http-equiv").is_some_and(|name| name.trim().eq_ignore_ascii_case("content-type"));
    let content = tag.attribute("content").filter(|_| is_type)?.to_ascii_lowercase();
    let label = content.split_once("charset")?.1.trim_start().strip_prefix('=')?.trim();
    let label = label.trim_start_matches(['"', '\'']);
    known(label.split(|letter: char| letter.is_whitespace() || matches!(letter, ';' | '"' | '\'' | ',')).next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_encodings_are_found() {
        for (html, expected) in [
            ("<meta charset=iso-8859-2>", Some("ISO-8859-2")),
            ("<!-- <meta charset=koi8-r> --><META HTTP-EQUIV='Content-Type' content='text/html; charset=Shift_JIS'>", Some("Shift_JIS")),
            ("<?xml version='1.0' encoding='iso-8859-15'?><html>", Some("ISO-8859-15")),
            ("<meta name=description content='charset=koi8-r'>", None),
            ("<meta charset=nonsense><meta charset=gbk>", Some("GBK")),
            ("<meta charset=utf-8>", None),
            ("<meta charset=utf-16>", None),
            ("<body><meta charset=gbk>", None),
            ("", None),
        ] {
            assert_eq!(declared(html.as_bytes()).map(Encoding::name), expected, "{html}");
        }
    }
}
