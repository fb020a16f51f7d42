//! An archive that is sent along, whole or as the only part of a form, is kept in a file without a name until it is unpacked.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use bytes::Bytes;
use slipway_http::{Error, HeaderMap, Request, StatusCode, header};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::try_join;

use super::archive::Archive;
use super::disk::{Disk, Place};
use super::import::TAKEN;

/// The largest archive that is taken.
const LARGEST: u64 = 100 * 1024 * 1024;
/// A form adds a few lines before and after it.
const FORM: u64 = 4096;
/// How many pieces of an archive wait, and how many bytes are written together.
const PIECES: usize = 2;
const WRITTEN_BYTES: usize = 64 * 1024;
static DISK: LazyLock<Disk> = LazyLock::new(Disk::default);

/// In which form a body comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Media {
    Json,
    Zip,
    /// With the boundary between its parts.
    Form(String),
}

pub(super) fn media(headers: &HeaderMap) -> Result<Media, Error> {
    let other = || Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, TAKEN);
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).ok_or_else(other)?;
    let (essence, parameters) = value.split_once(';').unwrap_or((value, ""));
    match essence.trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(Media::Json),
        "application/zip" | "application/x-zip-compressed" => Ok(Media::Zip),
        "multipart/form-data" => {
            let boundary = parameters.split(';').find_map(|parameter| {
                let (name, value) = parameter.trim().split_once('=')?;
                name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"').to_owned())
            });
            let boundary = boundary.filter(|boundary| (1..=70).contains(&boundary.len()));
            boundary
                .map(Media::Form)
                .ok_or_else(|| Error::bad_request("Content-Type: multipart/form-data needs a boundary of 1 to 70 characters"))
        }
        _ => Err(other()),
    }
}

/// The body's archive, and the team's place for it.
pub(super) async fn receive(request: Request, media: Media, team: &str) -> Result<(Archive, Place), Error> {
    let most = if matches!(media, Media::Form(_)) { LARGEST + FORM } else { LARGEST };
    let place = DISK.place(team)?;
    let (sender, receiver) = mpsc::channel(PIECES);
    // Whichever fails first is what went wrong.
    let ((file, length, place), ()) = try_join!(written(receiver, place), request.pass(most, sender))?;
    let archive = match media {
        Media::Form(boundary) => part(file, length, &boundary)?,
        Media::Json | Media::Zip => Archive { file, start: 0, length },
    };
    Ok((archive, place))
}

/// Writes what comes. A thread waits for the disk, and none for the client.
async fn written(mut pieces: mpsc::Receiver<Bytes>, mut place: Place) -> Result<(File, u64, Place), Error> {
    let mut file = tempfile::tempfile().map_err(Error::internal)?;
    let (mut length, mut next) = (0, Vec::new());
    while let Some(piece) = pieces.recv().await {
        place.grow(piece.len() as u64)?;
        length += piece.len() as u64;
        next.extend_from_slice(&piece);
        if next.len() >= WRITTEN_BYTES {
            file = write(file, std::mem::take(&mut next)).await?;
        }
    }
    Ok((write(file, next).await?, length, place))
}

async fn write(mut file: File, bytes: Vec<u8>) -> Result<File, Error> {
    let written = spawn_blocking(move || file.write_all(&bytes).map(|()| file));
    written.await.map_err(Error::internal)?.map_err(Error::internal)
}

/// The only part of a form, which must be called `file`.
fn part(file: File, length: u64, boundary: &str) -> Result<Archive, Error> {
    let wrong = || Error::bad_request("the form must have one part and no other: `file`, with the zip archive");
    let read = |at: u64, length: u64| {
        let mut bytes = vec![0; usize::try_from(length).map_err(Error::internal)?];
        file.read_exact_at(&mut bytes, at).map_err(Error::internal)?;
        Ok::<_, Error>(bytes)
    };
    let head = read(0, length.min(FORM))?;
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
    let from = length.saturating_sub(FORM).max(start);
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
        let archive = part(file, body.len() as u64, boundary).map_err(|error| error.message().to_owned())?;
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
    fn the_form_is_known_by_its_content_type() {
        for (value, expected) in [
            ("application/json; charset=utf-8", Ok(Media::Json)),
            ("Application/Zip", Ok(Media::Zip)),
            ("application/x-zip-compressed", Ok(Media::Zip)),
            ("multipart/form-data; boundary=abc", Ok(Media::Form("abc".to_owned()))),
            ("multipart/form-data; charset=utf-8; Boundary=\"a b\"", Ok(Media::Form("a b".to_owned()))),
            ("multipart/form-data", Err(StatusCode::BAD_REQUEST)),
            ("multipart/form-data; boundary=", Err(StatusCode::BAD_REQUEST)),
            ("text/plain", Err(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
        ] {
            let headers = [(header::CONTENT_TYPE, value.parse().unwrap())].into_iter().collect();
            assert_eq!(media(&headers).map_err(|error| error.status()), expected, "{value}");
        }
        assert_eq!(media(&HeaderMap::new()).unwrap_err().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }

    proptest! {
        #[test]
        fn whatever_a_form_holds_is_found_and_others_are_refused(content in "\\PC{0,30}|([\r\nb-]|--b|PK){0,20}", boundary in "[a-zA-Z0-9'()+_,./:=?-]{1,70}", quoted: bool) {
            let name = if quoted { "name=\"file\"" } else { "name=file" };
            let form = format!("--{boundary}\r\nContent-Disposition: form-data; {name}\r\n\r\n{content}\r\n--{boundary}--\r\n");
            prop_assert_eq!(sent(&form, &boundary), Ok(content.clone()));
            if let Ok(found) = sent(&content, "b") {
                prop_assert!(content.contains(&found));
            }
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_str(&format!("multipart/form-data; boundary=\"{boundary}\"")).unwrap())]);
            prop_assert_eq!(media(&headers).map_err(|error| error.status()), Ok(Media::Form(boundary)));
        }

        #[test]
        fn no_media_type_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "(multipart/form-data|;|=|boundary|\"| |é){0,8}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                let Ok(value) = HeaderValue::from_bytes(bytes) else { continue };
                if let Ok(Media::Form(boundary)) = media(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)])) {
                    prop_assert!((1..=70).contains(&boundary.len()));
                }
            }
        }
    }
}
