//! One upload-pack at work for one request: the body goes in while the answer comes out. Dropped, which is what happens
//! when the client leaves, it takes git with it.

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
use super::{Limits, Slot};
use crate::git::{Call, Child, Scrubbed};

/// What is read of git at a time, and so held for a client that does not read.
const PIECE: usize = 32 * 1024;
/// What is kept of git's complaints.
const COMPLAINTS: u64 = 4 * 1024;

pub(super) struct Session {
    child: Child,
    stdout: ChildStdout,
    feed: Task<Result<(), Broken>>,
    complaints: Task<Vec<u8>>,
    until: Instant,
    _slot: Slot,
}

/// A task that ends with its value. `None` once its outcome was taken.
struct Task<T>(Option<JoinHandle<T>>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Session {
    pub(super) fn start(call: Call, request: Option<Request>, limits: Limits, slot: Slot) -> Result<Self, Error> {
        let feed = request.map(|request| Inflate::new(request.headers(), limits.body).map(|inflate| (request, inflate))).transpose()?;
        let mut child = call.start().map_err(Error::internal)?;
        let (stdin, stdout, stderr) = child.streams().map_err(Error::internal)?;
        let feed = feed.map(|(request, inflate)| tokio::spawn(fed(request, inflate, stdin, limits.body)));
        let complaints = tokio::spawn(heard(stderr));
        let until = Instant::now() + limits.time;
        Ok(Self { child, stdout, feed: Task(feed), complaints: Task(Some(complaints)), until, _slot: slot })
    }

    /// The answer, once it has begun: until then a fault is still told by a status.
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
                // The connection is cut, which tells the client that there was more to come.
                Err(error) => Some((Err(io::Error::other(error.message().to_owned())), None)),
            }
        });
        Ok(Reply::stream(kind, StreamBody::new(Box::pin(begun.chain(rest)))))
    }

    /// The next piece of the answer, or `None` at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let mut piece = BytesMut::with_capacity(PIECE);
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

    /// Git tells its client itself what went wrong, so that the answer is whole in any case.
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

/// What a task came to; for ever pending where there is none, or none any more.
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

/// A body that did not come whole. Git's input stays open until git is gone, or it would take what it has for the whole.
struct Broken {
    error: Error,
    _stdin: ChildStdin,
}

/// Gives git the body, and its end if it came whole.
async fn fed(request: Request, mut inflate: Inflate, mut stdin: ChildStdin, limit: u64) -> Result<(), Broken> {
    let (sender, receiver) = mpsc::channel(1);
    let (passed, written) = tokio::join!(request.pass(limit, sender), written(receiver, &mut inflate, &mut stdin, limit));
    // A fault in what was sent also ends the passing, which then only says that nobody takes it.
    match written.and(passed).and_then(|()| inflate.end(limit)) {
        Ok(rest) => {
            // Git may have heard enough: its answer says so.
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

/// The beginning of git's complaints; the rest is read so that git can go on.
async fn heard(mut stderr: ChildStderr) -> Vec<u8> {
    let mut words = Vec::new();
    let _ = (&mut stderr).take(COMPLAINTS).read_to_end(&mut words).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    words
}
