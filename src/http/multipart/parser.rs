//! The parser. It holds at most the head of a part, or bytes that may begin a boundary, besides what was pushed last.

use bytes::{Buf, BytesMut};
use memchr::memmem::Finder;

use super::{FormPiece, PartHead, header};
use crate::error::Error;

/// The longest head of a part.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;
pub const PARTS_MAX: usize = 16;
/// Blanks that may follow a boundary.
const PADDING_BYTES_MAX: usize = 64;
const LINE: &[u8] = b"\r\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first boundary.
    Start,
    /// Behind a boundary.
    Boundary,
    /// In the head of a part, which begins with the line break of its boundary.
    Head,
    Data,
    Finished,
}

#[derive(Debug)]
pub struct Parser {
    /// A line break, two hyphens and the boundary.
    delimiter: Finder<'static>,
    buffer: BytesMut,
    state: State,
    parts: usize,
}

impl Parser {
    pub fn new(boundary: &str) -> Self {
        let delimiter = Finder::new(&[LINE, b"--", boundary.as_bytes()].concat()).into_owned();
        // The first boundary begins the body; every other one begins a line.
        Self { delimiter, buffer: BytesMut::from(LINE), state: State::Start, parts: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next piece; `None` if more has to be pushed first.
    pub fn piece(&mut self) -> Result<Option<FormPiece>, Error> {
        loop {
            match self.state {
                State::Start => {
                    if !self.start()? {
                        return Ok(None);
                    }
                    self.state = State::Boundary;
                }
                State::Boundary => match self.after_boundary()? {
                    Some(State::Finished) => {
                        self.state = State::Finished;
                        self.buffer.clear();
                    }
                    Some(state) => self.state = state,
                    None => return Ok(None),
                },
                State::Head => {
                    let head = self.head()?;
                    if head.is_some() {
                        self.state = State::Data;
                    }
                    return Ok(head.map(FormPiece::Head));
                }
                State::Data => return Ok(self.data()),
                State::Finished => return Ok(Some(FormPiece::Finished)),
            }
        }
    }

    /// Whether the first boundary is there.
    fn start(&mut self) -> Result<bool, Error> {
        let delimiter = self.delimiter.needle();
        // A line break before it is allowed.
        if self.buffer.starts_with(b"\r\n\r\n") {
            self.buffer.advance(LINE.len());
        }
        let length = delimiter.len().min(self.buffer.len());
        if self.buffer[..length] != delimiter[..length] && !b"\r\n\r\n".starts_with(&self.buffer) {
            return Err(Error::bad_request("the form does not begin with the boundary that its Content-Type names"));
        }
        if length < delimiter.len() {
            return Ok(false);
        }
        self.buffer.advance(delimiter.len());
        Ok(true)
    }

    fn after_boundary(&mut self) -> Result<Option<State>, Error> {
        if self.buffer.len() < 2 {
            return Ok(None);
        }
        if self.buffer.starts_with(b"--") {
            return Ok(Some(State::Finished));
        }
        let blanks = self.buffer.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let rest = &self.buffer[blanks..];
        if blanks > PADDING_BYTES_MAX || !(rest.starts_with(LINE) || LINE.starts_with(rest)) {
            return Err(Error::bad_request("a boundary of the form is followed by other characters"));
        }
        if rest.len() < LINE.len() {
            return Ok(None);
        }
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(Error::bad_request(format!("the form may have at most {PARTS_MAX} parts")));
        }
        self.buffer.advance(blanks);
        Ok(Some(State::Head))
    }

    fn head(&mut self) -> Result<Option<PartHead>, Error> {
        let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") else {
            return if self.buffer.len() > HEAD_BYTES_MAX { Err(long_head()) } else { Ok(None) };
        };
        if end > HEAD_BYTES_MAX {
            return Err(long_head());
        }
        let head = self.buffer.split_to(end);
        self.buffer.advance(2 * LINE.len());
        read_head(&head).map(Some)
    }

    fn data(&mut self) -> Option<FormPiece> {
        if let Some(at) = self.delimiter.find(&self.buffer) {
            if at > 0 {
                return Some(FormPiece::Data(self.buffer.split_to(at).freeze()));
            }
            self.buffer.advance(self.delimiter.needle().len());
            self.state = State::Boundary;
            return Some(FormPiece::End);
        }
        // What may be the beginning of a boundary stays. A boundary has no other line break than its first.
        let kept = memchr::memrchr(b'\r', &self.buffer).filter(|at| self.delimiter.needle().starts_with(&self.buffer[*at..]));
        let certain = kept.unwrap_or(self.buffer.len());
        (certain > 0).then(|| FormPiece::Data(self.buffer.split_to(certain).freeze()))
    }
}

fn long_head() -> Error {
    Error::bad_request(format!("the head of a part of the form may have at most {HEAD_BYTES_MAX} bytes"))
}

fn read_head(head: &[u8]) -> Result<PartHead, Error> {
    let malformed = || Error::bad_request("the head of a part of the form cannot be read");
    let head = std::str::from_utf8(head).map_err(|_| malformed())?;
    let (mut disposition, mut content_type) = (None, None);
    for line in head.split("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        let slot = match name.trim() {
            name if name.eq_ignore_ascii_case("content-disposition") => &mut disposition,
            name if name.eq_ignore_ascii_case("content-type") => &mut content_type,
            _ => continue,
        };
        if slot.replace(value.trim()).is_some() {
            return Err(malformed());
        }
    }
    let disposition = disposition.filter(|value| header::essence(value).eq_ignore_ascii_case("form-data")).ok_or_else(malformed)?;
    let mut parameters = header::parameters(disposition).ok_or_else(malformed)?;
    let name = parameters.remove("name").ok_or_else(|| Error::bad_request("a part of the form has no name"))?;
    let filename = header::filename(&mut parameters).transpose().map_err(Error::bad_request)?;
    Ok(PartHead { name, filename, content_type: content_type.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The parts of a form that is pushed in pieces of `size` bytes, or what is wrong with it.
    fn parsed(boundary: &str, form: &[u8], size: usize) -> Result<Vec<(PartHead, Vec<u8>)>, String> {
        let mut parser = Parser::new(boundary);
        let mut pushed = form.chunks(size.max(1));
        let (mut parts, mut open) = (Vec::new(), None);
        loop {
            match parser.piece().map_err(|error| error.message().to_owned())? {
                Some(FormPiece::Head(head)) => open = Some((head, Vec::new())),
                Some(FormPiece::Data(data)) => open.as_mut().unwrap().1.extend_from_slice(&data),
                Some(FormPiece::End) => parts.push(open.take().unwrap()),
                Some(FormPiece::Finished) => return Ok(parts),
                None => parser.push(pushed.next().ok_or("it ends")?),
            }
        }
    }

    fn part(name: &str, filename: Option<&str>, data: &[u8]) -> (PartHead, Vec<u8>) {
        let head = PartHead { name: name.to_owned(), filename: filename.map(str::to_owned), content_type: None };
        (head, data.to_vec())
    }

    const HEAD: &str = "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"";

    #[test]
    fn forms_are_read_as_clients_write_them() {
        let one = vec![part("file", Some("a.txt"), b"x\r\ny")];
        for (form, expected) in [
            (format!("--b\r\n{HEAD}\r\n\r\nx\r\ny\r\n--b--\r\n"), one.clone()),
            (format!("\r\n--b\r\n{HEAD}\r\n\r\nx\r\ny\r\n--b--"), one.clone()),
            (format!("--b \t\r\n{HEAD}\r\nX-Other: 1\r\n\r\nx\r\ny\r\n--b--\r\nan epilogue"), one),
            (format!("--b\r\n{HEAD}\r\n\r\n\r\n--b--\r\n"), vec![part("file", Some("a.txt"), b"")]),
            (format!("--b\r\n{HEAD}\r\n\r\n--b\r\r\n-\r\n--\r\n--b--"), vec![part("file", Some("a.txt"), b"--b\r\r\n-\r\n--")]),
            (
                format!("--b\r\n{HEAD}\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=x\r\n\r\n2\r\n--b--"),
                vec![part("file", Some("a.txt"), b"1"), part("x", None, b"2")],
            ),
            ("--b--\r\n".to_owned(), Vec::new()),
        ] {
            for size in 1..=form.len() {
                assert_eq!(parsed("b", form.as_bytes(), size), Ok(expected.clone()), "{form:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_broken_form_is_refused_with_the_reason() {
        for (form, word) in [
            (String::new(), "it ends"),
            ("x".to_owned(), "does not begin"),
            (format!("preamble\r\n--b\r\n{HEAD}\r\n\r\nx\r\n--b--"), "does not begin"),
            (format!("--c\r\n{HEAD}\r\n\r\nx\r\n--c--"), "does not begin"),
            (format!("--bb\r\n{HEAD}\r\n\r\nx\r\n--b--"), "other characters"),
            (format!("--b\r\n{HEAD}\r\n\r\nx\r\n--c--"), "it ends"),
            (format!("--b\r\n{HEAD}\r\n\r\nx"), "it ends"),
            (format!("--b\r\n{HEAD}"), "it ends"),
            ("--b\r\n\r\nx\r\n--b--".to_owned(), "cannot be read"),
            ("--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--".to_owned(), "no name"),
            ("--b\r\nContent-Disposition: attachment; name=x\r\n\r\nx\r\n--b--".to_owned(), "cannot be read"),
            (format!("--b\r\n{HEAD}\r\n{HEAD}\r\n\r\nx\r\n--b--"), "cannot be read"),
            (format!("--b\r\nX: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX)), "at most 8192 bytes"),
            (format!("--b\r\nX: {}", "x".repeat(HEAD_BYTES_MAX)), "at most 8192 bytes"),
            (format!("--b\r\n{HEAD}\r\n\r\n\r\n").repeat(PARTS_MAX + 1), "at most 16 parts"),
        ] {
            for size in [1, 7, form.len()] {
                let fault = parsed("b", form.as_bytes(), size).unwrap_err();
                assert!(fault.contains(word), "{form:?} in pieces of {size}: {fault}");
            }
        }
    }

    #[test]
    fn it_holds_little_besides_what_was_pushed_last() {
        let mut parser = Parser::new("boundary");
        parser.push(format!("--boundary\r\n{HEAD}\r\n\r\n").as_bytes());
        assert!(matches!(parser.piece(), Ok(Some(FormPiece::Head(_)))));
        for _ in 0..1000 {
            parser.push(&[b'\r'; 1000]);
            while parser.piece().unwrap().is_some() {}
            assert!(parser.buffer.len() < 16, "{}", parser.buffer.len());
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_arrives_however_it_is_cut(
            parts in prop::collection::vec(("[a-z]{1,8}", prop::option::of("[^\\p{C}\"\\\\%]{0,12}"), "[\\r\\n\\-bx]{0,40}"), 0..4),
            size in 1_usize..64,
        ) {
            // No part may hold the boundary.
            let parts: Vec<_> = parts.into_iter().filter(|(.., data)| !format!("\r\n{data}").contains("\r\n--bb")).collect();
            let mut form = Vec::new();
            for (name, filename, data) in &parts {
                let filename = filename.as_ref().map(|name| format!("; filename=\"{name}\"")).unwrap_or_default();
                form.extend(format!("--bb\r\nContent-Disposition: form-data; name=\"{name}\"{filename}\r\n\r\n{data}\r\n").bytes());
            }
            form.extend(b"--bb--\r\n");
            let expected: Vec<_> = parts.iter().map(|(name, filename, data)| part(name, filename.as_deref(), data.as_bytes())).collect();
            prop_assert_eq!(parsed("bb", &form, size), Ok(expected));
        }

        #[test]
        fn no_bytes_make_it_fail_otherwise(form in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..60, size in 1_usize..64) {
            let good = format!("--b\r\n{HEAD}\r\n\r\nx\r\n--b--");
            let mixed = [&good.as_bytes()[..cut.min(good.len())], &form].concat();
            prop_assert_eq!(parsed("b", &mixed, size).is_ok(), parsed("b", &mixed, usize::MAX).is_ok());
        }
    }
}
