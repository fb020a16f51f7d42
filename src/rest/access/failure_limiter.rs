//! Limits failed authentications, because each costs the API server a TokenReview. Token buckets per address and for all
//! addresses; a success returns its token.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use slipway_http::{Error, HeaderValue, StatusCode, header};

use crate::fast_map::FastMap;

/// The failures of one address: a burst, and one more per interval.
const PER_ADDRESS: Bucket = Bucket { burst: 50, interval: Duration::from_millis(500) };
/// The failures of all addresses.
const TOTAL: Bucket = Bucket { burst: 200, interval: Duration::from_millis(20) };
/// Full buckets are removed at this length, and then at twice the remaining length.
const SWEEP_AT_LEN: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    burst: u32,
    interval: Duration,
}

impl Bucket {
    /// The wait until the next token, of a bucket that is full again at `full`.
    fn wait(self, full: Instant, now: Instant) -> Duration {
        (full.saturating_duration_since(now) + self.interval).saturating_sub(self.interval * self.burst)
    }
}

/// When each bucket is full again.
struct Buckets {
    all: Instant,
    of: FastMap<IpAddr, Instant>,
    swept_at: usize,
}

pub(super) struct FailureLimiter(Mutex<Buckets>);

impl FailureLimiter {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Buckets { all: now, of: FastMap::default(), swept_at: SWEEP_AT_LEN }))
    }

    /// Takes a token. `succeeded` returns it.
    pub(super) fn attempt(&self, address: IpAddr, now: Instant) -> Result<(), Error> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = network(address);
        let full = buckets.of.get(&key).copied().unwrap_or(now);
        for (wait, whose) in [(PER_ADDRESS.wait(full, now), "from your address"), (TOTAL.wait(buckets.all, now), "from everywhere")] {
            if !wait.is_zero() {
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                let message = format!("too many tokens {whose} were not valid; tokens that were valid a moment ago still are");
                return Err(Error::new(StatusCode::TOO_MANY_REQUESTS, message).with_header(header::RETRY_AFTER, HeaderValue::from(seconds)));
            }
        }
        buckets.all = buckets.all.max(now) + TOTAL.interval;
        buckets.of.insert(key, full.max(now) + PER_ADDRESS.interval);
        if buckets.of.len() >= buckets.swept_at {
            buckets.of.retain(|_, full| *full > now);
            buckets.swept_at = SWEEP_AT_LEN.max(2 * buckets.of.len());
        }
        Ok(())
    }

    /// Returns the token of an attempt.
    pub(super) fn succeeded(&self, address: IpAddr) {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = buckets.all.checked_sub(TOTAL.interval) {
            buckets.all = all;
        }
        if let Some(full) = buckets.of.get_mut(&network(address))
            && let Some(less) = full.checked_sub(PER_ADDRESS.interval)
        {
            *full = less;
        }
    }
}

/// The /64 network of an IPv6 address: its owner has all of it.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(error: &Error) -> u64 {
        assert_eq!(error.status(), StatusCode::TOO_MANY_REQUESTS);
        error.header(&header::RETRY_AFTER).unwrap().to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn an_address_that_fails_too_often_waits_and_others_do_not() {
        let now = Instant::now();
        let failures = FailureLimiter::new(now);
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        (0..PER_ADDRESS.burst).for_each(|_| failures.attempt(one, now).unwrap());
        assert_eq!(seconds(&failures.attempt(one, now).unwrap_err()), 1);
        failures.attempt(other, now).unwrap();
        failures.attempt(one, now + PER_ADDRESS.interval).unwrap();
        failures.attempt(one, now + PER_ADDRESS.interval).unwrap_err();
        // Successes take nothing.
        for _ in 0..1000 {
            failures.attempt(other, now).unwrap();
            failures.succeeded(other);
        }
    }

    #[test]
    fn many_addresses_together_wait_too() {
        let now = Instant::now();
        let failures = FailureLimiter::new(now);
        let through = (0..1000_u32).filter(|at| failures.attempt(IpAddr::V4((*at).into()), now).is_ok()).count();
        assert_eq!(through, TOTAL.burst as usize);
        let same: Vec<IpAddr> = ["2001:db8::1", "2001:db8::2"].map(|address| address.parse().unwrap()).into();
        assert_eq!(network(same[0]), network(same[1]));
    }

    #[test]
    fn addresses_that_rest_are_forgotten() {
        let now = Instant::now();
        let failures = FailureLimiter::new(now);
        for at in 0..20_000_u32 {
            let _ = failures.attempt(IpAddr::V4(at.into()), now + Duration::from_secs(u64::from(at)));
        }
        assert!(failures.0.lock().unwrap().of.len() <= SWEEP_AT_LEN);
    }
}
