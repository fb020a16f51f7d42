//! AWS's request signatures (Signature Version 4): a pure function of request, keys and time.

use std::fmt::{self, Write};

use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use url::Url;

/// The path is encoded a second time, except for slashes.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

pub(crate) struct AwsKeys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) session: Option<String>,
}

impl fmt::Debug for AwsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsKeys")
    }
}

/// The scope of a signature.
pub(crate) struct Scope<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    /// As in `20250102T030405Z`.
    pub(crate) time: &'a str,
}

/// The headers that sign a POST of JSON, `authorization` last. All of them have to be sent.
pub(crate) fn sign(url: &Url, body: &[u8], keys: &AwsKeys, scope: &Scope<'_>) -> Vec<(&'static str, String)> {
    let Scope { region, service, time } = scope;
    let date = time.split('T').next().unwrap_or_default();
    let host = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    let hash = hex::encode(Sha256::digest(body));
    let mut headers = vec![("content-type", "application/json".to_owned()), ("host", host)];
    headers.push(("x-amz-content-sha256", hash.clone()));
    headers.push(("x-amz-date", (*time).to_owned()));
    headers.extend(keys.session.clone().map(|session| ("x-amz-security-token", session)));

    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let mut canonical = format!("POST\n{}\n{}\n", utf8_percent_encode(url.path(), PATH), url.query().unwrap_or_default());
    for (name, value) in &headers {
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let _ = write!(canonical, "\n{names}\n{hash}");

    let place = format!("{date}/{region}/{service}/aws4_request");
    let statement = format!("AWS4-HMAC-SHA256\n{time}\n{place}\n{}", hex::encode(Sha256::digest(&canonical)));
    let key = [date, region, service, "aws4_request"]
        .iter()
        .fold(format!("AWS4{}", keys.secret).into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex::encode(mac(&key, statement.as_bytes()));
    headers
        .push(("authorization", format!("AWS4-HMAC-SHA256 Credential={}/{place}, SignedHeaders={names}, Signature={signature}", keys.id)));
    headers
}

fn mac(key: &[u8], message: &[u8]) -> Vec<u8> {
    // HMAC accepts keys of any length.
    Hmac::<Sha256>::new_from_slice(key).map(|mac| mac.chain_update(message).finalize().into_bytes().to_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example is from the tests of another client of the same interface; see testdata/README.md.
    #[test]
    fn a_signature_is_the_published_one() {
        let example: serde_json::Value = serde_json::from_str(include_str!("../testdata/aws/sigv4.json")).unwrap();
        let text = |path: &str| example.pointer(path).unwrap().as_str().unwrap().to_owned();
        let keys = AwsKeys {
            id: text("/credentials/accessKeyId"),
            secret: text("/credentials/secretAccessKey"),
            session: Some(text("/credentials/sessionToken")),
        };
        let time = text("/expected/date");
        let (region, service) = (text("/region"), text("/service"));
        let scope = Scope { region: &region, service: &service, time: &time };
        let headers = sign(&text("/request/url").parse().unwrap(), text("/request/body").as_bytes(), &keys, &scope);
        assert_eq!(headers.last().unwrap().1, text("/expected/authorization"));
        assert!(headers.contains(&("x-amz-content-sha256", text("/expected/payloadHash"))));
        assert!(!format!("{keys:?}").contains("AKID"));
    }
}
