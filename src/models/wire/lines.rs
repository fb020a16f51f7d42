//! Splits a byte stream into lines, ended by LF, CR LF or CR, of bounded length. UTF-8 is decoded only in whole lines, so
//! a character may be split between two reads.

use crate::fault::ModelFault;

use super::{MAX_EVENT_BYTES, broken};

#[derive(Default)]
pub(crate) struct Lines {
    /// The incomplete line.
    partial: Vec<u8>,
    /// The last line ended with CR, so that a following LF belongs to it.
    after_cr: bool,
}

impl Lines {
    pub(crate) fn feed(&mut self, mut bytes: &[u8], line: &mut dyn FnMut(&[u8]) -> Result<(), ModelFault>) -> Result<(), ModelFault> {
        if let [first, rest @ ..] = bytes
            && std::mem::take(&mut self.after_cr)
            && *first == b'\n'
        {
            bytes = rest;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.hold(&bytes[..end])?;
            line(&std::mem::take(&mut self.partial))?;
            let break_length = match &bytes[end..] {
                [b'\r', b'\n', ..] => 2,
                [b'\r'] => {
                    self.after_cr = true;
                    1
                }
                _ => 1,
            };
            bytes = &bytes[end + break_length..];
        }
        self.hold(bytes)
    }

    pub(crate) fn finish(&mut self, line: &mut dyn FnMut(&[u8]) -> Result<(), ModelFault>) -> Result<(), ModelFault> {
        let rest = std::mem::take(&mut self.partial);
        if rest.is_empty() { Ok(()) } else { line(&rest) }
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), ModelFault> {
        if self.partial.len() + bytes.len() > MAX_EVENT_BYTES {
            return Err(broken("a line is longer than 4 MiB"));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.partial.len()
    }
}
