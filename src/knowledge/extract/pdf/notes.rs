//! What is said of pages that were not read, or not as text: one note for all pages of a kind, what is missing first. So the notes of
//! a scan of any length are few.

use std::collections::BTreeMap;
use std::fmt;

/// How many reasons why images were not read are told apart.
const MAX_REASONS: usize = 4;
/// How many stretches of pages a note lists.
const MAX_RANGES: usize = 5;

/// The kinds of notes, the most important first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PageNote {
    Lost,
    /// An image that was not read, and why.
    Unread(String),
    ReadWithLowConfidence,
    /// An image in which OCR found nothing.
    WithoutText,
    Read,
}

impl PageNote {
    fn is_unread(&self) -> bool {
        matches!(self, Self::Unread(_))
    }

    fn told(&self, pages: &Pages) -> String {
        let (is, image, was) = if pages.are_many() { ("are", "images", "were") } else { ("is", "an image", "was") };
        match self {
            Self::Lost => format!("{pages} cannot be read"),
            Self::Unread(why) => format!("{pages} {is} {image} and {was} not read: {why}"),
            Self::ReadWithLowConfidence => format!("{pages} {is} {image} and {was} read by OCR with low confidence"),
            Self::WithoutText => format!("{pages} {is} {image} in which OCR found no text"),
            Self::Read => format!("{pages} {is} {image} and {was} read by OCR"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    pages: BTreeMap<PageNote, Pages>,
    /// Of the whole document.
    whole: Vec<&'static str>,
}

impl Notes {
    /// Pages of a kind come in their order.
    pub(super) fn add(&mut self, page: u32, note: PageNote) {
        self.add_range(page, page, note);
    }

    pub(super) fn add_range(&mut self, first: u32, last: u32, note: PageNote) {
        let is_new_reason = note.is_unread() && !self.pages.contains_key(&note);
        let has_room = self.pages.keys().filter(|known| known.is_unread()).count() < MAX_REASONS;
        let note = if is_new_reason && !has_room { PageNote::Unread("other reasons".to_owned()) } else { note };
        self.pages.entry(note).or_default().add(first, last);
    }

    pub(super) fn add_whole(&mut self, note: &'static str) {
        self.whole.push(note);
    }

    pub(super) fn told(&self) -> Vec<String> {
        let pages = self.pages.iter().map(|(note, pages)| note.told(pages));
        pages.chain(self.whole.iter().map(|note| (*note).to_owned())).collect()
    }
}

/// The first stretches of pages, and how many pages there are beyond these.
#[derive(Debug, Default)]
struct Pages {
    ranges: Vec<(u32, u32)>,
    more: u32,
}

impl Pages {
    fn add(&mut self, first: u32, last: u32) {
        if self.more == 0
            && let Some((_, end)) = self.ranges.last_mut()
            && *end + 1 == first
        {
            *end = last;
        } else if self.ranges.len() < MAX_RANGES {
            self.ranges.push((first, last));
        } else {
            self.more += last - first + 1;
        }
    }

    fn are_many(&self) -> bool {
        self.ranges.len() > 1 || self.ranges.iter().any(|(first, last)| first != last)
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.are_many() { "pages " } else { "page " })?;
        for (place, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first} to {last}")? }
        }
        if self.more > 0 { write!(f, " and {} more", self.more) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_scan_has_few_notes_and_the_missing_pages_first() {
        let mut notes = Notes::default();
        for page in 1..=1_000 {
            let note = match page {
                3 | 9 => PageNote::ReadWithLowConfidence,
                4 => PageNote::WithoutText,
                1..=500 => PageNote::Read,
                _ => PageNote::Unread("500 pages of a document are".to_owned()),
            };
            notes.add(page, note);
        }
        notes.add_range(1_001, 1_200, PageNote::Lost);
        notes.add_whole("fonts are not known");
        assert_eq!(
            notes.told(),
            [
                "pages 1001 to 1200 cannot be read",
                "pages 501 to 1000 are images and were not read: 500 pages of a document are",
                "pages 3, 9 are images and were read by OCR with low confidence",
                "page 4 is an image in which OCR found no text",
                "pages 1 to 2, 5 to 8, 10 to 500 are images and were read by OCR",
                "fonts are not known",
            ]
        );
    }

    #[test]
    fn pages_and_reasons_without_end_are_bounded() {
        let mut notes = Notes::default();
        (1..=500).for_each(|number| notes.add(2 * number, PageNote::Lost));
        (1..=500).for_each(|number| notes.add(2 * number + 1, PageNote::Unread(format!("reason {number}"))));
        let told = notes.told();
        assert_eq!(told[0], "pages 2, 4, 6, 8, 10 and 495 more cannot be read");
        assert_eq!((told.len(), told[2].as_str()), (1 + MAX_REASONS + 1, "page 3 is an image and was not read: reason 1"));
        assert_eq!(told[1], "pages 11, 13, 15, 17, 19 and 491 more are images and were not read: other reasons");
    }
}
