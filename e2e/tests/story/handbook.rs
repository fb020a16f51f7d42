//! The handbook that the story's agent reads: a PDF of twelve pages, each about something else.

use std::fmt::Write;

/// What each page is about.
const TOPICS: [&str; 12] = [
    "berths",
    "cranes",
    "pilots",
    "lighthouses",
    "customs",
    "warehouses",
    "ferries",
    "fishing",
    "sailing",
    "repairs",
    "weather",
    "museums",
];
pub(crate) const PAGES: usize = TOPICS.len();
/// The page, from 1, that has the sentence which is looked for.
pub(crate) const PAGE: usize = 7;
pub(crate) const SENTENCE: &str = "The blue ferry to Gull Island leaves from pier nine at a quarter past eight.";
const LINES: [&str; 8] = [
    "Whoever comes for the first time should read what is written about",
    "Most visitors have questions, and the office by the gate answers those about",
    "In winter other hours hold, and there may be less to see of",
    "Groups of more than twenty people announce themselves a week before, also for",
    "Children like best what the older sailors tell them in the evening about",
    "Prices hang out beside the entrance; nobody pays twice for a day with",
    "An old chart in the hall shows how everything began, and among it",
    "Suggestions are welcome: a box stands beside the stairs for all that concerns",
];

/// The document.
pub(crate) fn pdf() -> String {
    let kids: Vec<String> = (0..PAGES).map(|page| format!("{} 0 R", 4 + 2 * page)).collect();
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        format!("<</Type/Pages/Kids[{}]/Count {PAGES}>>", kids.join(" ")),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>".to_owned(),
    ];
    for (page, topic) in TOPICS.iter().enumerate() {
        let content = content(page + 1, topic);
        let text = 5 + 2 * page;
        objects.push(format!("<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents {text} 0 R>>"));
        objects.push(format!("<</Length {}>>\nstream\n{content}\nendstream", content.len()));
    }
    let (mut whole, mut places) = ("%PDF-1.4\n".to_owned(), String::new());
    for (number, object) in (1..).zip(&objects) {
        writeln!(places, "{:010} 00000 n ", whole.len()).unwrap();
        writeln!(whole, "{number} 0 obj\n{object}\nendobj").unwrap();
    }
    let (start, count) = (whole.len(), objects.len() + 1);
    write!(whole, "xref\n0 {count}\n0000000000 65535 f \n{places}trailer\n<</Size {count}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n")
        .unwrap();
    whole
}

/// A heading, and lines below it.
fn content(page: usize, topic: &str) -> String {
    let mut content = format!("BT /F1 22 Tf 72 700 Td (About {topic}) Tj /F1 11 Tf 0 -36 Td 15 TL");
    for (at, line) in LINES.iter().enumerate() {
        if page == PAGE && at == 2 {
            write!(content, " ({SENTENCE}) Tj T*").unwrap();
        }
        write!(content, " ({line} {topic}.) Tj T*").unwrap();
    }
    content.push_str(" ET");
    content
}
