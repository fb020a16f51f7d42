//! One upload-pack of one request: the body is written while the response is read. Dropping it, as when the client
//! disconnects, kills git.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use http_body_util::StreamBody;
use hyper::body::Frame;
use slipway_http::{Error, Reply, Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use super::inflate::Inflate;
use super::{ServeLimits, Slot};
use crate::git::{Child, GitCall, Scrubbed};

/// Buffer for output of git, which is all that a client that does not read occupies.
const BUFFER_BYTES: usize = 32 * 1024;
/// Kept bytes of stderr.
const MAX_STDERR_BYTES: u64 = 4 * 1024;

pub(super) struct Session {
    child: Child,
    stdout: ChildStdout,
    feed: Task<Result<(), Broken>>,
    complaints: Task<Vec<u8>>,
    until: Instant,
    _slot: Slot,
}

/// A task that is aborted on drop. `None` once its result was taken.
struct Task<T>(Option<JoinHandle<T>>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Session {
    pub(super) fn start(call: GitCall, request: Option<Request>, limits: ServeLimits, slot: Slot) -> Result<Self, Error> {
        let feed = request.map(|request| Inflate::new(request.headers(), limits.body).map(|inflate| (request, inflate))).transpose()?;
        let mut child = call.start().map_err(Error::internal)?;
        let (stdin, stdout, stderr) = child.streams().map_err(Error::internal)?;
        let feed = feed.map(|(request, inflate)| tokio::spawn(fed(request, inflate, stdin, limits.body)));
        let complaints = tokio::spawn(heard(stderr));
        let until = Instant::now() + limits.time;
        Ok(Self { child, stdout, feed: Task(feed), complaints: Task(Some(complaints)), until, _slot: slot })
    }

    /// The response. An error before the first output becomes a status.
    pub(super) async fn into_reply(mut self, kind: &'static str, head: Bytes) -> Result<Reply, Error> {
        let Some(first) = self.next().await? else {
            return match self.child.wait().await {
                Ok(status) if status.success() => Ok(Reply::bytes(kind, head)),
                Ok(status) => Err(Error::internal(format!("git upload-pack: {status}: {}", self.complaint().await))),
                Err(error) => Err(Error::internal(error)),
            };
        };
        let begun = stream::iter([head, first]).filter(|piece| std::future::ready(!piece.is_empty())).map(|piece| Ok(Frame::data(piece)));
        let rest = stream::unfold(Some(self), |session| async move {
            let mut session = session?;
            match session.next().await {
                Ok(Some(piece)) => Some((Ok(Frame::data(piece)), Some(session))),
                Ok(None) => {
                    session.end().await;
                    None
                }
                // The connection is closed, so that the client sees an incomplete response.
                Err(error) => Some((Err(io::Error::other(error.message().to_owned())), None)),
            }
        });
        Ok(Reply::stream(kind, StreamBody::new(Box::pin(begun.chain(rest)))))
    }

    /// The next piece of the response, or `None` at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let mut piece = BytesMut::with_capacity(BUFFER_BYTES);
        loop {
            tokio::select! {
                read = self.stdout.read_buf(&mut piece) => {
                    let count = read.map_err(Error::internal)?;
                    return Ok((count > 0).then(|| piece.freeze()));
                }
                fed = outcome(&mut self.feed) => fed.map_err(Error::internal)?.map_err(|broken| broken.error)?,
                () = sleep_until(self.until) => {
                    return Err(Error::new(StatusCode::GATEWAY_TIMEOUT, "reading the repository took too long"));
                }
            }
        }
    }

    /// Logs a failure. Git has reported it to its client, so that the response is complete.
    async fn end(mut self) {
        match timeout(Duration::from_secs(1), self.child.wait()).await {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => {
                let complaint = self.complaint().await;
                debug!(%status, complaint, "git upload-pack was not content");
            }
            Ok(Err(error)) => warn!(%error, "git upload-pack could not be waited for"),
            Err(_) => warn!("git upload-pack had said all and did not end"),
        }
    }

    async fn complaint(&mut self) -> String {
        let heard = timeout(Duration::from_millis(200), outcome(&mut self.complaints)).await;
        Scrubbed::new(&heard.ok().and_then(Result::ok).unwrap_or_default(), &[]).line()
    }
}

/// The result of a task. Pending forever without one.
async fn outcome<T>(task: &mut Task<T>) -> Result<T, tokio::task::JoinError> {
    match &mut task.0 {
        Some(running) => {
            let outcome = running.await;
            task.0 = None;
            outcome
        }
        None => std::future::pending().await,
    }
}

/// An incomplete body. The input stays open until git is killed: at its end git would take it for complete.
struct Broken {
    error: Error,
    _stdin: ChildStdin,
}

/// Writes the body to git, and closes the input if the body is complete.
async fn fed(request: Request, mut inflate: Inflate, mut stdin: ChildStdin, limit: u64) -> Result<(), Broken> {
    let (sender, receiver) = mpsc::channel(1);
    let (passed, written) = tokio::join!(request.pass(limit, sender), written(receiver, &mut inflate, &mut stdin, limit));
    // An invalid body also ends the transfer, with a less specific error.
    match written.and(passed).and_then(|()| inflate.end(limit)) {
        Ok(rest) => {
            // Git may have closed its input; its output tells why.
            let _ = stdin.write_all(&rest).await;
            Ok(())
        }
        Err(error) => Err(Broken { error, _stdin: stdin }),
    }
}

async fn written(mut pieces: mpsc::Receiver<Bytes>, inflate: &mut Inflate, stdin: &mut ChildStdin, limit: u64) -> Result<(), Error> {
    let mut heard = true;
    while let Some(piece) = pieces.recv().await {
        for step in inflate.steps(&piece) {
            let bytes = inflate.unpack(step, limit)?;
            heard = heard && stdin.write_all(&bytes).await.is_ok();
        }
    }
    Ok(())
}

/// The beginning of stderr. The rest is discarded, so that git does not block.
async fn heard(mut stderr: ChildStderr) -> Vec<u8> {
    let mut words = Vec::new();
    let _ = (&mut stderr).take(MAX_STDERR_BYTES).read_to_end(&mut words).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    words
}
