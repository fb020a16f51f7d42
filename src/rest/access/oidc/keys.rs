//! The public keys of an issuer (a JWK set), and signature checks. The key determines the algorithm, so that a token cannot
//! use a public key as an HMAC secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, EcdsaVerificationAlgorithm, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use super::jwt::Token;

/// The number of keys that are read from a set.
const KEYS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct IssuerKeys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// The only algorithm of the key, if it names one.
    algorithm: Option<String>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl IssuerKeys {
    /// The usable keys of a set. Keys for other purposes or of other types are skipped.
    pub(super) fn read(set: &[u8]) -> Result<Self, serde_json::Error> {
        let set: JwkSet = serde_json::from_slice(set)?;
        let known = set.keys.into_iter().filter_map(|key| Key::of(serde_json::from_value(key).ok()?));
        Ok(Self(known.take(KEYS_MAX).collect()))
    }

    /// Whether the key that the token names, or any key, has signed it.
    pub(super) fn signed(&self, token: &Token<'_>) -> bool {
        let named = |key: &&Key| token.key.is_none() || token.key == key.id;
        self.0.iter().filter(named).any(|key| key.signed(token))
    }
}

impl Key {
    fn of(jwk: Jwk) -> Option<Self> {
        if jwk.r#use.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let bytes = |field: Option<String>| URL_SAFE_NO_PAD.decode(field?.trim_end_matches('=')).ok();
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Material::Rsa { n: bytes(jwk.n)?, e: bytes(jwk.e)? },
            ("EC", Some("P-256")) => Material::P256(point(bytes(jwk.x)?, bytes(jwk.y)?, 32)?),
            ("EC", Some("P-384")) => Material::P384(point(bytes(jwk.x)?, bytes(jwk.y)?, 48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(jwk.x)?),
            _ => return None,
        };
        Some(Self { id: jwk.kid, algorithm: jwk.alg, material })
    }

    fn signed(&self, token: &Token<'_>) -> bool {
        if self.algorithm.as_ref().is_some_and(|algorithm| !same(algorithm, &token.algorithm)) {
            return false;
        }
        let ec = |algorithm: &'static EcdsaVerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(algorithm, point).verify(token.signed, &token.signature).is_ok()
        };
        match (&self.material, token.algorithm.as_str()) {
            (Material::Rsa { n, e }, name) => {
                rsa(name).is_some_and(|algorithm| RsaPublicKeyComponents { n, e }.verify(algorithm, token.signed, &token.signature).is_ok())
            }
            (Material::P256(point), "ES256") => ec(&signature::ECDSA_P256_SHA256_FIXED, point),
            (Material::P384(point), "ES384") => ec(&signature::ECDSA_P384_SHA384_FIXED, point),
            (Material::Ed25519(key), "EdDSA" | "Ed25519") => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(token.signed, &token.signature).is_ok()
            }
            _ => false,
        }
    }
}

/// `EdDSA` is also called by its curve.
fn same(one: &str, other: &str) -> bool {
    let name = |algorithm| if algorithm == "Ed25519" { "EdDSA" } else { algorithm };
    name(one) == name(other)
}

/// These refuse keys below 2048 bits.
fn rsa(name: &str) -> Option<&'static RsaParameters> {
    Some(match name {
        "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
        "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
        "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

/// An uncompressed point.
fn point(x: Vec<u8>, y: Vec<u8>, length: usize) -> Option<Vec<u8>> {
    (x.len() == length && y.len() == length).then(|| [vec![4], x, y].concat())
}
