//! Parses tokens in JWS compact form.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

pub(super) struct Token<'a> {
    /// The signed bytes: header and claims as they came.
    pub signed: &'a [u8],
    pub algorithm: String,
    /// The id of the signing key, if the header names it.
    pub key: Option<String>,
    pub claims: Map<String, Value>,
    pub signature: Vec<u8>,
}

/// The `iss` claim of a token of this form.
pub(super) fn issuer(token: &str) -> Option<String> {
    let (_, claims, _) = pieces(token)?;
    match object(claims)?.remove("iss")? {
        Value::String(issuer) => Some(issuer),
        _ => None,
    }
}

impl<'a> Token<'a> {
    pub(super) fn read(token: &'a str) -> Result<Self, String> {
        let broken = || "it is not a signed token (JWS, compact form)".to_owned();
        let (head, claims, signature) = pieces(token).ok_or_else(broken)?;
        let header = object(head).ok_or_else(broken)?;
        // Critical extensions must be understood, and none is implemented.
        if header.contains_key("crit") {
            return Err("its header has critical extensions, of which none is known".to_owned());
        }
        let text = |name: &str| match header.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("its header's {name} is no string")),
        };
        Ok(Self {
            signed: &token.as_bytes()[..head.len() + 1 + claims.len()],
            algorithm: text("alg")?.ok_or("its header names no algorithm")?,
            key: text("kid")?,
            claims: object(claims).ok_or_else(broken)?,
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(|_| broken())?,
        })
    }
}

fn pieces(token: &str) -> Option<(&str, &str, &str)> {
    let mut pieces = token.split('.');
    let found = (pieces.next()?, pieces.next()?, pieces.next()?);
    pieces.next().is_none().then_some(found)
}

fn object(piece: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(piece).ok()?).ok()
}
