//! Against a real issuer. Tokens that it would never sign are signed with keys of the test.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Map, Value, json};

use super::keys::IssuerKeys;
use super::*;

const HOUR: f64 = 3600.0;

fn oidc(issuer: &str) -> Oidc {
    Oidc {
        issuer: issuer.to_owned(),
        audience: "slipway".to_owned(),
        username_claim: "email".to_owned(),
        username_prefix: None,
        groups_claim: Some("groups".to_owned()),
        groups_prefix: "oidc:".to_owned(),
    }
}

/// No minimum time between attempts.
const QUICK: FetchIntervals = FetchIntervals { fresh: Duration::from_mins(10), usable: Duration::from_hours(1), between: Duration::ZERO };

fn issuer(peer: &slipway_peers::Issuer, intervals: FetchIntervals) -> Issuer {
    rustls::crypto::ring::default_provider().install_default().ok();
    Issuer::with_intervals(oidc(peer.url()), intervals).unwrap()
}

fn alice() -> Value {
    json!({"aud": "slipway", "email": "alice@example.com", "email_verified": true, "groups": ["dev"], "team_id": "tk_blue"})
}

async fn read(issuer: &Issuer, token: &str) -> Result<Caller, (u16, String)> {
    assert!(issuer.is_named_by(token), "{token}");
    let outcome = issuer.caller(token, SystemTime::now()).await;
    outcome.map(|(caller, _)| caller).map_err(|error| (error.status().as_u16(), error.message().to_owned()))
}

#[tokio::test]
async fn a_token_of_each_algorithm_says_who_calls() {
    let peer = slipway_peers::Issuer::start();
    let algorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
    peer.rotate(&algorithms);
    let issuer = issuer(&peer, FetchIntervals::default());
    for algorithm in algorithms {
        let caller = read(&issuer, &peer.sign(algorithm, &alice().to_string())).await.unwrap();
        let groups = vec!["oidc:dev".to_owned(), "system:authenticated".to_owned()];
        let team = Some("tk_blue".to_owned());
        assert_eq!(caller, Caller { name: "alice@example.com".to_owned(), groups, team, ..Caller::default() }, "{algorithm}");
    }
    assert_eq!(issuer.problem().await, None);
}

#[tokio::test]
async fn what_the_issuer_signed_may_still_not_do() {
    let peer = slipway_peers::Issuer::start();
    let issuer = issuer(&peer, FetchIntervals::default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (more, says) in [
        (json!({"aud": "other"}), "not meant for slipway"),
        (json!({"aud": null}), "not meant for slipway"),
        (json!({"exp": now - 3600}), "expired"),
        (json!({"exp": null}), "no exp"),
        (json!({"exp": "tomorrow"}), "no number"),
        (json!({"nbf": now + 3600}), "later moment"),
        (json!({"iat": now + 3600}), "later moment"),
        (json!({"email_verified": false}), "not been verified"),
        (json!({"email_verified": "true"}), "not been verified"),
        (json!({"email": null}), "no claim email"),
        (json!({"email": ""}), "no claim email"),
        (json!({"email": 7}), "no string"),
        (json!({"email": "system:admin"}), "cluster's own"),
        (json!({"groups": {"a": "b"}}), "list of strings"),
        (json!({"groups": [1]}), "list of strings"),
        (json!({"team_id": 7}), "no string"),
    ] {
        let mut claims = alice();
        crate::write::merge(&mut claims, more.clone());
        let (status, message) = read(&issuer, &peer.token(&claims.to_string())).await.unwrap_err();
        assert!(status == 401 && message.contains(says), "{more}: {status} {message}");
    }
    // A small clock skew is tolerated.
    for near in [json!({"exp": now - 5}), json!({"nbf": now + 10}), json!({"iat": now + 10}), json!({"email_verified": null})] {
        let mut claims = alice();
        crate::write::merge(&mut claims, near.clone());
        read(&issuer, &peer.token(&claims.to_string())).await.unwrap_or_else(|error| panic!("{near}: {error:?}"));
    }
}

#[tokio::test]
async fn groups_of_the_cluster_are_refused_whatever_the_prefix() {
    let peer = slipway_peers::Issuer::start();
    let bare = Issuer::new(Oidc { groups_prefix: String::new(), ..oidc(peer.url()) }).unwrap();
    for groups in [json!(["dev", "system:masters"]), json!("system:masters")] {
        let mut claims = alice();
        claims["groups"] = groups;
        let (status, message) = read(&bare, &peer.token(&claims.to_string())).await.unwrap_err();
        assert!(status == 401 && message.contains("system:masters"), "{message}");
        // With a prefix the group is not the cluster's.
        let caller = read(&issuer(&peer, QUICK), &peer.token(&claims.to_string())).await.unwrap();
        assert!(caller.groups.contains(&"oidc:system:masters".to_owned()), "{caller:?}");
    }
    for prefix in ["system:", "system:masters"] {
        Issuer::new(Oidc { groups_prefix: prefix.to_owned(), ..oidc(peer.url()) }).unwrap_err();
        Issuer::new(Oidc { username_prefix: Some(prefix.to_owned()), ..oidc(peer.url()) }).unwrap_err();
    }
}

#[tokio::test]
async fn keys_that_change_are_found_and_old_ones_are_forgotten() {
    let peer = slipway_peers::Issuer::start();
    let quick = issuer(&peer, QUICK);
    let slow = issuer(&peer, FetchIntervals { between: Duration::from_hours(1), ..QUICK });
    let old = peer.token(&alice().to_string());
    read(&quick, &old).await.unwrap();
    read(&slow, &old).await.unwrap();
    peer.rotate(&["RS256"]);
    let new = peer.token(&alice().to_string());
    read(&quick, &new).await.unwrap();
    let (status, message) = read(&quick, &old).await.unwrap_err();
    assert!(status == 401 && message.contains("no key"), "{status} {message}");
    // Within the interval no further attempt is made.
    read(&slow, &new).await.unwrap_err();
    read(&slow, &old).await.unwrap();
}

#[tokio::test]
async fn an_issuer_that_is_away_is_told_apart_from_a_token_that_is_wrong() {
    let peer = slipway_peers::Issuer::start();
    let quick = issuer(&peer, QUICK);
    let hasty = issuer(&peer, FetchIntervals { fresh: Duration::ZERO, usable: Duration::ZERO, ..QUICK });
    let token = peer.token(&alice().to_string());
    read(&quick, &token).await.unwrap();
    let strange = resigned(&token);
    assert_eq!(read(&quick, &strange).await.unwrap_err().0, 401);
    drop(peer);
    // Known keys still serve; new ones cannot be fetched.
    read(&quick, &token).await.unwrap();
    assert_eq!(read(&quick, &strange).await.unwrap_err().0, 503);
    assert_eq!(read(&hasty, &token).await.unwrap_err().0, 503);
    assert!(quick.problem().await.is_some());
}

#[tokio::test]
async fn nobody_but_the_issuer_tells_its_keys() {
    let peer = slipway_peers::Issuer::start();
    rustls::crypto::ring::default_provider().install_default().ok();
    // The same server under another name describes itself by its own.
    let other = Issuer::with_intervals(oidc(&peer.url().replace("127.0.0.1", "localhost")), QUICK).unwrap();
    assert!(other.problem().await.unwrap().contains("another issuer"));
    for wrong in ["http://issuer.example.com", "issuer", "https://issuer.example.com/?a=b", "ftp://localhost"] {
        Issuer::new(oidc(wrong)).unwrap_err();
    }
    for (audience, claim) in [("", "sub"), ("slipway", "")] {
        let wrong = Oidc { audience: audience.to_owned(), username_claim: claim.to_owned(), ..oidc("https://issuer.example.com") };
        Issuer::new(wrong).unwrap_err();
    }
}

/// An Ed25519 key pair as a JWK set.
struct Mint(Ed25519KeyPair);

impl Mint {
    fn new() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    fn set(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]})
    }

    fn sign(&self, header: &Value) -> String {
        let signed = format!("{}.{}", piece(header), piece(&json!({"iss": "https://issuer"})));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes())))
    }
}

fn piece(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// The same token with another key's signature.
fn resigned(token: &str) -> String {
    let (signed, _) = token.rsplit_once('.').unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(Mint::new().0.sign(signed.as_bytes())))
}

#[test]
fn a_header_cannot_talk_a_key_into_another_use() {
    let mint = Mint::new();
    let keys = IssuerKeys::read(mint.set().to_string().as_bytes()).unwrap();
    let signed = |token: &str| Token::read(token).is_ok_and(|token| keys.signed(&token));
    for right in [json!({"alg": "EdDSA", "kid": "one"}), json!({"alg": "EdDSA"}), json!({"alg": "Ed25519", "jku": "https://evil"})] {
        assert!(signed(&mint.sign(&right)), "{right}");
    }
    for wrong in [
        json!({"alg": "none"}),
        json!({"alg": "None"}),
        json!({"alg": "RS256"}),
        json!({"alg": "HS256", "kid": "one"}),
        json!({"alg": "eddsa"}),
        json!({"alg": ["EdDSA"]}),
        json!({"kid": "one"}),
        json!({"alg": "EdDSA", "kid": "two"}),
        json!({"alg": "EdDSA", "kid": 1}),
        json!({"alg": "EdDSA", "crit": ["b64"], "b64": false}),
        json!({"alg": "EdDSA", "crit": []}),
        json!({"alg": "EdDSA", "crit": null}),
        json!(["EdDSA"]),
    ] {
        assert!(!signed(&mint.sign(&wrong)), "{wrong}");
    }
    let token = mint.sign(&json!({"alg": "EdDSA"}));
    let (body, _) = token.rsplit_once('.').unwrap();
    let none = format!("{}.{}.", piece(&json!({"alg": "none"})), body.split_once('.').unwrap().1);
    for wrong in
        [none, format!("{body}."), format!("{token}."), format!("{token}=="), resigned(&token), "a.b.c".to_owned(), "..".to_owned()]
    {
        assert!(!signed(&wrong), "{wrong}");
    }
}

#[test]
fn a_public_key_is_nobodys_secret() {
    // The classic attack: the public key as HMAC secret.
    let mint = Mint::new();
    let set = mint.set();
    let keys = IssuerKeys::read(set.to_string().as_bytes()).unwrap();
    for secret in [mint.0.public_key().as_ref().to_vec(), set["keys"][0]["x"].as_str().unwrap().as_bytes().to_vec()] {
        let signed = format!("{}.{}", piece(&json!({"alg": "HS256", "kid": "one"})), piece(&json!({"iss": "https://issuer"})));
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret), signed.as_bytes());
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()));
        assert!(!keys.signed(&Token::read(&token).unwrap()));
    }
}

#[test]
fn keys_for_other_ends_are_passed_over() {
    let mint = Mint::new();
    let token = mint.sign(&json!({"alg": "EdDSA"}));
    let with = |more: &Value| {
        let mut set = mint.set();
        crate::write::merge(&mut set["keys"][0], more.clone());
        let others = json!([{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}, {"kty": "RSA", "n": "*", "e": "AQAB"}, {"kty": 7}, "x"]);
        set["keys"].as_array_mut().unwrap().extend(others.as_array().unwrap().clone());
        IssuerKeys::read(set.to_string().as_bytes()).unwrap().signed(&Token::read(&token).unwrap())
    };
    assert!(with(&json!({})) && with(&json!({"use": "sig", "alg": "EdDSA"})));
    for other in [json!({"use": "enc"}), json!({"alg": "ES256"}), json!({"crv": "X25519"}), json!({"x": "AAAA"})] {
        assert!(!with(&other), "{other}");
    }
    IssuerKeys::read(b"[]").unwrap_err();
}

#[test]
fn names_are_prefixed_as_the_api_server_does_it() {
    let name = |claim: &str, prefix: Option<&str>| {
        let settings = Oidc { username_claim: claim.to_owned(), username_prefix: prefix.map(str::to_owned), ..oidc("https://issuer") };
        let claims = json!({"iss": "https://issuer", "aud": ["a", "slipway"], "exp": HOUR, "sub": "7", "email": "a@b.c"});
        let claims: Map<String, Value> = claims.as_object().unwrap().clone();
        claims::caller(&settings, &claims, 0.0).unwrap().0.name
    };
    assert_eq!(name("sub", None), "https://issuer#7");
    assert_eq!(name("sub", Some("")), "https://issuer#7");
    assert_eq!(name("sub", Some("-")), "7");
    assert_eq!(name("sub", Some("oidc:")), "oidc:7");
    assert_eq!(name("email", None), "a@b.c");
    assert_eq!(name("email", Some("oidc:")), "oidc:a@b.c");
}

#[test]
fn whose_a_token_is_takes_a_token() {
    for (text, whose) in [
        (format!("{}.{}.", piece(&json!({})), piece(&json!({"iss": "https://issuer"}))), Some("https://issuer")),
        (format!("{}.{}.", piece(&json!({})), piece(&json!({"iss": 7}))), None),
        (format!("x.{}", piece(&json!({"iss": "https://issuer"}))), None),
        ("sha256~opaque".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(jwt::issuer(&text).as_deref(), whose, "{text}");
    }
}

fn seeded() -> (Ed25519KeyPair, IssuerKeys) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": URL_SAFE_NO_PAD.encode(pair.public_key())});
    (pair, IssuerKeys::read(json!({"keys": [key]}).to_string().as_bytes()).unwrap())
}

fn signed_by(pair: &Ed25519KeyPair, head: &str, claims: &str) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes())))
}

/// Values that an issuer may put into a claim.
fn claim() -> impl Strategy<Value = Value> {
    let names = vec!["slipway", "https://issuer.example", "system:masters", "system:", "sys", "tem:masters", "alice@example.com", "", "a"];
    let name = prop::sample::select(names).prop_map(Value::from);
    prop_oneof![
        4 => name.clone(),
        2 => prop::collection::vec(name, 0..3).prop_map(Value::from),
        2 => prop::sample::select(vec![json!(0), json!(999_999.5), json!(1_000_100), json!(1e300), json!(-1e300), json!(u64::MAX), json!(null), json!(true), json!({})]),
        1 => any::<String>().prop_map(Value::from),
    ]
}

proptest! {
    #[test]
    fn whatever_an_issuer_says_nobody_becomes_the_clusters_own(
        claims in prop::collection::btree_map("iss|aud|exp|nbf|iat|email|email_verified|sub|groups|team_id", claim(), 0..8),
        username in "email|sub", prefix in prop::option::of("|sys|x:"), groups_prefix in "|sys|oidc:",
    ) {
        let mut all: Map<String, Value> = json!({"iss": "https://issuer.example", "aud": "slipway", "exp": 1_000_060}).as_object().unwrap().clone();
        all.extend(claims);
        let oidc = Oidc { username_claim: username, username_prefix: prefix, groups_prefix, ..oidc("https://issuer.example") };
        if let Ok((caller, _)) = claims::caller(&oidc, &all, 1_000_000.0) {
            prop_assert!(!caller.name.is_empty() && !caller.name.starts_with("system:"), "{:?}", caller);
            let (everyone, own) = caller.groups.split_last().unwrap();
            prop_assert_eq!(everyone, "system:authenticated");
            prop_assert!(own.iter().all(|group| !group.starts_with("system:")), "{:?}", caller);
            prop_assert!(all["exp"].as_f64().is_some_and(|exp| exp > 1_000_000.0 - 30.1) && all["iss"] == "https://issuer.example");
        }
    }

    #[test]
    fn only_what_was_signed_is_believed(at in any::<prop::sample::Index>(), byte in "[A-Za-z0-9_.=+/-]", what in 0_usize..4, claims in "\\PC{0,20}", kid in "a|b") {
        let (pair, keys) = seeded();
        let good = signed_by(&pair, r#"{"alg":"EdDSA","kid":"a"}"#, &json!({"iss": "x", "sub": claims}).to_string());
        prop_assert!(keys.signed(&Token::read(&good).unwrap()));
        let mut other = good.clone();
        let at = at.index(good.len());
        match what {
            0 => other.replace_range(at..=at, &byte),
            1 => other.insert_str(at, &byte),
            2 => drop(other.remove(at)),
            _ => other.truncate(at),
        }
        prop_assert_eq!(Token::read(&other).is_ok_and(|token| keys.signed(&token)), other == good, "{}", other);
        // Another algorithm or key id makes another token.
        for alg in ["none", "HS256", "RS256", "ES256", "eddsa", ""] {
            let token = signed_by(&pair, &json!({"alg": alg}).to_string(), "{}");
            prop_assert!(!keys.signed(&Token::read(&token).unwrap()), "{}", alg);
        }
        let named = signed_by(&pair, &json!({"alg": "EdDSA", "kid": kid}).to_string(), "{}");
        prop_assert_eq!(keys.signed(&Token::read(&named).unwrap()), kid == "a");
    }

    #[test]
    fn no_bytes_make_keys_or_tokens_panic(
        text in "\\PC{0,40}|[A-Za-z0-9_-]{0,20}\\.[A-Za-z0-9_-]{0,20}\\.[A-Za-z0-9_-]{0,20}", head in "\\PC{0,20}|\\{(\"(alg|kid|crit)\":(\"EdDSA\"|1|null),?){0,3}\\}",
        keys in prop::collection::vec(prop::collection::btree_map("kty|kid|alg|use|crv|n|e|x|y", "RSA|EC|OKP|P-256|P-384|Ed25519|sig|EdDSA|ES256|RS256|AQAB|[A-Za-z0-9_=-]{0,90}", 0..7), 0..4),
    ) {
        let (pair, own) = seeded();
        let set = json!({"keys": keys}).to_string();
        let _ = IssuerKeys::read(text.as_bytes());
        let keys = IssuerKeys::read(set.as_bytes()).unwrap();
        for token in [text.clone(), signed_by(&pair, &head, "{}"), signed_by(&pair, r#"{"alg":"ES256"}"#, "{}"), signed_by(&pair, r#"{"alg":"RS256"}"#, "{}")] {
            if let Ok(token) = Token::read(&token) {
                prop_assert!(!keys.signed(&token), "nobody else's key has signed it");
                let _ = own.signed(&token);
            }
            let _ = super::jwt::issuer(&token);
        }
    }
}
