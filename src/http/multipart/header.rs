//! Header values with parameters: `form-data; name="file"; filename="a.pdf"`.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

/// What stands before the parameters.
pub(super) fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

/// The parameters, by name in lower case. `None` if they are malformed or one is given twice.
pub(super) fn parameters(value: &str) -> Option<BTreeMap<String, String>> {
    let mut parameters = BTreeMap::new();
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest).trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let (value, after) = if let Some(quoted) = after.trim_start().strip_prefix('"') {
            unquoted(quoted)?
        } else {
            let end = after.find(';').unwrap_or(after.len());
            (after[..end].trim().to_owned(), &after[end..])
        };
        if parameters.insert(name.trim().to_ascii_lowercase(), value).is_some() {
            return None;
        }
        let after = after.trim_start();
        rest = if after.is_empty() { "" } else { after.strip_prefix(';')?.trim_start() };
    }
    Some(parameters)
}

/// A quoted string without its quotes, and what follows it. Some clients escape quotes, others leave the backslashes of a
/// path as they are.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.peek() {
                Some((_, escaped @ ('"' | '\\'))) => {
                    value.push(*escaped);
                    letters.next();
                }
                _ => value.push('\\'),
            },
            letter => value.push(letter),
        }
    }
    None
}

/// The file's name: `filename*` is percent-encoded UTF-8 with the charset in front; in `filename`, browsers encode quotes and
/// line breaks.
pub(super) fn filename(parameters: &mut BTreeMap<String, String>) -> Option<Result<String, &'static str>> {
    const NOT_UTF8: &str = "the file's name is not UTF-8";
    if let Some(extended) = parameters.remove("filename*") {
        let mut parts = extended.splitn(3, '\'');
        return Some(match (parts.next(), parts.next(), parts.next()) {
            (Some(charset), Some(_), Some(encoded)) if charset.eq_ignore_ascii_case("utf-8") => {
                percent_decode_str(encoded).decode_utf8().map(Into::into).map_err(|_| NOT_UTF8)
            }
            _ => Err(NOT_UTF8),
        });
    }
    let name = parameters.remove("filename")?;
    Some(Ok(name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_filename_is_read_as_clients_write_it() {
        for (value, expected) in [
            (r#"form-data; name="file"; filename="a.pdf""#, Some("a.pdf")),
            (r"form-data; name=file; filename=a.pdf", Some("a.pdf")),
            (r#"form-data; name="file"; filename="a; \"b\".pdf""#, Some(r#"a; "b".pdf"#)),
            (r#"form-data; name="file"; filename="C:\docs\a.pdf""#, Some(r"C:\docs\a.pdf")),
            (r#"form-data; name="file"; filename="a%22b.pdf""#, Some(r#"a"b.pdf"#)),
            (r#"form-data; name="file"; filename="x"; filename*=UTF-8''Gr%C3%B6%C3%9Fe.pdf"#, Some("Größe.pdf")),
            (r#"form-data; name="file"; filename*=utf-8''%ff"#, None),
            (r#"form-data; name="file"; filename*=latin1''x"#, None),
            (r#"form-data; name="file""#, None),
        ] {
            let mut parameters = parameters(value).unwrap();
            assert_eq!(parameters.get("name").map(String::as_str), Some("file"), "{value}");
            assert_eq!(filename(&mut parameters).and_then(Result::ok).as_deref(), expected, "{value}");
        }
        for malformed in ["form-data; name", "form-data; name=\"x", "form-data; name=\"x\" y", "form-data; name=a; name=b"] {
            assert!(parameters(malformed).is_none(), "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_value_is_read_back(name in "\\PC{0,30}", value in "\\PC{0,60}") {
            let _ = parameters(&value);
            let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
            let read = parameters(&format!("form-data; filename=\"{escaped}\"; x=1")).unwrap();
            prop_assert_eq!((&*read["filename"], &*read["x"]), (&*name, "1"));
        }
    }
}
