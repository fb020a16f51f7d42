//! The names of tools that search knowledge bases, with the letters and the length that every provider accepts.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};

/// As the strictest provider has it.
const MAX_NAME_BYTES: usize = 64;

/// `search_` and the id without `kb_`. A name that is taken, or too long, ends with a digest of the id, so that it depends on
/// nothing but the configuration.
pub(super) fn tool(kb_id: &str, taken: &BTreeSet<String>) -> String {
    let own: String = kb_id.strip_prefix("kb_").unwrap_or(kb_id).chars().map(letter).collect();
    let plain = format!("search_{own}");
    if plain.len() <= MAX_NAME_BYTES && !taken.contains(&plain) {
        return plain;
    }
    // One of them is free: there are fewer tools.
    (0..=u32::MAX).map(|attempt| with_digest(&plain, kb_id, attempt)).find(|name| !taken.contains(name)).unwrap_or(plain)
}

fn letter(letter: char) -> char {
    if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }
}

fn with_digest(plain: &str, kb_id: &str, attempt: u32) -> String {
    let hash = digest(&SHA256, format!("{kb_id}\n{attempt}").as_bytes());
    let hash = hash.as_ref().iter().take(4).fold(0_u32, |hash, byte| hash << 8 | u32::from(*byte));
    // Only ASCII letters are left in it.
    format!("{}_{hash:08x}", &plain[..plain.len().min(MAX_NAME_BYTES - 9)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tool_is_called_by_its_base_unless_the_name_is_taken() {
        let taken = BTreeSet::from(["search_memory".to_owned(), "search_docs".to_owned()]);
        assert_eq!(tool("kb_product_docs", &taken), "search_product_docs");
        assert_eq!(tool("docs", &BTreeSet::new()), "search_docs");
        for id in ["kb_memory", "kb_docs"] {
            let name = tool(id, &taken);
            assert!(name.starts_with(&format!("search_{}_", &id[3..])) && !taken.contains(&name), "{name}");
        }
        let again = BTreeSet::from(["search_docs".to_owned(), tool("kb_docs", &taken)]);
        assert!(!again.contains(&tool("kb_docs", &again)));
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_providers_accept(ids in prop::collection::btree_set("(kb_)?\\PC{0,80}", 1..6)) {
            let mut taken = BTreeSet::new();
            for id in &ids {
                let name = tool(id, &taken);
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
                prop_assert!(name.starts_with("search_") && name.len() <= MAX_NAME_BYTES && name.bytes().all(fits), "{}", name);
                prop_assert!(taken.insert(name));
            }
        }
    }
}
