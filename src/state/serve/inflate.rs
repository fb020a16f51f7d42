//! Request bodies, plain or compressed with gzip. Decompression is incremental and bounded: a few bytes can expand to
//! gigabytes.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use slipway_http::{Error, HeaderMap, StatusCode, header};

/// Compressed bytes of one step.
const STEP_BYTES: usize = 4 * 1024;

pub(super) enum Inflate {
    Plain,
    Gzip(Box<MultiGzDecoder<Bounded>>),
}

/// A buffer that fails beyond its limit.
pub(super) struct Bounded {
    buffer: Vec<u8>,
    left: u64,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => self.left = left,
            None => return Err(io::ErrorKind::FileTooLarge.into()),
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Inflate {
    pub(super) fn new(headers: &HeaderMap, limit: u64) -> Result<Self, Error> {
        match headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or_default()) {
            None | Some("identity") => Ok(Self::Plain),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(Bounded { buffer: Vec::new(), left: limit })))),
            Some(_) => Err(Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body may be packed with gzip or not at all")),
        }
    }

    /// The steps in which a piece is decompressed.
    pub(super) fn steps<'a>(&self, piece: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        piece.chunks(if matches!(self, Self::Plain) { piece.len().max(1) } else { STEP_BYTES })
    }

    pub(super) fn unpack(&mut self, step: &[u8], limit: u64) -> Result<Vec<u8>, Error> {
        match self {
            Self::Plain => Ok(step.to_vec()),
            Self::Gzip(decoder) => {
                decoder.write_all(step).map_err(|error| fault(error, limit))?;
                Ok(std::mem::take(&mut decoder.get_mut().buffer))
            }
        }
    }

    /// The remaining bytes. Fails if the body is incomplete.
    pub(super) fn end(self, limit: u64) -> Result<Vec<u8>, Error> {
        match self {
            Self::Plain => Ok(Vec::new()),
            Self::Gzip(decoder) => decoder.finish().map(|rest| rest.buffer).map_err(|error| fault(error, limit)),
        }
    }
}

fn fault(error: io::Error, limit: u64) -> Error {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return Error::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have at most {limit} bytes, unpacked"));
    }
    Error::bad_request("the body is not what gzip makes").because(error)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(encoding: Option<&'static str>, pieces: &[&[u8]], limit: u64) -> Result<(Vec<u8>, usize), Error> {
        let mut headers = HeaderMap::new();
        if let Some(encoding) = encoding {
            headers.insert(header::CONTENT_ENCODING, encoding.parse().unwrap());
        }
        let mut inflate = Inflate::new(&headers, limit)?;
        let (mut whole, mut most) = (Vec::new(), 0);
        for piece in pieces {
            for step in inflate.steps(piece) {
                let bytes = inflate.unpack(step, limit)?;
                most = most.max(bytes.len());
                whole.extend(bytes);
            }
        }
        whole.extend(inflate.end(limit)?);
        Ok((whole, most))
    }

    #[test]
    fn what_was_packed_comes_out_again() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        let packed = packed(&text);
        for pieces in [vec![&packed[..]], packed.chunks(1000).collect(), packed.chunks(7).collect()] {
            assert_eq!(unpacked(Some("gzip"), &pieces, 1 << 20).unwrap().0, text);
            assert_eq!(unpacked(Some("x-gzip"), &pieces, 1 << 20).unwrap().0, text);
        }
        assert_eq!(unpacked(None, &[b"0032want", b"", b"0000"], 1 << 20).unwrap().0, b"0032want0000");
    }

    #[test]
    fn too_much_and_nonsense_are_refused() {
        let bomb = packed(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100_000);
        for (encoding, body, limit, status) in [
            ("gzip", &bomb[..], 1 << 20, 413),
            ("gzip", &b"not gzip at all"[..], 1 << 20, 400),
            ("gzip", &bomb[..bomb.len() / 2], 1 << 30, 400),
            ("br", b"x", 1 << 20, 415),
        ] {
            let error = unpacked(Some(encoding), &[body], limit).unwrap_err();
            assert_eq!(error.status().as_u16(), status, "{encoding}: {}", error.message());
        }
        let (whole, most) = unpacked(Some("gzip"), &[&bomb], 1 << 30).unwrap();
        assert!(whole.len() == 64 << 20 && most < 8 << 20, "{most} bytes at once");
    }

    proptest! {
        #[test]
        fn what_is_unpacked_is_what_was_packed_in_whatever_pieces(
            text in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..300), repeated in 1_usize..10,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6), limit in 0_u64..4_000, members in 1_usize..3,
        ) {
            let text = text.repeat(repeated);
            // Concatenated gzip members are one file.
            let (first, second) = text.split_at(if members == 2 { text.len() / 2 } else { text.len() });
            let packed = if members == 2 { [packed(first), packed(second)].concat() } else { packed(first) };
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(packed.len())).chain([0, packed.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &packed[pair[0]..pair[1]]).collect();
            match unpacked(Some("gzip"), &pieces, limit) {
                Ok((whole, _)) => prop_assert!(whole == text && whole.len() as u64 <= limit),
                Err(error) => {
                    prop_assert!(text.len() as u64 > limit, "{}", error.message());
                    prop_assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);
                }
            }
        }

        #[test]
        fn no_bytes_become_more_than_they_may(more in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), value: u8, limit in 0_u64..5000) {
            let mut damaged = packed(&vec![7; 3000]);
            let at = at.index(damaged.len());
            damaged[at] ^= value;
            for bytes in [&damaged, &more, &[&damaged[..], &more].concat()] {
                if let Ok((whole, _)) = unpacked(Some("gzip"), &[bytes], limit) {
                    prop_assert!(whole.len() as u64 <= limit);
                }
            }
        }
    }
}
