//! Ids that cannot be guessed: a prefix that says of what, and a ULID.

use std::time::SystemTime;

use slipway_http::ulid;

pub(crate) fn make(prefix: &str) -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    Ok([prefix, "_", ulid(SystemTime::now(), u128::from_ne_bytes(random)).array_to_str(&mut [0; 26])].concat())
}
