//! What an extractor reads of a document: blocks of text in reading order. Extractors stream them, so that a document's size
//! does not decide how much memory it takes.

use serde::{Deserialize, Serialize};

/// One piece of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub kind: BlockKind,
    /// Plain text without surrounding blanks. Of a table row, its cells joined as `| a | b |`, with `|` in a cell as `\|`.
    pub text: String,
    /// The page on which the block begins, from 1; none where the format has no pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// A heading of level 1 to 6.
    Heading(u8),
    Paragraph,
    ListItem,
    /// Text whose line breaks and blanks matter.
    Code,
    /// The header of the table whose rows follow.
    TableHead,
    TableRow,
}
