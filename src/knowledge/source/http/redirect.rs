//! Redirects of a GET: attachments and files lie on other hosts than the API that names them. Credentials stay with the origin
//! they are for, and https is not left. The egress rules are applied to each hop.

use reqwest::header::{AUTHORIZATION, COOKIE};
use url::Url;

use super::{SourceCall, SourceError};

pub(super) fn follow(call: SourceCall, location: &str) -> Result<SourceCall, SourceError> {
    let place = slipway_egress::redacted(&call.url);
    let next = call.url.join(location).map_err(|_| SourceError::broken(format!("{place} redirects to what is no URL")))?;
    if call.url.scheme() == "https" && next.scheme() != "https" {
        return Err(SourceError::broken(format!("{place} redirects from https to {}", slipway_egress::redacted(&next))));
    }
    let origin = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    let stays = origin(&call.url) == origin(&next);
    let headers = call.headers.into_iter().filter(|(name, _)| stays || (name != AUTHORIZATION && name != COOKIE)).collect();
    Ok(SourceCall { url: next, headers, ..call })
}

#[cfg(test)]
mod tests {
    use reqwest::header::{ACCEPT, HeaderValue};

    use super::*;

    #[test]
    fn credentials_stay_with_their_origin() {
        for (location, expected) in [
            ("/other", Some(2)),
            ("https://wiki.example.com:443/other", Some(2)),
            ("https://media.example.com/file", Some(1)),
            ("https://wiki.example.com:8443/file", Some(1)),
            ("http://wiki.example.com/file", None),
            ("file:///etc/passwd", None),
        ] {
            let call = SourceCall::get("https://wiki.example.com/file".parse().unwrap())
                .header(AUTHORIZATION, HeaderValue::from_static("Bearer abc"))
                .header(ACCEPT, HeaderValue::from_static("*/*"));
            let headers = follow(call, location).ok().map(|call| call.headers.len());
            assert_eq!(headers, expected, "{location}");
        }
    }
}
