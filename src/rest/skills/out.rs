//! The way out for imports, which are made in a user's name from where the platform is: straight, or through the proxy
//! that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name for where it goes.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper_util::client::proxy::matcher::Matcher;
use percent_encoding::percent_encode;
use slipway_egress::{Allowed, Egress, Whose};
use slipway_http::{Error, HeaderValue};
use url::Url;

const WHOSE: Whose =
    Whose { name: "imports", setting: "SLIPWAY_IMPORT_ALLOW", user_agent: concat!("git/2.0 (slipway/", env!("CARGO_PKG_VERSION"), ")") };

pub(crate) struct Out {
    allow: Vec<Allowed>,
    straight: Egress,
    environment: Matcher,
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A proxy's URL may hold a password.
        f.debug_struct("Out").field("allow", &self.allow).finish_non_exhaustive()
    }
}

impl Out {
    pub(crate) fn new(allow: &[Allowed]) -> Self {
        Self::within(allow, Matcher::from_env())
    }

    pub(super) fn within(allow: &[Allowed], environment: Matcher) -> Self {
        Self { allow: allow.to_vec(), straight: Egress::new(WHOSE, allow, None), environment }
    }

    /// The way to this repository. A proxy resolves names by itself and has to guard them; what the URL shows is
    /// checked here in any case.
    pub(super) fn to(&self, repository: &Url) -> Result<Egress, Error> {
        let Some(proxy) = repository.as_str().parse().ok().and_then(|uri: http::Uri| self.environment.intercept(&uri)) else {
            return Ok(self.straight.clone());
        };
        let mut url = Url::parse(&proxy.uri().to_string()).map_err(|_| Error::internal("the proxy's URL cannot be read"))?;
        if let Some((user, password)) = proxy.basic_auth().and_then(login) {
            let encoded = |text: &str| percent_encode(text.as_bytes(), percent_encoding::NON_ALPHANUMERIC).to_string();
            let set = url.set_username(&encoded(&user)).and_then(|()| url.set_password(Some(&encoded(&password))));
            set.map_err(|()| Error::internal("the proxy's URL can hold no login"))?;
        }
        Ok(Egress::new(WHOSE, &self.allow, Some(url)))
    }
}

/// User and password of a header `Basic …`.
fn login(header: &HeaderValue) -> Option<(String, String)> {
    let encoded = header.to_str().ok()?.strip_prefix("Basic ")?;
    let login = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    login.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}
