//! Bytes to text: which encoding a document is in, and its text as a stream.

use std::io::{self, Read};

use encoding_rs::{Decoder, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

const BUFFER_BYTES: usize = 16 * 1024;
/// How much is looked at to see UTF-16 without a mark.
const SAMPLE_BYTES: usize = 4096;

/// The encoding of a stream, which is read to its end: its mark, else UTF-8 unless most of what is not ASCII is wrong in it,
/// which Windows-1252 then is, as all of Latin-1 is in that.
pub(super) fn detect(mut stream: impl Read) -> io::Result<&'static Encoding> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut filled, mut is_first) = (0, true);
    let (mut right, mut wrong) = (0_usize, 0_usize);
    loop {
        let read = stream.read(&mut buffer[filled..])?;
        let bytes = &buffer[..filled + read];
        if is_first && let Some(encoding) = marked(bytes) {
            return Ok(encoding);
        }
        is_first = false;
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(_) => {
                    right += beyond_ascii(rest);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, bad) = rest.split_at(error.valid_up_to());
                    right += beyond_ascii(valid);
                    // Cut off by the buffer's end, unless nothing follows.
                    let Some(length) = error.error_len() else {
                        rest = bad;
                        break;
                    };
                    wrong += 1;
                    rest = &bad[length..];
                }
            }
        }
        if read == 0 {
            wrong += usize::from(!rest.is_empty());
            break;
        }
        let kept = rest.len();
        let from = filled + read - kept;
        buffer.copy_within(from..from + kept, 0);
        filled = kept;
    }
    Ok(if wrong > right { WINDOWS_1252 } else { UTF_8 })
}

/// The number of characters beyond ASCII, of two bytes and more each.
fn beyond_ascii(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte >= 0xc0).count()
}

fn marked(bytes: &[u8]) -> Option<&'static Encoding> {
    if let Some((encoding, _)) = Encoding::for_bom(bytes) {
        return Some(encoding);
    }
    // Mostly ASCII in UTF-16 has a zero in every other byte.
    let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    let zeros = |odd: usize| sample.iter().skip(odd).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd, most) = (zeros(0), zeros(1), sample.len() / 4);
    match sample.len() >= 4 {
        true if odd > most && even * 8 < odd => Some(UTF_16LE),
        true if even > most && odd * 8 < even => Some(UTF_16BE),
        _ => None,
    }
}

/// How many zeros there are, which texts do not have.
pub(super) fn zeros(bytes: &[u8]) -> usize {
    memchr::memchr_iter(0, bytes).count()
}

/// The whole text. `declared` is what the document says of itself; a mark at its beginning is stronger.
pub(super) fn whole(bytes: &[u8], declared: Option<&'static Encoding>) -> io::Result<String> {
    let encoding = match declared {
        Some(declared) if Encoding::for_bom(bytes).is_none() => declared,
        _ => detect(bytes)?,
    };
    Ok(encoding.decode(bytes).0.into_owned())
}

/// A stream in any encoding, as one of UTF-8.
pub(super) struct Utf8<R> {
    stream: R,
    decoder: Decoder,
    raw: Vec<u8>,
    /// What is decoded and not yet taken. Callers may have no room for a whole character.
    text: Vec<u8>,
    at: usize,
    has_ended: bool,
}

impl<R: Read> Utf8<R> {
    pub(super) fn new(stream: R, encoding: &'static Encoding) -> Self {
        let raw = vec![0; BUFFER_BYTES];
        Self { stream, decoder: encoding.new_decoder(), raw, text: Vec::new(), at: 0, has_ended: false }
    }

    fn fill(&mut self) -> io::Result<()> {
        let length = self.stream.read(&mut self.raw)?;
        self.has_ended = length == 0;
        // Room for any character of which each byte becomes the longest in UTF-8.
        self.text.resize(length * 3 + 64, 0);
        let (_, _, written, _) = self.decoder.decode_to_utf8(&self.raw[..length], &mut self.text, self.has_ended);
        self.text.truncate(written);
        self.at = 0;
        Ok(())
    }
}

impl<R: Read> Read for Utf8<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.text.len() && !self.has_ended {
            self.fill()?;
        }
        let length = buffer.len().min(self.text.len() - self.at);
        buffer[..length].copy_from_slice(&self.text[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encodings_are_told_apart() {
        let utf16 = |text: &str, big: bool| -> Vec<u8> {
            text.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
        };
        for (bytes, expected) in [
            ("Grüße".as_bytes().to_vec(), "Grüße"),
            (b"\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe".to_vec(), "Grüße"),
            (b"Gr\xfc\xdfe \x80".to_vec(), "Grüße €"),
            ([&b"\xff\xfe"[..], &utf16("Grüße", false)].concat(), "Grüße"),
            (utf16("plain text", false), "plain text"),
            (utf16("plain text", true), "plain text"),
            ("ä".repeat(20_000).into_bytes(), &*"ä".repeat(20_000)),
            // One broken byte does not turn a text into another encoding.
            (b"\xc3\xa4\xc3\xb6\xff".to_vec(), "äö\u{fffd}"),
            (Vec::new(), ""),
        ] {
            assert_eq!(whole(&bytes, None).unwrap(), expected);
            let mut streamed = String::new();
            Utf8::new(&*bytes, detect(&*bytes).unwrap()).read_to_string(&mut streamed).unwrap();
            assert_eq!(streamed, expected);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_text(bytes in any::<Vec<u8>>()) {
            let mut streamed = String::new();
            Utf8::new(&*bytes, detect(&*bytes).unwrap()).read_to_string(&mut streamed).unwrap();
            prop_assert_eq!(streamed, whole(&bytes, None).unwrap());
        }
    }
}
