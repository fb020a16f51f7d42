//! `databricks`: the files of a Unity Catalog volume (Files API), or a table as one CSV file (SQL statements over a warehouse). A
//! file's key is its path: a rename is a deletion and an addition. A table tells no version; it is fetched to see.
//!
//! The Secret has `token`, which needs READ VOLUME on the volume, or SELECT on the table and the use of the warehouse.

mod table;

use std::fs::File;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use url::Url;

use super::config::DatabricksConfig;
use super::credentials::secret_header;
use super::http::{Http, HttpLimits, Refusal, SourceCall};
use super::{Contact, Credentials, Fetched, Item, PageToken, Pending, Skipped, Source, SourceError, SourcePage, Surroundings};
use table::Table;

/// What is kept in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
const MAX_FOLDERS: usize = 20_000;

pub(super) struct Databricks {
    server: Server,
    place: Place,
}

enum Place {
    Volume(String),
    Table(Table),
}

struct Server {
    http: Http,
    authorization: HeaderValue,
    base: Url,
}

/// Where a traversal stands.
#[derive(Serialize, Deserialize)]
struct Folders {
    waiting: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    found: usize,
}

#[derive(Deserialize)]
struct Contents {
    #[serde(default)]
    contents: Vec<Entry>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(default)]
    is_directory: bool,
    file_size: Option<u64>,
    last_modified: Option<u64>,
}

#[derive(Deserialize)]
struct User {
    #[serde(rename = "userName")]
    user_name: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    error_code: String,
}

impl Databricks {
    pub(super) fn new(config: &DatabricksConfig, surroundings: &Surroundings) -> Result<Self, SourceError> {
        let server = Server::new(config, surroundings)?;
        let place = match config.path.strip_prefix("/Volumes/") {
            Some(rest) => {
                let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
                if parts.len() < 3 || parts.iter().any(|part| matches!(*part, "." | "..")) {
                    return Err(SourceError::field("path", "has to name a volume, as in /Volumes/catalog/schema/volume"));
                }
                Place::Volume(format!("/Volumes/{}", parts.join("/")))
            }
            None => Place::Table(Table::of(config)?),
        };
        Ok(Self { server, place })
    }

    async fn list(&self, root: &str, after: Option<&PageToken>) -> Result<SourcePage, SourceError> {
        let mut place = match after {
            Some(token) => {
                serde_json::from_str(&token.0).map_err(|_| SourceError::broken("the traversal's place is none of Databricks'"))?
            }
            None => Folders { waiting: vec![root.to_owned()], page: None, found: 1 },
        };
        let Some(folder) = place.waiting.last().cloned() else { return Ok(SourcePage::default()) };
        let make = || {
            let mut url = self.server.url(&format!("api/2.0/fs/directories{}", utf8_percent_encode(&folder, PATH)))?;
            url.query_pairs_mut().append_pair("page_size", "1000").extend_pairs(place.page.as_deref().map(|page| ("page_token", page)));
            Ok(self.server.dressed(SourceCall::get(url)))
        };
        let judge = |refusal: &Refusal| match refusal.status.as_u16() {
            404 if folder == root => SourceError::field("path", "is no volume, or no folder of one"),
            // Gone between its folder's page and this one: the next traversal finds the rest in order.
            404 => SourceError::unavailable("a folder went away while the volume was listed"),
            _ => judged(refusal),
        };
        let contents: Contents = self.server.http.json(&make, &judge).await?;
        let next_page = contents.next_page_token.filter(|token| !token.is_empty());
        if next_page.is_none() {
            place.waiting.pop();
        }
        place.page = next_page;
        let (mut page, mut subfolders) = (SourcePage::default(), Vec::new());
        for entry in contents.contents {
            let path = entry.path.trim_end_matches('/').to_owned();
            if !path.starts_with(&format!("{folder}/")) {
                return Err(SourceError::broken("Databricks lists what is not in the folder"));
            }
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            if entry.is_directory {
                subfolders.push(path);
            } else if matches!(name.as_str(), "." | "..") {
                page.skipped.push(Skipped { name: path, why: "has a name that no URL can hold".to_owned() });
            } else {
                let version = entry.last_modified.map(|time| format!("{time}-{}", entry.file_size.unwrap_or_default()));
                page.items.push(Item {
                    uri: path.clone(),
                    key: path,
                    filename: name,
                    content_type: None,
                    version,
                    size: Some(entry.file_size.unwrap_or_default()),
                });
            }
        }
        place.found += subfolders.len();
        if place.found > MAX_FOLDERS {
            return Err(SourceError::field("path", format!("has more than {MAX_FOLDERS} folders in it; choose a part of it")));
        }
        let at = place.waiting.len() - usize::from(place.page.is_some());
        place.waiting.splice(at..at, subfolders);
        if !place.waiting.is_empty() {
            let token = serde_json::to_string(&place).map_err(|_| SourceError::broken("the traversal's place cannot be written"))?;
            page.next = Some(PageToken(token));
        }
        Ok(page)
    }
}

/// Asks who the user is.
pub(super) async fn check_server(config: &DatabricksConfig, surroundings: &Surroundings) -> Result<String, SourceError> {
    let mut server = Server::new(config, surroundings)?;
    server.http.limits = HttpLimits::once();
    let other = || SourceError::field("host", "answers, but not as Databricks does").with_contact(Contact::Answered);
    let make = || Ok(server.dressed(SourceCall::get(server.url("api/2.0/preview/scim/v2/Me")?)));
    let judge = |refusal: &Refusal| match refusal.status.as_u16() {
        404 => other(),
        _ => judged(refusal),
    };
    let user: User = server.http.json(&make, &judge).await?;
    if user.user_name.is_none() { Err(other()) } else { Ok("Databricks takes the token".to_owned()) }
}

impl Server {
    fn new(config: &DatabricksConfig, surroundings: &Surroundings) -> Result<Self, SourceError> {
        let token = Credentials::of(surroundings)?.required("token")?;
        let authorization = secret_header("token", &format!("Bearer {}", token.reveal()))?;
        Ok(Self { http: Http::new(surroundings, "host"), authorization, base: config.url()? })
    }

    fn url(&self, path: &str) -> Result<Url, SourceError> {
        self.base.join(path).map_err(|_| SourceError::field("host", "makes no URL"))
    }

    fn dressed(&self, call: SourceCall) -> SourceCall {
        call.header(AUTHORIZATION, self.authorization.clone())
    }
}

fn judged(refusal: &Refusal) -> SourceError {
    let ErrorBody { error_code } = refusal.json();
    match refusal.status.as_u16() {
        401 => SourceError::credentials("Databricks refuses token"),
        403 => SourceError::credentials("the user of token may not read this"),
        _ if error_code == "PERMISSION_DENIED" => SourceError::credentials("the user of token may not read this"),
        _ => refusal.other(&error_code),
    }
}

impl Source for Databricks {
    fn page<'a>(&'a self, after: Option<&'a PageToken>) -> Pending<'a, SourcePage> {
        match &self.place {
            Place::Volume(root) => Box::pin(self.list(root, after)),
            Place::Table(table) => Box::pin(async move { table.list(&self.server).await }),
        }
    }

    fn fetch<'a>(&'a self, item: &'a Item, file: &'a mut File) -> Pending<'a, Fetched> {
        Box::pin(async move {
            if let Place::Table(table) = &self.place {
                return table.fetch(&self.server, file).await;
            }
            let make = || {
                Ok(self
                    .server
                    .dressed(SourceCall::get(self.server.url(&format!("api/2.0/fs/files{}", utf8_percent_encode(&item.key, PATH)))?)))
            };
            let judge = |refusal: &Refusal| match refusal.status.as_u16() {
                404 => SourceError::gone("the file is gone"),
                _ => judged(refusal),
            };
            self.server.http.download(&make, &judge, file).await
        })
    }
}
