//! Server-sent events, as the HTML standard defines them: `data` lines are joined, `event` names the event, comments and
//! other fields are ignored, an empty line ends an event. Unlike there, the last event of a stream counts without its empty
//! line. Why this is not a library: docs/decisions/010-event-streams.md.

use crate::fault::ModelFault;

use super::lines::Lines;
use super::{Event, MAX_EVENT_BYTES, Sink, broken};

#[derive(Default)]
pub(crate) struct Parser {
    lines: Lines,
    partial: Partial,
}

/// The incomplete event.
#[derive(Default)]
struct Partial {
    event: Event,
    has_data: bool,
    /// The first line has been read, which may begin with a byte order mark.
    bom_checked: bool,
}

impl Parser {
    pub(super) fn feed(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<(), ModelFault> {
        let Self { lines, partial } = self;
        lines.feed(bytes, &mut |line| partial.line(line, sink))
    }

    pub(super) fn finish(&mut self, sink: Sink<'_>) -> Result<(), ModelFault> {
        let Self { lines, partial } = self;
        lines.finish(&mut |line| partial.line(line, sink))?;
        partial.dispatch(sink)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.lines.held() + self.partial.event.data.len() + self.partial.event.name.len()
    }
}

impl Partial {
    fn line(&mut self, line: &[u8], sink: Sink<'_>) -> Result<(), ModelFault> {
        let line = if std::mem::replace(&mut self.bom_checked, true) { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        if line.is_empty() {
            return self.dispatch(sink);
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.event.data.len() + value.len() >= MAX_EVENT_BYTES {
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

    fn dispatch(&mut self, sink: Sink<'_>) -> Result<(), ModelFault> {
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) { sink(event) } else { Ok(()) }
    }
}
