//! A file as Drive describes it, and the document that becomes of it.

use serde::Deserialize;

use crate::source::{Item, Skipped, SourceError, SourcePage};

/// The fields that are asked for.
pub(super) const FIELDS: &str = "id,name,mimeType,parents,trashed,size,md5Checksum,modifiedTime,webViewLink";

const FOLDER: &str = "application/vnd.google-apps.folder";
const OWN: &str = "application/vnd.google-apps.";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DriveFile {
    pub(super) id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    mime_type: String,
    #[serde(default)]
    pub(super) parents: Vec<String>,
    #[serde(default)]
    pub(super) trashed: bool,
    size: Option<String>,
    md5_checksum: Option<String>,
    modified_time: Option<String>,
    web_view_link: Option<String>,
}

/// Ids become parts of URLs and of searches.
pub(super) fn plain_id(id: String) -> Result<String, SourceError> {
    let is_plain = (1..=256).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_plain { Ok(id) } else { Err(SourceError::broken("Drive answers with an id that is none")) }
}

impl DriveFile {
    pub(super) fn is_folder(&self) -> bool {
        self.mime_type == FOLDER
    }

    pub(super) fn into_page(self, page: &mut SourcePage) -> Result<(), SourceError> {
        match self.into_item()? {
            Ok(item) => page.items.push(item),
            Err(skipped) => page.skipped.push(skipped),
        }
        Ok(())
    }

    pub(super) fn into_item(self) -> Result<Result<Item, Skipped>, SourceError> {
        let key = plain_id(self.id)?;
        let size = self.size.as_deref().and_then(|size| size.parse().ok());
        let modified = self.modified_time.unwrap_or_default();
        let (filename, content_type, size) = match self.mime_type.strip_prefix(OWN) {
            None => (self.name, self.mime_type, Some(size.unwrap_or_default())),
            Some(own) => {
                let (kind, extension) = match own {
                    "document" => ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
                    "spreadsheet" => ("text/csv", "csv"),
                    "presentation" => ("application/pdf", "pdf"),
                    _ => return Ok(Err(Skipped { name: self.name, why: format!("is a {own} of Google's, which has no text to export") })),
                };
                (format!("{}.{extension}", self.name), kind.to_owned(), None)
            }
        };
        // A checksum tells more than a time, which sharing a file can change.
        let version = self.md5_checksum.filter(|sum| !sum.is_empty()).unwrap_or(modified);
        let uri = self.web_view_link.unwrap_or_else(|| format!("https://drive.google.com/open?id={key}"));
        Ok(Ok(Item { uri, key, filename, content_type: Some(content_type), version: (!version.is_empty()).then_some(version), size }))
    }
}
