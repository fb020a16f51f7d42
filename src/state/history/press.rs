//! Compressing what goes into packs, with one compressor after another's work. What grows is compressed piece by piece,
//! and a piece that is as it was is taken as it was: of the folder of ten thousand releases, one piece in twenty.

use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};

/// From this size on, what has a path is kept in pieces.
const PIECES_MIN: usize = 32 * 1024;
/// A piece begins with this size, and is cut in two when it has grown to twice of it.
const PIECE: usize = 16 * 1024;
/// So much is remembered of what was written last, before it was compressed.
const KEPT: usize = 16 * 1024 * 1024;
/// Better than the fastest, which has one fixed code for all, and not much slower.
const LEVEL: u32 = 3;
/// How a stream of zlib begins that says as much.
const HEAD: [u8; 2] = [0x78, 0x5e];
/// The last block of a stream, which is empty.
const END: [u8; 2] = [0x03, 0x00];

pub(super) struct Press {
    whole: Compress,
    part: Compress,
    /// By path, what was written last, the newest at the end.
    kept: Vec<(String, Pieces)>,
}

impl Default for Press {
    fn default() -> Self {
        let level = Compression::new(LEVEL);
        Self { whole: Compress::new(level, true), part: Compress::new(level, false), kept: Vec::new() }
    }
}

impl Press {
    /// The bytes as a stream of zlib. Of those with a path it is remembered how they were compressed.
    pub(super) fn press(&mut self, data: Vec<u8>, path: Option<&str>) -> io::Result<Vec<u8>> {
        match path.filter(|_| data.len() >= PIECES_MIN) {
            Some(path) => self.in_pieces(data, path),
            None => self.once(&data),
        }
    }

    pub(super) fn once(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        self.whole.reset();
        run(&mut self.whole, data, FlushCompress::Finish)
    }

    fn in_pieces(&mut self, data: Vec<u8>, path: &str) -> io::Result<Vec<u8>> {
        let found = self.kept.iter().position(|(known, _)| known == path);
        let before = found.map(|at| self.kept.remove(at).1).unwrap_or_default();
        let pieces = before.followed_by(data, &mut self.part)?;
        let stream = pieces.stream();
        self.kept.push((path.to_owned(), pieces));
        let mut held: usize = self.kept.iter().map(|(_, pieces)| pieces.data.len()).sum();
        while held > KEPT && !self.kept.is_empty() {
            held -= self.kept.remove(0).1.data.len();
        }
        Ok(stream)
    }
}

/// Bytes, and how they were compressed.
#[derive(Default)]
struct Pieces {
    data: Vec<u8>,
    list: Vec<Piece>,
}

struct Piece {
    length: usize,
    sum: u32,
    compressed: Vec<u8>,
}

impl Pieces {
    /// The pieces of what takes the place of this. Those at the beginning and the end that stayed are not touched.
    fn followed_by(self, data: Vec<u8>, part: &mut Compress) -> io::Result<Self> {
        let (head, tail) = same_ends(&self.data, &data);
        let (mut list, mut end_of_list) = (Vec::new(), Vec::new());
        let (mut begun, mut ended) = (0, self.data.len());
        let mut before = self.list.into_iter().peekable();
        while let Some(piece) = before.next_if(|piece| begun + piece.length <= head) {
            begun += piece.length;
            list.push(piece);
        }
        let mut after: Vec<Piece> = before.collect();
        while let Some(piece) = after.pop_if(|piece| self.data.len() - ended + piece.length <= tail) {
            ended -= piece.length;
            end_of_list.push(piece);
        }
        let end = data.len() - (self.data.len() - ended);
        while begun < end {
            let rest = end - begun;
            let length = if rest <= 2 * PIECE { rest } else { PIECE };
            let slice = &data[begun..begun + length];
            part.reset();
            list.push(Piece { length, sum: adler(slice), compressed: run(part, slice, FlushCompress::Full)? });
            begun += length;
        }
        list.extend(end_of_list.into_iter().rev());
        Ok(Self { data, list })
    }

    fn stream(&self) -> Vec<u8> {
        let mut stream = Vec::with_capacity(self.list.iter().map(|piece| piece.compressed.len()).sum::<usize>() + 8);
        stream.extend(HEAD);
        let mut sum = 1;
        for piece in &self.list {
            stream.extend_from_slice(&piece.compressed);
            sum = joined(sum, piece.sum, piece.length);
        }
        stream.extend(END);
        stream.extend(sum.to_be_bytes());
        stream
    }
}

/// How much is the same at the beginning and, beyond that, at the end.
pub(super) fn same_ends(one: &[u8], other: &[u8]) -> (usize, usize) {
    const STRIDE: usize = 256;
    let strides = one.chunks_exact(STRIDE).zip(other.chunks_exact(STRIDE)).take_while(|(a, b)| a == b).count() * STRIDE;
    let head = strides + one[strides..].iter().zip(&other[strides..]).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[head..], &other[head..]);
    let strides = one.rchunks_exact(STRIDE).zip(other.rchunks_exact(STRIDE)).take_while(|(a, b)| a == b).count() * STRIDE;
    let (left, right) = (&one[..one.len() - strides], &other[..other.len() - strides]);
    let tail = strides + left.iter().rev().zip(right.iter().rev()).take_while(|(a, b)| a == b).count();
    (head, tail)
}

fn run(compress: &mut Compress, data: &[u8], flush: FlushCompress) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(data.len() + data.len() / 8 + 64);
    loop {
        let done = usize::try_from(compress.total_in()).map_err(io::Error::other)?;
        let status = compress.compress_vec(&data[done..], &mut out, flush).map_err(io::Error::other)?;
        let is_taken = compress.total_in() == data.len() as u64;
        // With room left over, all that was taken has come out.
        if status == Status::StreamEnd || (is_taken && flush == FlushCompress::Full && out.len() < out.capacity()) {
            return Ok(out);
        }
        out.reserve(data.len() / 8 + 64);
    }
}

const ADLER: u32 = 65_521;

/// Adler-32, which zlib ends with.
fn adler(data: &[u8]) -> u32 {
    let (mut low, mut high) = (1u32, 0u32);
    // So many bytes are added up before there could be an overflow.
    for chunk in data.chunks(5552) {
        for byte in chunk {
            low += u32::from(*byte);
            high += low;
        }
        (low, high) = (low % ADLER, high % ADLER);
    }
    high << 16 | low
}

/// The sum of two parts of these sums, the second of that length.
fn joined(first: u32, second: u32, length: usize) -> u32 {
    let modulus = u64::from(ADLER);
    let (low, high) = (u64::from(first & 0xffff), u64::from(first >> 16));
    let (more, higher) = (u64::from(second & 0xffff), u64::from(second >> 16));
    let length = length as u64 % modulus;
    let sum = (low + more + modulus - 1) % modulus;
    let above = (high + higher + length * ((low + modulus - 1) % modulus)) % modulus;
    // Both are below 65,521.
    u32::try_from(above << 16 | sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    fn read(stream: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::ZlibDecoder::new(stream).read_to_end(&mut out).unwrap();
        out
    }

    /// Lines such as status.yaml has, and bytes that cannot be made shorter.
    fn text(lines: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        (0..lines)
            .flat_map(|line| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let mut bytes = format!("{line}: {{status: archived}}").into_bytes();
                bytes.extend(state.to_le_bytes());
                bytes
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn whatever_was_edited_the_stream_is_what_it_stands_for(
            lines in 0..3000usize, edits in prop::collection::vec((any::<prop::sample::Index>(), 0..200usize, 0..3000usize), 0..6)
        ) {
            let (mut press, mut data) = (Press::default(), text(lines, 7));
            prop_assert_eq!(&read(&press.press(data.clone(), Some("a")).unwrap()), &data);
            for (at, gone, come) in edits {
                let at = at.index(data.len() + 1);
                let end = (at + gone).min(data.len());
                data.splice(at..end, text(come / 30, come as u64));
                prop_assert_eq!(&read(&press.press(data.clone(), Some("a")).unwrap()), &data);
                prop_assert_eq!(&read(&press.press(data.clone(), None).unwrap()), &data);
            }
        }
    }

    #[test]
    fn what_stayed_is_not_compressed_again() {
        let mut part = Compress::new(Compression::new(LEVEL), false);
        let mut data = text(12_000, 1);
        let pieces = Pieces::default().followed_by(data.clone(), &mut part).unwrap();
        let before: Vec<_> = pieces.list.iter().map(|piece| piece.compressed.as_ptr()).collect();
        data.splice(300_000..300_000, *b"something new");
        let pieces = pieces.followed_by(data, &mut part).unwrap();
        let kept = pieces.list.iter().filter(|piece| before.contains(&piece.compressed.as_ptr())).count();
        assert!(before.len() > 15 && kept >= before.len() - 1, "{kept} of {}", before.len());
    }

    #[test]
    fn much_is_forgotten_and_all_of_it_is_right() {
        let mut press = Press::default();
        for at in 0..18 {
            let data = text(30_000, at);
            assert_eq!(read(&press.press(data.clone(), Some(&format!("path-{at}"))).unwrap()), data);
        }
        assert!(press.kept.iter().map(|(_, pieces)| pieces.data.len()).sum::<usize>() <= KEPT);
    }
}
