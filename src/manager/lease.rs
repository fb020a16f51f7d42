//! Which of several replicas works: the one whose name stands in a Lease. Every write of it carries the version that was
//! read, so that a late one of somebody who led before is refused. Whether a holder still renews it is judged by our own
//! clock, from when we last saw it change: other clocks may be wrong.

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
    /// The version that another's lease was last seen to have, and since when.
    seen: Option<(String, Instant)>,
}

/// Tries to get the lease and to keep it, and says whether it is held. Once nobody listens any more, the lease is given
/// back and the task ends.
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
            tokio::select! {
                () = leads.closed() => break,
                () = sleep(pause) => {}
            }
            let left = self.held.as_ref().map_or(GIVES_UP, |(_, since)| GIVES_UP.saturating_sub(since.elapsed()));
            let tried = timeout(left, self.step()).await;
            match &tried {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lease could not be looked after"),
                Err(_) => tracing::warn!("the API server does not answer in time about the lease"),
            }
            if self.held.as_ref().is_some_and(|(_, since)| since.elapsed() >= GIVES_UP) {
                self.held = None;
            }
            pause = if self.held.is_some() && matches!(tried, Ok(Ok(()))) { RENEWS } else { LOOKS };
            leads.send_if_modified(|leads| std::mem::replace(leads, self.held.is_some()) != self.held.is_some());
        }
        if let Some((lease, _)) = self.held.take() {
            self.give_back(lease).await;
        }
    }

    /// Renews what is held, or takes what is free.
    async fn step(&mut self) -> Result<(), kube::Error> {
        if let Some((lease, _)) = &self.held {
            let lease = lease.clone();
            if self.write(lease).await? {
                return Ok(());
            }
        }
        // What is held by now, somebody else has written, or nobody.
        let Some(lease) = self.api.get_opt(self.name).await? else {
            return self.make().await;
        };
        let is_ours = self.is_ours(&lease);
        if !is_ours {
            self.held = None;
        }
        if is_ours || self.is_free(&lease, Instant::now()) {
            self.write(lease).await?;
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

    async fn give_back(&self, mut lease: Lease) {
        let spec = lease.spec.get_or_insert_default();
        (spec.holder_identity, spec.lease_duration_seconds) = (None, Some(1));
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        if let Err(error) = self.api.replace(self.name, &PostParams::default(), &lease).await {
            tracing::warn!(%error, "the lease could not be given back and will run out");
        }
    }

    /// The lease as it is when we have it from now on.
    fn renewed(&self, mut lease: Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let is_ours = self.is_ours(&lease);
        let is_new = lease.spec.is_none();
        let spec = lease.spec.get_or_insert_default();
        if !is_ours {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + i32::from(!is_new));
            spec.holder_identity = Some(self.identity.clone());
        }
        spec.renew_time = Some(now);
        spec.lease_duration_seconds = Some(HOLDS);
        lease
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == Some(self.identity.as_str())
    }

    /// Whether nobody holds it, or nobody has renewed it while it would have held.
    fn is_free(&mut self, lease: &Lease, now: Instant) -> bool {
        let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if seen == version => *since,
            _ => {
                self.seen = Some((version.to_owned(), now));
                now
            }
        };
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(HOLDS);
        let holds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        holder(lease).is_none() || now.saturating_duration_since(since) >= holds
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    let LeaseSpec { holder_identity, .. } = lease.spec.as_ref()?;
    holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate() -> Candidate {
        let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        Candidate { api: Api::namespaced(client, "n"), name: "lease", identity: "us".to_owned(), held: None, seen: None }
    }

    fn lease(version: &str, holder: Option<&str>, seconds: i32) -> Lease {
        let metadata = ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() };
        let holder_identity = holder.map(str::to_owned);
        let spec = LeaseSpec { holder_identity, lease_duration_seconds: Some(seconds), lease_transitions: Some(4), ..LeaseSpec::default() };
        Lease { metadata, spec: Some(spec) }
    }

    #[tokio::test]
    async fn a_lease_is_free_once_it_was_seen_unchanged_for_its_time() {
        let (mut us, begin) = (candidate(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        for (seconds, version, holder, holds, free) in [
            (0, "1", Some("them"), 15, false),
            (14, "1", Some("them"), 15, false),
            (15, "1", Some("them"), 15, true),
            (16, "2", Some("them"), 15, false),
            (30, "2", Some("them"), 15, false),
            (31, "2", Some("them"), 15, true),
            (32, "3", Some("them"), 60, false),
            (91, "3", Some("them"), 60, false),
            (92, "3", Some("them"), 60, true),
            (93, "4", None, 15, true),
            (94, "5", Some(""), 15, true),
            (95, "6", Some("them"), -1, true),
        ] {
            assert_eq!(us.is_free(&lease(version, holder, holds), after(seconds)), free, "{version} after {seconds} s");
        }
    }

    #[tokio::test]
    async fn a_holder_that_is_new_counts_and_one_that_stays_does_not() {
        let us = candidate();
        for (before, transitions, acquired) in
            [(lease("1", Some("them"), 5), 5, true), (lease("1", Some("us"), 5), 4, false), (Lease::default(), 0, true)]
        {
            let spec = us.renewed(before).spec.unwrap();
            assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("us"), Some(transitions)));
            assert_eq!((spec.acquire_time.is_some(), spec.lease_duration_seconds), (acquired, Some(HOLDS)));
            assert!(spec.renew_time.is_some());
        }
    }
}
