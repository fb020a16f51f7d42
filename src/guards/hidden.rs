//! Finds texts hidden within a text: in base64, in hexadecimal or binary digits, and in invisible characters.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The most that is decoded of one text.
const MAX_DECODED_BYTES: usize = 8192;

/// The characters of base64 and of hexadecimal digits.
const IS_ENCODED: [bool; 256] = {
    let mut parts = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        parts[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
        byte += 1;
    }
    parts
};

/// The hidden texts, with their spans.
pub(crate) fn hidden(text: &str) -> Vec<(String, Range<usize>)> {
    let mut all = Vec::new();
    let mut left = MAX_DECODED_BYTES;
    invisible(text, &mut all);
    let mut groups = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..].iter().take_while(|byte| is_encoded(**byte)).count();
        groups += u32::from(length == 8 && bytes[at..at + 8].iter().all(|byte| matches!(byte, b'0' | b'1')));
        if (16..=left).contains(&length)
            && let Some(decoded) = decoded(&bytes[at..at + length])
        {
            left -= length;
            all.push((decoded, at..at + length));
        }
        at += length.max(1);
    }
    if groups >= 4 {
        binary(text, &mut all);
    }
    all
}

/// Whether a byte may be a part of base64 or of hexadecimal digits.
pub(crate) fn is_encoded(byte: u8) -> bool {
    IS_ENCODED[usize::from(byte)]
}

/// Decodes hexadecimal digits or base64, if the result is text.
pub(crate) fn decoded(token: &[u8]) -> Option<String> {
    let hex = token.len().is_multiple_of(2) && token.iter().all(u8::is_ascii_hexdigit);
    let bytes = if hex {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        token.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect::<Option<Vec<u8>>>()?
    } else {
        STANDARD.decode(token).or_else(|_| STANDARD_NO_PAD.decode(token)).or_else(|_| URL_SAFE_NO_PAD.decode(token)).ok()?
    };
    let text = String::from_utf8(bytes).ok()?;
    text.chars().all(|c| !c.is_control() || c.is_whitespace()).then_some(text)
}

/// The tag characters of Unicode, which are invisible letters.
fn invisible(text: &str, all: &mut Vec<(String, Range<usize>)>) {
    // Fast path: all of them begin with this byte in UTF-8.
    if !text.as_bytes().contains(&0xf3) {
        return;
    }
    let mut said = String::new();
    let mut span = 0..0;
    for (at, c) in text.char_indices() {
        if let '\u{e0020}'..='\u{e007e}' = c {
            if said.is_empty() {
                span.start = at;
            }
            said.extend(char::from_u32(u32::from(c) - 0xe0000));
            span.end = at + c.len_utf8();
        }
    }
    if !said.is_empty() {
        all.push((said, span));
    }
}

/// Groups of eight zeros and ones.
fn binary(text: &str, all: &mut Vec<(String, Range<usize>)>) {
    let mut said = Vec::new();
    let mut span = 0..0;
    let mut at = 0;
    for word in text.split_inclusive(' ') {
        let group = word.trim_end_matches([' ', '.', '\n', '"', '\'']);
        if group.len() == 8
            && let Ok(byte) = u8::from_str_radix(group, 2)
        {
            if said.is_empty() {
                span.start = at;
            }
            said.push(byte);
            span.end = at + group.len();
        }
        at += word.len();
    }
    if said.len() >= 4
        && let Ok(said) = String::from_utf8(said)
    {
        all.push((said, span));
    }
}
