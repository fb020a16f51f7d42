//! `multipart/form-data` (RFC 7578), piece by piece: a file is passed on while it arrives. Written here because the parsers
//! that there are keep the head of a part without a bound, and as much of the body as arrives meanwhile.
//!
//! [`Parser`] does no I/O: bytes are pushed, pieces come out. [`Form`] feeds it from a request.

mod header;
mod parser;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header as names};

use crate::body::BodyReader;
use crate::error::Error;
pub use parser::{HEAD_BYTES_MAX, PARTS_MAX, Parser};

/// What a part's head says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartHead {
    pub name: String,
    pub filename: Option<String>,
    pub content_type: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormPiece {
    /// A part begins.
    Head(PartHead),
    /// Bytes of the part that began last.
    Data(Bytes),
    /// The part is whole.
    End,
    /// The form is whole.
    Finished,
}

/// The form in a request.
#[derive(Debug)]
pub struct Form {
    body: BodyReader,
    parser: Parser,
}

impl Form {
    /// `headers` are those of the request.
    pub fn new(headers: &HeaderMap, body: BodyReader) -> Result<Self, Error> {
        Ok(Self { parser: Parser::new(&boundary(headers)?), body })
    }

    /// The next piece. After `Finished` the rest of the body, which means nothing, is not read.
    pub async fn next(&mut self) -> Result<FormPiece, Error> {
        loop {
            if let Some(piece) = self.parser.piece()? {
                return Ok(piece);
            }
            match self.body.next().await? {
                Some(bytes) => self.parser.push(&bytes),
                None => return Err(Error::bad_request("the form ends before its last boundary")),
            }
        }
    }

    pub fn is_too_large(&self) -> bool {
        self.body.is_too_large()
    }

    /// See [`BodyReader::discard`].
    pub async fn discard(&mut self) {
        self.body.discard().await;
    }
}

/// Whether the body is a form with files.
pub fn is_form(headers: &HeaderMap) -> bool {
    media(headers).is_some_and(|value| header::essence(value).eq_ignore_ascii_case("multipart/form-data"))
}

fn media(headers: &HeaderMap) -> Option<&str> {
    headers.get(names::CONTENT_TYPE)?.to_str().ok()
}

fn boundary(headers: &HeaderMap) -> Result<String, Error> {
    if !is_form(headers) {
        let message = "the body must be a form, sent with Content-Type: multipart/form-data";
        return Err(Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let boundary = media(headers).and_then(header::parameters).and_then(|mut parameters| parameters.remove("boundary"));
    // RFC 2046.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    boundary
        .filter(|boundary| (1..=70).contains(&boundary.len()) && boundary.bytes().all(fits) && !boundary.ends_with(' '))
        .ok_or_else(|| Error::bad_request("the Content-Type multipart/form-data must have a boundary, 1 to 70 characters"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_boundary_is_taken_from_the_content_type() {
        for (given, expected) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Form-Data; charset=utf-8; Boundary=\"a b:c\"", Some("a b:c")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"abc", None),
            ("multipart/form-data; boundary=\"a\\\"b\"", None),
            ("multipart/form-data; boundary=a; boundary=b", None),
            ("multipart/mixed; boundary=abc", None),
            ("text/plain", None),
        ] {
            let headers = HeaderMap::from_iter([(names::CONTENT_TYPE, HeaderValue::from_static(given))]);
            assert_eq!(boundary(&headers).ok().as_deref(), expected, "{given}");
        }
        let long = HeaderValue::try_from(format!("multipart/form-data; boundary={}", "x".repeat(71))).unwrap();
        assert!(boundary(&HeaderMap::from_iter([(names::CONTENT_TYPE, long)])).is_err());
        assert_eq!(boundary(&HeaderMap::new()).unwrap_err().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
}
