//! Server-sent events as the HTML standard has them: `data` lines are joined, `event` names the
//! event, comments and other fields are passed over, an empty line ends it. Unlike there, an event
//! at the very end of the stream counts without its empty line.

use crate::fault::Fault;

use super::lines::Lines;
use super::{Event, LONGEST, Sink, broken};

#[derive(Default)]
pub(crate) struct Parser {
    lines: Lines,
    begun: Begun,
}

#[derive(Default)]
struct Begun {
    event: Event,
    has_data: bool,
    /// The stream may begin with a byte order mark.
    further: bool,
}

impl Parser {
    pub(super) fn feed(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<(), Fault> {
        let Self { lines, begun } = self;
        lines.feed(bytes, &mut |line| begun.line(line, sink))
    }

    pub(super) fn finish(&mut self, sink: Sink<'_>) -> Result<(), Fault> {
        let Self { lines, begun } = self;
        lines.finish(&mut |line| begun.line(line, sink))?;
        begun.dispatch(sink)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.lines.held() + self.begun.event.data.len() + self.begun.event.name.len()
    }
}

impl Begun {
    fn line(&mut self, line: &[u8], sink: Sink<'_>) -> Result<(), Fault> {
        let line = if std::mem::replace(&mut self.further, true) { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        if line.is_empty() {
            return self.dispatch(sink);
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.event.data.len() + value.len() >= LONGEST {
                    return Err(broken("an event is longer than 4 MiB"));
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
            }
            b"event" => self.event.name = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, sink: Sink<'_>) -> Result<(), Fault> {
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) { sink(event) } else { Ok(()) }
    }
}
