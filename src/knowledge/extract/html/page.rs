//! Reads a page into pieces in one pass, with a bounded stack of open elements in place of a tree.

use html5gum::{State, Tokenizer};

use super::elements::{BLOCKS, CONTAINERS, DROPPED, VOID, is_boilerplate, is_hidden};
use super::tables::HtmlTable;
use super::tokens::{Name, Tag, Token, emitter};
use crate::BlockKind;

/// Elements within this many others are not told apart any more.
const DEPTH_MAX: usize = 256;
const TABLE_DEPTH_MAX: usize = 8;

/// Where on a page something stands; what comes later counts more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Region {
    #[default]
    Page,
    Article,
    Main,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HtmlPiece {
    pub kind: BlockKind,
    pub text: String,
    /// The bytes of the text that are links.
    pub links: usize,
    pub region: Region,
    pub is_boilerplate: bool,
    /// Which group of blocks it belongs to.
    pub container: u32,
}

#[expect(clippy::struct_excessive_bools, reason = "each is inherited, or not, on its own")]
#[derive(Clone, Copy, Default)]
struct Element {
    name: Name,
    is_dropped: bool,
    is_boilerplate: bool,
    is_in_section: bool,
    region: Region,
    container: u32,
    is_link: bool,
    /// Of a list item: its first block was written.
    is_begun: bool,
    part: Part,
}

/// The part that an element has in the innermost table.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    None,
    Table,
    Row,
    Cell,
}

#[derive(Default)]
pub(super) struct HtmlPage {
    pieces: Vec<HtmlPiece>,
    tables: Vec<HtmlTable>,
    open: Vec<Element>,
    /// Open elements beyond `DEPTH_MAX`.
    beyond: usize,
    containers: u32,
    text: String,
    links: usize,
    needs_space: bool,
    title: String,
    is_in_title: bool,
}

impl HtmlPage {
    /// The pieces and the title.
    pub(super) fn read(html: &str) -> (Vec<HtmlPiece>, String) {
        let mut emitter = emitter();
        // Elements such as script, style and title contain text without tags.
        emitter.naively_switch_states(true);
        let is_xml = html.trim_start_matches('\u{feff}').starts_with("<?xml");
        let mut page = Self::default();
        let mut tokens = Tokenizer::new_with_emitter(html, emitter);
        while let Some(Ok(token)) = tokens.next() {
            match token {
                Token::Text(text) => page.text(&text),
                Token::End(name) => page.end(name),
                Token::Start(tag) => {
                    let is_foreign = tag.name.is(&["svg", "math"]) || page.open.iter().any(|element| element.name.is(&["svg", "math"]));
                    let closes = tag.is_self_closing && (is_xml || is_foreign);
                    let name = tag.name;
                    page.start(&tag);
                    if closes {
                        tokens.set_state(State::Data);
                        page.end(name);
                    }
                }
            }
        }
        page.close_to(0);
        page.flush();
        (page.pieces, page.title.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn top(&self) -> Element {
        self.open.last().copied().unwrap_or_default()
    }

    fn is_preformatted(&self) -> bool {
        self.open.iter().any(|element| element.name.is(&["pre", "listing", "xmp"]))
    }

    fn text(&mut self, text: &str) {
        if self.is_in_title && self.title.len() < 4096 {
            self.title.push_str(text);
        }
        let top = self.top();
        if top.is_dropped {
            return;
        }
        let before = self.text.len();
        if self.is_preformatted() {
            self.text.push_str(text);
        } else {
            self.needs_space |= text.starts_with(|letter: char| letter.is_ascii_whitespace());
            let mut words = text.split_ascii_whitespace().peekable();
            while let Some(word) = words.next() {
                if self.needs_space && !self.text.is_empty() && !self.text.ends_with([' ', '\n']) {
                    self.text.push(' ');
                }
                self.text.push_str(word);
                self.needs_space = words.peek().is_some();
            }
            self.needs_space |= text.ends_with(|letter: char| letter.is_ascii_whitespace());
        }
        if top.is_link {
            self.links += self.text.len() - before;
        }
    }

    fn start(&mut self, tag: &Tag) {
        let name = tag.name;
        self.imply_ends(name);
        let is_block = name.is(&BLOCKS) || name.heading().is_some();
        if is_block {
            self.flush();
        }
        if name.is(&VOID) {
            return self.void(tag);
        }
        if self.open.len() >= DEPTH_MAX {
            self.beyond += 1;
            return;
        }
        // The first title is the page's; within drawings there are others.
        self.is_in_title = name.is(&["title"]) && self.title.is_empty() && !self.top().is_dropped;
        let mut element = self.element(tag);
        if !element.is_dropped {
            element.part = self.begin_part(tag);
            if matches!(element.part, Part::None) && name.is(&["td", "th"]) {
                self.flush();
            }
        }
        self.open.push(element);
    }

    fn element(&mut self, tag: &Tag) -> Element {
        let (top, name) = (self.top(), tag.name);
        let role = tag.attribute("role").unwrap_or_default();
        let is_main = name.is(&["main"]) || role == "main";
        let is_article = name.is(&["article"]) || role == "article";
        let region = match (is_main, is_article) {
            (true, _) => Region::Main,
            (_, true) => top.region.max(Region::Article),
            _ => top.region,
        };
        let is_in_section = top.is_in_section || is_main || is_article || name.is(&["section"]);
        let mut container = top.container;
        if name.is(&CONTAINERS) {
            self.containers += 1;
            container = self.containers;
        }
        let is_link = top.is_link || name.is(&["a"]) && tag.attribute("href").is_some();
        Element {
            name,
            is_dropped: top.is_dropped || name.is(&DROPPED) || is_hidden(tag),
            is_boilerplate: !is_main && (top.is_boilerplate || is_boilerplate(tag, role, top.is_in_section)),
            is_in_section,
            region,
            container,
            is_link,
            is_begun: false,
            part: Part::None,
        }
    }

    /// Opens a table, a row or a cell. Where tables are nested too deeply, they are blocks like others.
    fn begin_part(&mut self, tag: &Tag) -> Part {
        let is_in_table = self.open.iter().rev().find(|element| element.name.is(&["table"])).is_some_and(|table| table.part == Part::Table);
        match tag.name.text() {
            b"table" if self.tables.len() < TABLE_DEPTH_MAX => {
                self.tables.push(HtmlTable::new(tag));
                Part::Table
            }
            b"tr" if is_in_table => {
                self.flush();
                self.tables.last_mut().map_or(Part::None, |table| {
                    table.begin_row();
                    Part::Row
                })
            }
            b"td" | b"th" if is_in_table => {
                self.flush();
                self.tables.last_mut().map_or(Part::None, |table| {
                    table.begin_cell(tag);
                    Part::Cell
                })
            }
            b"thead" | b"tbody" | b"tfoot" if is_in_table => {
                if let Some(table) = self.tables.last_mut() {
                    table.is_in_head = tag.name.is(&["thead"]);
                }
                Part::None
            }
            _ => Part::None,
        }
    }

    fn void(&mut self, tag: &Tag) {
        if self.top().is_dropped {
            return;
        }
        match tag.name.text() {
            b"br" if !self.text.is_empty() => self.text.push('\n'),
            b"img" if !is_hidden(tag) => {
                if let Some(alt) = tag.attribute("alt").map(str::trim).filter(|alt| !alt.is_empty()) {
                    self.text(&format!(" {alt} "));
                }
            }
            _ => {}
        }
    }

    /// Ends the elements that a start tag ends without saying so.
    fn imply_ends(&mut self, name: Name) {
        if self.beyond > 0 {
            return;
        }
        match name.text() {
            b"li" => self.close_within(&["li"], &["ul", "ol", "menu", "dir", "table", "td", "th"]),
            b"dt" | b"dd" => self.close_within(&["dt", "dd"], &["dl", "table", "td", "th"]),
            b"td" | b"th" => self.close_within(&["td", "th"], &["tr", "table"]),
            b"tr" => self.close_within(&["tr", "td", "th"], &["table"]),
            b"thead" | b"tbody" | b"tfoot" => self.close_within(&["thead", "tbody", "tfoot", "tr", "caption"], &["table"]),
            b"a" => self.close_within(&["a"], &["table", "td", "th"]),
            _ => {}
        }
        if name.is(&BLOCKS) || name.heading().is_some() {
            self.close_within(&["p"], &["table", "td", "th", "caption", "button", "object"]);
        }
    }

    /// Closes the outermost of these elements that is not beyond a limit.
    fn close_within(&mut self, names: &[&str], limits: &[&str]) {
        let mut found = None;
        for (index, element) in self.open.iter().enumerate().rev() {
            if element.name.is(names) {
                found = Some(index);
            } else if element.name.is(limits) {
                break;
            }
        }
        if let Some(index) = found {
            self.close_to(index);
        }
    }

    fn end(&mut self, name: Name) {
        if name.is(&["title"]) {
            self.is_in_title = false;
        }
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        if name.is(&["br"]) {
            self.text.push('\n');
            return;
        }
        let heading = name.heading().is_some();
        for (index, element) in self.open.iter().enumerate().rev() {
            if element.name == name || heading && element.name.heading().is_some() {
                return self.close_to(index);
            }
            // Nothing within a cell ends what is around its table.
            if element.part == Part::Table || element.part == Part::Cell && !name.is(&["table", "tr", "tbody", "thead", "tfoot"]) {
                return;
            }
        }
    }

    fn close_to(&mut self, length: usize) {
        while self.open.len() > length {
            let Some(element) = self.open.last().copied() else { return };
            if element.name.is(&BLOCKS) || element.name.heading().is_some() || element.part != Part::None {
                self.flush();
            }
            self.open.pop();
            if element.name.is(&["thead"])
                && let Some(table) = self.tables.last_mut()
            {
                table.is_in_head = false;
            }
            match element.part {
                Part::None => {}
                Part::Cell => self.tables.last_mut().map_or((), HtmlTable::end_cell),
                Part::Row => self.tables.last_mut().map_or((), HtmlTable::end_row),
                Part::Table => {
                    let pieces = self.tables.pop().map(HtmlTable::finish).unwrap_or_default();
                    match self.tables.last_mut() {
                        Some(outer) => outer.extend(pieces),
                        None => self.pieces.extend(pieces),
                    }
                }
            }
        }
    }

    fn flush(&mut self) {
        self.needs_space = false;
        let (text, links) = (std::mem::take(&mut self.text), std::mem::take(&mut self.links));
        if text.trim().is_empty() {
            return;
        }
        let kind = self.kind();
        let top = self.top();
        let text = match kind {
            BlockKind::Code => text,
            BlockKind::Heading(_) => text.trim_end_matches(['¶', '#', '§', ' ']).trim().replace('\n', " "),
            _ => text.trim().to_owned(),
        };
        let Element { region, is_boilerplate, container, .. } = top;
        let piece = HtmlPiece { kind, text, links, region, is_boilerplate, container };
        match self.tables.last_mut() {
            Some(table) => table.push(piece),
            None => self.pieces.push(piece),
        }
    }

    fn kind(&mut self) -> BlockKind {
        for element in self.open.iter_mut().rev() {
            if let Some(level) = element.name.heading() {
                return BlockKind::Heading(level);
            }
            match element.name.text() {
                b"pre" | b"listing" | b"xmp" => return BlockKind::Code,
                b"li" if !element.is_begun => {
                    element.is_begun = true;
                    return BlockKind::ListItem;
                }
                b"li" | b"td" | b"th" | b"table" => return BlockKind::Paragraph,
                _ => {}
            }
        }
        BlockKind::Paragraph
    }
}
