//! Reads what `pdftohtml -xml` prints: runs of text with their fonts, which `pdftotext` does not tell. Beside each other they
//! are one process more, not twice the time.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::path::Path;
use std::process::Command;

use super::page::{Area, Font, PdfPage};
use super::stream::Give;
use crate::extract::program::{command, read_line};

/// A row longer than this is cut.
const MAX_ROW_BYTES: usize = 1 << 14;
/// Pixels a point, the most that the program makes: it prints whole numbers.
const SCALE: f32 = 3.0;
const MAX_PAGE_RUNS: usize = 50_000;
const MAX_FONTS: usize = 100_000;

/// The fonts of a page's text, by place.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Fonts {
    pub(super) number: u32,
    /// Sorted by their tops.
    pub(super) runs: Vec<(Area, Font)>,
}

pub(super) fn print(program: &Path, file: &Path, first: u32) -> Command {
    let mut command = command(program, ["-q", "-xml", "-i", "-nodrm", "-hidden", "-stdout", "-zoom", "3", "-f", &first.to_string()]);
    command.arg(file);
    command
}

pub(super) fn parse(mut output: impl BufRead, give: &mut Give<'_, Fonts>) -> io::Result<()> {
    let mut row = Vec::new();
    let mut known: HashMap<u32, Font> = HashMap::new();
    let mut page = Fonts::default();
    while read_line(&mut output, &mut row, MAX_ROW_BYTES)? {
        let text = String::from_utf8_lossy(&row);
        // Before a tag there may be noise that the program prints of links.
        if let Some((_, tag)) = text.split_once("<fontspec ") {
            if let (Some(id), Some(size), true) = (number(tag, "id"), number::<f32>(tag, "size"), known.len() < MAX_FONTS) {
                let family = attribute(tag, "family").unwrap_or_default().to_ascii_lowercase();
                known.insert(id, Font { size: size / SCALE, bold: is_bold(&family), mono: is_mono(&family) });
            }
        } else if let Some(tag) = text.strip_prefix("<text ") {
            if let (Some(run), true) = (run(tag, &known), page.runs.len() < MAX_PAGE_RUNS) {
                page.runs.push(run);
            }
        } else if let Some((_, tag)) = text.split_once("<page ") {
            page = Fonts { number: number(tag, "number").unwrap_or_default(), runs: Vec::new() };
        } else if text.starts_with("</page>") {
            page.runs.sort_by(|(one, _), (other, _)| one.top.total_cmp(&other.top));
            if !give(std::mem::take(&mut page)) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn run(tag: &str, known: &HashMap<u32, Font>) -> Option<(Area, Font)> {
    let place = |name| number::<f32>(tag, name).map(|place| place / SCALE);
    let (left, top, width, height) = (place("left")?, place("top")?, place("width")?, place("height")?);
    let mut font = *known.get(&number(tag, "font")?)?;
    font.bold |= tag.split_once('>').is_some_and(|(_, inner)| inner.trim_start_matches("<i>").starts_with("<b>"));
    Some((Area { left, top, right: left + width, bottom: top + height }, font))
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let head = tag.split_once('>').map_or(tag, |(head, _)| head);
    head.split(&format!("{name}=\"")).nth(1)?.split('"').next()
}

fn number<T: std::str::FromStr>(tag: &str, name: &str) -> Option<T> {
    attribute(tag, name)?.parse().ok()
}

fn is_bold(family: &str) -> bool {
    ["bold", "black", "heavy", "semibd", "cmbx", "-medi"].iter().any(|name| family.contains(name))
}

fn is_mono(family: &str) -> bool {
    ["mono", "courier", "consol", "typewriter", "cmtt", "menlo", "fixed", "letter gothic"].iter().any(|name| family.contains(name))
}

impl Fonts {
    /// Tells the page's words their fonts.
    pub(super) fn tell(&self, page: &mut PdfPage) {
        let tallest = self.runs.iter().map(|(area, _)| area.height()).fold(0.0, f32::max);
        for word in page.lines.iter_mut().flat_map(|line| &mut line.words) {
            let (x, y) = (f32::midpoint(word.area.left, word.area.right), word.area.middle());
            let from = self.runs.partition_point(|(area, _)| area.top < y - tallest);
            let near = self.runs[from..].iter().take_while(|(area, _)| area.top <= y);
            let over = near.filter(|(area, _)| area.bottom >= y && area.left - 1.0 <= x && x <= area.right + 1.0);
            if let Some((_, font)) = over.min_by(|(one, _), (other, _)| (one.middle() - y).abs().total_cmp(&(other.middle() - y).abs())) {
                word.font = *font;
            }
        }
    }
}
