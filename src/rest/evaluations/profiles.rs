//! The risk profiles: which scorers apply to an agent, and the score to reach.

use schemars::JsonSchema;
use serde::Serialize;
use slipway_evaluation::Profile;
use slipway_http::Error;

use crate::answer::Data;
use crate::call::Call;

/// A risk profile, as `governance.risk_profile` names it in lower case.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RiskProfileInfo")]
pub(crate) struct View {
    id: &'static str,
    name: &'static str,
    /// The score to reach where the agent names none, in percent.
    min_score: f64,
    description: &'static str,
}

impl From<Profile> for View {
    fn from(Profile { id, name, min_score, description, .. }: Profile) -> Self {
        Self { id, name, min_score, description }
    }
}

pub(crate) async fn list(_: Call) -> Result<Data<Vec<View>>, Error> {
    Ok(Data::new(Profile::ALL.into_iter().map(View::from).collect()))
}
