//! Tokens by the key file of a service account.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{FILE_VARIABLE, SCOPE, form, unusable};
use crate::fault::{FaultKind, ModelFault};
use crate::transport::Transport;

#[derive(Deserialize)]
pub(super) struct Account {
    pub(super) project_id: Option<String>,
    #[serde(default)]
    private_key_id: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    token_uri: String,
}

impl Account {
    pub(super) async fn token(&self, transport: &Transport) -> Result<Value, ModelFault> {
        let assertion = self.assertion(Timestamp::now())?;
        let fields = [("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", &assertion)];
        let call = form("token_uri", &self.token_uri, &fields)?;
        transport.json(&call).await.map_err(|fault| match fault.kind() {
            FaultKind::Refused | FaultKind::UnknownModel => ModelFault::new(
                FaultKind::Unauthorized,
                format!("Google gives no token for the service account of {FILE_VARIABLE}; see that its key still exists"),
            ),
            _ => fault,
        })
    }

    /// The signed assertion that is exchanged for a token (RFC 7523).
    pub(super) fn assertion(&self, now: Timestamp) -> Result<String, ModelFault> {
        let now = now.as_second();
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.private_key_id});
        let claims = json!({"iss": self.client_email, "scope": SCOPE, "aud": self.token_uri, "iat": now, "exp": now + 3600});
        let mut statement = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let pem: String = self.private_key.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let der = STANDARD.decode(pem).map_err(|_| unusable("its private_key is not PEM"))?;
        let pair = RsaKeyPair::from_pkcs8(&der).map_err(|_| unusable("its private_key is no RSA key in PKCS #8"))?;
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), statement.as_bytes(), &mut signature)
            .map_err(|_| unusable("its private_key cannot sign"))?;
        statement.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut statement);
        Ok(statement)
    }
}
