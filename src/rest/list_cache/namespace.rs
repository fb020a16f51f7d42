//! The entries of one namespace in list order, and the search index over them.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use memchr::memmem::Finder;

use super::{Cursor, ListEntry};
use crate::fast_map::FastMap;

/// Newest first, then by name.
type Position = (Reverse<i64>, String);

pub(super) struct NamespaceList<T> {
    pub items: FastMap<String, Arc<ListEntry<T>>>,
    order: BTreeSet<Position>,
    pub names: FastMap<String, String>,
    /// The versions of all objects that were seen, listed or not.
    pub versions: FastMap<String, u64>,
    /// Built by the first search after a change of searched text.
    index: OnceLock<Index>,
}

impl<T> Default for NamespaceList<T> {
    fn default() -> Self {
        Self {
            items: FastMap::default(),
            order: BTreeSet::new(),
            names: FastMap::default(),
            versions: FastMap::default(),
            index: OnceLock::new(),
        }
    }
}

impl<T> NamespaceList<T> {
    pub(super) fn insert(&mut self, name: &str, item: ListEntry<T>) {
        let before = self.items.get(name);
        let is_found_as_before = before.is_some_and(|before| before.created == item.created && before.search == item.search);
        let index = if is_found_as_before { self.index.take() } else { None };
        self.remove(name);
        self.order.insert((Reverse(item.created), name.to_owned()));
        self.names.insert(item.id.clone(), name.to_owned());
        self.items.insert(name.to_owned(), Arc::new(item));
        self.index = index.map_or_else(OnceLock::new, OnceLock::from);
    }

    /// Removes and returns the entry of this name.
    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<ListEntry<T>>> {
        let item = self.items.remove(name)?;
        self.order.remove(&(Reverse(item.created), name.to_owned()));
        self.names.remove(&item.id);
        self.index.take();
        Some(item)
    }

    /// The entries after `after` that contain all terms, with their positions.
    pub(super) fn after<'a>(
        &'a self,
        after: Option<&Cursor>,
        terms: &'a SearchTerms,
    ) -> impl Iterator<Item = (&'a Position, &'a Arc<ListEntry<T>>)> + use<'a, T> {
        let after = after.map_or(Bound::Unbounded, |after| Bound::Excluded((Reverse(after.created), after.name.clone())));
        let positions: Box<dyn Iterator<Item = &'a Position> + 'a> = match terms.0.split_first() {
            None => Box::new(self.order.range((after, Bound::Unbounded))),
            Some((longest, others)) => Box::new(self.index.get_or_init(|| Index::of(self)).positions(longest, others, &after)),
        };
        positions.filter_map(|position| Some((position, self.items.get(&position.1)?)))
    }
}

/// The terms of a search, in lower case. The longest comes first: it occurs in the fewest texts.
pub(crate) struct SearchTerms(Vec<Finder<'static>>);

impl SearchTerms {
    pub(crate) fn of(text: &str) -> Self {
        let mut terms: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        terms.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        terms.dedup();
        Self(terms.iter().map(|term| Finder::new(term).into_owned()).collect())
    }
}

/// The searched text of all entries in one string. Scanning it takes a hundredth of the time of visiting each entry.
struct Index {
    text: String,
    positions: Vec<Position>,
    /// The end of each entry's text.
    ends: Vec<usize>,
}

impl Index {
    fn of<T>(list: &NamespaceList<T>) -> Self {
        let mut index = Self { text: String::new(), positions: list.order.iter().cloned().collect(), ends: Vec::new() };
        for (_, name) in &index.positions {
            index.text.push_str(list.items.get(name).map_or("", |item| &*item.search));
            // Terms contain no line break, so that no match spans two entries.
            index.text.push('\n');
            index.ends.push(index.text.len());
        }
        index
    }

    /// The positions after `after` of the entries that contain `longest` and all others.
    fn positions<'a>(
        &'a self,
        longest: &'a Finder<'static>,
        others: &'a [Finder<'static>],
        after: &Bound<Position>,
    ) -> impl Iterator<Item = &'a Position> + use<'a> {
        let skipped = match after {
            Bound::Excluded(after) => self.positions.partition_point(|position| position <= after),
            Bound::Included(_) | Bound::Unbounded => 0,
        };
        let mut from = self.begin(skipped);
        std::iter::from_fn(move || {
            loop {
                let found = from + longest.find(self.text.as_bytes().get(from..)?)?;
                let at = self.ends.partition_point(|end| *end <= found);
                let (begin, end) = (self.begin(at), *self.ends.get(at)?);
                from = end;
                let text = &self.text.as_bytes()[begin..end];
                if others.iter().all(|term| term.find(text).is_some()) {
                    return self.positions.get(at);
                }
            }
        })
    }

    fn begin(&self, at: usize) -> usize {
        at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(name: &str, created: i64, search: &str) -> ListEntry {
        ListEntry { id: format!("id-{name}"), created, search: search.into(), ..ListEntry::default() }
    }

    fn found(list: &NamespaceList<()>, after: Option<&Cursor>, search: &str) -> Vec<String> {
        list.after(after, &SearchTerms::of(search)).map(|((_, name), _)| name.clone()).collect()
    }

    #[test]
    fn what_is_searched_is_what_there_is_now() {
        let mut list = NamespaceList::default();
        list.insert("one", item("one", 1, "travel helper"));
        list.insert("two", item("two", 2, "travel desk"));
        assert_eq!(found(&list, None, "TRAVEL"), ["two", "one"]);
        assert_eq!(found(&list, None, "help trav"), ["one"]);
        list.insert("one", item("one", 1, "tax helper"));
        assert_eq!(found(&list, None, "travel"), ["two"]);
        assert_eq!(found(&list, None, "tax"), ["one"]);
        list.insert("two", item("two", 0, "travel desk"));
        list.insert("three", item("three", 3, "travel agency"));
        assert_eq!(found(&list, None, "travel"), ["three", "two"]);
        list.remove("three");
        assert_eq!(found(&list, None, "travel"), ["two"]);
    }

    #[test]
    fn an_item_whose_text_stays_is_shown_as_it_is_now() {
        let mut list = NamespaceList::default();
        list.insert("one", item("one", 1, "helper"));
        assert_eq!(found(&list, None, "helper"), ["one"]);
        list.insert("one", ListEntry { json: "{\"status\":\"deployed\"}".into(), ..item("one", 1, "helper") });
        assert!(list.index.get().is_some(), "changes of status are many, and make no index anew");
        let terms = SearchTerms::of("helper");
        let shown: Vec<&str> = list.after(None, &terms).map(|(_, item)| &*item.json).collect();
        assert_eq!(shown, ["{\"status\":\"deployed\"}"]);
    }

    proptest! {
        #[test]
        fn the_index_finds_what_looking_at_each_item_finds(
            texts in prop::collection::vec("[abé \n]{0,12}", 0..12),
            search in "[abAé \n]{0,6}",
            after in prop::option::of(0_usize..12),
        ) {
            let mut list = NamespaceList::default();
            for (at, text) in texts.iter().enumerate() {
                list.insert(&format!("item-{at:02}"), item(&format!("item-{at:02}"), i64::try_from(at / 2).unwrap(), text));
            }
            let cursor = after.map(|at| Cursor { namespace: String::new(), created: i64::try_from(at / 2).unwrap(), name: format!("item-{at:02}") });
            let mut expected: Vec<(Reverse<usize>, String)> = (0..texts.len()).map(|at| (Reverse(at / 2), format!("item-{at:02}"))).collect();
            expected.sort();
            expected.retain(|position| after.is_none_or(|at| *position > (Reverse(at / 2), format!("item-{at:02}"))));
            expected.retain(|(_, name)| {
                let text = &texts[name["item-".len()..].parse::<usize>().unwrap()];
                search.split_whitespace().all(|term| text.contains(&term.to_lowercase()))
            });
            let expected: Vec<String> = expected.into_iter().map(|(_, name)| name).collect();
            prop_assert_eq!(found(&list, cursor.as_ref(), &search), expected);
        }
    }
}
