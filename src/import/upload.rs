//! Receives an uploaded archive, as the whole body or the only part of a form, into an unnamed temporary file.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use slipway_http::{Error, HeaderMap, Request, StatusCode, header};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::try_join;

use super::archive::Archive;
use super::disk::{DiskBudget, DiskPermit};

/// The largest archive.
const ARCHIVE_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// The headers of a form, before and after the archive.
const FORM_BYTES_MAX: u64 = 4096;
/// The pieces of an archive that wait for the disk, and the bytes of one write.
const QUEUED_PIECES: usize = 2;
const WRITE_BYTES: usize = 64 * 1024;
const EXPECTED: &str = "the body must be application/json with a `source`, application/zip, or multipart/form-data with a `file`";

/// The media type of an import's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaType {
    Json,
    Zip,
    /// With the boundary between its parts.
    Form(String),
}

impl MediaType {
    /// The media type of a request with these headers; 415 if an import takes no such body.
    pub fn of(headers: &HeaderMap) -> Result<Self, Error> {
        media_type(headers)
    }
}

fn media_type(headers: &HeaderMap) -> Result<MediaType, Error> {
    let other = || Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, EXPECTED);
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).ok_or_else(other)?;
    let (essence, parameters) = value.split_once(';').unwrap_or((value, ""));
    match essence.trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(MediaType::Json),
        "application/zip" | "application/x-zip-compressed" => Ok(MediaType::Zip),
        "multipart/form-data" => {
            let boundary = parameters.split(';').find_map(|parameter| {
                let (name, value) = parameter.trim().split_once('=')?;
                name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"').to_owned())
            });
            let boundary = boundary.filter(|boundary| (1..=70).contains(&boundary.len()));
            boundary
                .map(MediaType::Form)
                .ok_or_else(|| Error::bad_request("Content-Type: multipart/form-data needs a boundary of 1 to 70 characters"))
        }
        _ => Err(other()),
    }
}

/// The archive in the body, and the permit for its disk space.
pub(super) async fn receive(
    disk: &DiskBudget,
    request: Request,
    media_type: MediaType,
    team: &str,
) -> Result<(Archive, DiskPermit), Error> {
    let bytes_max = if matches!(media_type, MediaType::Form(_)) { ARCHIVE_BYTES_MAX + FORM_BYTES_MAX } else { ARCHIVE_BYTES_MAX };
    let permit = disk.acquire(team)?;
    let (sender, receiver) = mpsc::channel(QUEUED_PIECES);
    // The first failure is the cause.
    let ((file, length, permit), ()) = try_join!(write_all(receiver, permit), request.pass(bytes_max, sender))?;
    let archive = match media_type {
        MediaType::Form(boundary) => form_part(file, length, &boundary)?,
        MediaType::Json | MediaType::Zip => Archive { file, start: 0, length },
    };
    Ok((archive, permit))
}

/// Writes the pieces to a file. Only writes occupy a thread; waiting for the client does not.
async fn write_all(mut pieces: mpsc::Receiver<Bytes>, mut permit: DiskPermit) -> Result<(File, u64, DiskPermit), Error> {
    let mut file = tempfile::tempfile().map_err(Error::internal)?;
    let (mut length, mut next) = (0, Vec::new());
    while let Some(piece) = pieces.recv().await {
        permit.grow(piece.len() as u64)?;
        length += piece.len() as u64;
        next.extend_from_slice(&piece);
        if next.len() >= WRITE_BYTES {
            file = write(file, std::mem::take(&mut next)).await?;
        }
    }
    Ok((write(file, next).await?, length, permit))
}

async fn write(mut file: File, bytes: Vec<u8>) -> Result<File, Error> {
    let written = spawn_blocking(move || file.write_all(&bytes).map(|()| file));
    written.await.map_err(Error::internal)?.map_err(Error::internal)
}

/// The archive in a form, whose only part must be `file`.
fn form_part(file: File, length: u64, boundary: &str) -> Result<Archive, Error> {
    let wrong = || Error::bad_request("the form must have one part and no other: `file`, with the zip archive");
    let read = |at: u64, length: u64| {
        let mut bytes = vec![0; usize::try_from(length).map_err(Error::internal)?];
        file.read_exact_at(&mut bytes, at).map_err(Error::internal)?;
        Ok::<_, Error>(bytes)
    };
    let head = read(0, length.min(FORM_BYTES_MAX))?;
    let first = format!("--{boundary}\r\n");
    let opening =
        head.windows(4).position(|window| window == b"\r\n\r\n").filter(|_| head.starts_with(first.as_bytes())).ok_or_else(wrong)?;
    let lines = std::str::from_utf8(&head[first.len().min(opening)..opening]).map_err(|_| wrong())?;
    let named = lines.lines().any(|line| {
        let Some((name, value)) = line.split_once(':') else { return false };
        let is_file = |parameter: &str| matches!(parameter.trim(), "name=\"file\"" | "name=file");
        name.eq_ignore_ascii_case("content-disposition") && value.split(';').any(is_file)
    });
    if !named {
        return Err(wrong());
    }
    let start = opening as u64 + 4;
    let from = length.saturating_sub(FORM_BYTES_MAX).max(start);
    let tail = read(from, length - from)?;
    let closing = format!("\r\n--{boundary}--");
    let end = tail.windows(closing.len()).rposition(|window| window == closing.as_bytes()).ok_or_else(wrong)?;
    Ok(Archive { file, start, length: from + end as u64 - start })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slipway_http::HeaderValue;

    use super::*;

    fn sent(body: &str, boundary: &str) -> Result<String, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(body.as_bytes()).unwrap();
        let archive = form_part(file, body.len() as u64, boundary).map_err(|error| error.message().to_owned())?;
        let mut bytes = vec![0; usize::try_from(archive.length).unwrap()];
        archive.file.read_exact_at(&mut bytes, archive.start).unwrap();
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_only_part_of_a_form_is_the_archive() {
        let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.zip\"\r\nContent-Type: application/zip\r\n\r\n";
        assert_eq!(sent(&format!("{head}PK\r\n--bytes\r\n--b--\r\n"), "b").as_deref(), Ok("PK\r\n--bytes"));
        assert_eq!(sent(&format!("{head}\r\n--b--"), "b").as_deref(), Ok(""));
        for body in [
            String::new(),
            "--b--\r\n".to_owned(),
            head.to_owned(),
            format!("{head}PK"),
            format!("x{head}PK\r\n--b--"),
            head.replace("\"file\"", "\"other\"") + "PK\r\n--b--",
            "--b\r\n\r\nPK\r\n--b--".to_owned(),
            "--b\r\nContent-Disposition: form-data; name=\"file\"".to_owned() + &"x".repeat(8192) + "\r\n\r\nPK\r\n--b--",
        ] {
            assert!(sent(&body, "b").unwrap_err().contains("one part"), "{body:.60}");
        }
    }

    #[test]
    fn the_media_type_is_read_from_content_type() {
        for (value, expected) in [
            ("application/json; charset=utf-8", Ok(MediaType::Json)),
            ("Application/Zip", Ok(MediaType::Zip)),
            ("application/x-zip-compressed", Ok(MediaType::Zip)),
            ("multipart/form-data; boundary=abc", Ok(MediaType::Form("abc".to_owned()))),
            ("multipart/form-data; charset=utf-8; Boundary=\"a b\"", Ok(MediaType::Form("a b".to_owned()))),
            ("multipart/form-data", Err(StatusCode::BAD_REQUEST)),
            ("multipart/form-data; boundary=", Err(StatusCode::BAD_REQUEST)),
            ("text/plain", Err(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
        ] {
            let headers = [(header::CONTENT_TYPE, value.parse().unwrap())].into_iter().collect();
            assert_eq!(media_type(&headers).map_err(|error| error.status()), expected, "{value}");
        }
        assert_eq!(media_type(&HeaderMap::new()).unwrap_err().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }

    proptest! {
        #[test]
        fn the_part_of_a_form_is_found_with_any_content(content in "\\PC{0,30}|([\r\nb-]|--b|PK){0,20}", boundary in "[a-zA-Z0-9'()+_,./:=?-]{1,70}", quoted: bool) {
            let name = if quoted { "name=\"file\"" } else { "name=file" };
            let form = format!("--{boundary}\r\nContent-Disposition: form-data; {name}\r\n\r\n{content}\r\n--{boundary}--\r\n");
            prop_assert_eq!(sent(&form, &boundary), Ok(content.clone()));
            if let Ok(found) = sent(&content, "b") {
                prop_assert!(content.contains(&found));
            }
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_str(&format!("multipart/form-data; boundary=\"{boundary}\"")).unwrap())]);
            prop_assert_eq!(media_type(&headers).map_err(|error| error.status()), Ok(MediaType::Form(boundary)));
        }

        #[test]
        fn no_media_type_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "(multipart/form-data|;|=|boundary|\"| |é){0,8}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                let Ok(value) = HeaderValue::from_bytes(bytes) else { continue };
                if let Ok(MediaType::Form(boundary)) = media_type(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)])) {
                    prop_assert!((1..=70).contains(&boundary.len()));
                }
            }
        }
    }
}
