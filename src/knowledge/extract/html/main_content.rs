//! Chooses the main content of a page: what the page marks as it, else all but what looks like navigation.

use std::collections::HashMap;

use super::page::{HtmlPiece, Region};
use crate::BlockKind;

/// Of a hundred bytes, those of links from which on a group of blocks is navigation.
const LINKS_MIN: usize = 70;

pub(super) fn choose(pieces: Vec<HtmlPiece>) -> Vec<HtmlPiece> {
    let total = |is: &dyn Fn(&HtmlPiece) -> bool| pieces.iter().filter(|piece| is(piece)).map(|piece| piece.text.len()).sum::<usize>();
    let all = total(&|_| true);
    let own = total(&|piece| !piece.is_boilerplate);
    let main = total(&|piece| !piece.is_boilerplate && piece.region >= Region::Main);
    let article = total(&|piece| !piece.is_boilerplate && piece.region >= Region::Article);
    // A page that has next to nothing beside its navigation is read with it.
    if own * 20 < all {
        return pieces;
    }
    let own_pieces: Vec<HtmlPiece> = pieces.into_iter().filter(|piece| !piece.is_boilerplate).collect();
    if main * 20 >= own && main > 0 {
        return own_pieces.into_iter().filter(|piece| piece.region >= Region::Main).collect();
    }
    if article * 2 >= own && article > 0 {
        return own_pieces.into_iter().filter(|piece| piece.region >= Region::Article).collect();
    }
    without_navigation(own_pieces, own)
}

/// A page that would lose most of its text is an index of links, and is kept.
fn without_navigation(pieces: Vec<HtmlPiece>, all: usize) -> Vec<HtmlPiece> {
    let mut groups: HashMap<u32, (usize, usize)> = HashMap::new();
    for piece in &pieces {
        let (text, links) = groups.entry(piece.container).or_default();
        *text += piece.text.len();
        *links += piece.links;
    }
    let is_navigation = |piece: &HtmlPiece| {
        let (text, links) = groups.get(&piece.container).copied().unwrap_or_default();
        !matches!(piece.kind, BlockKind::Heading(_) | BlockKind::Code) && links * 100 >= text * LINKS_MIN
    };
    let kept: usize = pieces.iter().filter(|piece| !is_navigation(piece)).map(|piece| piece.text.len()).sum();
    if kept * 4 < all { pieces } else { pieces.into_iter().filter(|piece| !is_navigation(piece)).collect() }
}
