//! The body of a response as text, read up to the limit.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use reqwest::Response;

pub(crate) enum ResponseBody {
    Text {
        text: String,
        more: bool,
    },
    /// Not text; a note describes it.
    Other(String),
}

/// Reads at most `limit` bytes.
pub(crate) async fn read(mut response: Response, limit: usize) -> Result<ResponseBody, reqwest::Error> {
    let type_ = media_type(response.headers());
    let length = response.content_length();
    if !is_text(type_.as_deref()) || response.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Ok(ResponseBody::Other(note(type_.as_deref(), length)));
    }
    let charset = charset(response.headers());
    let mut bytes = Vec::new();
    let mut more = false;
    while let Some(chunk) = response.chunk().await? {
        let room = limit - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            more = true;
            break;
        }
    }
    // Without a declared type, the content decides whether it is text.
    if type_.is_none() && (bytes.contains(&0) || std::str::from_utf8(&bytes).is_err_and(|error| error.error_len().is_some())) {
        return Ok(ResponseBody::Other(note(None, length)));
    }
    Ok(ResponseBody::Text { text: decode(&bytes, charset.as_deref(), more), more })
}

fn decode(bytes: &[u8], charset: Option<&str>, more: bool) -> String {
    if matches!(charset, Some("iso-8859-1" | "latin1" | "windows-1252")) {
        return bytes.iter().map(|byte| char::from(*byte)).collect();
    }
    // A character that the limit cuts in two is dropped, not replaced.
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if more && error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    };
    String::from_utf8_lossy(whole).into_owned()
}

pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let type_ = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    (!type_.is_empty()).then_some(type_)
}

fn charset(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
    let charset = value.split(';').skip(1).find_map(|part| part.trim().strip_prefix("charset="))?;
    Some(charset.trim_matches('"').to_owned())
}

fn is_text(type_: Option<&str>) -> bool {
    let Some(type_) = type_ else { return true };
    let Some((group, kind)) = type_.split_once('/') else { return false };
    group == "text"
        || kind.ends_with("+json")
        || kind.ends_with("+xml") && group != "image"
        || kind.ends_with("+yaml")
        || group == "application"
            && matches!(
                kind,
                "json"
                    | "xml"
                    | "javascript"
                    | "ecmascript"
                    | "x-javascript"
                    | "yaml"
                    | "x-yaml"
                    | "toml"
                    | "x-ndjson"
                    | "ndjson"
                    | "jsonl"
                    | "json-seq"
                    | "x-www-form-urlencoded"
                    | "graphql"
                    | "sql"
                    | "rtf"
            )
}

fn note(type_: Option<&str>, length: Option<u64>) -> String {
    let type_ = type_.unwrap_or("data of no declared type");
    match length {
        Some(length) => format!("[{type_}, {length} bytes: not text, so it is not shown]"),
        None => format!("[{type_}: not text, so it is not shown]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_distinguished_from_other_content() {
        for (type_, expected) in [
            ("text/html", true),
            ("text/csv", true),
            ("application/json", true),
            ("application/problem+json", true),
            ("application/atom+xml", true),
            ("application/x-ndjson", true),
            ("image/svg+xml", false),
            ("image/png", false),
            ("application/octet-stream", false),
            ("application/pdf", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_text(Some(type_)), expected, "{type_}");
        }
    }

    #[test]
    fn characters_survive_charsets_and_cuts() {
        for (bytes, charset, more, expected) in [
            (&b"Z\xfcrich"[..], Some("iso-8859-1"), false, "Zürich"),
            ("Zürich".as_bytes(), None, false, "Zürich"),
            (&"Zürich".as_bytes()[..2], None, true, "Z"),
            (b"Z\xffrich", None, false, "Z\u{fffd}rich"),
        ] {
            assert_eq!(decode(bytes, charset, more), expected);
        }
    }
}
