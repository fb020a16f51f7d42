//! `confluence`: the pages of a space, with their PDF, DOCX and other documents, at Confluence Cloud. Traversals go by id over REST
//! v2, changes by the time of the last update over the search, which is REST v1 and tells no deletions. A key is an id, which
//! renames and moves within the space keep.
//!
//! The Secret has `email` and `api_token`, or `token` for a bearer token; the user needs the right to view the space.

mod content;

use std::fs::File;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use url::Url;

use super::config::{self, ConfluenceConfig};
use super::http::{Http, HttpLimits, Refusal, SourceCall};
use super::markup::write_page;
use super::since::Since;
use super::{
    ChangeCursor, Changes, Credentials, Fetched, Incremental, Item, PageToken, Pending, Source, SourceError, SourcePage, Surroundings,
};
use content::{Attachment, List, PageBody, PageHead, SearchEntry, Space};

/// Each page's attachments are a request of their own.
const PAGE_ITEMS: &str = "50";
const MAX_ATTACHMENT_PAGES: usize = 100;

pub(super) struct Confluence {
    http: Http,
    authorization: HeaderValue,
    /// Ends with `wiki/`.
    base: Url,
    space: String,
}

/// Where a traversal stands.
#[derive(Serialize, Deserialize)]
struct Place {
    space: String,
    cursor: String,
}

/// Where a list of changes stands.
#[derive(Serialize, Deserialize)]
struct ChangePlace {
    since: Since,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

impl Confluence {
    pub(super) fn new(config: &ConfluenceConfig, surroundings: &Surroundings) -> Result<Self, SourceError> {
        let authorization = Credentials::of(surroundings)?.atlassian()?;
        let base = config::url("base_url", &config.base_url)?;
        let base = if base.path().ends_with("/wiki/") { Some(base) } else { base.join("wiki/").ok() };
        let base = base.ok_or_else(|| SourceError::field("base_url", "makes no URL"))?;
        Ok(Self { http: Http::new(surroundings, "base_url"), authorization, base, space: config.space_key.clone() })
    }

    /// Asks for one space, whichever that is.
    pub(super) async fn check_server(mut self) -> Result<String, SourceError> {
        self.http.limits = HttpLimits::once();
        let _: List<IgnoredAny> = self.ask("api/v2/spaces", &[("limit", "1")], Subject::Site).await?;
        Ok("Confluence takes the login".to_owned())
    }

    fn call(&self, path: &str, query: &[(&str, &str)]) -> Result<SourceCall, SourceError> {
        let mut url = self.base.join(path).map_err(|_| SourceError::field("base_url", "makes no URL"))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(SourceCall::get(url)
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, HeaderValue::from_static("application/json")))
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)], what: Subject) -> Result<T, SourceError> {
        self.http.json(&|| self.call(path, query), &|refusal| judged(refusal, what)).await
    }

    async fn list(&self, after: Option<&PageToken>) -> Result<SourcePage, SourceError> {
        let (space, cursor) = match after {
            Some(token) => {
                let place: Place =
                    serde_json::from_str(&token.0).map_err(|_| SourceError::broken("the traversal's place is none of Confluence's"))?;
                (place.space, Some(place.cursor))
            }
            None => (self.space_id().await?, None),
        };
        let mut query = vec![("limit", PAGE_ITEMS), ("sort", "id"), ("status", "current")];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let list: List<PageHead> = self.ask(&format!("api/v2/spaces/{space}/pages"), &query, Subject::Space).await?;
        let mut page = SourcePage::default();
        let next = list.cursor()?;
        for head in list.results {
            let id = content::plain_id(&head.id)?.to_owned();
            page.items.push(head.into_item(&self.base)?);
            self.attachments(&id, &mut page).await?;
        }
        if let Some(cursor) = next {
            let token = serde_json::to_string(&Place { space, cursor });
            page.next = Some(PageToken(token.map_err(|_| SourceError::broken("the traversal's place cannot be written"))?));
        }
        Ok(page)
    }

    async fn space_id(&self) -> Result<String, SourceError> {
        let spaces: List<Space> = self.ask("api/v2/spaces", &[("keys", &self.space), ("limit", "1")], Subject::Site).await?;
        let space = spaces.results.into_iter().find(|space| space.key.eq_ignore_ascii_case(&self.space));
        let space = space.ok_or_else(|| SourceError::field("space_key", "is no space that the user of api_token may view"))?;
        Ok(content::plain_id(&space.id)?.to_owned())
    }

    async fn attachments(&self, page_id: &str, page: &mut SourcePage) -> Result<(), SourceError> {
        let mut cursor = None::<String>;
        for _ in 0..MAX_ATTACHMENT_PAGES {
            let mut query = vec![("limit", "250"), ("status", "current")];
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let path = format!("api/v2/pages/{page_id}/attachments");
            let list: List<Attachment> = match self.ask(&path, &query, Subject::Document).await {
                // Deleted since its id was listed.
                Err(error) if error.is_of_one_document() => return Ok(()),
                outcome => outcome?,
            };
            cursor = list.cursor()?;
            for attachment in list.results.into_iter().filter(Attachment::is_document) {
                page.items.push(attachment.into_item(&self.base)?);
            }
            if cursor.is_none() {
                return Ok(());
            }
        }
        Err(SourceError::broken("Confluence lists the attachments of a page without end"))
    }

    async fn write(&self, item: &Item, file: &mut File) -> Result<Fetched, SourceError> {
        let id = utf8_percent_encode(&item.key, NON_ALPHANUMERIC).to_string();
        if !content::is_attachment(&item.key) {
            let page: PageBody = self.ask(&format!("api/v2/pages/{id}"), &[("body-format", "view")], Subject::Document).await?;
            return write_page(file, &page.title, &page.body.view.value);
        }
        let attachment: Attachment = self.ask(&format!("api/v2/attachments/{id}"), &[], Subject::Document).await?;
        let link = attachment.download_link.ok_or_else(|| SourceError::gone("the attachment has no content"))?;
        // The link begins below /wiki, and leads to another host, which gets no credentials.
        let make = || self.call(link.trim_start_matches('/'), &[]);
        self.http.download(&make, &|refusal| judged(refusal, Subject::Document), file).await
    }

    async fn changed(&self, since: &ChangeCursor) -> Result<Changes, SourceError> {
        let Ok(place) = serde_json::from_str::<ChangePlace>(&since.0) else {
            return Err(SourceError::gone("the place in the list of changes is none of Confluence's"));
        };
        let window = place.since.begun();
        let cql = format!(
            "space = \"{}\" and type in (page, attachment) and lastmodified >= now(\"-{}m\") order by created",
            self.space,
            window.minutes()
        );
        let mut query = vec![("cql", cql.as_str()), ("limit", "100"), ("expand", "content.version,content.extensions")];
        query.extend(place.cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let list: List<SearchEntry> = self.ask("rest/api/search", &query, Subject::Search).await?;
        let cursor = list.cursor()?;
        let more = cursor.is_some();
        let next = if more {
            let place = ChangePlace { since: window, cursor };
            ChangeCursor(
                serde_json::to_string(&place).map_err(|_| SourceError::broken("the place in the list of changes cannot be written"))?,
            )
        } else {
            window.done().cursor()
        };
        let mut changed = Vec::new();
        for found in list.results {
            changed.extend(found.into_item(&self.base)?);
        }
        Ok(Changes { changed, removed: Vec::new(), skipped: Vec::new(), traverse: false, next, more })
    }
}

/// What a request is about, for errors.
#[derive(Clone, Copy)]
enum Subject {
    Site,
    Space,
    Document,
    Search,
}

fn judged(refusal: &Refusal, what: Subject) -> SourceError {
    match (refusal.status.as_u16(), what) {
        (401, _) => SourceError::credentials("Confluence refuses email and api_token, or token"),
        (403, _) => SourceError::credentials("the user of api_token may not view this"),
        (404, Subject::Document) => SourceError::gone("the page is gone, or no longer shown to the user of api_token"),
        (404, Subject::Site) => SourceError::field("base_url", "is no site of Confluence Cloud"),
        (400 | 404, Subject::Space | Subject::Search) => SourceError::field("space_key", "is no space that the user of api_token may view"),
        _ => refusal.other(""),
    }
}

impl Source for Confluence {
    fn page<'a>(&'a self, after: Option<&'a PageToken>) -> Pending<'a, SourcePage> {
        Box::pin(self.list(after))
    }

    fn fetch<'a>(&'a self, item: &'a Item, file: &'a mut File) -> Pending<'a, Fetched> {
        Box::pin(self.write(item, file))
    }

    fn incremental(&self) -> Option<&dyn Incremental> {
        Some(self)
    }
}

impl Incremental for Confluence {
    fn now(&self) -> Pending<'_, ChangeCursor> {
        Box::pin(async { Ok(Since::now().cursor()) })
    }

    fn changes<'a>(&'a self, since: &'a ChangeCursor) -> Pending<'a, Changes> {
        Box::pin(self.changed(since))
    }

    fn tells_deletions(&self) -> bool {
        false
    }
}
