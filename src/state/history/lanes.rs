//! Ids of objects, several at a time. SHA-1 goes through an object word by word, and would be most of what a release costs
//! once its agent has thousands: folder and list are hashed anew for each. The objects of a round do not depend on each
//! other, so that each lane of a vector takes one of them. Nobody looks for forged collisions here, as git and gix do:
//! these are folders and lists that we write, of ids and of quoted words. What callers write whole is hashed by gix.
#![expect(clippy::inline_always, reason = "only what is inlined is compiled for the vectors that were found")]
#![expect(clippy::many_single_char_names, reason = "the words of SHA-1's state are called a to e, wherever it is written down")]

use std::thread;

use gix::ObjectId;
use gix::objs::{Kind, encode};
use pulp::{Arch, Simd, WithSimd};

use super::Fault;

/// The most that are hashed at a time, by the widest vectors.
const LANES: usize = 16;
const BLOCK: usize = 64;
const BEGIN: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
/// Shorter objects are not worth a lane.
const LONG: usize = 4096;
/// So many long ones are needed for lanes to be faster than one after the other.
const FEW: usize = 3;

/// One word of each lane.
type Words = [u32; LANES];

/// The ids of objects, in order.
pub(super) fn ids(objects: &[(Kind, &[u8])]) -> Result<Vec<ObjectId>, Fault> {
    let mut ids = vec![ObjectId::null(gix::hash::Kind::Sha1); objects.len()];
    // A commit has the words of whoever made the change.
    let is_long = |at: &usize| objects[*at].1.len() >= LONG && objects[*at].0 != Kind::Commit;
    let (long, short): (Vec<_>, Vec<_>) = (0..objects.len()).partition(is_long);
    if long.len() < FEW || width() < 8 {
        thread::scope(|scope| -> Result<(), Fault> {
            let threads: Vec<_> = long.iter().skip(1).map(|at| (*at, scope.spawn(|| id(objects[*at])))).collect();
            for at in short.iter().chain(long.first()) {
                ids[*at] = id(objects[*at])?;
            }
            for (at, thread) in threads {
                ids[at] = thread.join().unwrap_or_else(|_| Err(Fault::Busy("hashing was interrupted; try again".to_owned())))?;
            }
            Ok(())
        })?;
        return Ok(ids);
    }
    let heads: Vec<_> = long.iter().map(|at| encode::loose_header(objects[*at].0, objects[*at].1.len() as u64)).collect();
    let messages: Vec<_> = heads.iter().zip(&long).map(|(head, at)| (head.as_slice(), objects[*at].1)).collect();
    for (at, hash) in long.iter().zip(hashes(&messages)) {
        ids[*at] = ObjectId::from(hash);
    }
    for at in short {
        ids[at] = id(objects[at])?;
    }
    Ok(ids)
}

/// The id of one object, of which it is told if it was forged to be another's.
pub(super) fn id((kind, data): (Kind, &[u8])) -> Result<ObjectId, Fault> {
    gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, data)
        .map_err(|error| Fault::Refused(format!("the text cannot be stored under a name of its own: {error}")))
}

/// How many lanes this machine has. Where that is few, SHA-1 has instructions of its own, or nothing is to be gained.
fn width() -> usize {
    struct Width;
    impl WithSimd for Width {
        type Output = usize;
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::U32_LANES.min(LANES)
        }
    }
    Arch::new().dispatch(Width)
}

/// SHA-1 of each, in order: of a head and the bytes that follow it.
fn hashes(objects: &[(&[u8], &[u8])]) -> Vec<[u8; 20]> {
    Arch::new().dispatch(Hashes(objects))
}

struct Hashes<'a>(&'a [(&'a [u8], &'a [u8])]);

impl WithSimd for Hashes<'_> {
    type Output = Vec<[u8; 20]>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<[u8; 20]> {
        let objects = self.0;
        let mut done = vec![[0; 20]; objects.len()];
        // The longest are taken first, so that they do not run alone at the end.
        let mut order: Vec<usize> = (0..objects.len()).collect();
        order.sort_unstable_by_key(|at| objects[*at].1.len());
        let mut lanes: [Option<Lane>; LANES] = [const { None }; LANES];
        let width = S::U32_LANES.min(LANES);
        let mut state: [Words; 5] = [[0; LANES]; 5];
        let mut words: [Words; 16] = [[0; LANES]; 16];
        loop {
            let mut is_idle = true;
            for (column, lane) in lanes.iter_mut().enumerate().take(width) {
                if lane.is_none() {
                    *lane = order.pop().map(|at| Lane::new(at, objects[at]));
                    for (row, word) in state.iter_mut().zip(BEGIN) {
                        row[column] = word;
                    }
                }
                if let Some(lane) = lane {
                    is_idle = false;
                    let block = lane.next();
                    for (row, word) in words.iter_mut().zip(block.as_chunks::<4>().0) {
                        row[column] = u32::from_be_bytes(*word);
                    }
                }
            }
            if is_idle {
                return done;
            }
            compress(simd, &mut state, &words);
            for (column, lane) in lanes.iter_mut().enumerate().take(width) {
                if let Some(ended) = lane.take_if(|lane| lane.at == lane.blocks) {
                    for (word, row) in done[ended.object].as_chunks_mut::<4>().0.iter_mut().zip(&state) {
                        *word = row[column].to_be_bytes();
                    }
                }
            }
        }
    }
}

/// An object on its way through a lane.
struct Lane<'a> {
    object: usize,
    at: usize,
    blocks: usize,
    /// The head with what follows it, to the end of a block.
    first: Vec<u8>,
    middle: &'a [u8],
    /// The end, as it is padded.
    last: Vec<u8>,
}

impl<'a> Lane<'a> {
    fn new(object: usize, (head, data): (&[u8], &'a [u8])) -> Self {
        let mut first = head.to_vec();
        let (joined, rest) = data.split_at(first.len().wrapping_neg().wrapping_rem_euclid(BLOCK).min(data.len()));
        first.extend_from_slice(joined);
        let whole = first.len() + rest.len();
        let (middle, end) = rest.split_at(rest.len() / BLOCK * BLOCK);
        // Shorter than a block, all of it is its own end.
        let mut last = if first.len() % BLOCK == 0 { end.to_vec() } else { std::mem::take(&mut first) };
        last.push(0x80);
        last.resize((last.len() + 8).next_multiple_of(BLOCK) - 8, 0);
        last.extend_from_slice(&(whole as u64 * 8).to_be_bytes());
        Self { object, at: 0, blocks: (first.len() + middle.len() + last.len()) / BLOCK, first, middle, last }
    }

    #[inline(always)]
    fn next(&mut self) -> &[u8] {
        let at = self.at * BLOCK;
        self.at += 1;
        if at < self.first.len() {
            return &self.first[at..at + BLOCK];
        }
        let at = at - self.first.len();
        if at < self.middle.len() { &self.middle[at..at + BLOCK] } else { &self.last[at - self.middle.len()..][..BLOCK] }
    }
}

/// One block of each lane.
#[inline(always)]
fn compress<S: Simd>(simd: S, state: &mut [Words; 5], words: &[Words; 16]) {
    let mut rows = words.map(|row| S::as_simd_u32s(&row).0[0]);
    let old = state.map(|row| S::as_simd_u32s(&row).0[0]);
    let mut now = old;
    for at in (0..20).step_by(5) {
        turns(simd, at, &mut rows, &mut now, 0);
    }
    for at in (20..40).step_by(5) {
        turns(simd, at, &mut rows, &mut now, 1);
    }
    for at in (40..60).step_by(5) {
        turns(simd, at, &mut rows, &mut now, 2);
    }
    for at in (60..80).step_by(5) {
        turns(simd, at, &mut rows, &mut now, 3);
    }
    for ((row, old), new) in state.iter_mut().zip(old).zip(now) {
        S::as_mut_simd_u32s(row).0[0] = simd.add_u32s(old, new);
    }
}

/// Five turns, after which each word is back at its place.
#[inline(always)]
fn turns<S: Simd>(simd: S, at: usize, rows: &mut [S::u32s; 16], state: &mut [S::u32s; 5], part: usize) {
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    (e, b) = turn(simd, at, rows, [a, b, c, d, e], part);
    (d, a) = turn(simd, at + 1, rows, [e, a, b, c, d], part);
    (c, e) = turn(simd, at + 2, rows, [d, e, a, b, c], part);
    (b, d) = turn(simd, at + 3, rows, [c, d, e, a, b], part);
    (a, c) = turn(simd, at + 4, rows, [b, c, d, e, a], part);
    *state = [a, b, c, d, e];
}

/// What the last and the second word become.
#[inline(always)]
fn turn<S: Simd>(simd: S, at: usize, rows: &mut [S::u32s; 16], [a, b, c, d, e]: [S::u32s; 5], part: usize) -> (S::u32s, S::u32s) {
    if at >= 16 {
        let near = simd.xor_u32s(rows[(at + 13) % 16], rows[(at + 8) % 16]);
        let far = simd.xor_u32s(rows[(at + 2) % 16], rows[at % 16]);
        rows[at % 16] = turned(simd, simd.xor_u32s(near, far), 1);
    }
    let (mixed, constant) = match part {
        0 => (simd.xor_u32s(d, simd.and_u32s(b, simd.xor_u32s(c, d))), 0x5a82_7999),
        2 => (simd.or_u32s(simd.and_u32s(b, c), simd.and_u32s(d, simd.or_u32s(b, c))), 0x8f1b_bcdc),
        1 => (simd.xor_u32s(simd.xor_u32s(b, c), d), 0x6ed9_eba1),
        _ => (simd.xor_u32s(simd.xor_u32s(b, c), d), 0xca62_c1d6),
    };
    let fixed = simd.add_u32s(simd.add_u32s(e, simd.splat_u32s(constant)), rows[at % 16]);
    (simd.add_u32s(simd.add_u32s(turned(simd, a, 5), mixed), fixed), turned(simd, b, 30))
}

#[inline(always)]
fn turned<S: Simd>(simd: S, word: S::u32s, by: u32) -> S::u32s {
    let left = simd.wrapping_dyn_shl_u32s(word, simd.splat_u32s(by));
    simd.or_u32s(left, simd.wrapping_dyn_shr_u32s(word, simd.splat_u32s(32 - by)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_lane_comes_to_the_same_as_gix(lengths in prop::collection::vec(0..700usize, 0..40), seed in any::<u8>()) {
            let texts: Vec<Vec<u8>> = lengths.iter().map(|length| (0..*length).map(|at| at.to_le_bytes()[0].wrapping_mul(31) ^ seed).collect()).collect();
            let heads: Vec<_> = texts.iter().map(|text| encode::loose_header(Kind::Tree, text.len() as u64)).collect();
            let messages: Vec<_> = heads.iter().zip(&texts).map(|(head, text)| (head.as_slice(), text.as_slice())).collect();
            let expected: Vec<_> = texts.iter().map(|text| id((Kind::Tree, text)).unwrap()).collect();
            let found: Vec<_> = hashes(&messages).into_iter().map(ObjectId::from).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn ids_are_in_order_whatever_they_are_made_with() {
        let texts: Vec<Vec<u8>> = (0..11).map(|at| vec![at; usize::from(at) * 1500]).collect();
        for count in 0..=texts.len() {
            let objects: Vec<_> = texts[..count].iter().rev().map(|text| (Kind::Blob, text.as_slice())).collect();
            let expected: Vec<_> = objects.iter().map(|object| id(*object).unwrap()).collect();
            assert_eq!(ids(&objects).unwrap(), expected);
        }
    }
}
