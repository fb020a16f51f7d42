//! A team's login: its password leaves this process only as the SCRAM-SHA-256 verifier that PostgreSQL would make of
//! it, so that no statement in a server's log has it.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

use crate::Fault;

/// What a team's runtimes log in with.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

const ROUNDS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

/// Random passwords, not people's: printable ASCII needs no SASLprep, and 20 characters no further salt.
pub(crate) fn check(password: &str) -> Result<(), Fault> {
    let fits = (20..=128).contains(&password.len()) && password.bytes().all(|b| b.is_ascii_graphic());
    if fits { Ok(()) } else { Err(Fault::Refused("a team's password has 20 to 128 printable ASCII characters".to_owned())) }
}

/// See RFC 5803 and PostgreSQL's `pg_authid`. The salt comes from the password, so that the same password makes the
/// same verifier: a PgBouncer that keeps verifiers goes on working when a team is looked after again.
pub(crate) fn verifier(password: &str) -> String {
    let salt = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, password.as_bytes()), b"slipway: salt of a team's login");
    salted(password, &salt.as_ref()[..16])
}

fn salted(password: &str, salt: &[u8]) -> String {
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, salt, password.as_bytes(), &mut salted);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let client = hmac::sign(&key, b"Client Key");
    let stored = digest::digest(&digest::SHA256, client.as_ref());
    let server = hmac::sign(&key, b"Server Key");
    format!("SCRAM-SHA-256${ROUNDS}:{}${}:{}", STANDARD.encode(salt), STANDARD.encode(stored.as_ref()), STANDARD.encode(server.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's side of RFC 7677's example: its ServerSignature is made with the ServerKey of this verifier.
    #[test]
    fn the_example_of_rfc_7677_is_reproduced() {
        let verifier = salted("pencil", &STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap());
        let (head, keys) = verifier.rsplit_once('$').unwrap();
        assert_eq!(head, "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==");
        let server_key = STANDARD.decode(keys.split_once(':').unwrap().1).unwrap();
        let message = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &server_key), message.as_bytes());
        assert_eq!(STANDARD.encode(signature.as_ref()), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_login_does_not_show_its_password() {
        let login = Login { user: "u".into(), password: "correct-horse-battery".into() };
        assert!(!format!("{login:?}").contains("horse"));
        assert!(!verifier("correct-horse-battery").contains("horse"));
        assert_eq!(verifier("correct-horse-battery"), verifier("correct-horse-battery"));
    }

    #[test]
    fn a_password_that_could_be_guessed_or_misread_is_refused() {
        for password in ["short", &"ü".repeat(20), &"x y".repeat(10), &"x".repeat(129)] {
            assert!(check(password).is_err(), "{password}");
        }
    }
}
