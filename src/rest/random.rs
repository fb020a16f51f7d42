//! Random bits for ids.

use ring::rand::{SecureRandom, SystemRandom};
use slipway_http::Error;

pub(crate) fn bits() -> Result<u128, Error> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).map_err(|_| Error::internal("the kernel gave no random bytes"))?;
    Ok(u128::from_ne_bytes(random))
}
