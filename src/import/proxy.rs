//! The egress of imports: direct, or through the proxy that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name for the host.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper_util::client::proxy::matcher::Matcher;
use percent_encoding::percent_encode;
use slipway_egress::{Allowed, Egress, EgressProfile};
use slipway_http::{Error, HeaderValue};
use url::Url;

const IMPORT_PROFILE: EgressProfile = EgressProfile {
    name: "imports",
    setting: "SLIPWAY_IMPORT_ALLOW",
    user_agent: concat!("git/2.0 (slipway/", env!("CARGO_PKG_VERSION"), ")"),
};

pub(crate) struct ImportEgress {
    allow: Vec<Allowed>,
    direct: Egress,
    environment: Matcher,
}

impl fmt::Debug for ImportEgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A proxy's URL may hold a password.
        f.debug_struct("ImportEgress").field("allow", &self.allow).finish_non_exhaustive()
    }
}

impl ImportEgress {
    pub(crate) fn new(allow: &[Allowed]) -> Self {
        Self::with_environment(allow, Matcher::from_env())
    }

    pub(super) fn with_environment(allow: &[Allowed], environment: Matcher) -> Self {
        Self { allow: allow.to_vec(), direct: Egress::new(IMPORT_PROFILE, allow, None), environment }
    }

    /// The egress to a repository. A proxy resolves names itself and has to enforce its own rules; an address in the URL is
    /// checked here in any case.
    pub(super) fn to(&self, repository: &Url) -> Result<Egress, Error> {
        let Some(proxy) = repository.as_str().parse().ok().and_then(|uri: http::Uri| self.environment.intercept(&uri)) else {
            return Ok(self.direct.clone());
        };
        let mut url = Url::parse(&proxy.uri().to_string()).map_err(|_| Error::internal("the proxy's URL cannot be read"))?;
        if let Some((user, password)) = proxy.basic_auth().and_then(login) {
            let encoded = |text: &str| percent_encode(text.as_bytes(), percent_encoding::NON_ALPHANUMERIC).to_string();
            let set = url.set_username(&encoded(&user)).and_then(|()| url.set_password(Some(&encoded(&password))));
            set.map_err(|()| Error::internal("the proxy's URL can hold no login"))?;
        }
        Ok(Egress::new(IMPORT_PROFILE, &self.allow, Some(url)))
    }
}

/// User and password of the header `Basic …`.
fn login(header: &HeaderValue) -> Option<(String, String)> {
    let encoded = header.to_str().ok()?.strip_prefix("Basic ")?;
    let login = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    login.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}
