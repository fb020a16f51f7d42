//! What Confluence answers: lists with a cursor, pages, attachments, and what a search finds.

use serde::Deserialize;
use url::Url;

use crate::source::{Item, SourceError};

/// The types of attachments that are documents.
const DOCUMENTS: [&str; 6] = [
    "application/pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "text/csv",
    "text/html",
    "text/markdown",
    "text/plain",
];

#[derive(Deserialize)]
pub(super) struct List<T> {
    pub(super) results: Vec<T>,
    #[serde(rename = "_links", default)]
    links: Links,
}

#[derive(Default, Deserialize)]
struct Links {
    next: Option<String>,
    webui: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Space {
    pub(super) id: String,
    pub(super) key: String,
}

#[derive(Default, Deserialize)]
struct Version {
    number: u64,
}

#[derive(Deserialize)]
pub(super) struct PageHead {
    pub(super) id: String,
    title: String,
    #[serde(default)]
    version: Version,
    #[serde(rename = "_links", default)]
    links: Links,
}

#[derive(Deserialize)]
pub(super) struct PageBody {
    pub(super) title: String,
    pub(super) body: Body,
}

#[derive(Deserialize)]
pub(super) struct Body {
    pub(super) view: View,
}

#[derive(Deserialize)]
pub(super) struct View {
    pub(super) value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attachment {
    id: String,
    title: String,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    file_size: u64,
    #[serde(default)]
    version: Version,
    #[serde(default)]
    webui_link: String,
    pub(super) download_link: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct SearchEntry {
    content: Option<FoundContent>,
}

#[derive(Deserialize)]
struct FoundContent {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    version: Version,
    #[serde(default)]
    extensions: Extensions,
    #[serde(rename = "_links", default)]
    links: Links,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Extensions {
    media_type: String,
    file_size: u64,
}

impl<T> List<T> {
    /// Of the link to the next page, which leads to the same path, its cursor alone.
    pub(super) fn cursor(&self) -> Result<Option<String>, SourceError> {
        let Some(next) = &self.links.next else { return Ok(None) };
        let query = next.split_once('?').map(|(_, query)| query).unwrap_or_default();
        let cursor = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "cursor").map(|(_, value)| value.into_owned());
        cursor.map(Some).ok_or_else(|| SourceError::broken("Confluence links to a next page without a cursor"))
    }
}

pub(super) fn plain_id(id: &str) -> Result<&str, SourceError> {
    let is_plain = (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_plain { Ok(id) } else { Err(SourceError::broken("Confluence answers with an id that is none")) }
}

pub(super) fn is_attachment(key: &str) -> bool {
    key.starts_with("att")
}

/// Where people find it. The link begins below /wiki.
fn uri(base: &Url, link: &str) -> String {
    base.join(link.trim_start_matches('/')).map_or_else(|_| base.to_string(), String::from)
}

impl PageHead {
    pub(super) fn into_item(self, base: &Url) -> Result<Item, SourceError> {
        Ok(Item {
            key: plain_id(&self.id)?.to_owned(),
            uri: uri(base, self.links.webui.as_deref().unwrap_or_default()),
            filename: format!("{}.html", self.title),
            content_type: Some("text/html".to_owned()),
            version: Some(self.version.number.to_string()),
            size: None,
        })
    }
}

impl Attachment {
    pub(super) fn is_document(&self) -> bool {
        DOCUMENTS.contains(&self.media_type.split(';').next().unwrap_or_default().trim())
    }

    pub(super) fn into_item(self, base: &Url) -> Result<Item, SourceError> {
        let key = plain_id(&self.id)?.to_owned();
        if !is_attachment(&key) {
            return Err(SourceError::broken("Confluence answers with an attachment's id that is none"));
        }
        Ok(Item {
            key,
            uri: uri(base, &self.webui_link),
            filename: self.title,
            content_type: Some(self.media_type),
            version: Some(self.version.number.to_string()),
            size: Some(self.file_size),
        })
    }
}

impl SearchEntry {
    /// None for what is neither page nor document.
    pub(super) fn into_item(self, base: &Url) -> Result<Option<Item>, SourceError> {
        let Some(FoundContent { id, kind, title, version, extensions, links }) = self.content else { return Ok(None) };
        let webui = links.webui.unwrap_or_default();
        match kind.as_str() {
            "page" => PageHead { id, title, version, links: Links { webui: Some(webui), next: None } }.into_item(base).map(Some),
            "attachment" => {
                let Extensions { media_type, file_size } = extensions;
                let found = Attachment { id, title, media_type, file_size, version, webui_link: webui, download_link: None };
                if found.is_document() { found.into_item(base).map(Some) } else { Ok(None) }
            }
            _ => Ok(None),
        }
    }
}
