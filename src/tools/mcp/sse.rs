//! MCP's first HTTP transport (2024-11-05): one GET whose events are what the server says, the first of them naming the
//! URL to which the client POSTs what it has to say.

use std::error::Error as StdError;
use std::io;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use reqwest::{Client, Response};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use url::Url;

use super::connection::MESSAGE;
use crate::http::body::media_type;

type Cause = Box<dyn StdError + Send + Sync>;

pub(super) enum SseFault {
    /// Whatever this is, it is no event stream with an endpoint in it.
    NotSse,
    Failed(Cause),
}

pub(super) struct Sse {
    client: Client,
    endpoint: Url,
    headers: HeaderMap,
    events: Events,
}

impl Sse {
    pub(super) async fn open(client: &Client, url: &Url, headers: &HeaderMap) -> Result<Self, SseFault> {
        let failed = |error: reqwest::Error| SseFault::Failed(error.without_url().into());
        let request = client.get(url.clone()).headers(headers.clone()).header(ACCEPT, "text/event-stream");
        let response = request.send().await.map_err(failed)?;
        if !response.status().is_success() || media_type(response.headers()).as_deref() != Some("text/event-stream") {
            return Err(SseFault::NotSse);
        }
        let mut events = Events::new(response);
        match events.next().await {
            Ok(Some(event)) if event.name == "endpoint" => {
                let endpoint = url.join(event.data.trim()).map_err(|_| SseFault::NotSse)?;
                if endpoint.origin() != url.origin() {
                    return Err(SseFault::Failed("the server wants messages sent to another place, where this tool may not go".into()));
                }
                Ok(Self { client: client.clone(), endpoint, headers: headers.clone(), events })
            }
            Ok(_) => Err(SseFault::NotSse),
            Err(error) => Err(SseFault::Failed(error.into())),
        }
    }
}

impl Transport<RoleClient> for Sse {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.client.post(self.endpoint.clone()).headers(headers);
        async move {
            let body = serde_json::to_vec(&message)?;
            let response = request.body(body).send().await.map_err(|error| io::Error::other(error.without_url()))?;
            let status = response.status();
            if status.is_success() { Ok(()) } else { Err(io::Error::other(format!("the server answered HTTP {status}"))) }
        }
    }

    /// May be dropped between two events at any time: what has been read stays in `events`.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.events.next().await {
                Ok(Some(event)) if event.name == "message" => match serde_json::from_str(&event.data) {
                    Ok(message) => return Some(message),
                    Err(error) => tracing::debug!(%error, "an MCP server said something that is no message"),
                },
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => {
                    tracing::debug!(%error, "an MCP server's event stream broke off");
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.events.response = None;
        Ok(())
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
}

struct Events {
    response: Option<Response>,
    scanner: Scanner,
}

impl Events {
    fn new(response: Response) -> Self {
        Self { response: Some(response), scanner: Scanner::default() }
    }

    async fn next(&mut self) -> Result<Option<Event>, io::Error> {
        loop {
            if let Some(event) = self.scanner.event()? {
                return Ok(Some(event));
            }
            let Some(response) = &mut self.response else { return Ok(None) };
            match response.chunk().await {
                Ok(Some(chunk)) => self.scanner.bytes.extend_from_slice(&chunk),
                Ok(None) => {
                    self.response = None;
                    return Ok(None);
                }
                Err(error) => return Err(io::Error::other(error.without_url())),
            }
        }
    }
}

/// Lines of an event stream, put together to events.
#[derive(Default)]
struct Scanner {
    bytes: Vec<u8>,
    at: usize,
    name: Option<String>,
    data: Option<String>,
}

impl Scanner {
    fn event(&mut self) -> Result<Option<Event>, io::Error> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                let name = self.name.take().unwrap_or_else(|| "message".to_owned());
                if let Some(data) = self.data.take() {
                    return Ok(Some(Event { name, data }));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => self.name = Some(value.to_owned()),
                "data" => match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => self.data = Some(value.to_owned()),
                },
                _ => {}
            }
            if self.data.as_ref().is_some_and(|data| data.len() > MESSAGE) {
                return Err(io::Error::other(format!("an event has more than {MESSAGE} bytes")));
            }
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.len() > MESSAGE {
            return Err(io::Error::other(format!("a line has more than {MESSAGE} bytes")));
        }
        Ok(None)
    }

    /// The next whole line. A CR at the very end waits for what follows: it may be half of a CRLF.
    fn line(&mut self) -> Option<String> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
        let length = match (rest[end], rest.get(end + 1)) {
            (b'\r', None) => return None,
            (b'\r', Some(b'\n')) => end + 2,
            _ => end + 1,
        };
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        self.at += length;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use proptest::prelude::*;
    use sse_stream::SseStream;

    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut scanner = Scanner::default();
        let mut events = Vec::new();
        for chunk in chunks {
            scanner.bytes.extend_from_slice(chunk);
            while let Some(event) = scanner.event().unwrap() {
                events.push((event.name, event.data));
            }
        }
        events
    }

    #[test]
    fn events_are_put_together_from_lines() {
        let pair = |name: &str, data: &str| (name.to_owned(), data.to_owned());
        for (stream, expected) in [
            ("event: endpoint\ndata: /m?s=1\n\n", vec![pair("endpoint", "/m?s=1")]),
            ("data: a\ndata:b\n\n", vec![pair("message", "a\nb")]),
            (": ping\n\ndata: a\r\n\r\ndata: b\r\rdata", vec![pair("message", "a"), pair("message", "b")]),
            ("event: x\n\ndata: a\n\n", vec![pair("message", "a")]),
            ("id: 1\nretry: 5\ndata\n\n", vec![pair("message", "")]),
            ("data: cut", vec![]),
        ] {
            assert_eq!(events(&[stream.as_bytes()]), expected, "{stream:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut scanner = Scanner { bytes: vec![b'x'; MESSAGE + 1], ..Scanner::default() };
        assert!(scanner.event().is_err());
    }

    /// What another reader of event streams makes of these bytes.
    fn others(stream: &[u8]) -> Vec<(String, String)> {
        let bytes = futures::stream::iter([Ok::<_, io::Error>(bytes::Bytes::copy_from_slice(stream))]);
        let events: Vec<_> = futures::executor::block_on(SseStream::from_bytes_stream(bytes).collect());
        let told = events
            .into_iter()
            .map(Result::unwrap)
            .filter_map(|event| Some((event.event.unwrap_or_else(|| "message".to_owned()), event.data?)));
        told.collect()
    }

    proptest! {
        #[test]
        fn another_reader_finds_the_same_events(stream in "((: [a-z]{0,3}\n)?(event: [a-z]{1,5}\n)?(id: [0-9]{1,3}\n)?(data:[ a-zä:{}\"]{0,6}\n){0,3}\n){0,6}") {
            prop_assert_eq!(events(&[stream.as_bytes()]), others(stream.as_bytes()));
        }

        #[test]
        fn no_bytes_make_it_panic(pieces in prop::collection::vec(prop_oneof![
            prop::sample::select(vec![&b"data:"[..], b"event: ", b"\r", b"\n", b"\r\n", b":", b"\n\n", b"\xef\xbb\xbf", b"\xff", b"\xc3"]).prop_map(<[u8]>::to_vec),
            prop::collection::vec(any::<u8>(), 0..8),
        ], 0..24)) {
            let whole = pieces.concat();
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let found = events(&pieces);
            prop_assert_eq!(&found, &events(&[&whole]), "however they are cut");
            prop_assert!(found.iter().map(|(name, data)| name.len() + data.len()).sum::<usize>() <= 3 * whole.len() + 7 * found.len());
        }

        #[test]
        fn cuts_between_chunks_change_nothing(stream in "(data: [a-zä]{0,3}|event: [a-z]|:|\r\n|\n){0,20}\n", cut in any::<prop::sample::Index>()) {
            let bytes = stream.as_bytes();
            let (first, second) = bytes.split_at(cut.index(bytes.len()));
            prop_assert_eq!(events(&[first, second]), events(&[bytes]));
        }
    }
}
