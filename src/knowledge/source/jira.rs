//! `jira`: the issues of a project or of a JQL query, at Jira Cloud (REST v3). An issue with its comments becomes one HTML page;
//! its key here is its id, which a move to another project keeps. Changes come by the time of the last update, which tells no
//! deletions: they are found by complete traversals.
//!
//! The Secret has `email` and `api_token`, or `token` for a bearer token; the user needs the right to browse the project.

use std::fmt::Write;
use std::fs::File;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::config::{self, JiraConfig};
use super::http::{Http, HttpLimits, Refusal, SourceCall};
use super::markup::{PageWriter, adf_to_html, escaped, page_too_large};
use super::since::Since;
use super::{
    ChangeCursor, Changes, Contact, Credentials, Fetched, Incremental, Item, PageToken, Pending, Source, SourceError, SourcePage,
    Surroundings,
};

const PAGE_ITEMS: u32 = 100;
/// A comment has up to 32,767 characters, and its format several objects for a line.
const COMMENTS: usize = 50;
/// The most comments of one issue that become part of its page.
const MAX_COMMENTS: usize = 5000;

pub(super) struct Jira {
    http: Http,
    authorization: HeaderValue,
    base: Url,
    query: String,
    /// The field of the configuration that the query comes from.
    query_field: &'static str,
    project: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    issues: Vec<Issue>,
    next_page_token: Option<String>,
    is_last: Option<bool>,
}

#[derive(Deserialize)]
struct Issue {
    id: String,
    key: String,
    #[serde(default)]
    fields: Value,
}

#[derive(Deserialize)]
struct Projects {
    values: Vec<Project>,
}

#[derive(Deserialize)]
struct Project {
    key: String,
}

/// Jira Cloud has ids, a server of one's own has names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct User {
    account_id: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Comments {
    comments: Vec<Value>,
    #[serde(default)]
    total: usize,
}

/// Where a list of changes stands.
#[derive(Serialize, Deserialize)]
struct Place {
    since: Since,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<String>,
}

impl Jira {
    pub(super) fn new(config: &JiraConfig, surroundings: &Surroundings) -> Result<Self, SourceError> {
        let (query, query_field) = match (&config.jql, &config.project_key) {
            (Some(jql), _) => (jql.clone(), "jql"),
            (None, key) => (format!("project = \"{}\"", key.as_deref().unwrap_or_default()), "project_key"),
        };
        let authorization = Credentials::of(surroundings)?.atlassian()?;
        let base = config::url("base_url", &config.base_url)?;
        let mut http = Http::new(surroundings, "base_url");
        http.suspect = Some(anonymous);
        Ok(Self { http, authorization, base, query, query_field, project: config.project_key.clone() })
    }

    /// Asks who the user is.
    pub(super) async fn check_server(mut self) -> Result<String, SourceError> {
        self.http.limits = HttpLimits::once();
        let make = || Ok(self.dressed(SourceCall::get(self.url("myself")?)));
        let user: User = self.http.json(&make, &|refusal| self.judged(refusal, None)).await?;
        if user.account_id.is_some() || user.name.is_some() {
            return Ok("Jira takes the login".to_owned());
        }
        Err(SourceError::field("base_url", "answers, but not as Jira does").with_contact(Contact::Answered))
    }

    /// Jira answers a user without rights, and credentials that it does not know, as it answers anybody: with the issues that
    /// anybody may see, which are mostly none. This must not pass for a project without issues, so that a traversal asks for
    /// the project, or the user, as it begins and as it ends, and a list of changes as it ends.
    async fn check(&self) -> Result<(), SourceError> {
        let Some(project) = &self.project else {
            let make = || Ok(self.dressed(SourceCall::get(self.url("myself")?)));
            return self.http.json::<Value>(&make, &|refusal| self.judged(refusal, None)).await.map(drop);
        };
        let make = || {
            let mut url = self.url("project/search")?;
            url.query_pairs_mut().append_pair("keys", project);
            Ok(self.dressed(SourceCall::get(url)))
        };
        let found: Projects = self.http.json(&make, &|refusal| self.judged(refusal, None)).await?;
        let is_shown = found.values.iter().any(|found| found.key.eq_ignore_ascii_case(project));
        is_shown.then_some(()).ok_or_else(|| SourceError::field("project_key", "is no project that the user of api_token may browse"))
    }

    fn url(&self, path: &str) -> Result<Url, SourceError> {
        self.base.join(&format!("rest/api/3/{path}")).map_err(|_| SourceError::field("base_url", "makes no URL"))
    }

    fn dressed(&self, call: SourceCall) -> SourceCall {
        call.header(AUTHORIZATION, self.authorization.clone()).header(ACCEPT, HeaderValue::from_static("application/json"))
    }

    async fn found(&self, jql: &str, page: Option<&str>) -> Result<(Vec<Item>, Option<String>), SourceError> {
        let mut body = json!({"jql": jql, "maxResults": PAGE_ITEMS, "fields": ["summary", "updated"]});
        if let Some(page) = page {
            body["nextPageToken"] = json!(page);
        }
        let body = body.to_string();
        let make = || Ok(self.dressed(SourceCall::post(self.url("search/jql")?, "application/json", body.clone())));
        let found: Found = self.http.json(&make, &|refusal| self.judged(refusal, None)).await?;
        let next = found.next_page_token.filter(|_| found.is_last != Some(true));
        if found.is_last == Some(false) && next.is_none() {
            return Err(SourceError::broken("Jira says that there is a further page, but not which"));
        }
        Ok((found.issues.into_iter().map(|issue| self.item(issue)).collect::<Result<_, _>>()?, next))
    }

    fn item(&self, issue: Issue) -> Result<Item, SourceError> {
        let is_plain =
            |text: &str| (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !is_plain(&issue.id) || !is_plain(&issue.key) {
            return Err(SourceError::broken("Jira answers with an id that is none"));
        }
        let uri = self.base.join(&format!("browse/{}", issue.key)).map_err(|_| SourceError::field("base_url", "makes no URL"))?;
        Ok(Item {
            key: issue.id,
            uri: uri.into(),
            filename: format!("{}.html", issue.key),
            content_type: Some("text/html".to_owned()),
            version: issue.fields["updated"].as_str().map(str::to_owned),
            size: None,
        })
    }

    async fn write(&self, item: &Item, file: &mut File) -> Result<Fetched, SourceError> {
        let id = utf8_percent_encode(&item.key, NON_ALPHANUMERIC).to_string();
        let make = || {
            let mut url = self.url(&format!("issue/{id}"))?;
            url.set_query(Some("fields=summary,description,issuetype,status,labels,created,updated"));
            Ok(self.dressed(SourceCall::get(url)))
        };
        let issue: Issue = self.http.json(&make, &|refusal| self.judged(refusal, Some(item))).await?;
        let (title, body) = head(&issue);
        drop(issue);
        let mut page = PageWriter::begin(file, &title)?;
        if !page.add(&body)? {
            return Err(page_too_large());
        }
        drop(body);
        let last = self.comments(item, &id, &mut page).await?;
        page.finish(&last)
    }

    /// Adds the comments, the oldest first, as long as there is room. Returns what the page is to say of those that are left out.
    async fn comments(&self, item: &Item, id: &str, page: &mut PageWriter<'_>) -> Result<String, SourceError> {
        let mut start = 0;
        loop {
            let make = || {
                let mut url = self.url(&format!("issue/{id}/comment"))?;
                url.set_query(Some(&format!("orderBy=created&maxResults={COMMENTS}&startAt={start}")));
                Ok(self.dressed(SourceCall::get(url)))
            };
            let Comments { comments, total } = self.http.json(&make, &|refusal| self.judged(refusal, Some(item))).await?;
            let count = comments.len();
            let total = total.max(start + count);
            if start == 0 && count > 0 && !page.add("<h2>Comments</h2>\n")? {
                return Ok(left_out(item, 0, total));
            }
            for (at, comment) in comments.iter().enumerate() {
                let author = escaped(comment["author"]["displayName"].as_str().unwrap_or("Somebody"));
                let day: String = comment["created"].as_str().unwrap_or_default().chars().take(10).collect();
                let html = format!("<h3>{author}, {}</h3>\n{}\n", escaped(&day), adf_to_html(&comment["body"]));
                if !page.add(&html)? {
                    return Ok(left_out(item, start + at, total));
                }
            }
            start += count;
            if count == 0 || start >= total {
                return Ok(String::new());
            }
            if start >= MAX_COMMENTS {
                return Ok(left_out(item, start, total));
            }
        }
    }

    fn judged(&self, refusal: &Refusal, item: Option<&Item>) -> SourceError {
        match (refusal.status.as_u16(), item) {
            (401, _) => SourceError::credentials("Jira refuses email and api_token, or token"),
            (403, _) => SourceError::credentials("the user of api_token may not browse this"),
            (404, Some(_)) => SourceError::gone("the issue is gone, or no longer shown to the user of api_token"),
            (404, None) => SourceError::field("base_url", "is no site of Jira Cloud"),
            (400, None) => SourceError::field(self.query_field, "Jira cannot search for this"),
            _ => refusal.other(""),
        }
    }
}

/// The title of an issue's page, and the body as far as its comments.
fn head(issue: &Issue) -> (String, String) {
    let fields = &issue.fields;
    let name = |field: &str| escaped(fields[field]["name"].as_str().unwrap_or_default());
    let mut body = format!("<p>{} {} ({})</p>\n", name("issuetype"), escaped(&issue.key), name("status"));
    let labels: Vec<String> = fields["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).map(escaped).collect();
    if !labels.is_empty() {
        let _ = writeln!(body, "<p>Labels: {}</p>", labels.join(", "));
    }
    body.push_str(&adf_to_html(&fields["description"]));
    (format!("{}: {}", issue.key, fields["summary"].as_str().unwrap_or_default()), body)
}

/// Part of the page, so that who finds it knows that there is more.
fn left_out(item: &Item, kept: usize, total: usize) -> String {
    tracing::info!(document = item.uri, kept, total, "comments are left out");
    format!("<p>Of {total} comments, the first {kept} are on this page; the rest was left out.</p>\n")
}

/// Jira tells a failed login in a header of an answer that it gives to anybody.
fn anonymous(headers: &HeaderMap) -> Option<SourceError> {
    let reason = headers.get("x-seraph-loginreason")?.to_str().unwrap_or_default();
    let refused = reason.split(',').any(|reason| !matches!(reason.trim(), "OK" | ""));
    refused.then(|| SourceError::credentials("Jira does not know email and api_token, or token"))
}

impl Source for Jira {
    fn page<'a>(&'a self, after: Option<&'a PageToken>) -> Pending<'a, SourcePage> {
        Box::pin(async move {
            if after.is_none() {
                self.check().await?;
            }
            // In an order that no edit changes.
            let jql = format!("({}) ORDER BY created ASC, key ASC", self.query);
            let (items, next) = self.found(&jql, after.map(|token| token.0.as_str())).await?;
            if next.is_none() {
                self.check().await?;
            }
            Ok(SourcePage { items, skipped: Vec::new(), next: next.map(PageToken) })
        })
    }

    fn fetch<'a>(&'a self, item: &'a Item, file: &'a mut File) -> Pending<'a, Fetched> {
        Box::pin(self.write(item, file))
    }

    fn incremental(&self) -> Option<&dyn Incremental> {
        Some(self)
    }
}

impl Incremental for Jira {
    fn now(&self) -> Pending<'_, ChangeCursor> {
        Box::pin(async { Ok(Since::now().cursor()) })
    }

    fn changes<'a>(&'a self, since: &'a ChangeCursor) -> Pending<'a, Changes> {
        Box::pin(async move {
            let place: Place = match serde_json::from_str::<Place>(&since.0) {
                Ok(place) => Place { since: place.since.begun(), ..place },
                Err(_) => return Err(SourceError::gone("the place in the list of changes is none of Jira's")),
            };
            // Counted back from now, since a date would be read in the time zone of the user.
            let jql = format!("({}) AND updated >= \"-{}m\" ORDER BY created ASC, key ASC", self.query, place.since.minutes());
            let (changed, page) = self.found(&jql, place.page.as_deref()).await?;
            let more = page.is_some();
            if !more {
                self.check().await?;
            }
            let next = if more { Place { since: place.since, page }.cursor()? } else { place.since.done().cursor() };
            Ok(Changes { changed, removed: Vec::new(), skipped: Vec::new(), traverse: false, next, more })
        })
    }

    fn tells_deletions(&self) -> bool {
        false
    }
}

impl Place {
    fn cursor(&self) -> Result<ChangeCursor, SourceError> {
        serde_json::to_string(self).map(ChangeCursor).map_err(|_| SourceError::broken("the place in the list of changes cannot be written"))
    }
}
