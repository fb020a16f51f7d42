//! A Git pack that is small, of objects that are small as Git counts them, and that nobody can unpack in little memory.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

const BLOB: u8 = 3;
const OFFSET_DELTA: u8 = 6;
const SEED: usize = 1 << 16;
const COPIES: usize = 128;
/// Each level is made from the one above, and has two siblings besides: as long as one of them waits, so does that.
const LEVELS: usize = 40;
const SIBLINGS: usize = 3;

/// One object of 64 KiB and 121 of 8 MiB.
pub(super) fn deep() -> Vec<u8> {
    let count = u32::try_from(2 + LEVELS * SIBLINGS).unwrap();
    let mut pack = [&b"PACK\0\0\0\x02"[..], &count.to_be_bytes()].concat();
    entry(&mut pack, BLOB, &[], &vec![b'x'; SEED]);
    let (mut parent, mut size, mut number) = (b"PACK".len() + 8, SEED, 0_u32);
    let mut child = |pack: &mut Vec<u8>, parent: usize, size: usize, copies: usize| {
        number += 1;
        let at = pack.len();
        let whole = size * copies + number.to_be_bytes().len();
        let mut delta = [varint(size), varint(whole)].concat();
        // This number of bytes from the beginning, and four bytes that nobody else has.
        let length = u32::try_from(size).unwrap().to_le_bytes();
        delta.extend([0xf0, length[0], length[1], length[2]].repeat(copies));
        delta.push(4);
        delta.extend(number.to_be_bytes());
        entry(pack, OFFSET_DELTA, &backwards(at - parent), &delta);
        (at, whole)
    };
    (parent, size) = child(&mut pack, parent, size, COPIES);
    for _ in 0..LEVELS {
        let made: Vec<_> = (0..SIBLINGS).map(|_| child(&mut pack, parent, size, 1)).collect();
        (parent, size) = made[SIBLINGS / 2];
    }
    let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &pack);
    pack.extend(sum.as_ref());
    pack
}

fn entry(pack: &mut Vec<u8>, kind: u8, base: &[u8], bytes: &[u8]) {
    let low = u8::try_from(bytes.len() & 0xf).unwrap();
    let rest = bytes.len() >> 4;
    pack.push(kind << 4 | low | if rest > 0 { 0x80 } else { 0 });
    if rest > 0 {
        pack.extend(varint(rest));
    }
    pack.extend(base);
    let mut encoder = ZlibEncoder::new(pack, Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap();
}

/// Seven bits a byte, the lowest first.
fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(0x80 | u8::try_from(value & 0x7f).unwrap());
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

/// How far before an object its base lies: seven bits a byte, the highest first, each but the last one less.
fn backwards(mut distance: usize) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(distance & 0x7f).unwrap()];
    while distance > 0x7f {
        distance = (distance >> 7) - 1;
        bytes.insert(0, 0x80 | u8::try_from(distance & 0x7f).unwrap());
    }
    bytes
}
