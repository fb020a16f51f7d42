//! Blocks of IPv4 addresses, and what is left of one without another: iptables knows no exceptions within a rule.

use std::net::Ipv4Addr;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    first: u32,
    length: u8,
}

impl Block {
    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0)
    }

    fn holds(self, other: Self) -> bool {
        other.length >= self.length && other.first & self.mask() == self.first
    }

    /// The blocks that hold every address of this one but those of `hole`.
    pub(super) fn without(self, hole: Self) -> Vec<Self> {
        if hole.holds(self) {
            return Vec::new();
        }
        if !self.holds(hole) {
            return vec![self];
        }
        let length = self.length + 1;
        let halves = [self.first, self.first | 1 << (32 - length)];
        halves.into_iter().flat_map(|first| Self { first, length }.without(hole)).collect()
    }
}

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} should be a block of IPv4 addresses like 10.0.0.0/8");
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let (address, length): (Ipv4Addr, u8) = (address.parse().map_err(|_| wrong())?, length.parse().map_err(|_| wrong())?);
        let block = Self { first: address.to_bits(), length };
        if length > 32 { Err(wrong()) } else { Ok(Self { first: block.first & block.mask(), length }) }
    }
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.length)
    }
}
