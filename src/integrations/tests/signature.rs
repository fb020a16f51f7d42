//! What is signed here, the library of Standard Webhooks verifies, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::{SystemTime, UNIX_EPOCH};

use slipway_integrations::signature::SigningKey;
use slipway_peers::{Receiver, python};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_AfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{"type":"test","data":{"name":"größer"}}"#;

/// What the library says: nothing of a good message.
fn verified(secret: &str, id: &str, timestamp: i64, signature: &str, body: &str) -> Result<(), String> {
    let timestamp = timestamp.to_string();
    let output = python(&Receiver::script(), &["verify", secret, id, &timestamp, signature, body], &[("PYTHONUTF8", "1")]);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(said) }
}

#[test]
fn the_library_verifies_what_is_signed_and_nothing_else() {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let key = SigningKey::read(SECRET).unwrap();
    let signature = key.sign("msg_1", now, BODY.as_bytes());
    assert_eq!(verified(SECRET, "msg_1", now, &signature, BODY), Ok(()));
    let stale = now - 600;
    let old = key.sign("msg_1", stale, BODY.as_bytes());
    for (what, outcome, why) in [
        ("a changed byte", verified(SECRET, "msg_1", now, &signature, &BODY.replace("test", "tess")), "No matching signature"),
        ("another id", verified(SECRET, "msg_2", now, &signature, BODY), "No matching signature"),
        ("another time", verified(SECRET, "msg_1", now - 1, &signature, BODY), "No matching signature"),
        ("another secret", verified(OTHER, "msg_1", now, &signature, BODY), "No matching signature"),
        ("a stale time", verified(SECRET, "msg_1", stale, &old, BODY), "too old"),
    ] {
        let said = outcome.unwrap_err();
        assert!(said.contains(why), "{what}: {said}");
    }
}
