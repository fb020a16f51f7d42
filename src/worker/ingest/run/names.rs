//! Keys and filenames that the database does not take. A document whose key is none fails alone, before the list that it is in is
//! compared; a filename is shown to people only, and is shortened.

use slipway_database::knowledge::MAX_NAME_BYTES;
use slipway_knowledge::source::Item;

/// The longest ending that a shortened filename keeps, with its point. It says the format.
const MAX_ENDING_BYTES: usize = 16;
/// What a document without a filename is called.
const UNNAMED: &str = "unnamed";

/// Why the database has no place for a document with this key.
pub(super) fn fault(key: &str) -> Option<String> {
    match key.len() {
        0 => Some("its source gives it no key".to_owned()),
        length if length > MAX_NAME_BYTES => {
            Some(format!("its path or key has {length} bytes, and {MAX_NAME_BYTES} are kept at most; shorten it at the source"))
        }
        _ => key.contains('\0').then(|| "its key has the character zero; rename it at the source".to_owned()),
    }
}

/// The item under a filename that the database takes.
pub(super) fn fitted(item: &Item) -> Item {
    Item { filename: filename(&item.filename), ..item.clone() }
}

fn filename(name: &str) -> String {
    let name = name.replace('\0', "\u{fffd}");
    if name.is_empty() {
        return UNNAMED.to_owned();
    }
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let ending = name.rfind('.').map(|at| &name[at..]).filter(|ending| ending.len() <= MAX_ENDING_BYTES).unwrap_or_default();
    format!("{}{ending}", &name[..name.floor_char_boundary(MAX_NAME_BYTES - ending.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_filename_is_cut_and_keeps_its_ending() {
        let crab = "\u{1f980}";
        for (name, expected) in [
            ("a.md".to_owned(), "a.md".to_owned()),
            (String::new(), "unnamed".to_owned()),
            ("a\0.md".to_owned(), "a\u{fffd}.md".to_owned()),
            ("x".repeat(1_024), "x".repeat(1_024)),
            ("x".repeat(1_025), "x".repeat(1_024)),
            // The longest title that Confluence takes: 1,020 bytes, and the ending.
            (format!("{}.html", crab.repeat(255)), format!("{}.html", crab.repeat(254))),
            (format!("{}.{}", "x".repeat(1_000), "y".repeat(100)), format!("{}.{}", "x".repeat(1_000), "y".repeat(23))),
            // Replacements are longer than what they replace.
            (format!("{}.md", "\0".repeat(1_000)), format!("{}.md", "\u{fffd}".repeat(340))),
        ] {
            assert_eq!(filename(&name), expected, "{} bytes", name.len());
        }
    }

    #[test]
    fn keys_have_the_bounds_of_the_database() {
        for key in ["a", &*"x".repeat(1_024)] {
            assert_eq!(fault(key), None);
        }
        for (key, says) in [("", "no key"), (&*"x".repeat(1_025), "1025 bytes"), ("a\0", "the character zero")] {
            assert!(fault(key).is_some_and(|why| why.contains(says)), "{says}");
        }
    }
}
