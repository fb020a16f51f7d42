//! Access tokens by the key of a service account (RFC 7523), kept until shortly before they expire.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use reqwest::header::HeaderValue;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};

use crate::source::credentials::secret_header;
use crate::source::http::{Http, HttpLimits, SourceCall};
use crate::source::{Credentials, SourceError, Surroundings};

const KEY: &str = "service_account.json";
const SCOPE: &str = "https://www.googleapis.com/auth/drive.readonly";
const EXPIRY_MARGIN: Duration = Duration::from_mins(2);
const MAX_LIFE: Duration = Duration::from_hours(24);

pub(super) struct ServiceAccount {
    http: Http,
    file: KeyFile,
    token_url: Url,
    pair: RsaKeyPair,
    kept: Mutex<Option<(HeaderValue, Instant)>>,
}

#[derive(Deserialize)]
struct KeyFile {
    #[serde(default)]
    private_key_id: String,
    private_key: String,
    client_email: String,
    token_uri: String,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    #[serde(default)]
    expires_in: u64,
}

fn unusable(what: &str) -> SourceError {
    SourceError::credentials(format!("the Secret's key {KEY} {what}"))
}

impl ServiceAccount {
    pub(super) fn read(credentials: &Credentials, surroundings: &Surroundings) -> Result<Self, SourceError> {
        // The parser's words could quote the key.
        let file: KeyFile = serde_json::from_str(credentials.required(KEY)?.reveal())
            .map_err(|_| unusable("is no JSON key of a service account, with private_key, client_email and token_uri"))?;
        let pem: String = file.private_key.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let der = STANDARD.decode(pem).map_err(|_| unusable("has a private_key that is no PEM"))?;
        let pair = RsaKeyPair::from_pkcs8(&der).map_err(|_| unusable("has a private_key that is no RSA key in PKCS #8"))?;
        let token_url = Url::parse(&file.token_uri).map_err(|_| unusable("has a token_uri that is no URL"))?;
        Ok(Self { http: Http::new(surroundings, "credentials_secret"), file, token_url, pair, kept: Mutex::default() })
    }

    /// For a server that is only tried.
    pub(super) fn ask_once(&mut self) {
        self.http.limits = HttpLimits::once();
    }

    /// The value of an `Authorization` header. Concurrent callers wait for one request.
    pub(super) async fn token(&self, renew: bool) -> Result<HeaderValue, SourceError> {
        let mut kept = self.kept.lock().await;
        if let Some((token, until)) = &*kept
            && !renew
            && *until > Instant::now()
        {
            return Ok(token.clone());
        }
        let make = || {
            let assertion = self.assertion(Timestamp::now().as_second())?;
            let fields = [("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", assertion.as_str())];
            let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
            Ok(SourceCall::post(self.token_url.clone(), "application/x-www-form-urlencoded", body))
        };
        let answer: Answer = self
            .http
            .json(&make, &|refusal| match refusal.status.as_u16() {
                400..=403 => unusable("gives no token: Google does not know the service account or its key"),
                _ => refusal.other(""),
            })
            .await?;
        let token = secret_header(KEY, &format!("Bearer {}", answer.access_token))?;
        let life = Duration::from_secs(answer.expires_in).min(MAX_LIFE).saturating_sub(EXPIRY_MARGIN);
        *kept = Some((token.clone(), Instant::now() + life));
        Ok(token)
    }

    fn assertion(&self, now: i64) -> Result<String, SourceError> {
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.file.private_key_id});
        let claims = json!({"iss": self.file.client_email, "scope": SCOPE, "aud": self.file.token_uri, "iat": now, "exp": now + 3600});
        let mut statement = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let mut signature = vec![0; self.pair.public().modulus_len()];
        self.pair
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), statement.as_bytes(), &mut signature)
            .map_err(|_| unusable("has a private_key that cannot sign"))?;
        statement.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut statement);
        Ok(statement)
    }
}
