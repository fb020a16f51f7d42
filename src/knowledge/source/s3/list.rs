//! Reads the XML of a bucket's list (ListObjectsV2 with `encoding-type=url`) and the code of an error.

use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::source::SourceError;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectList {
    pub(super) objects: Vec<Object>,
    pub(super) is_truncated: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) key: String,
    pub(super) etag: String,
    pub(super) size: u64,
}

/// A whole list, to its closing tag: a list that was cut off must not pass for a short one.
pub(super) fn read(xml: &[u8]) -> Result<ObjectList, SourceError> {
    let (mut listed, mut object) = (ObjectList::default(), None::<Object>);
    let (mut truncated, mut encoded, mut broken) = (None, false, false);
    let closed = leaves(xml, "ListBucketResult", |path, text| match path {
        ["IsTruncated"] => truncated = text.parse().ok(),
        ["EncodingType"] => encoded = text == "url",
        ["Contents", "Key"] => text.clone_into(&mut object.get_or_insert_default().key),
        ["Contents", "ETag"] => text.trim_matches('"').clone_into(&mut object.get_or_insert_default().etag),
        ["Contents", "Size"] => match text.parse() {
            Ok(size) => object.get_or_insert_default().size = size,
            Err(_) => broken = true,
        },
        ["Contents"] => listed.objects.extend(object.take()),
        _ => {}
    });
    let (true, false, Some(is_truncated)) = (closed, broken, truncated) else {
        return Err(SourceError::broken("the server answers with a list that is not S3's").at("endpoint"));
    };
    listed.is_truncated = is_truncated;
    // Servers without this feature leave the keys as they are, and say so by silence.
    if encoded {
        for object in &mut listed.objects {
            object.key = decoded(&object.key)?;
        }
    }
    if listed.objects.iter().any(|object| object.key.is_empty()) {
        return Err(SourceError::broken("the server lists an object without a key"));
    }
    Ok(listed)
}

/// How many buckets are listed.
pub(super) fn buckets(xml: &[u8]) -> Result<usize, SourceError> {
    let mut count = 0;
    let closed = leaves(xml, "ListAllMyBucketsResult", |path, _| count += usize::from(path == ["Buckets", "Bucket"]));
    if closed { Ok(count) } else { Err(SourceError::broken("the server answers with a list that is not S3's").at("endpoint")) }
}

/// The code of an error, or an empty text.
pub(super) fn error_code(xml: &[u8]) -> String {
    let mut code = String::new();
    leaves(xml, "Error", |path, text| {
        if path == ["Code"] {
            text.clone_into(&mut code);
        }
    });
    code
}

fn decoded(key: &str) -> Result<String, SourceError> {
    let spaced = key.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8().map_err(|_| SourceError::broken("the server lists a key that is no UTF-8"))?;
    Ok(text.into_owned())
}

/// Calls `visit` at the end of each element below the root, with the path to it and its text. Tells whether the root was there and
/// was closed.
fn leaves(xml: &[u8], root: &str, mut visit: impl FnMut(&[&str], &str)) -> bool {
    let mut reader = Reader::from_reader(xml);
    let (mut path, mut text, mut buffer) = (Vec::<String>::new(), String::new(), Vec::new());
    loop {
        buffer.clear();
        match reader.read_event_into(&mut buffer) {
            Ok(Event::Start(start)) => {
                path.push(start.local_name().as_ref().to_owned());
                text.clear();
                if path[0] != root || path.len() > 16 {
                    return false;
                }
            }
            Ok(Event::Text(piece)) => text.push_str(&piece),
            Ok(Event::CData(piece)) => text.push_str(&piece),
            Ok(Event::GeneralRef(reference)) => {
                match (reference.resolve_char_ref(), quick_xml::escape::resolve_predefined_entity(&reference)) {
                    (Ok(Some(character)), _) => text.push(character),
                    (_, Some(known)) => text.push_str(known),
                    _ => return false,
                }
            }
            Ok(Event::End(_)) => {
                let names: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
                if names.is_empty() {
                    return true;
                }
                visit(&names, &text);
                path.pop();
                text.clear();
            }
            Ok(Event::Eof) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><EncodingType>url</EncodingType>
<IsTruncated>true</IsTruncated><Contents><Key>a+b%2Bc/%C3%A4</Key><ETag>&quot;abc&quot;</ETag><Size>7</Size>
<Owner><ID>x</ID></Owner></Contents></ListBucketResult>"#;

    #[test]
    fn a_list_is_read_with_its_keys_decoded() {
        let object = Object { key: "a b+c/ä".to_owned(), etag: "abc".to_owned(), size: 7 };
        assert_eq!(read(LIST.as_bytes()).unwrap(), ObjectList { objects: vec![object], is_truncated: true });
    }

    #[test]
    fn a_list_cut_off_anywhere_is_refused() {
        for end in 0..LIST.len() - 1 {
            assert!(read(&LIST.as_bytes()[..end]).is_err(), "{end}");
        }
        let silent = LIST.replace("<IsTruncated>true</IsTruncated>", "");
        assert!(read(silent.as_bytes()).is_err());
    }
}
