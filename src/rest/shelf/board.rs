//! The objects of one namespace in the order of lists, and the text in which all of them are searched at once.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use memchr::memmem::Finder;

use super::{Cursor, Item};
use crate::map::Map;

/// Newest first, and by name among those of one second.
type Place = (Reverse<i64>, String);

#[derive(Default)]
pub(super) struct Board {
    pub items: Map<String, Arc<Item>>,
    order: BTreeSet<Place>,
    pub names: Map<String, String>,
    /// Of every object that was seen, listed or not, in which version.
    pub versions: Map<String, u64>,
    /// Made by the first search after a change of what is searched.
    index: OnceLock<Index>,
}

impl Board {
    pub(super) fn put(&mut self, name: &str, item: Item) {
        let before = self.items.get(name);
        let is_found_as_before = before.is_some_and(|before| before.created == item.created && before.search == item.search);
        let index = if is_found_as_before { self.index.take() } else { None };
        self.take(name);
        self.order.insert((Reverse(item.created), name.to_owned()));
        self.names.insert(item.id.clone(), name.to_owned());
        self.items.insert(name.to_owned(), Arc::new(item));
        self.index = index.map_or_else(OnceLock::new, OnceLock::from);
    }

    /// What was there under this name.
    pub(super) fn take(&mut self, name: &str) -> Option<Arc<Item>> {
        let item = self.items.remove(name)?;
        self.order.remove(&(Reverse(item.created), name.to_owned()));
        self.names.remove(&item.id);
        self.index.take();
        Some(item)
    }

    /// The items after `after` in which all words occur, with their places.
    pub(super) fn after<'a>(
        &'a self,
        after: Option<&Cursor>,
        words: &'a Words,
    ) -> impl Iterator<Item = (&'a Place, &'a Arc<Item>)> + use<'a> {
        let after = after.map_or(Bound::Unbounded, |after| Bound::Excluded((Reverse(after.created), after.name.clone())));
        let places: Box<dyn Iterator<Item = &'a Place> + 'a> = match words.0.split_first() {
            None => Box::new(self.order.range((after, Bound::Unbounded))),
            Some((longest, others)) => Box::new(self.index.get_or_init(|| Index::of(self)).places(longest, others, &after)),
        };
        places.filter_map(|place| Some((place, self.items.get(&place.1)?)))
    }
}

/// Words of a search, in lower case, the longest first: it occurs in the fewest texts.
pub(crate) struct Words(Vec<Finder<'static>>);

impl Words {
    pub(crate) fn of(text: &str) -> Self {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        words.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        words.dedup();
        Self(words.iter().map(|word| Finder::new(word).into_owned()).collect())
    }
}

/// What is searched of all items, in their order, in one text: looking through that takes a hundredth of the time that it
/// takes to visit each item.
struct Index {
    text: String,
    places: Vec<Place>,
    /// Where the text of each ends.
    ends: Vec<usize>,
}

impl Index {
    fn of(board: &Board) -> Self {
        let mut index = Self { text: String::new(), places: board.order.iter().cloned().collect(), ends: Vec::new() };
        for (_, name) in &index.places {
            index.text.push_str(board.items.get(name).map_or("", |item| &item.search));
            // No word has one, so that none is found across two items.
            index.text.push('\n');
            index.ends.push(index.text.len());
        }
        index
    }

    /// The places after `after` of the items in which `longest` and all others occur.
    fn places<'a>(
        &'a self,
        longest: &'a Finder<'static>,
        others: &'a [Finder<'static>],
        after: &Bound<Place>,
    ) -> impl Iterator<Item = &'a Place> + use<'a> {
        let skipped = match after {
            Bound::Excluded(after) => self.places.partition_point(|place| place <= after),
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
                if others.iter().all(|word| word.find(text).is_some()) {
                    return self.places.get(at);
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

    fn item(name: &str, created: i64, search: &str) -> Item {
        Item { id: format!("id-{name}"), created, search: search.to_owned(), ..Item::default() }
    }

    fn found(board: &Board, after: Option<&Cursor>, search: &str) -> Vec<String> {
        board.after(after, &Words::of(search)).map(|((_, name), _)| name.clone()).collect()
    }

    #[test]
    fn what_is_searched_is_what_there_is_now() {
        let mut board = Board::default();
        board.put("one", item("one", 1, "travel helper"));
        board.put("two", item("two", 2, "travel desk"));
        assert_eq!(found(&board, None, "TRAVEL"), ["two", "one"]);
        assert_eq!(found(&board, None, "help trav"), ["one"]);
        board.put("one", item("one", 1, "tax helper"));
        assert_eq!(found(&board, None, "travel"), ["two"]);
        assert_eq!(found(&board, None, "tax"), ["one"]);
        board.put("two", item("two", 0, "travel desk"));
        board.put("three", item("three", 3, "travel agency"));
        assert_eq!(found(&board, None, "travel"), ["three", "two"]);
        board.take("three");
        assert_eq!(found(&board, None, "travel"), ["two"]);
    }

    #[test]
    fn an_item_whose_text_stays_is_shown_as_it_is_now() {
        let mut board = Board::default();
        board.put("one", item("one", 1, "helper"));
        assert_eq!(found(&board, None, "helper"), ["one"]);
        board.put("one", Item { json: "{\"status\":\"deployed\"}".to_owned(), ..item("one", 1, "helper") });
        assert!(board.index.get().is_some(), "changes of status are many, and make no index anew");
        let words = Words::of("helper");
        let shown: Vec<&str> = board.after(None, &words).map(|(_, item)| item.json.as_str()).collect();
        assert_eq!(shown, ["{\"status\":\"deployed\"}"]);
    }

    proptest! {
        #[test]
        fn the_index_finds_what_looking_at_each_item_finds(
            texts in prop::collection::vec("[abé \n]{0,12}", 0..12),
            search in "[abAé \n]{0,6}",
            after in prop::option::of(0_usize..12),
        ) {
            let mut board = Board::default();
            for (at, text) in texts.iter().enumerate() {
                board.put(&format!("item-{at:02}"), item(&format!("item-{at:02}"), i64::try_from(at / 2).unwrap(), text));
            }
            let cursor = after.map(|at| Cursor { namespace: String::new(), created: i64::try_from(at / 2).unwrap(), name: format!("item-{at:02}") });
            let mut expected: Vec<(Reverse<usize>, String)> = (0..texts.len()).map(|at| (Reverse(at / 2), format!("item-{at:02}"))).collect();
            expected.sort();
            expected.retain(|place| after.is_none_or(|at| *place > (Reverse(at / 2), format!("item-{at:02}"))));
            expected.retain(|(_, name)| {
                let text = &texts[name["item-".len()..].parse::<usize>().unwrap()];
                search.split_whitespace().all(|word| text.contains(&word.to_lowercase()))
            });
            let expected: Vec<String> = expected.into_iter().map(|(_, name)| name).collect();
            prop_assert_eq!(found(&board, cursor.as_ref(), &search), expected);
        }
    }
}
