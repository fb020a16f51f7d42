//! Sends alerts to the integrations that ask for them, through the teams' workers, while this process leads.

use std::sync::Arc;

use jiff::Timestamp;
use slipway_cluster::controller::Phase;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::context::Context;
use crate::control_port::Sign;
use crate::registry::{Change, Registered};

/// How alerts get to an integration. The integration controller writes it into the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(dead_code, reason = "the delivery is to make it, and the integration controller to read it")]
pub(crate) struct Delivered {
    /// How many wait, in steps: 0, 1, 10, 100, 1000.
    pub waiting: i64,
    /// Since when none has arrived, if the last one did not.
    pub failing_since: Option<Timestamp>,
    /// What the receiver said last, while it takes none.
    pub last_error: Option<String>,
    /// Whether one arrived, and whether the last one that ended was given up.
    pub has_arrived: bool,
    pub gave_up: bool,
}

pub(crate) struct AlertDelivery {
    #[expect(dead_code, reason = "deliveries are to be read and sent with them")]
    context: Arc<Context>,
    #[expect(dead_code, reason = "the same")]
    sign: Option<Arc<Sign>>,
}

impl AlertDelivery {
    pub(crate) fn new(context: Arc<Context>, sign: Option<Arc<Sign>>) -> Self {
        Self { context, sign }
    }
}

impl Registered for AlertDelivery {
    fn changed(&self, _: &Change) {}

    fn start(self: Arc<Self>, _: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        Vec::new()
    }
}
