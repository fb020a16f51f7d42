//! Calls to the control port of an agent's pod, by its address, with a signed token. A pod's answer may be untrue, late or too
//! long: the time and the bytes of each call are limited, and those of all calls together.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use slipway_api::contract;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// An agent may wait 10 s for the servers of its tools.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// What all answers may hold together while they are read, in KiB: an agent that answers at length costs no other its memory.
const ANSWERS_KIB: usize = 64 * 1024;
static ANSWERS: Semaphore = Semaphore::const_new(ANSWERS_KIB);

/// Makes the token for an agent's control port from the agent's id.
pub type Sign = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

#[derive(Debug, Error)]
pub enum Fault {
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] std::io::Error),
    #[error("the exchange broke off: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error("it answered with status {0}")]
    Refused(StatusCode),
    #[error("its answer cannot be used: {0}")]
    Answer(Box<dyn std::error::Error + Send + Sync>),
    #[error("it did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Late,
    #[error("its answer has more than {0} bytes")]
    TooLong(usize),
    #[error("too many long answers are being read")]
    Busy,
}

/// A call.
pub(crate) struct PodCall<'a> {
    pub method: Method,
    pub path: &'a str,
    pub token: &'a str,
    /// JSON; empty for none.
    pub body: Bytes,
    pub max_answer_bytes: usize,
}

/// What came back. The room for it is given back when it is dropped.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
    _room: Vec<SemaphorePermit<'static>>,
}

/// Where an agent's pod is asked.
pub(crate) fn address(pod: IpAddr) -> SocketAddr {
    SocketAddr::new(pod, u16::try_from(contract::CONTROL_PORT).unwrap_or_default())
}

/// Calls a pod, and reads its answer whatever the status.
pub(crate) async fn call(address: SocketAddr, call: PodCall<'_>) -> Result<Answer, Fault> {
    let exchange = async {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(header::HOST, address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", call.token));
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(call.body))?;
        let talk = async {
            let response = sender.send_request(request).await?;
            read(response.status(), response.into_body(), call.max_answer_bytes).await
        };
        tokio::pin!(connection, talk);
        tokio::select! {
            answer = &mut talk => answer,
            ended = &mut connection => {
                ended?;
                talk.await
            }
        }
    };
    timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or(Err(Fault::Late))
}

async fn read(status: StatusCode, mut from: Incoming, most: usize) -> Result<Answer, Fault> {
    if from.size_hint().lower() > most as u64 {
        return Err(Fault::TooLong(most));
    }
    let (mut body, mut room, mut paid) = (BytesMut::new(), Vec::new(), 0);
    while let Some(frame) = from.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if body.len() + data.len() > most {
            return Err(Fault::TooLong(most));
        }
        let due = (body.len() + data.len()).div_ceil(1024) - paid;
        if due > 0 {
            room.push(ANSWERS.try_acquire_many(u32::try_from(due).unwrap_or(u32::MAX)).map_err(|_| Fault::Busy)?);
            paid += due;
        }
        body.extend_from_slice(&data);
    }
    Ok(Answer { status, body: body.freeze(), _room: room })
}
