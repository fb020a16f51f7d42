//! The chunker: a buffer of the text since the last cut, and what is known of its words and blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::atoms::{Atoms, Edge};
use super::choice::{self, Atom};
use super::counts::Counts;
use super::section::{self, Section};
use super::{Chunk, ChunkSize, TokenCounter};
use crate::{Block, BlockKind};

/// A chunk with fewer tokens, as a share of the size, takes in the next section, as a chunk of a few words is found by chance.
const MIN_SECTION_SHARE: u32 = 16;

/// Headings without text between stay together up to this share of the size.
const MAX_HEADINGS_SHARE: u32 = 4;

/// Cuts one document after the other. Memory: 2 MiB for known words, and the text of about two chunks.
pub struct Chunker<C> {
    counts: Counts<C>,
    size: ChunkSize,
    section: Section,
    /// The head of the table that is being read.
    head: Option<Arc<Head>>,
    /// The text of the next chunk, and where it begins in the document.
    buffer: String,
    base: u64,
    /// Whether it begins with a line.
    at_line: bool,
    atoms: Vec<Atom>,
    /// The number of atoms at the beginning that the chunk before has, too.
    carried: usize,
    /// The blocks in the buffer.
    spans: VecDeque<Span>,
    /// The tokens of `lead` and `atoms`.
    tokens: u32,
    /// The repeated head above the first row.
    lead: Option<Arc<Head>>,
    /// How many of the open headings stand above all text of the chunk, once it has text other than headings.
    shared: Option<usize>,
    /// The most tokens that headings add to this chunk.
    path_tokens: u32,
    ordinal: u32,
}

struct Head {
    text: String,
    tokens: u32,
}

/// A block in the buffer.
struct Span {
    from: usize,
    kind: BlockKind,
    page: Option<u32>,
    head: Option<Arc<Head>>,
}

impl Span {
    fn is_prose(&self) -> bool {
        !matches!(self.kind, BlockKind::Heading(_) | BlockKind::TableHead | BlockKind::TableRow)
    }
}

impl<C: TokenCounter> Chunker<C> {
    pub fn new(size: ChunkSize, counter: C) -> Self {
        let tokens = size.tokens.max(1);
        Self {
            counts: Counts::new(counter),
            size: ChunkSize { tokens, overlap: size.overlap.min(tokens / 4) },
            section: Section::default(),
            head: None,
            buffer: String::new(),
            base: 0,
            at_line: true,
            atoms: Vec::new(),
            carried: 0,
            spans: VecDeque::new(),
            tokens: 0,
            lead: None,
            shared: None,
            path_tokens: 0,
            ordinal: 0,
        }
    }

    /// Takes the next block, and passes on the chunks that it completes.
    pub fn push(&mut self, block: &Block, sink: &mut impl FnMut(Chunk)) {
        self.enter(block, sink);
        let head = self.head.clone().filter(|_| block.kind == BlockKind::TableRow);
        self.spans.push_back(Span { from: self.buffer.len(), kind: block.kind, page: block.page, head });
        if block.text.is_empty() {
            self.append("", true, Edge::Block, sink);
        }
        for (atom, edge) in Atoms::of(&block.text, block.kind) {
            self.append(atom, edge >= Edge::Head, edge, sink);
        }
    }

    /// Passes on the rest. Then the next document may come, whose words are partly known.
    pub fn finish(&mut self, sink: &mut impl FnMut(Chunk)) {
        self.close(sink);
        self.section = Section::default();
        self.head = None;
        (self.base, self.path_tokens, self.ordinal) = (0, 0, 0);
    }

    /// What a block changes for the text that follows: sections, and the table's head.
    fn enter(&mut self, block: &Block, sink: &mut impl FnMut(Chunk)) {
        let Block { kind, text, .. } = block;
        match kind {
            BlockKind::Heading(level) if !text.trim().is_empty() => {
                if !self.takes_another_section() {
                    self.close(sink);
                }
                let above = self.section.open(*level, text, |path| count(&mut self.counts, path));
                self.shared = self.shared.map(|shared| shared.min(above));
                let before = if self.atoms.is_empty() { 0 } else { self.path_tokens };
                self.path_tokens = before.max(self.section.tokens());
            }
            _ => self.shared = Some(self.shared.unwrap_or(self.section.titles().len())),
        }
        self.head = match (kind, self.head.take()) {
            (BlockKind::TableRow, head) => head,
            (BlockKind::TableHead, above) => {
                let before = above.filter(|_| self.spans.back().is_some_and(|last| last.kind == BlockKind::TableHead));
                let text = before.map_or_else(|| text.clone(), |above| format!("{}\n{text}", above.text));
                let tokens = count(&mut self.counts, &text);
                Some(Arc::new(Head { text, tokens })).filter(|head| head.tokens <= self.size.tokens / 4)
            }
            _ => None,
        };
    }

    /// Whether a heading need not begin a new chunk.
    fn takes_another_section(&self) -> bool {
        let only_headings = self.shared.is_none();
        let share = if only_headings { MAX_HEADINGS_SHARE } else { MIN_SECTION_SHARE };
        self.carried == 0 && self.tokens < self.size.tokens / share
    }

    /// The most tokens of text in this chunk.
    fn limit(&self) -> u32 {
        self.size.tokens.saturating_sub(self.path_tokens).max(self.size.tokens.div_ceil(2))
    }

    fn append(&mut self, text: &str, breaks: bool, edge: Edge, sink: &mut impl FnMut(Chunk)) {
        let line = if breaks { "\n" } else { "" };
        let tokens = if breaks { self.counts.of(&format!("{text}\n")) } else { self.counts.of(text) };
        let middle = text.floor_char_boundary(text.len() / 2).max(text.ceil_char_boundary(1));
        if tokens > (self.size.tokens / 4).max(1) && middle < text.len() {
            self.append(&text[..middle], false, Edge::Word, sink);
            return self.append(&text[middle..], breaks, edge, sink);
        }
        while self.tokens + tokens > self.limit() && !self.atoms.is_empty() {
            if self.carried == self.atoms.len() { self.rebase(self.carried, self.carried) } else { self.cut(sink) }
        }
        if self.carried == self.atoms.len() {
            self.repeat_head();
        }
        let (text, tokens) = self.without_blanks_of_the_cut(text, tokens, line);
        self.buffer.push_str(text);
        self.buffer.push_str(line);
        self.atoms.push(Atom { end: self.buffer.len(), tokens, edge });
        self.tokens += tokens;
    }

    /// A chunk that begins within a line does not begin with the blanks there.
    fn without_blanks_of_the_cut<'a>(&mut self, text: &'a str, tokens: u32, line: &str) -> (&'a str, u32) {
        let rest = text.trim_start();
        if self.at_line || !self.atoms.is_empty() || rest.is_empty() || rest.len() == text.len() {
            return (text, tokens);
        }
        self.base += (text.len() - rest.len()) as u64;
        (rest, self.counts.of(&format!("{rest}{line}")))
    }

    /// Ends the chunk at the best place, and keeps the rest with the overlap.
    fn cut(&mut self, sink: &mut impl FnMut(Chunk)) {
        let carried: u32 = self.atoms[..self.carried].iter().map(|atom| atom.tokens).sum();
        let before = carried + self.lead.as_ref().map_or(0, |lead| lead.tokens);
        let in_row = self.spans.back().is_some_and(|last| last.kind == BlockKind::TableRow);
        let own = &self.atoms[self.carried..];
        let next = self.carried + choice::last_atom(own, before, self.limit(), in_row) + 1;
        self.emit(next, sink);
        let floor = self.atoms.partition_point(|atom| atom.end <= self.prose_before(self.start(next)));
        let from = floor.min(next) + choice::first_of_overlap(&self.atoms[floor.min(next)..next], self.size.overlap);
        self.rebase(from, next);
    }

    /// Where the paragraphs begin that end at a place, without a heading or table between.
    fn prose_before(&self, at: usize) -> usize {
        let blocks = self.spans.partition_point(|span| span.from <= at);
        let prose = self.spans.range(..blocks).rev().take_while(|span| span.is_prose());
        prose.last().map_or(at, |span| span.from)
    }

    /// Where an atom begins in the buffer.
    fn start(&self, atom: usize) -> usize {
        atom.checked_sub(1).map_or(0, |before| self.atoms[before].end)
    }

    /// Lets the buffer begin with atom `from`; those before `own` are the overlap.
    fn rebase(&mut self, from: usize, own: usize) {
        let mut start = self.start(from);
        if start > 0 {
            self.at_line = self.buffer[..start].ends_with(['\n', '\r']);
        }
        if let Some(first) = self.atoms.get_mut(from)
            && !self.at_line
        {
            let atom = &self.buffer[start..first.end];
            let blanks = atom.len() - atom.trim_start().len();
            if blanks > 0 && blanks < atom.len() {
                start += blanks;
                first.tokens = self.counts.of(&self.buffer[start..first.end]);
            }
        }
        self.buffer.drain(..start);
        self.base += start as u64;
        self.atoms.drain(..from);
        for atom in &mut self.atoms {
            atom.end -= start;
        }
        let past = self.spans.partition_point(|span| span.from <= start).saturating_sub(1);
        self.spans.drain(..past);
        for span in &mut self.spans {
            span.from = span.from.saturating_sub(start);
        }
        self.carried = own - from;
        self.tokens = self.atoms.iter().map(|atom| atom.tokens).sum();
        self.shared = Some(self.section.titles().len());
        self.path_tokens = self.section.tokens();
        self.lead = None;
        if self.carried < self.atoms.len() {
            self.repeat_head();
        }
    }

    /// Repeats the head of the table whose row is the chunk's own first text.
    fn repeat_head(&mut self) {
        self.lead = self.span_at(self.start(self.carried)).and_then(|span| span.head.clone());
        self.tokens += self.lead.as_ref().map_or(0, |head| head.tokens);
    }

    fn span_at(&self, at: usize) -> Option<&Span> {
        let blocks = self.spans.partition_point(|span| span.from <= at);
        self.spans.get(blocks.checked_sub(1)?)
    }

    /// Passes on all of the buffer.
    fn close(&mut self, sink: &mut impl FnMut(Chunk)) {
        if self.carried < self.atoms.len() {
            self.emit(self.atoms.len(), sink);
        }
        self.base += self.buffer.len() as u64;
        self.buffer.clear();
        self.atoms.clear();
        self.spans.clear();
        (self.at_line, self.carried, self.tokens, self.lead, self.shared) = (true, 0, 0, None, None);
    }

    /// Passes on the text before an atom as a chunk, unless it is blank.
    fn emit(&mut self, next: usize, sink: &mut impl FnMut(Chunk)) {
        let (own, end) = (self.start(self.carried), self.start(next));
        if self.buffer[own..end].trim().is_empty() {
            return;
        }
        let raw = &self.buffer[..end];
        let start = raw.len() - raw.trim_start_matches(['\n', '\r']).len();
        let text = raw[start..].trim_end();
        let end = start + text.len();
        let tokens = tokens_within(&self.atoms[..next], &self.buffer, start, end, &mut self.counts);
        let text = match &self.lead {
            Some(head) => format!("{}\n{text}", head.text),
            None => text.to_owned(),
        };
        let titles = self.section.titles();
        let section = titles[..self.shared.unwrap_or(titles.len())].to_vec();
        let context = section::context(&section, &text);
        let tokens = tokens + self.lead.as_ref().map_or(0, |head| head.tokens) + count(&mut self.counts, &context);
        let hash = Sha256::new().chain_update(&context).chain_update(&text).finalize().into();
        let first = own + self.buffer[own..end].find(|char: char| !char.is_whitespace()).unwrap_or(0);
        let page = self.span_at(first).and_then(|span| span.page);
        let overlap = u32::try_from(own.saturating_sub(start)).unwrap_or(u32::MAX);
        let (start, end) = (self.base + start as u64, self.base + end as u64);
        sink(Chunk { ordinal: self.ordinal, text, page, section, tokens, start, end, overlap, hash });
        self.ordinal += 1;
    }
}

/// The tokens of a part of the buffer. Only blanks are left out at its ends.
fn tokens_within<C: TokenCounter>(atoms: &[Atom], buffer: &str, start: usize, end: usize, counts: &mut Counts<C>) -> u32 {
    let mut begin = 0;
    let mut tokens = 0;
    for atom in atoms {
        let part = begin.max(start)..atom.end.min(end);
        if part.len() == atom.end - begin {
            tokens += atom.tokens;
        } else if !part.is_empty() {
            tokens += counts.of(&buffer[part]);
        }
        begin = atom.end;
    }
    tokens
}

fn count<C: TokenCounter>(counts: &mut Counts<C>, text: &str) -> u32 {
    Atoms::of(text, BlockKind::Paragraph).map(|(atom, _)| counts.of(atom)).sum()
}
