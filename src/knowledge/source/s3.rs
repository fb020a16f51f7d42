//! `s3`: the objects of a bucket, at Amazon's or any server that speaks its interface. Requests are signed here, see
//! docs/decisions/017-s3.md. An object's key is its name: a rename is a deletion and an addition.
//!
//! The Secret has `access_key_id`, `secret_access_key` and, of temporary credentials, `session_token`; they need
//! `s3:ListBucket` on the bucket and `s3:GetObject` on its objects.

mod list;
mod sign;

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use percent_encoding::utf8_percent_encode;
use reqwest::header::{HeaderName, HeaderValue};
use url::Url;

use super::config::{self, S3Config};
use super::credentials::secret_header;
use super::http::{Http, HttpLimits, Refusal, SourceCall};
use super::{Contact, Credentials, Fetched, Item, PageToken, Pending, Skipped, Source, SourceError, SourcePage, Surroundings};
use sign::{KEPT_IN_PATH, KEPT_IN_QUERY, Keys};

const DEFAULT_REGION: &str = "us-east-1";
const PAGE_ITEMS: &str = "1000";

pub(super) struct S3 {
    http: Http,
    keys: Keys,
    bucket: String,
    prefix: String,
    region: String,
    /// The bucket's URL, with a slash at its end.
    base: Url,
}

impl S3 {
    pub(super) fn new(config: &S3Config, surroundings: &Surroundings) -> Result<Self, SourceError> {
        let credentials = Credentials::of(surroundings)?;
        let keys = Keys {
            id: credentials.required("access_key_id")?,
            secret: credentials.required("secret_access_key")?,
            session: credentials.get("session_token")?,
        };
        let region = config.region.clone().unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let bucket = &config.bucket;
        let (field, base) = match &config.endpoint {
            Some(endpoint) => {
                let server = config::url("endpoint", endpoint)?;
                ("endpoint", if bucket.is_empty() { Some(server) } else { server.join(&format!("{bucket}/")).ok() })
            }
            None if bucket.is_empty() => ("region", Url::parse(&format!("https://s3.{region}.amazonaws.com/")).ok()),
            // A certificate's wildcard covers one label.
            None if bucket.contains(['.', '_']) => ("region", Url::parse(&format!("https://s3.{region}.amazonaws.com/{bucket}/")).ok()),
            None => ("region", Url::parse(&format!("https://{bucket}.s3.{region}.amazonaws.com/")).ok()),
        };
        let base = base.ok_or_else(|| SourceError::field(field, "makes no URL"))?;
        let http = Http::new(surroundings, field);
        Ok(Self { http, keys, bucket: bucket.clone(), prefix: config.prefix.clone(), region, base })
    }

    fn call(&self, path: &str, query: &[(&str, &str)]) -> Result<SourceCall, SourceError> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{}", url.path(), utf8_percent_encode(path, KEPT_IN_PATH)));
        if !query.is_empty() {
            // The signature wants the parameters sorted; callers give them so.
            let encoded = |text: &str| utf8_percent_encode(text, KEPT_IN_QUERY).to_string();
            let query: Vec<String> = query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
            url.set_query(Some(&query.join("&")));
        }
        let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut call = SourceCall::get(url);
        for (name, value) in sign::headers(&call.url, &self.keys, &self.region, &time) {
            call = call.header(HeaderName::from_static(name), header(name, &value)?);
        }
        Ok(call)
    }

    /// Lists one object of the bucket, or without a bucket the buckets, which many credentials may not: these are known all the same.
    pub(super) async fn check_server(mut self) -> Result<String, SourceError> {
        self.http.limits = HttpLimits::once();
        let (is_denied, has_bucket) = (AtomicBool::new(false), !self.bucket.is_empty());
        let query: &[(&str, &str)] = if has_bucket { &[("encoding-type", "url"), ("list-type", "2"), ("max-keys", "1")] } else { &[] };
        let judge = |refusal: &Refusal| {
            let code = list::error_code(&refusal.body);
            is_denied.store(code == "AccessDenied", Ordering::Relaxed);
            // S3 says in words what is not there.
            let is_other = code.is_empty() && matches!(refusal.status.as_u16(), 404 | 405);
            if is_other { SourceError::field("endpoint", "answers, but not as S3 does") } else { judged(refusal, "list") }
        };
        let body = match self.http.bytes(&|| self.call("", query), &judge).await {
            Err(_) if !has_bucket && is_denied.load(Ordering::Relaxed) => {
                return Ok("the credentials are accepted; they list no buckets".to_owned());
            }
            answer => answer?,
        };
        if has_bucket {
            list::read(&body).map_err(|error| error.with_contact(Contact::Answered))?;
            return Ok("the credentials are accepted, and list the bucket".to_owned());
        }
        let buckets = list::buckets(&body).map_err(|error| error.with_contact(Contact::Answered))?;
        Ok(format!("the credentials are accepted; they list {buckets} buckets"))
    }

    async fn list(&self, after: Option<&str>) -> Result<SourcePage, SourceError> {
        let make = || {
            let mut query = vec![("encoding-type", "url"), ("list-type", "2"), ("max-keys", PAGE_ITEMS), ("prefix", self.prefix.as_str())];
            query.extend(after.map(|after| ("start-after", after)));
            self.call("", &query)
        };
        let body = self.http.bytes(&make, &|refusal| judged(refusal, "list")).await?;
        let listed = list::read(&body)?;
        let mut page = SourcePage::default();
        let mut last = after.map(str::to_owned);
        for object in listed.objects {
            if last.as_ref().is_some_and(|last| object.key <= *last) || !object.key.starts_with(&self.prefix) {
                return Err(SourceError::broken("the server lists objects out of order, or others than were asked for"));
            }
            last = Some(object.key.clone());
            // A marker, which consoles make for what they show as a folder.
            if object.key.ends_with('/') {
                continue;
            }
            // URLs with such parts are rewritten by their readers.
            if object.key.split('/').any(|part| matches!(part, "." | "..")) {
                page.skipped.push(Skipped { name: object.key, why: "has . or .. as a part of its key".to_owned() });
                continue;
            }
            let filename = object.key.rsplit('/').next().unwrap_or_default().to_owned();
            page.items.push(Item {
                uri: format!("s3://{}/{}", self.bucket, object.key),
                key: object.key,
                filename,
                content_type: None,
                version: Some(object.etag),
                size: Some(object.size),
            });
        }
        if listed.is_truncated {
            let last = last.filter(|last| Some(last.as_str()) != after);
            page.next = Some(PageToken(last.ok_or_else(|| SourceError::broken("the server lists a page without objects"))?));
        }
        Ok(page)
    }
}

fn judged(refusal: &Refusal, act: &str) -> SourceError {
    let code = list::error_code(&refusal.body);
    let status = refusal.status.as_u16();
    let denied = |what: &str| SourceError::credentials(what);
    match (status, code.as_str()) {
        (_, "InvalidAccessKeyId") => denied("access_key_id is not known to the server"),
        (_, "SignatureDoesNotMatch") => denied("secret_access_key does not belong to access_key_id"),
        (_, "ExpiredToken" | "InvalidToken") => denied("session_token has expired or is wrong"),
        (_, "RequestTimeTooSkewed") => SourceError::unavailable("the clock of this machine and that of the server differ too much"),
        (_, "NoSuchBucket" | "InvalidBucketName") => SourceError::field("bucket", "the server has no bucket of this name"),
        (_, "NoSuchKey") => SourceError::gone("the object is gone"),
        (_, "InvalidObjectState") => SourceError::unfetchable("the object is archived; restore it first"),
        (301 | 307 | 308, _) | (_, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
            let hint = refusal.headers.get("x-amz-bucket-region").and_then(|value| value.to_str().ok()).unwrap_or_default();
            let is_region = !hint.is_empty() && hint.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let hint = if is_region { format!(", which is {hint}") } else { String::new() };
            SourceError::field("region", format!("is not the bucket's{hint}"))
        }
        (404, _) if act == "get" => SourceError::gone("the object is gone"),
        (404, _) => SourceError::field("bucket", "the server has no bucket of this name"),
        (401 | 403, _) if act == "get" => denied("access_key_id may not get this object (s3:GetObject)"),
        (401 | 403, _) => denied("access_key_id may not list the bucket (s3:ListBucket)"),
        _ => refusal.other(&code),
    }
}

fn header(name: &str, value: &str) -> Result<HeaderValue, SourceError> {
    if matches!(name, "authorization" | "x-amz-security-token") {
        return secret_header(if name == "authorization" { "access_key_id" } else { "session_token" }, value);
    }
    HeaderValue::from_str(value).map_err(|_| SourceError::broken("a header cannot be made"))
}

impl Source for S3 {
    fn page<'a>(&'a self, after: Option<&'a PageToken>) -> Pending<'a, SourcePage> {
        Box::pin(self.list(after.map(|token| token.0.as_str())))
    }

    fn fetch<'a>(&'a self, item: &'a Item, file: &'a mut File) -> Pending<'a, Fetched> {
        Box::pin(async move {
            let make = || self.call(&item.key, &[]);
            self.http.download(&make, &|refusal| judged(refusal, "get"), file).await
        })
    }
}
