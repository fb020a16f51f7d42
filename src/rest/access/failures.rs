//! A limit to failed authentications: each costs the API server a TokenReview, which its own users wait for. A token
//! bucket for each address, and one for all. Who turns out to be somebody gets back what the attempt took.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use slipway_http::{Error, HeaderValue, StatusCode, header};

use crate::map::Map;

/// What may fail by one address: so many at once, and one more in each interval.
const ADDRESS: Bucket = Bucket { burst: 50, interval: Duration::from_millis(500) };
/// The same for all addresses together.
const ALL: Bucket = Bucket { burst: 200, interval: Duration::from_millis(20) };
/// Addresses whose bucket is full are looked for when there are this many, and then at twice what was left.
const MANY: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    burst: u32,
    interval: Duration,
}

impl Bucket {
    /// How long until one more may be taken, of a bucket that is full again at `full`.
    fn wait(self, full: Instant, now: Instant) -> Duration {
        (full.saturating_duration_since(now) + self.interval).saturating_sub(self.interval * self.burst)
    }
}

/// When each bucket is full again.
struct Buckets {
    all: Instant,
    of: Map<IpAddr, Instant>,
    swept_at: usize,
}

pub(super) struct Failures(Mutex<Buckets>);

impl Failures {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Buckets { all: now, of: Map::default(), swept_at: MANY }))
    }

    /// Takes an attempt, which is a failure until `succeeded` says otherwise.
    pub(super) fn attempt(&self, address: IpAddr, now: Instant) -> Result<(), Error> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = network(address);
        let full = buckets.of.get(&key).copied().unwrap_or(now);
        for (wait, whose) in [(ADDRESS.wait(full, now), "from your address"), (ALL.wait(buckets.all, now), "from everywhere")] {
            if !wait.is_zero() {
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                let message = format!("too many tokens {whose} were not valid; tokens that were valid a moment ago still are");
                return Err(Error::new(StatusCode::TOO_MANY_REQUESTS, message).with_header(header::RETRY_AFTER, HeaderValue::from(seconds)));
            }
        }
        buckets.all = buckets.all.max(now) + ALL.interval;
        buckets.of.insert(key, full.max(now) + ADDRESS.interval);
        if buckets.of.len() >= buckets.swept_at {
            buckets.of.retain(|_, full| *full > now);
            buckets.swept_at = MANY.max(2 * buckets.of.len());
        }
        Ok(())
    }

    /// Gives an attempt back.
    pub(super) fn succeeded(&self, address: IpAddr) {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = buckets.all.checked_sub(ALL.interval) {
            buckets.all = all;
        }
        if let Some(full) = buckets.of.get_mut(&network(address))
            && let Some(less) = full.checked_sub(ADDRESS.interval)
        {
            *full = less;
        }
    }
}

/// Who has one address of version 6 has a network of them.
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
        let failures = Failures::new(now);
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        (0..ADDRESS.burst).for_each(|_| failures.attempt(one, now).unwrap());
        assert_eq!(seconds(&failures.attempt(one, now).unwrap_err()), 1);
        failures.attempt(other, now).unwrap();
        failures.attempt(one, now + ADDRESS.interval).unwrap();
        failures.attempt(one, now + ADDRESS.interval).unwrap_err();
        // What succeeds takes nothing.
        for _ in 0..1000 {
            failures.attempt(other, now).unwrap();
            failures.succeeded(other);
        }
    }

    #[test]
    fn many_addresses_together_wait_too() {
        let now = Instant::now();
        let failures = Failures::new(now);
        let through = (0..1000_u32).filter(|at| failures.attempt(IpAddr::V4((*at).into()), now).is_ok()).count();
        assert_eq!(through, ALL.burst as usize);
        let same: Vec<IpAddr> = ["2001:db8::1", "2001:db8::2"].map(|address| address.parse().unwrap()).into();
        assert_eq!(network(same[0]), network(same[1]));
    }

    #[test]
    fn addresses_that_rest_are_forgotten() {
        let now = Instant::now();
        let failures = Failures::new(now);
        for at in 0..20_000_u32 {
            let _ = failures.attempt(IpAddr::V4(at.into()), now + Duration::from_secs(u64::from(at)));
        }
        assert!(failures.0.lock().unwrap().of.len() <= MANY);
    }
}
