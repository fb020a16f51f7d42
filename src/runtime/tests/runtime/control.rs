//! The control port hears the platform and nobody else.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use crate::support::Runtime;

pub(crate) fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

pub(crate) fn token(key: &Ed25519KeyPair, head: &Value, claims: &Value) -> String {
    let signed = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("authorization: Bearer {signed}.{signature}\r\n")
}

#[test]
fn only_a_fresh_token_of_the_platform_for_this_agent_is_heard() {
    let platform = key(7);
    let public = STANDARD.encode(platform.public_key());
    let skills = r#"[{"name": "refunds", "description": "d", "path": "/nowhere", "digest": "sha256:1"}]"#;
    let runtime = Runtime::with(&[("RUNTIME_CONTROL_PUBLIC_KEY", &public), ("RUNTIME_AGENT_ID", "ag_mine"), ("RUNTIME_SKILLS", skills)]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let head = json!({"alg": "EdDSA", "typ": "JWT"});
    let claims = |aud: &str, iat: u64, exp: u64, jti: &str| json!({"aud": aud, "iat": iat, "exp": exp, "jti": jti});
    let good = |jti: &str| token(&platform, &head, &claims("ag_mine", now, now + 60, jti));

    let (answer, body) = runtime.control("GET /control/status", &good("1"));
    assert!(answer.starts_with("http/1.1 200"), "{answer}{body}");
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&status["agent_id"], &status["model"]), (&json!("ag_mine"), &json!("stub:stub-echo")));
    assert_eq!(status["skill_digests"], json!({"refunds": "sha256:1"}));
    for (name, headers) in [
        ("none", String::new()),
        ("not a token", "authorization: Bearer x\r\n".to_owned()),
        ("another's key", token(&key(8), &head, &claims("ag_mine", now, now + 60, "2"))),
        ("another agent", token(&platform, &head, &claims("ag_other", now, now + 60, "3"))),
        ("expired", token(&platform, &head, &claims("ag_mine", now - 90, now - 30, "4"))),
        ("from the future", token(&platform, &head, &claims("ag_mine", now + 30, now + 60, "5"))),
        ("too long", token(&platform, &head, &claims("ag_mine", now, now + 3600, "6"))),
        ("no algorithm", token(&platform, &json!({"alg": "none"}), &claims("ag_mine", now, now + 60, "7"))),
    ] {
        for line in ["GET /control/status", "POST /control/reload", "GET /healthz"] {
            let (answer, body) = runtime.control(line, &headers);
            assert!(answer.starts_with("http/1.1 401"), "{name}: {answer}{body}");
        }
    }

    let once = good("8");
    assert!(runtime.control("POST /control/reload", &once).0.starts_with("http/1.1 200"));
    let (answer, body) = runtime.control("POST /control/reload", &once);
    assert!(answer.starts_with("http/1.1 401") && body.contains("used before"), "{answer}{body}");
}
