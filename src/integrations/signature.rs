//! Signatures of messages as Standard Webhooks has them: HMAC-SHA256 over id, time and body, with a key that receiver and sender
//! share. Libraries for receivers exist.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const PREFIX: &str = "whsec_";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The key that messages are signed with. Never shown.
pub struct SigningKey(Vec<u8>);

impl SigningKey {
    /// Of `whsec_` and 24 to 64 bytes in base 64. What is wrong with another text, which is not quoted.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        let wrong = "must be whsec_ and 24 to 64 bytes in base 64";
        let encoded = text.strip_prefix(PREFIX).ok_or(wrong)?;
        let key = STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded)).map_err(|_| wrong)?;
        if KEY_BYTES.contains(&key.len()) { Ok(Self(key)) } else { Err(wrong) }
    }

    /// The value of `webhook-signature`. `timestamp` is that of `webhook-timestamp`, in seconds since 1970.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        // HMAC accepts keys of any length.
        let signed = Hmac::<Sha256>::new_from_slice(&self.0).map(|mac| {
            let head = format!("{id}.{timestamp}.");
            mac.chain_update(head.as_bytes()).chain_update(body).finalize().into_bytes().to_vec()
        });
        format!("v1,{}", STANDARD.encode(signed.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_is_signed_as_there() {
        let key = SigningKey::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn keys_are_long_enough_and_no_other_text_is_one() {
        for (text, is_one) in [
            (format!("whsec_{}", STANDARD.encode([7; 24])), true),
            (format!("whsec_{}", STANDARD.encode([7; 64])), true),
            (format!("whsec_{}", STANDARD_NO_PAD.encode([7; 25])), true),
            (format!("whsec_{}", STANDARD.encode([7; 23])), false),
            (format!("whsec_{}", STANDARD.encode([7; 65])), false),
            (STANDARD.encode([7; 24]), false),
            ("whsec_hunter2!".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(SigningKey::read(&text).is_ok(), is_one, "{text}");
        }
    }
}
