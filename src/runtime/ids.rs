//! Ids that cannot be guessed: a prefix that says of what, and a ULID.

use std::cell::RefCell;
use std::time::SystemTime;

use slipway_http::ulid;

pub(crate) fn make(prefix: &str) -> Result<String, getrandom::Error> {
    Ok([prefix, "_", ulid(SystemTime::now(), u128::from_ne_bytes(random()?)).array_to_str(&mut [0; 26])].concat())
}

/// Bytes from the operating system, fetched for several ids at once.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    const POOL: usize = 256;
    const { assert!(N <= POOL) };
    thread_local!(static POOLED: RefCell<([u8; POOL], usize)> = const { RefCell::new(([0; POOL], POOL)) });
    POOLED.with_borrow_mut(|(pool, used)| {
        if *used + N > POOL {
            getrandom::fill(pool)?;
            *used = 0;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&pool[*used..*used + N]);
        *used += N;
        Ok(bytes)
    })
}
