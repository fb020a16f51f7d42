//! A request to a provider over the network and its answer, for all providers. Each has a `ProviderApi`, which writes the
//! request, and an `EventReader`, which turns events into pieces.

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
use crate::fault::{FaultKind, ModelFault};
use crate::message::ModelRequest;
use crate::provider::Provider;
use crate::refusal::redacted;
use crate::transport::{Attempts, ProviderCall, Transport};
use crate::wire::{Event, Framing};

/// The time for reading the rest of a body after the end of the answer, so that the connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) type Pieces = VecDeque<Piece>;
pub(crate) type WriteFuture<'a> = Pin<Box<dyn Future<Output = Result<ProviderCall, ModelFault>> + Send + 'a>>;

pub(crate) trait ProviderApi: Send + Sync + 'static {
    /// Writes the request. Called for each attempt, because signatures and tokens expire.
    fn write<'a>(&'a self, request: &'a ModelRequest) -> WriteFuture<'a>;
    fn framing(&self) -> Framing;
    fn reader(&self) -> Box<dyn EventReader>;
}

pub(crate) trait EventReader: Send {
    /// Reads an event. An error may be a fault, or an error message of the provider.
    fn read(&mut self, event: Event, pieces: &mut Pieces) -> Result<(), EventError>;
    /// Ends the stream; `Stopped` must have been emitted, or be emitted now.
    fn finish(&mut self, pieces: &mut Pieces) -> Result<(), EventError>;
}

/// Why an event cannot be read as a part of the answer.
pub(crate) enum EventError {
    /// An error that the provider reports within the stream.
    Reported(serde_json::Value),
    Unreadable(&'static str),
}

pub(crate) struct RemoteModel<W> {
    pub(crate) provider: Provider,
    pub(crate) id: String,
    pub(crate) window: u32,
    pub(crate) wire: Arc<W>,
    pub(crate) transport: Arc<Transport>,
}

impl<W: ProviderApi> Model for RemoteModel<W> {
    fn answer(&self, request: ModelRequest) -> Answer {
        let exchange = Exchange {
            wire: self.wire.clone(),
            transport: self.transport.clone(),
            request,
            incoming: None,
            pieces: Pieces::new(),
            attempts: Attempts::new(),
            fault: None,
            started: false,
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
    request: ModelRequest,
    incoming: Option<OpenResponse>,
    /// Pieces that were read and not emitted yet.
    pieces: Pieces,
    attempts: Attempts,
    /// Emitted after `pieces`.
    fault: Option<ModelFault>,
    /// A piece was emitted, so that the request cannot be retried.
    started: bool,
    over: bool,
}

struct OpenResponse {
    response: Response,
    framing: Framing,
    reader: Box<dyn EventReader>,
    /// The headers that were sent, to redact their secrets in errors.
    sent: HeaderMap,
}

impl<W: ProviderApi> Exchange<W> {
    async fn next(&mut self) -> Option<Result<Piece, ModelFault>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(piece) = self.pieces.pop_front() {
                self.started = true;
                if matches!(piece, Piece::Stopped(_)) {
                    self.over = true;
                    self.drain();
                }
                return Some(Ok(piece));
            }
            if let Some(fault) = self.fault.take() {
                self.over = true;
                self.incoming = None;
                return Some(Err(fault));
            }
            if let Err(fault) = self.advance().await {
                self.fault = if self.started || !self.pieces.is_empty() {
                    Some(fault)
                } else {
                    self.incoming = None;
                    self.attempts.pause(self.transport.limits(), fault).await.err()
                };
            }
        }
    }

    /// Opens the answer, or reads its next part.
    async fn advance(&mut self) -> Result<(), ModelFault> {
        let incoming = match &mut self.incoming {
            Some(incoming) => incoming,
            closed => {
                let call = self.wire.write(&self.request).await?;
                let response = self.transport.attempt(&call).await?;
                closed.insert(OpenResponse { response, framing: self.wire.framing(), reader: self.wire.reader(), sent: call.headers })
            }
        };
        let chunk = self.transport.chunk(&mut incoming.response).await?;
        let (pieces, transport, reader) = (&mut self.pieces, &self.transport, &mut incoming.reader);
        let told = |trouble: EventError| redacted(trouble.fault(transport), &incoming.sent);
        let mut sink = |event| reader.read(event, pieces).map_err(told);
        if let Some(bytes) = chunk {
            return incoming.framing.feed(&bytes, &mut sink);
        }
        incoming.framing.finish(&mut sink)?;
        let stopped = |pieces: &Pieces| pieces.iter().any(|piece| matches!(piece, Piece::Stopped(_)));
        if !stopped(pieces) {
            reader.finish(pieces).map_err(told)?;
        }
        if stopped(pieces) { Ok(()) } else { Err(told(EventError::Unreadable("it ended before its end"))) }
    }

    /// Reads the body to its end after the end of the answer, so that the connection can be reused.
    fn drain(&mut self) {
        let Some(OpenResponse { mut response, .. }) = self.incoming.take() else { return };
        tokio::spawn(timeout(DRAIN_TIMEOUT, async move { while let Ok(Some(_)) = response.chunk().await {} }));
    }
}

impl EventError {
    fn fault(self, transport: &Transport) -> ModelFault {
        match self {
            Self::Reported(error) => transport.refused(200, &error).fault(),
            Self::Unreadable(why) => ModelFault::new(FaultKind::Broken, format!("the model's answer cannot be read: {why}; try again")),
        }
    }
}

#[cfg(test)]
mod tests;
