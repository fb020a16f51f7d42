//! Remembers the tokens of short atoms, because a text repeats its words. A table of a fixed size, in which a word displaces the
//! one that had its place: what is remembered never changes a count, only its price.

use super::TokenCounter;

/// 65,536 places, in two megabytes.
const SLOT_BITS: u32 = 16;

/// Longer atoms are counted each time.
const MAX_KEY_BYTES: usize = 23;

/// The bytes of an atom and, last, their number.
type Key = [u64; 3];

pub(super) struct Counts<C> {
    counter: C,
    slots: Vec<(Key, u32)>,
}

impl<C: TokenCounter> Counts<C> {
    pub(super) fn new(counter: C) -> Self {
        Self { counter, slots: vec![([0; 3], 0); 1 << SLOT_BITS] }
    }

    /// The tokens of an atom. Blanks alone count as one, so that a chunk's tokens bound its bytes.
    pub(super) fn of(&mut self, atom: &str) -> u32 {
        let Some(key) = key(atom) else { return self.counter.count(atom).max(1) };
        let slot = &mut self.slots[place(key)];
        if slot.0 != key {
            *slot = (key, self.counter.count(atom).max(1));
        }
        slot.1
    }
}

/// `None` for an empty or long text.
fn key(atom: &str) -> Option<Key> {
    let length = u8::try_from(atom.len()).ok().filter(|&length| length > 0 && usize::from(length) <= MAX_KEY_BYTES)?;
    let mut bytes = [0; 24];
    bytes[..atom.len()].copy_from_slice(atom.as_bytes());
    bytes[MAX_KEY_BYTES] = length;
    let (words, _) = bytes.as_chunks::<8>();
    Some([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]), u64::from_le_bytes(words[2])])
}

fn place(key: Key) -> usize {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = key.iter().fold(0_u64, |mixed, &word| (mixed.rotate_left(23) ^ word).wrapping_mul(FACTOR));
    usize::try_from(mixed >> (64 - SLOT_BITS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_word_is_counted_once_and_never_mistaken_for_another() {
        let asked = Cell::new(0);
        let mut counts = Counts::new(|text: &str| {
            asked.set(asked.get() + 1);
            u32::try_from(text.len()).unwrap()
        });
        let words: Vec<String> = (0..200_000).map(|number| format!(" {number}")).collect();
        for word in words.iter().chain(&words) {
            assert_eq!(counts.of(word) as usize, word.len());
        }
        let before = asked.get();
        for _ in 0..100 {
            assert_eq!(counts.of(" again"), 6);
        }
        assert_eq!(asked.get() - before, 1);
        assert_eq!((counts.of(&"x".repeat(24)), counts.of("\0"), counts.of("\0\0")), (24, 1, 2));
    }
}
