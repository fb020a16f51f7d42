//! Leader election by a Lease. Every write carries the resource version that was read, so that a late write of a former
//! holder is refused. Expiry is measured by the local clock from the last observed change, because clocks of other nodes may
//! be wrong, and the fields of the Lease are not trusted. A process that has lost the lease exits, so that no state of its
//! term survives.

use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The duration of the lease without renewal.
const LEASE_DURATION_SECONDS: i32 = 15;
/// The longest duration of another holder's lease that is respected. The shortest is `LEASE_DURATION_SECONDS`, on which its
/// holder relies.
const MAX_LEASE_DURATION_SECONDS: i32 = 60;
/// A holder that has not renewed the lease for this time has lost it. Shorter than the duration after which others take it.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// The interval of attempts to renew after a failure, and to acquire.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// A replica in the election.
struct Candidate {
    api: Api<Lease>,
    name: &'static str,
    identity: String,
    /// The lease as this replica wrote it, and the start of that write.
    held: Option<(Lease, Instant)>,
    /// The last observed spec of another holder's lease (`None` once it was deleted), and when it was first seen.
    observed: Option<(Option<LeaseSpec>, Instant)>,
}

/// Acquires and renews the lease; the receiver says whether it is held. The task ends once the lease was lost, or once the
/// receiver is dropped, after which it releases the lease.
pub(crate) async fn campaign(
    api: Api<Lease>,
    name: &'static str,
    identity: &str,
) -> anyhow::Result<(watch::Receiver<bool>, JoinHandle<()>)> {
    let mut candidate = Candidate { api, name, identity: identity.to_owned(), held: None, observed: None };
    // A replica without the permission fails at once instead of waiting.
    candidate.step().await.context("the lease for leader election cannot be read or created")?;
    let (leads, led) = watch::channel(candidate.held.is_some());
    Ok((led, tokio::spawn(candidate.run(leads))))
}

impl Candidate {
    async fn run(mut self, leads: watch::Sender<bool>) {
        let mut pause = RETRY_INTERVAL;
        loop {
            let led = self.held.is_some();
            tokio::select! {
                () = leads.closed() => break,
                () = sleep(pause) => {}
            }
            let tried = timeout(self.remaining(), self.step()).await;
            match &tried {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lease could not be read or renewed"),
                Err(_) => tracing::warn!("the API server did not answer in time to renew the lease"),
            }
            if self.remaining().is_zero() {
                self.held = None;
            }
            let holds = self.held.is_some();
            leads.send_if_modified(|leads| std::mem::replace(leads, holds) != holds);
            if led && !holds {
                return;
            }
            pause = if holds && matches!(tried, Ok(Ok(()))) { RENEW_INTERVAL } else { RETRY_INTERVAL.min(self.remaining()) };
        }
        if self.held.is_some()
            && let Err(error) = self.release().await
        {
            tracing::warn!(%error, "the lease could not be released and will expire");
        }
    }

    /// The time until the renew deadline.
    fn remaining(&self) -> Duration {
        self.held.as_ref().map_or(RENEW_DEADLINE, |(_, since)| RENEW_DEADLINE.saturating_sub(since.elapsed()))
    }

    /// Renews the lease if it is held, or acquires it if it is free.
    async fn step(&mut self) -> Result<(), kube::Error> {
        if let Some((lease, _)) = &self.held {
            let lease = lease.clone();
            if self.write(lease).await? {
                return Ok(());
            }
        }
        // The write was refused or nothing is held: reads the lease again.
        match self.api.get_opt(self.name).await? {
            Some(lease) if self.is_ours(&lease) => {
                self.write(lease).await?;
            }
            Some(lease) => {
                self.held = None;
                if self.is_free(lease.spec.as_ref(), Instant::now()) {
                    self.write(lease).await?;
                }
            }
            None if self.held.is_some() || self.is_free(None, Instant::now()) => self.create().await?,
            None => {}
        }
        Ok(())
    }

    /// Writes the lease; false if it was changed or deleted since it was read.
    async fn write(&mut self, before: Lease) -> Result<bool, kube::Error> {
        let started = Instant::now();
        match self.api.replace(self.name, &PostParams::default(), &self.renewed(before)).await {
            Ok(lease) => self.held = Some((lease, started)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    async fn create(&mut self) -> Result<(), kube::Error> {
        let started = Instant::now();
        let metadata = ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() };
        match self.api.create(&PostParams::default(), &self.renewed(Lease { metadata, spec: None })).await {
            Ok(lease) => self.held = Some((lease, started)),
            Err(kube::Error::Api(status)) if status.code == 409 => self.held = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn release(&self) -> Result<(), kube::Error> {
        // Reads it again: a last renewal whose answer was lost may have changed the version.
        let Some(mut lease) = self.api.get_opt(self.name).await?.filter(|lease| self.is_ours(lease)) else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        (spec.holder_identity, spec.lease_duration_seconds) = (None, Some(1));
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.api.replace(self.name, &PostParams::default(), &lease).await.map(drop)
    }

    /// The lease with this replica as its holder, renewed now.
    fn renewed(&self, mut lease: Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let is_ours = self.is_ours(&lease);
        let is_new = lease.spec.is_none();
        let spec = lease.spec.get_or_insert_default();
        if !is_ours {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).max(0).saturating_add(i32::from(!is_new)));
            spec.holder_identity = Some(self.identity.clone());
        }
        spec.renew_time = Some(now);
        spec.lease_duration_seconds = Some(LEASE_DURATION_SECONDS);
        lease
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(holder) == Some(self.identity.as_str())
    }

    /// Whether the lease has no holder or has expired. A deleted lease expires like any other, as its holder may not know yet.
    fn is_free(&mut self, lease: Option<&LeaseSpec>, now: Instant) -> bool {
        if lease.map_or(self.observed.is_none(), |spec| holder(spec).is_none()) {
            return true;
        }
        let since = match &self.observed {
            Some((seen, since)) if seen.as_ref() == lease => *since,
            _ => now,
        };
        self.observed = Some((lease.cloned(), since));
        let seconds = lease
            .and_then(|spec| spec.lease_duration_seconds)
            .unwrap_or(LEASE_DURATION_SECONDS)
            .clamp(LEASE_DURATION_SECONDS, MAX_LEASE_DURATION_SECONDS);
        now.saturating_duration_since(since) >= Duration::from_secs(u64::from(seconds.unsigned_abs()))
    }
}

fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate() -> Candidate {
        let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        Candidate { api: Api::namespaced(client, "n"), name: "lease", identity: "us".to_owned(), held: None, observed: None }
    }

    /// A lease renewed at this second.
    fn lease(holder: Option<&str>, holds: i32, renewed: i64) -> LeaseSpec {
        let renew_time = Some(MicroTime(Timestamp::from_second(renewed).unwrap()));
        let holder_identity = holder.map(str::to_owned);
        LeaseSpec { holder_identity, lease_duration_seconds: Some(holds), lease_transitions: Some(4), renew_time, ..LeaseSpec::default() }
    }

    #[tokio::test]
    async fn a_lease_is_free_once_it_is_unchanged_for_its_duration() {
        let (mut us, begin) = (candidate(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        let them = Some("them");
        for (seconds, lease, free) in [
            (0, None, true),
            (0, Some(lease(them, 15, 1)), false),
            (14, Some(lease(them, 15, 1)), false),
            (15, Some(lease(them, 15, 1)), true),
            (16, Some(lease(them, 15, 2)), false),
            (30, Some(lease(them, 15, 2)), false),
            (31, Some(lease(them, 15, 2)), true),
            (32, Some(lease(them, 60, 3)), false),
            (91, Some(lease(them, 60, 3)), false),
            (92, Some(lease(them, 60, 3)), true),
            (93, Some(lease(None, 15, 4)), true),
            (94, Some(lease(Some(""), 15, 5)), true),
            (95, Some(lease(them, 15, 5)), false),
            (96, None, false),
            (110, None, false),
            (111, None, true),
        ] {
            assert_eq!(us.is_free(lease.as_ref(), after(seconds)), free, "{lease:?} after {seconds} s");
        }
    }

    #[tokio::test]
    async fn the_duration_in_a_lease_is_clamped() {
        for (holds, waits) in [(i32::MAX, 60), (-1, 15), (0, 15), (i32::MIN, 15)] {
            let (mut us, begin) = (candidate(), Instant::now());
            let strange = lease(Some("stranger"), holds, i64::from(i32::MAX));
            for (seconds, free) in [(0, false), (waits - 1, false), (waits, true)] {
                assert_eq!(us.is_free(Some(&strange), begin + Duration::from_secs(seconds)), free, "{holds} after {seconds} s");
            }
        }
    }

    #[tokio::test]
    async fn a_change_of_holder_counts_as_a_transition() {
        let us = candidate();
        let counted = |holder, transitions| LeaseSpec { lease_transitions: Some(transitions), ..lease(holder, 5, 1) };
        for (before, transitions, acquired) in [
            (Some(counted(Some("them"), 4)), 5, true),
            (Some(counted(Some("us"), 4)), 4, false),
            (None, 0, true),
            (Some(counted(None, i32::MAX)), i32::MAX, true),
            (Some(counted(None, -7)), 1, true),
        ] {
            let spec = us.renewed(Lease { spec: before, ..Lease::default() }).spec.unwrap();
            assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("us"), Some(transitions)));
            assert_eq!((spec.acquire_time.is_some(), spec.lease_duration_seconds), (acquired, Some(LEASE_DURATION_SECONDS)));
            assert!(spec.renew_time.is_some());
        }
    }
}
