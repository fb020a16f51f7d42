//! `POST /knowledge-bases/{kb_id}/uploads`: passes a file on to the database, in parts, while it arrives. A file that does not
//! arrive as a whole is removed again.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use percent_encoding::percent_decode;
use slipway_api::worker::{self, FILENAME_HEADER, MEDIA_TYPE_BYTES_MAX, UPLOAD_BYTES_MAX, Uploaded};
use slipway_http::{BodyLimits, BodyReader, Error, HeaderMap, Reply, Request, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::failure;
use crate::metrics::Metrics;
use crate::server::Server;
use crate::store::Upload;

/// The length of every part but the last.
pub(crate) const PART_BYTES: usize = 1024 * 1024;
/// What one upload holds at most: the part that fills, two copies of it that the database's driver makes for its message, and
/// buffers of the connections.
const UPLOAD_BYTES: u64 = 4 * PART_BYTES as u64;
const UPLOADS_MAX: usize = 8;
/// What all uploads hold at most: 33,554,432 bytes. It is set apart, so that uploads take nothing from searches.
pub(crate) const UPLOADS_BUDGET_BYTES: u64 = UPLOADS_MAX as u64 * UPLOAD_BYTES;

/// How long an upload waits for others. Its body is not read meanwhile.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE_TIMEOUT: Duration = Duration::from_secs(30);
const TOTAL_TIMEOUT: Duration = Duration::from_mins(15);

pub(crate) struct Uploads {
    turns: Semaphore,
    metrics: Arc<Metrics>,
}

/// One of the uploads under way.
struct Turn<'a> {
    metrics: &'a Metrics,
    _permit: SemaphorePermit<'a>,
}

impl Uploads {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { turns: Semaphore::new(UPLOADS_MAX), metrics }
    }

    async fn turn(&self) -> Result<Turn<'_>, Error> {
        let Ok(Ok(permit)) = timeout(TURN_TIMEOUT, self.turns.acquire()).await else {
            let message = format!("{UPLOADS_MAX} files are being uploaded in this team, which is the most at once; try again in a moment");
            return Err(failure::later(Error::unavailable(message), 5));
        };
        self.metrics.uploads.inc();
        Ok(Turn { metrics: &self.metrics, _permit: permit })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.metrics.uploads.dec();
    }
}

pub(crate) async fn receive(server: &Server, base: &str, request: Request) -> Result<Reply, Error> {
    let (filename, content_type) = match described(request.headers()) {
        Ok(described) => described,
        Err(error) => return Err(request.refuse(error).await),
    };
    let limits = BodyLimits { bytes: UPLOAD_BYTES_MAX, pause: PAUSE_TIMEOUT, total: TOTAL_TIMEOUT };
    let mut body = request.into_body(limits);
    let stored = store(server, base, (&filename, &content_type), &mut body).await;
    match stored {
        Ok(upload) => Ok(Reply::json(&Uploaded { upload })?.with_status(StatusCode::CREATED)),
        Err(error) => {
            body.discard().await;
            Err(error)
        }
    }
}

async fn store(server: &Server, base: &str, described: (&str, &str), body: &mut BodyReader) -> Result<String, Error> {
    let _turn = server.uploads.turn().await?;
    let (mut upload, mut part) = (None, BytesMut::new());
    while let Some(mut piece) = body.next().await? {
        if part.capacity() == 0 {
            part.reserve(PART_BYTES);
        }
        while !piece.is_empty() {
            let length = piece.len().min(PART_BYTES - part.len());
            part.extend_from_slice(&piece.split_to(length));
            if part.len() == PART_BYTES {
                append(server, base, described, &mut upload, &part).await?;
                part.clear();
            }
        }
    }
    if !part.is_empty() {
        append(server, base, described, &mut upload, &part).await?;
    }
    match upload {
        Some(upload) => upload.finish().await,
        None => Err(Error::bad_request("the file is empty")),
    }
}

/// The upload begins in the database with its first part.
async fn append(
    server: &Server,
    base: &str,
    (filename, content_type): (&str, &str),
    upload: &mut Option<Upload>,
    part: &[u8],
) -> Result<(), Error> {
    let upload = match upload {
        Some(upload) => upload,
        None => upload.insert(server.store()?.begin_upload(base, filename, content_type).await?),
    };
    upload.append(part).await?;
    server.metrics.uploaded_bytes.inc_by(part.len() as u64);
    Ok(())
}

/// Name and media type of the file.
fn described(headers: &HeaderMap) -> Result<(String, String), Error> {
    let given = headers.get(FILENAME_HEADER).ok_or_else(|| Error::bad_request(format!("the header {FILENAME_HEADER} is missing")))?;
    let decoded = percent_decode(given.as_bytes()).decode_utf8();
    let decoded = decoded.map_err(|_| Error::bad_request(format!("the header {FILENAME_HEADER} is not percent-encoded UTF-8")))?;
    let filename = worker::filename(&decoded).map_err(Error::bad_request)?.to_owned();
    let content_type = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let content_type = content_type.unwrap_or("application/octet-stream");
    if !(1..=MEDIA_TYPE_BYTES_MAX).contains(&content_type.len()) {
        return Err(Error::bad_request(format!("the Content-Type must be text of at most {MEDIA_TYPE_BYTES_MAX} bytes")));
    }
    Ok((filename, content_type.to_owned()))
}

#[cfg(test)]
mod tests {
    use slipway_http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn all_uploads_together_hold_32_mebibytes() {
        assert_eq!(UPLOADS_BUDGET_BYTES, 33_554_432);
        assert!(PART_BYTES as u64 * 4 <= UPLOAD_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_too_many_waits_and_is_refused() {
        let uploads = Uploads::new(Arc::new(Metrics::new()));
        let mut turns = Vec::new();
        for _ in 0..UPLOADS_MAX {
            turns.push(uploads.turn().await.unwrap());
        }
        let refused = uploads.turn().await.err().unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(uploads.metrics.uploads.get(), 8);
        turns.pop();
        assert!(uploads.turn().await.is_ok());
    }

    #[test]
    fn a_file_is_described_by_its_headers() {
        let of = |name: &'static str, content_type: Option<&'static str>| {
            let name = (HeaderName::from_static(FILENAME_HEADER), HeaderValue::from_static(name));
            let content_type = content_type.map(|value| (header::CONTENT_TYPE, HeaderValue::from_static(value)));
            described(&[name].into_iter().chain(content_type).collect())
        };
        assert_eq!(of("Gr%C3%B6%C3%9Fe.pdf", Some("application/pdf")).unwrap(), ("Größe.pdf".to_owned(), "application/pdf".to_owned()));
        assert_eq!(of("a.csv", None).unwrap().1, "application/octet-stream");
        assert_eq!(of("..%2F..%2Fa.csv", None).unwrap().0, "a.csv");
        for wrong in ["", "%2F", "%00", "%ff", ".."] {
            assert!(of(wrong, None).is_err(), "{wrong}");
        }
        assert!(of("a.csv", Some("")).is_err());
        assert!(described(&HeaderMap::new()).is_err());
    }
}
