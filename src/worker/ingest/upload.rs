//! A file that was uploaded, as a source with one document.

use std::fs::File;
use std::io::Write;

use slipway_database::knowledge::KnowledgeBase;
use slipway_knowledge::source::{Fetched, Item, MAX_DOCUMENT_BYTES, PageToken, Pending, Source, SourceError, SourceErrorKind, SourcePage};

pub(super) struct UploadedFile {
    base: KnowledgeBase,
    id: String,
}

impl UploadedFile {
    pub(super) fn new(base: KnowledgeBase, id: &str) -> Self {
        Self { base, id: id.to_owned() }
    }
}

impl Source for UploadedFile {
    /// Named after the file: the same name again takes its place.
    fn page<'a>(&'a self, _: Option<&'a PageToken>) -> Pending<'a, SourcePage> {
        Box::pin(async {
            let upload = self.base.upload(&self.id).await.map_err(of_database)?.filter(|upload| upload.complete);
            let upload = upload.ok_or_else(|| {
                let why = format!("upload {}: it is not there; a file waits for a day to be ingested, upload it again", self.id);
                SourceError::new(SourceErrorKind::Misconfigured, why)
            })?;
            let item = Item {
                key: upload.filename.clone(),
                uri: upload.filename.clone(),
                filename: upload.filename,
                content_type: Some(upload.content_type),
                version: None,
                size: Some(upload.bytes),
            };
            Ok(SourcePage { items: vec![item], ..SourcePage::default() })
        })
    }

    fn fetch<'a>(&'a self, item: &'a Item, file: &'a mut File) -> Pending<'a, Fetched> {
        Box::pin(async move {
            let mut bytes = 0;
            for ordinal in 0.. {
                let Some(part) = self.base.read_part(&self.id, ordinal).await.map_err(of_database)? else { break };
                bytes += part.len() as u64;
                if bytes > MAX_DOCUMENT_BYTES {
                    return Err(SourceError::new(
                        SourceErrorKind::Unfetchable,
                        format!("the file has more than {MAX_DOCUMENT_BYTES} bytes"),
                    ));
                }
                file.write_all(&part).map_err(|error| SourceError::new(SourceErrorKind::Unavailable, error.to_string()))?;
            }
            Ok(Fetched { bytes, content_type: item.content_type.clone() })
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "so it is a function for map_err")]
fn of_database(fault: slipway_database::Fault) -> SourceError {
    let kind = if fault.is_passing() { SourceErrorKind::Unavailable } else { SourceErrorKind::Broken };
    SourceError::new(kind, fault.to_string())
}
