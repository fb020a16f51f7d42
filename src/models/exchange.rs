//! A question to a provider over the network and its answer: the same for all of them. What differs
//! is a `Wire`: how the request is written, and a `Reader` that makes pieces of events.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use http::HeaderMap;
use reqwest::Response;
use tokio::time::timeout;

use crate::answer::{Answer, Model, Piece};
use crate::fault::{Fault, FaultKind};
use crate::message::Request;
use crate::provider::Provider;
use crate::refusal::redacted;
use crate::transport::{Attempts, Call, Transport};
use crate::wire::{Event, Framing};

/// What is left of an answer after its end is read for this long, so that the connection can be used again.
const LINGER: Duration = Duration::from_secs(2);

pub(crate) type Pieces = VecDeque<Piece>;
pub(crate) type Written<'a> = Pin<Box<dyn Future<Output = Result<Call, Fault>> + Send + 'a>>;

pub(crate) trait Wire: Send + Sync + 'static {
    /// The request, written anew for each attempt, because signatures and tokens age.
    fn write<'a>(&'a self, request: &'a Request) -> Written<'a>;
    fn framing(&self) -> Framing;
    fn reader(&self) -> Box<dyn Reader>;
}

pub(crate) trait Reader: Send {
    /// Takes an event. An `Err` that is not a fault yet is what the provider said went wrong.
    fn read(&mut self, event: Event, pieces: &mut Pieces) -> Result<(), Trouble>;
    /// The stream has ended; `Stopped` must have come, or come now.
    fn finish(&mut self, pieces: &mut Pieces) -> Result<(), Trouble>;
}

/// Why an event is not part of an answer.
pub(crate) enum Trouble {
    /// An error that the provider reports within the stream.
    Reported(serde_json::Value),
    Unreadable(&'static str),
}

pub(crate) struct Remote<W> {
    pub(crate) provider: Provider,
    pub(crate) id: String,
    pub(crate) window: u32,
    pub(crate) wire: Arc<W>,
    pub(crate) transport: Arc<Transport>,
}

impl<W: Wire> Model for Remote<W> {
    fn answer(&self, request: Request) -> Answer {
        let exchange = Exchange {
            wire: self.wire.clone(),
            transport: self.transport.clone(),
            request,
            incoming: None,
            pieces: Pieces::new(),
            attempts: Attempts::new(),
            fault: None,
            given: false,
            over: false,
        };
        Box::pin(stream::unfold(exchange, |mut exchange| async move { exchange.next().await.map(|piece| (piece, exchange)) }))
    }

    fn provider(&self) -> Provider {
        self.provider
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn window(&self) -> u32 {
        self.window
    }
}

struct Exchange<W> {
    wire: Arc<W>,
    transport: Arc<Transport>,
    request: Request,
    incoming: Option<Incoming>,
    /// Read, but not given out yet.
    pieces: Pieces,
    attempts: Attempts,
    /// Comes after the pieces that were read before it.
    fault: Option<Fault>,
    /// Something of the answer is out: it cannot begin anew any more.
    given: bool,
    over: bool,
}

struct Incoming {
    response: Response,
    framing: Framing,
    reader: Box<dyn Reader>,
    /// What was sent, so that no secret of it comes back in an error.
    sent: HeaderMap,
}

impl<W: Wire> Exchange<W> {
    async fn next(&mut self) -> Option<Result<Piece, Fault>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(piece) = self.pieces.pop_front() {
                self.given = true;
                if matches!(piece, Piece::Stopped(_)) {
                    self.over = true;
                    self.let_go();
                }
                return Some(Ok(piece));
            }
            if let Some(fault) = self.fault.take() {
                self.over = true;
                self.incoming = None;
                return Some(Err(fault));
            }
            if let Err(fault) = self.advance().await {
                self.fault = if self.given || !self.pieces.is_empty() {
                    Some(fault)
                } else {
                    self.incoming = None;
                    self.attempts.pause(self.transport.limits(), fault).await.err()
                };
            }
        }
    }

    /// Opens the answer, or reads on in it.
    async fn advance(&mut self) -> Result<(), Fault> {
        let incoming = match &mut self.incoming {
            Some(incoming) => incoming,
            closed => {
                let call = self.wire.write(&self.request).await?;
                let response = self.transport.attempt(&call).await?;
                closed.insert(Incoming { response, framing: self.wire.framing(), reader: self.wire.reader(), sent: call.headers })
            }
        };
        let chunk = self.transport.chunk(&mut incoming.response).await?;
        let (pieces, transport, reader) = (&mut self.pieces, &self.transport, &mut incoming.reader);
        let told = |trouble: Trouble| redacted(trouble.fault(transport), &incoming.sent);
        let mut sink = |event| reader.read(event, pieces).map_err(told);
        if let Some(bytes) = chunk {
            return incoming.framing.feed(&bytes, &mut sink);
        }
        incoming.framing.finish(&mut sink)?;
        let stopped = |pieces: &Pieces| pieces.iter().any(|piece| matches!(piece, Piece::Stopped(_)));
        if !stopped(pieces) {
            reader.finish(pieces).map_err(told)?;
        }
        if stopped(pieces) { Ok(()) } else { Err(told(Trouble::Unreadable("it ended before its end"))) }
    }

    /// Reads what stands between the end of the answer and the end of the body, so that the connection can be kept.
    fn let_go(&mut self) {
        let Some(Incoming { mut response, .. }) = self.incoming.take() else { return };
        tokio::spawn(timeout(LINGER, async move { while let Ok(Some(_)) = response.chunk().await {} }));
    }
}

impl Trouble {
    fn fault(self, transport: &Transport) -> Fault {
        match self {
            Self::Reported(error) => transport.refused(200, &error).fault(),
            Self::Unreadable(why) => Fault::new(FaultKind::Broken, format!("the model's answer cannot be read: {why}; try again")),
        }
    }
}

#[cfg(test)]
mod tests;
