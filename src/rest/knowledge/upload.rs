//! Passes an uploaded file on to the worker while it arrives. The form ends the request to the worker only when it is whole, with
//! one file in it: otherwise the worker sees a broken request, and removes what it has.

use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use slipway_api::ids;
use slipway_api::worker::{self, FILENAME_HEADER, MEDIA_TYPE_BYTES_MAX, UPLOAD_BYTES_MAX, Uploaded};
use slipway_http::multipart::{Form, FormPiece, PartHead};
use slipway_http::{BodyLimits, Error, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use tokio::sync::Mutex;

use crate::call::Call;
use crate::http_client::{BoxError, RequestBody};
use crate::relay::{WorkerBody, WorkerCall};

/// The part with the file.
const FILE: &str = "file";
/// What a form has besides the file.
const FORM_BYTES_MAX: u64 = 64 * 1024;
/// The longest time without a byte.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time of an upload: 100 MiB at 1 Mbit/s take 14 minutes.
const TOTAL_TIMEOUT: Duration = Duration::from_mins(15);
const LIMITS: BodyLimits = BodyLimits { bytes: UPLOAD_BYTES_MAX + FORM_BYTES_MAX, pause: PAUSE_TIMEOUT, total: TOTAL_TIMEOUT };
/// The memory of an upload: what the parser holds, and the buffers of both connections.
const UPLOAD_BYTES: u64 = 128 * 1024;

/// The form, and why it cannot be passed on. Both the request to the worker and this call hold it.
struct Passing {
    form: Form,
    passed: u64,
    refusal: Option<Error>,
}

/// The id of the upload at the worker.
pub(super) async fn pass(call: &Call, base: &str, request: Request) -> Result<String, Error> {
    if let Err(exhausted) = call.slot.charge(UPLOAD_BYTES) {
        return Err(request.refuse(exhausted).await);
    }
    let headers = request.headers().clone();
    let mut form = Form::new(&headers, request.into_body(LIMITS))?;
    let begun = if form.is_too_large() { Err(too_large()) } else { file(&mut form).await };
    let described = match begun {
        Ok(described) => described,
        Err(error) => {
            form.discard().await;
            return Err(error);
        }
    };
    let passing = Arc::new(Mutex::new(Passing { form, passed: 0, refusal: None }));
    let path = format!("/knowledge-bases/{}/uploads", ids::knowledge_base(base));
    let body = WorkerBody::File(body(Arc::clone(&passing)), described);
    let sent = WorkerCall { call, method: Method::POST, path, body }.uploaded::<Uploaded>().await;
    match sent {
        Ok(Uploaded { upload }) => Ok(upload),
        Err(error) => {
            let mut passing = passing.lock().await;
            passing.form.discard().await;
            Err(passing.refusal.take().unwrap_or(error))
        }
    }
}

/// Reads a form that is not needed, so that its client can end sending it.
pub(super) async fn skip(request: Request) -> Result<(), Error> {
    let mut body = request.into_body(LIMITS);
    while body.next().await?.is_some() {}
    Ok(())
}

/// The headers of the request to the worker, once the file begins.
async fn file(form: &mut Form) -> Result<Vec<(HeaderName, HeaderValue)>, Error> {
    let PartHead { name, filename, content_type } = match form.next().await? {
        FormPiece::Head(head) => head,
        FormPiece::Finished => return Err(Error::bad_request("the form has no file; send it in the part `file`")),
        FormPiece::Data(_) | FormPiece::End => return Err(Error::internal("a form begins without a part")),
    };
    if name != FILE {
        let name: String = name.chars().take(64).collect();
        return Err(Error::bad_request(format!("the form has a part {name:?}, and may only have one with the file, `file`")));
    }
    let filename = filename.ok_or_else(|| Error::bad_request("the part `file` has no filename"))?;
    let filename = utf8_percent_encode(worker::filename(&filename).map_err(Error::bad_request)?, NON_ALPHANUMERIC).to_string();
    let content_type = content_type.filter(|value| !value.is_empty()).unwrap_or_else(|| "application/octet-stream".to_owned());
    if content_type.len() > MEDIA_TYPE_BYTES_MAX {
        return Err(Error::bad_request(format!("the Content-Type of the part `file` may have at most {MEDIA_TYPE_BYTES_MAX} bytes")));
    }
    let content_type =
        HeaderValue::try_from(content_type).map_err(|_| Error::bad_request("the Content-Type of the part `file` cannot be read"))?;
    let filename = HeaderValue::try_from(filename).map_err(Error::internal)?;
    Ok(vec![(HeaderName::from_static(FILENAME_HEADER), filename), (header::CONTENT_TYPE, content_type)])
}

/// The bytes of the file, which end when the form does.
fn body(passing: Arc<Mutex<Passing>>) -> RequestBody {
    let frames = stream::unfold(Some(passing), |passing| async {
        let passing = passing?;
        let mut held = passing.lock().await;
        let next = held.next().await;
        let next = next.map(|piece| piece.map(Frame::data)).map_err(|error| {
            let cause = BoxError::from(error.message());
            held.refusal = Some(error);
            cause
        });
        drop(held);
        match next.transpose()? {
            Ok(frame) => Some((Ok(frame), Some(passing))),
            Err(error) => Some((Err(error), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Passing {
    /// The next bytes of the file; `None` if it and the form are whole.
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, Error> {
        match self.form.next().await? {
            FormPiece::Data(data) => {
                self.passed += data.len() as u64;
                if self.passed > UPLOAD_BYTES_MAX { Err(too_large()) } else { Ok(Some(data)) }
            }
            FormPiece::End => match self.form.next().await? {
                FormPiece::Finished if self.passed == 0 => Err(Error::bad_request("the file is empty")),
                FormPiece::Finished => Ok(None),
                _ => Err(Error::bad_request("the form may have one part only, `file`, with one file")),
            },
            FormPiece::Head(_) | FormPiece::Finished => Err(Error::internal("a form has another order than it should")),
        }
    }
}

fn too_large() -> Error {
    Error::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a file may have at most {UPLOAD_BYTES_MAX} bytes"))
}
