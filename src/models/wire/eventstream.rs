//! AWS's `application/vnd.amazon.eventstream`: frames of a prelude (length of the frame, length of
//! its headers, a checksum of both), headers, a payload, and a checksum of everything before. Both
//! checksums are verified, the first one before the rest of the frame is buffered.

use crate::fault::ModelFault;

use super::{Event, MAX_EVENT_BYTES, Sink, broken};

const PRELUDE_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;

#[derive(Default)]
pub(crate) struct Parser {
    partial: Vec<u8>,
}

impl Parser {
    pub(super) fn feed(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<(), ModelFault> {
        let mut rest = bytes;
        loop {
            let wanted = match length(&self.partial)? {
                Some(length) if length == self.partial.len() => {
                    sink(event(&std::mem::take(&mut self.partial))?)?;
                    PRELUDE_BYTES
                }
                Some(length) => length,
                None => PRELUDE_BYTES,
            };
            if rest.is_empty() {
                return Ok(());
            }
            let (taken, after) = rest.split_at(rest.len().min(wanted - self.partial.len()));
            self.partial.extend_from_slice(taken);
            rest = after;
        }
    }

    pub(super) fn finish(&self) -> Result<(), ModelFault> {
        if self.partial.is_empty() { Ok(()) } else { Err(broken("it ended within a frame")) }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.partial.len()
    }
}

/// The length of the frame that begins with these bytes, once its prelude is complete.
fn length(frame: &[u8]) -> Result<Option<usize>, ModelFault> {
    let Some(prelude) = frame.get(..PRELUDE_BYTES) else { return Ok(None) };
    let (length, headers) = (number(prelude, 0)? as usize, number(prelude, 4)? as usize);
    if number(prelude, 8)? != checksum(&prelude[..8]) {
        return Err(broken("the checksum of a frame's prelude is wrong"));
    }
    if length > MAX_EVENT_BYTES || headers > length || length - headers < PRELUDE_BYTES + CHECKSUM_BYTES {
        return Err(broken("the lengths of a frame are impossible"));
    }
    Ok(Some(length))
}

fn event(frame: &[u8]) -> Result<Event, ModelFault> {
    let (body, _) = frame.split_at(frame.len() - CHECKSUM_BYTES);
    if number(frame, body.len())? != checksum(body) {
        return Err(broken("the checksum of a frame is wrong"));
    }
    let (headers, payload) = body[PRELUDE_BYTES..].split_at(number(frame, 4)? as usize);
    let mut event = Event { data: payload.to_vec(), ..Event::default() };
    let mut headers = Cursor(headers);
    while !headers.0.is_empty() {
        let (name, value) = headers.header()?;
        match (name, value) {
            (b":message-type", value) => event.error = value != b"event",
            (b":event-type" | b":exception-type" | b":error-code", value) => event.name = String::from_utf8_lossy(value).into_owned(),
            // The message of an unmodelled error, which has no payload.
            (b":error-message", value) if event.data.is_empty() => {
                event.data = serde_json::json!({"message": String::from_utf8_lossy(value)}).to_string().into_bytes();
            }
            _ => {}
        }
    }
    Ok(event)
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// A header's name and its value, which is empty unless it is text.
    fn header(&mut self) -> Result<(&'a [u8], &'a [u8]), ModelFault> {
        let length = self.take(1)?[0];
        let name = self.take(usize::from(length))?;
        let value = match self.take(1)?[0] {
            0 | 1 => self.take(0),
            2 => self.take(1),
            3 => self.take(2),
            4 => self.take(4),
            5 | 8 => self.take(8),
            6 | 7 => {
                let length = self.take(2)?;
                self.take(usize::from(u16::from_be_bytes([length[0], length[1]])))
            }
            9 => self.take(16),
            _ => return Err(broken("a header is of an unknown type")),
        };
        Ok((name, value?))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ModelFault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| broken("a header is longer than the headers"))?;
        self.0 = rest;
        Ok(taken)
    }
}

fn number(bytes: &[u8], at: usize) -> Result<u32, ModelFault> {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map(u32::from_be_bytes).ok_or_else(|| broken("a frame is too short"))
}

/// CRC-32 of Ethernet and zlib.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| (sum >> 8) ^ CRC_TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize])
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0_u32;
    while at < 256 {
        let mut value = at;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[at as usize] = value;
        at += 1;
    }
    table
};
