//! Decides where a full chunk ends, and where the overlap of the next one begins.

use super::atoms::Edge;

/// A word in the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Atom {
    /// Where it ends in the buffer.
    pub(super) end: usize,
    pub(super) tokens: u32,
    pub(super) edge: Edge,
}

/// The last atom of a full chunk. A chunk is at least half full, but for the sake of whole table rows and lines of code. The
/// atoms begin behind `before` tokens, and there is at least one; all may be more than the limit.
pub(super) fn last_atom(atoms: &[Atom], before: u32, limit: u32, in_row: bool) -> usize {
    let half = limit / 2;
    let (mut whole, mut part, mut piece, mut last) = (None, None, None, 0);
    let mut sum = before;
    for (at, atom) in atoms.iter().enumerate() {
        sum += atom.tokens;
        if sum > limit {
            break;
        }
        last = at;
        match atom.edge {
            Edge::Block if in_row || sum >= half => whole = Some(at),
            Edge::Head if in_row => whole = Some(at),
            Edge::Sentence | Edge::Line | Edge::Cell if sum >= half => part = Some(at),
            Edge::Line | Edge::Cell => piece = Some(at),
            _ => {}
        }
    }
    whole.or(part).or(piece).unwrap_or(last)
}

/// The first atom of the overlap: at a sentence or paragraph if that leaves half of the overlap, else at a word. The number of
/// atoms if there is none.
pub(super) fn first_of_overlap(atoms: &[Atom], budget: u32) -> usize {
    let (mut sum, mut first, mut best) = (0_u32, atoms.len(), None);
    for (at, atom) in atoms.iter().enumerate().rev() {
        sum += atom.tokens;
        if sum > budget {
            break;
        }
        first = at;
        if sum >= budget / 2 && at.checked_sub(1).is_none_or(|before| atoms[before].edge > Edge::Word) {
            best = Some(at);
        }
    }
    best.unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Edge::{Block, Cell, Head, Line, Sentence, Word};

    fn atoms(edges: &[Edge]) -> Vec<Atom> {
        (1..).zip(edges).map(|(end, &edge)| Atom { end, tokens: 1, edge }).collect()
    }

    #[test]
    fn a_chunk_ends_at_the_best_place_of_its_second_half() {
        for (edges, in_row, expected) in [
            ([Word, Sentence, Word, Sentence, Block, Word, Sentence, Word], false, 4),
            ([Word, Block, Word, Sentence, Word, Word, Sentence, Word], false, 6),
            ([Word, Block, Word, Word, Word, Word, Word, Word], false, 7),
            ([Word, Block, Word, Word, Word, Word, Cell, Word], true, 1),
            ([Word, Head, Word, Cell, Word, Word, Word, Word], true, 1),
            ([Word, Cell, Word, Word, Word, Cell, Word, Word], true, 5),
            ([Line, Word, Word, Word, Word, Word, Word, Word], false, 0),
        ] {
            assert_eq!(last_atom(&atoms(&edges), 0, 8, in_row), expected, "{edges:?}");
        }
        assert_eq!(last_atom(&atoms(&[Word, Word, Sentence, Block]), 2, 4, false), 1, "what does not fit is no end");
        assert_eq!(last_atom(&atoms(&[Word, Word]), 4, 4, false), 0);
    }

    #[test]
    fn overlap_begins_at_a_sentence_if_that_is_near() {
        for (edges, budget, expected) in [
            ([Word, Word, Word, Sentence, Word, Word, Word, Sentence], 6, 4),
            ([Word, Word, Word, Word, Word, Word, Sentence, Sentence], 6, 2),
            ([Word, Word, Word, Word, Word, Word, Word, Word], 0, 8),
            ([Word, Word, Word, Word, Word, Word, Word, Word], 100, 0),
        ] {
            assert_eq!(first_of_overlap(&atoms(&edges), budget), expected, "{edges:?} {budget}");
        }
    }
}
