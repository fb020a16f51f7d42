//! A page as its text was set: words with their boxes, in the lines and blocks that poppler saw, in points from the top left.

/// The font of a word, as far as it matters to what the word is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Font {
    /// In points; 0 if it is not known.
    pub(super) size: f32,
    pub(super) bold: bool,
    /// All characters have the same width.
    pub(super) mono: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) left: f32,
    pub(super) top: f32,
    pub(super) right: f32,
    pub(super) bottom: f32,
}

impl Area {
    pub(super) fn height(&self) -> f32 {
        self.bottom - self.top
    }

    pub(super) fn width(&self) -> f32 {
        self.right - self.left
    }

    pub(super) fn middle(&self) -> f32 {
        f32::midpoint(self.top, self.bottom)
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.left = self.left.min(other.left);
        self.top = self.top.min(other.top);
        self.right = self.right.max(other.right);
        self.bottom = self.bottom.max(other.bottom);
    }

    /// On one line of text: the middle of the lower one lies within the other's height.
    pub(super) fn beside(&self, other: &Self) -> bool {
        let (low, high) = if self.height() < other.height() { (self, other) } else { (other, self) };
        high.top < low.middle() && low.middle() < high.bottom
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Word {
    pub(super) area: Area,
    pub(super) text: String,
    pub(super) font: Font,
}

/// Never empty.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    /// Lines of one block, as poppler saw it, have the same number.
    pub(super) block: u32,
    pub(super) area: Area,
    pub(super) words: Vec<Word>,
}

impl Line {
    pub(super) fn new(block: u32, words: Vec<Word>) -> Option<Self> {
        let mut area = words.first()?.area;
        for word in &words {
            area.join(&word.area);
        }
        Some(Self { block, area, words })
    }

    pub(super) fn text(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        words.join(" ")
    }

    fn characters(&self, of: impl Fn(&Font) -> bool) -> usize {
        self.words.iter().filter(|word| of(&word.font)).map(|word| word.text.len()).sum()
    }

    /// The font of most of its characters.
    pub(super) fn font(&self) -> Font {
        let all = self.characters(|_| true);
        let size = self.words.iter().max_by_key(|word| self.characters(|font| font.size.to_bits() == word.font.size.to_bits()));
        Font {
            size: size.map_or(0.0, |word| word.font.size),
            // A number or a bullet before a heading may be plain.
            bold: self.characters(|font| font.bold) * 10 > all * 8,
            mono: self.characters(|font| font.mono) * 10 > all * 9,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct PdfPage {
    /// From 1.
    pub(super) number: u32,
    pub(super) width: f32,
    pub(super) height: f32,
    pub(super) lines: Vec<Line>,
    /// Paragraphs that were read off the page's picture.
    pub(super) seen: Vec<String>,
}

impl PdfPage {
    pub(super) fn words(&self) -> usize {
        self.lines.iter().map(|line| line.words.len()).sum()
    }
}
