//! Which of several replicas works: the one whose name stands in a Lease. Every write of it carries the version that was
//! read, so that a late one of somebody who led before is refused. Whether a holder still renews it is judged by our own
//! clock, from when we last saw it change: other clocks may be wrong. Nor is anything else in it trusted, as anybody may
//! have written it who may write Leases. Who has lost it ends, so that nothing of what he knew is left when he begins anew.

use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a lease holds without being renewed, in seconds.
const HOLDS: i32 = 15;
/// Nobody waits for longer, whatever a lease says; nor for less than it holds, since its holder relies on that.
const LONGEST: i32 = 60;
/// A holder that could not renew it for so long has lost it: before others may take it.
const GIVES_UP: Duration = Duration::from_secs(10);
const RENEWS: Duration = Duration::from_secs(5);
/// How often it is tried again, and looked at by those who wait for it.
const LOOKS: Duration = Duration::from_secs(2);

/// One who wants to work.
struct Candidate {
    api: Api<Lease>,
    name: &'static str,
    identity: String,
    /// The lease as we wrote it, and since when it surely holds.
    held: Option<(Lease, Instant)>,
    /// What another's lease was last seen to say (nothing, once it was deleted), and since when.
    seen: Option<(Option<LeaseSpec>, Instant)>,
}

/// Tries to get the lease and to keep it, and says whether it is held. The task ends once it was lost; or once nobody
/// listens any more, and then the lease is given back.
pub(crate) async fn campaign(
    api: Api<Lease>,
    name: &'static str,
    identity: &str,
) -> anyhow::Result<(watch::Receiver<bool>, JoinHandle<()>)> {
    let mut candidate = Candidate { api, name, identity: identity.to_owned(), held: None, seen: None };
    // Who has no right to it should not wait for it in silence.
    candidate.step().await.context("the lease, by which replicas agree on one that works, cannot be read or made")?;
    let (leads, led) = watch::channel(candidate.held.is_some());
    Ok((led, tokio::spawn(candidate.run(leads))))
}

impl Candidate {
    async fn run(mut self, leads: watch::Sender<bool>) {
        let mut pause = LOOKS;
        loop {
            let led = self.held.is_some();
            tokio::select! {
                () = leads.closed() => break,
                () = sleep(pause) => {}
            }
            let tried = timeout(self.left(), self.step()).await;
            match &tried {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lease could not be looked after"),
                Err(_) => tracing::warn!("the API server does not answer in time about the lease"),
            }
            if self.left().is_zero() {
                self.held = None;
            }
            let holds = self.held.is_some();
            leads.send_if_modified(|leads| std::mem::replace(leads, holds) != holds);
            if led && !holds {
                return;
            }
            pause = if holds && matches!(tried, Ok(Ok(()))) { RENEWS } else { LOOKS.min(self.left()) };
        }
        if self.held.is_some()
            && let Err(error) = self.give_back().await
        {
            tracing::warn!(%error, "the lease could not be given back and will run out");
        }
    }

    /// How long an answer is waited for: what is held is lost then.
    fn left(&self) -> Duration {
        self.held.as_ref().map_or(GIVES_UP, |(_, since)| GIVES_UP.saturating_sub(since.elapsed()))
    }

    /// Renews what is held, or takes what is free.
    async fn step(&mut self) -> Result<(), kube::Error> {
        if let Some((lease, _)) = &self.held {
            let lease = lease.clone();
            if self.write(lease).await? {
                return Ok(());
            }
        }
        // What is held by now, somebody else has written or deleted, or nobody has made.
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
            None if self.held.is_some() || self.is_free(None, Instant::now()) => self.make().await?,
            None => {}
        }
        Ok(())
    }

    /// Whether the version that this lease has was still the last one, so that it is ours now.
    async fn write(&mut self, before: Lease) -> Result<bool, kube::Error> {
        let begun = Instant::now();
        match self.api.replace(self.name, &PostParams::default(), &self.renewed(before)).await {
            Ok(lease) => self.held = Some((lease, begun)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    async fn make(&mut self) -> Result<(), kube::Error> {
        let begun = Instant::now();
        let metadata = ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() };
        match self.api.create(&PostParams::default(), &self.renewed(Lease { metadata, spec: None })).await {
            Ok(lease) => self.held = Some((lease, begun)),
            Err(kube::Error::Api(status)) if status.code == 409 => self.held = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn give_back(&self) -> Result<(), kube::Error> {
        // A last renewal whose answer never came may have made another version of it.
        let Some(mut lease) = self.api.get_opt(self.name).await?.filter(|lease| self.is_ours(lease)) else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        (spec.holder_identity, spec.lease_duration_seconds) = (None, Some(1));
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.api.replace(self.name, &PostParams::default(), &lease).await.map(drop)
    }

    /// The lease as it is when we have it from now on.
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
        spec.lease_duration_seconds = Some(HOLDS);
        lease
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(holder) == Some(self.identity.as_str())
    }

    /// Whether nobody holds it, or nobody has renewed it while it would have held. The holder of one that was deleted may
    /// not know yet.
    fn is_free(&mut self, lease: Option<&LeaseSpec>, now: Instant) -> bool {
        if lease.map_or(self.seen.is_none(), |spec| holder(spec).is_none()) {
            return true;
        }
        let since = match &self.seen {
            Some((seen, since)) if seen.as_ref() == lease => *since,
            _ => now,
        };
        self.seen = Some((lease.cloned(), since));
        let seconds = lease.and_then(|spec| spec.lease_duration_seconds).unwrap_or(HOLDS).clamp(HOLDS, LONGEST);
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
        Candidate { api: Api::namespaced(client, "n"), name: "lease", identity: "us".to_owned(), held: None, seen: None }
    }

    /// As its holder writes it at this second.
    fn lease(holder: Option<&str>, holds: i32, renewed: i64) -> LeaseSpec {
        let renew_time = Some(MicroTime(Timestamp::from_second(renewed).unwrap()));
        let holder_identity = holder.map(str::to_owned);
        LeaseSpec { holder_identity, lease_duration_seconds: Some(holds), lease_transitions: Some(4), renew_time, ..LeaseSpec::default() }
    }

    #[tokio::test]
    async fn a_lease_is_free_once_it_was_seen_unchanged_for_its_time() {
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
    async fn what_a_stranger_wrote_neither_keeps_us_waiting_for_ever_nor_makes_us_begin_too_early() {
        for (holds, waits) in [(i32::MAX, 60), (-1, 15), (0, 15), (i32::MIN, 15)] {
            let (mut us, begin) = (candidate(), Instant::now());
            let strange = lease(Some("stranger"), holds, i64::from(i32::MAX));
            for (seconds, free) in [(0, false), (waits - 1, false), (waits, true)] {
                assert_eq!(us.is_free(Some(&strange), begin + Duration::from_secs(seconds)), free, "{holds} after {seconds} s");
            }
        }
    }

    #[tokio::test]
    async fn a_holder_that_is_new_counts_and_one_that_stays_does_not() {
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
            assert_eq!((spec.acquire_time.is_some(), spec.lease_duration_seconds), (acquired, Some(HOLDS)));
            assert!(spec.renew_time.is_some());
        }
    }
}
