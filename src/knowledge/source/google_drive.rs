//! `google-drive`: the files of a folder and of the folders in it (Drive API v3). A file's key is its id, which renames and moves
//! keep. Google's own documents are exported: texts as DOCX, sheets as CSV of the first sheet, slides as PDF. Drive tells its
//! changes and deletions by a feed.
//!
//! The Secret has `service_account.json`, the JSON key of a service account with which the folder is shared.

mod feed;
mod file;
mod token;

use std::fs::File;

use percent_encoding::utf8_percent_encode;
use reqwest::header::AUTHORIZATION;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use url::Url;

use super::config::{self, GoogleDriveConfig};
use super::http::{Http, HttpLimits, Refusal, SourceCall};
use super::{Credentials, Fetched, Incremental, Item, PageToken, Pending, Source, SourceError, SourceErrorKind, SourcePage, Surroundings};
use file::{DriveFile, FIELDS};
use token::ServiceAccount;

const DEFAULT_ENDPOINT: &str = "https://www.googleapis.com/";
const PAGE_ITEMS: &str = "1000";
/// The most folders, whose ids a traversal holds.
const MAX_FOLDERS: usize = 20_000;

pub(super) struct GoogleDrive {
    http: Http,
    account: ServiceAccount,
    base: Url,
    folder: String,
}

/// Where a traversal stands: the folders that were found and not listed yet, and the page of the one that is being listed.
#[derive(Default, Serialize, Deserialize)]
struct Place {
    folders: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    /// The number of folders so far.
    found: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileList {
    files: Vec<DriveFile>,
    next_page_token: Option<String>,
    #[serde(default)]
    incomplete_search: bool,
}

/// Files of which nothing is read.
#[derive(Deserialize)]
struct Files {
    #[serde(rename = "files")]
    _files: Vec<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorDetail {
    errors: Vec<ErrorReason>,
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorReason {
    reason: String,
}

impl GoogleDrive {
    pub(super) fn new(config: &GoogleDriveConfig, surroundings: &Surroundings) -> Result<Self, SourceError> {
        let base = config::url("endpoint", config.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT))?;
        let account = ServiceAccount::read(&Credentials::of(surroundings)?, surroundings)?;
        Ok(Self { http: Http::new(surroundings, "endpoint"), account, base, folder: config.folder_id.clone() })
    }

    /// Asks for one file, whichever that is.
    pub(super) async fn check_server(mut self) -> Result<String, SourceError> {
        self.http.limits = HttpLimits::once();
        self.account.ask_once();
        let _: Files = self.ask("files", &[("pageSize", "1"), ("fields", "files(id)")], Subject::Server).await?;
        Ok("the service account is accepted".to_owned())
    }

    /// Asks with the present token, and once more with a new one if it is refused.
    async fn ask<T: serde::de::DeserializeOwned>(&self, path: &str, query: &[(&str, &str)], judge: Subject) -> Result<T, SourceError> {
        for renewed in [false, true] {
            let token = self.account.token(renewed).await?;
            let make = || Ok(SourceCall::get(self.url(path, query)?).header(AUTHORIZATION, token.clone()));
            match self.http.json(&make, &|refusal| judged(refusal, judge)).await {
                Err(error) if !renewed && error.kind() == SourceErrorKind::Unauthorized => {}
                outcome => return outcome,
            }
        }
        Err(refused())
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, SourceError> {
        let mut url = self.base.join(&format!("drive/v3/{path}")).map_err(|_| SourceError::field("endpoint", "makes no URL"))?;
        url.query_pairs_mut().extend_pairs(query);
        Ok(url)
    }

    async fn list(&self, after: Option<&PageToken>) -> Result<SourcePage, SourceError> {
        let mut place = if let Some(token) = after {
            serde_json::from_str(&token.0).map_err(|_| SourceError::broken("the traversal's place is none of Drive's"))?
        } else {
            self.check_folder().await?;
            Place { folders: vec![self.folder.clone()], page: None, found: 1 }
        };
        let Some(folder) = place.folders.last().cloned() else { return Ok(SourcePage::default()) };
        let filter = format!("'{folder}' in parents and trashed = false");
        let fields = format!("nextPageToken,incompleteSearch,files({FIELDS})");
        let mut query = vec![
            ("q", filter.as_str()),
            ("pageSize", PAGE_ITEMS),
            ("fields", &fields),
            ("supportsAllDrives", "true"),
            ("includeItemsFromAllDrives", "true"),
        ];
        query.extend(place.page.as_deref().map(|page| ("pageToken", page)));
        let list: FileList = self.ask("files", &query, Subject::Folder).await?;
        if list.incomplete_search {
            return Err(SourceError::unavailable("Drive could not search all of its files"));
        }
        if list.next_page_token.is_none() {
            place.folders.pop();
        }
        place.page = list.next_page_token;
        let (mut page, mut subfolders) = (SourcePage::default(), Vec::new());
        for file in list.files {
            if file.is_folder() {
                subfolders.push(file::plain_id(file.id)?);
            } else {
                file.into_page(&mut page)?;
            }
        }
        place.found += subfolders.len();
        if place.found > MAX_FOLDERS {
            return Err(SourceError::field("folder_id", format!("has more than {MAX_FOLDERS} folders in it; choose a part of it")));
        }
        // While a folder has further pages it stays the last.
        let at = place.folders.len() - usize::from(place.page.is_some());
        place.folders.splice(at..at, subfolders);
        if place.folders.is_empty() {
            // A folder that is no longer shared looks like an empty one: then what was listed last is not the whole.
            self.check_folder().await?;
        } else {
            let token = serde_json::to_string(&place).map_err(|_| SourceError::broken("the traversal's place cannot be written"))?;
            page.next = Some(PageToken(token));
        }
        Ok(page)
    }

    /// Drive answers a search in a folder that is not there, or not shown, with no files. This must not pass for an empty folder.
    async fn check_folder(&self) -> Result<(), SourceError> {
        let file: DriveFile = self.ask(&format!("files/{}", self.folder), &file_query(), Subject::Folder).await?;
        if file.is_folder() && !file.trashed { Ok(()) } else { Err(SourceError::field("folder_id", "is no folder, or lies in the trash")) }
    }
}

/// What a request is about, for errors.
#[derive(Clone, Copy)]
enum Subject {
    Server,
    Folder,
    File,
    Feed,
}

fn file_query() -> [(&'static str, &'static str); 2] {
    [("fields", FIELDS), ("supportsAllDrives", "true")]
}

fn refused() -> SourceError {
    SourceError::credentials("Google refuses the service account of service_account.json")
}

fn judged(refusal: &Refusal, subject: Subject) -> SourceError {
    let body: ErrorBody = refusal.json();
    let reason = body.error.errors.into_iter().next().map_or(body.error.status, |first| first.reason);
    match (refusal.status.as_u16(), reason.as_str(), subject) {
        (401, ..) => refused(),
        (403, "rateLimitExceeded" | "userRateLimitExceeded" | "sharingRateLimitExceeded" | "dailyLimitExceeded", _) => {
            SourceError::unavailable("Drive's rate limit is reached")
        }
        (403, "accessNotConfigured" | "SERVICE_DISABLED", _) => {
            SourceError::credentials("the Drive API is not enabled in the project of service_account.json")
        }
        (403, "exportSizeLimitExceeded", _) => SourceError::unfetchable("the document is larger than what Drive exports (10 MB)"),
        (
            403,
            "cannotDownloadFile" | "cannotDownloadAbusiveFile" | "fileNotDownloadable" | "fileNotExportable" | "badRequest",
            Subject::File,
        ) => SourceError::unfetchable("Drive does not let this file be downloaded"),
        (404, _, Subject::Server) => SourceError::field("endpoint", "answers, but not as Google Drive does"),
        (404, _, Subject::Folder) => {
            SourceError::field("folder_id", "is no folder that is shared with the service account of service_account.json")
        }
        (404, _, Subject::File) => SourceError::gone("the file is gone, or no longer shared with the service account"),
        (403, ..) => SourceError::credentials("the service account of service_account.json may not read this"),
        (400 | 410, _, Subject::Feed) => SourceError::gone("Drive no longer knows this place in its list of changes"),
        _ => refusal.other(&reason),
    }
}

impl Source for GoogleDrive {
    fn page<'a>(&'a self, after: Option<&'a PageToken>) -> Pending<'a, SourcePage> {
        Box::pin(self.list(after))
    }

    fn fetch<'a>(&'a self, item: &'a Item, file: &'a mut File) -> Pending<'a, Fetched> {
        Box::pin(async move {
            let id = utf8_percent_encode(&item.key, percent_encoding::NON_ALPHANUMERIC).to_string();
            // Whether a file has to be exported is known by what it becomes: Google's own have no size of their own.
            let export = item.content_type.as_deref().filter(|_| item.size.is_none());
            let (path, query) = match export {
                Some(kind) => (format!("files/{id}/export"), vec![("mimeType", kind)]),
                None => (format!("files/{id}"), vec![("alt", "media"), ("supportsAllDrives", "true")]),
            };
            for renewed in [false, true] {
                let token = self.account.token(renewed).await?;
                let make = || Ok(SourceCall::get(self.url(&path, &query)?).header(AUTHORIZATION, token.clone()));
                match self.http.download(&make, &|refusal| judged(refusal, Subject::File), file).await {
                    Err(error) if !renewed && error.kind() == SourceErrorKind::Unauthorized => {}
                    outcome => return outcome,
                }
            }
            Err(refused())
        })
    }

    fn incremental(&self) -> Option<&dyn Incremental> {
        Some(self)
    }
}
