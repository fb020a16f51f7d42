//! Marks that people give answers, as assessments with a human source. A mark has one assessment, whose id follows from who marked
//! what: sent again, or changed, it takes the place of what was there.

use std::slice;

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Fault, Mlflow, trace_id};

/// A mark of an answer. Agent, trace, user and name say which one it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub team: String,
    pub agent_id: String,
    /// As the agent names it: `tr_…`.
    pub trace: String,
    pub user: String,
    pub name: String,
    pub value: f64,
    /// 1 for values from 0 to 1, 5 for values from 1 to 5.
    pub scale: i32,
    /// Who or what marks, in the caller's words.
    pub source: Option<String>,
    pub comment: Option<String>,
}

impl Mlflow {
    /// Writes a mark on its trace; says whether there is such a trace of the mark's agent.
    pub async fn mark(&self, mark: &Mark) -> Result<bool, Fault> {
        let Some(trace) = trace_id(&mark.trace) else { return Ok(false) };
        let found = self.traces(slice::from_ref(&trace), &mark.agent_id).await?;
        let Some(known) = found.get(&trace) else { return Ok(false) };
        let (id, path) = (mark.assessment_id(), format!("3.0/mlflow/traces/{trace}/assessments"));
        let assessment = mark.assessment(&id, &trace);
        if known.contains(&id) {
            let body = json!({"assessment": assessment, "update_mask": "feedback,rationale,metadata"});
            self.patch::<IgnoredAny>(&format!("{path}/{id}"), &body).await?;
        } else {
            self.post::<IgnoredAny>(&path, &json!({"assessment": assessment})).await?;
        }
        Ok(true)
    }
}

impl Mark {
    fn assessment_id(&self) -> String {
        let parts = [&self.team, &self.agent_id, &self.trace, &self.user, &self.name].map(String::as_str);
        format!("a-{}", &hex::encode(Sha256::digest(json!(parts).to_string()))[..32])
    }

    fn assessment(&self, id: &str, trace: &str) -> Value {
        let Self { team: _, agent_id: _, trace: _, user, name, value, scale, source, comment } = self;
        json!({
            "assessment_id": id,
            "assessment_name": name,
            "trace_id": trace,
            "source": {"source_type": "HUMAN", "source_id": user},
            "feedback": {"value": value},
            // Both are there, so that an earlier one does not stay.
            "rationale": comment.as_deref().unwrap_or_default(),
            "metadata": {"slipway.scale": scale.to_string(), "slipway.source": source.as_deref().unwrap_or_default()},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(user: &str, name: &str) -> Mark {
        let [team, agent_id, trace, user, name] = ["tk_a", "ag_1", "tr_1", user, name].map(str::to_owned);
        Mark { team, agent_id, trace, user, name, value: 4.0, scale: 5, source: None, comment: Some("good".to_owned()) }
    }

    #[test]
    fn who_marks_what_has_one_assessment() {
        let id = mark("user_1", "helpful").assessment_id();
        assert_eq!(id, Mark { value: 1.0, scale: 1, comment: None, ..mark("user_1", "helpful") }.assessment_id());
        assert!(id.len() <= 50 && id.starts_with("a-"), "{id}");
        for (user, name) in [("user_2", "helpful"), ("user_1", "tone"), ("user_1help", "ful"), ("user_1\",\"", "helpful")] {
            assert_ne!(id, mark(user, name).assessment_id(), "{user} {name}");
        }
    }

    #[test]
    fn a_mark_is_of_a_human_and_says_all_it_knows() {
        let told = Mark { source: Some("survey".to_owned()), ..mark("user_1", "helpful") }.assessment("a-1", "tr-1");
        assert_eq!(told["source"], json!({"source_type": "HUMAN", "source_id": "user_1"}));
        assert_eq!((&told["feedback"]["value"], &told["rationale"]), (&json!(4.0), &json!("good")));
        assert_eq!(told["metadata"], json!({"slipway.scale": "5", "slipway.source": "survey"}));
    }
}
