//! Amazon's request signatures (Signature Version 4) for a GET without a body: a pure function of URL, keys and time.

use std::fmt::Write;

use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use sha2::{Digest, Sha256};
use url::Url;

use crate::source::credentials::Credential;

/// What S3 wants encoded in a query.
pub(super) const KEPT_IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
pub(super) const KEPT_IN_PATH: &AsciiSet = &KEPT_IN_QUERY.remove(b'/');

/// SHA-256 of nothing.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

pub(super) struct Keys {
    pub(super) id: Credential,
    pub(super) secret: Credential,
    pub(super) session: Option<Credential>,
}

/// The headers that sign the request, `authorization` last. The path and the sorted query are signed as they are sent.
pub(super) fn headers(url: &Url, keys: &Keys, region: &str, time: &str) -> Vec<(&'static str, String)> {
    let date = time.split('T').next().unwrap_or_default();
    let host = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    let mut headers = vec![("host", host), ("x-amz-content-sha256", EMPTY.to_owned()), ("x-amz-date", time.to_owned())];
    headers.extend(keys.session.as_ref().map(|session| ("x-amz-security-token", session.reveal().to_owned())));

    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let mut canonical = format!("GET\n{}\n{}\n", url.path(), url.query().unwrap_or_default());
    for (name, value) in &headers {
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let _ = write!(canonical, "\n{names}\n{EMPTY}");

    let scope = format!("{date}/{region}/s3/aws4_request");
    let statement = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex::encode(Sha256::digest(&canonical)));
    let key = [date, region, "s3", "aws4_request"]
        .iter()
        .fold(format!("AWS4{}", keys.secret.reveal()).into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex::encode(mac(&key, statement.as_bytes()));
    let id = keys.id.reveal();
    headers.push(("authorization", format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")));
    headers
}

fn mac(key: &[u8], message: &[u8]) -> Vec<u8> {
    // HMAC accepts keys of any length.
    Hmac::<Sha256>::new_from_slice(key).map(|mac| mac.chain_update(message).finalize().into_bytes().to_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Amazon's documentation, "Authenticating Requests: Using the Authorization Header", examples of GET Bucket Lifecycle and
    /// GET Bucket (List Objects).
    #[test]
    fn signatures_are_those_of_the_documentation() {
        let keys = Keys {
            id: Credential::new("AKIAIOSFODNN7EXAMPLE"),
            secret: Credential::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session: None,
        };
        for (query, expected) in [
            ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ] {
            let url = format!("https://examplebucket.s3.amazonaws.com/?{query}").parse().unwrap();
            let (_, value) = headers(&url, &keys, "us-east-1", "20130524T000000Z").pop().unwrap();
            assert!(value.ends_with(&format!("Signature={expected}")), "{query}: {value}");
        }
    }
}
