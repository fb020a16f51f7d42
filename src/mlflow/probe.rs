//! Whether a server is an MLflow server that lets the platform in.

use serde::de::IgnoredAny;
use serde_json::json;

use crate::{Fault, Mlflow};

impl Mlflow {
    /// Its version, if it answers as MLflow does and takes the login. It is asked for one experiment, which every
    /// account may read that may write.
    pub async fn probe(&self) -> Result<String, Fault> {
        self.page("health").await?;
        // `/version` returns only a number. The page of another server is not passed on.
        let page = self.page("version").await?;
        let text = std::str::from_utf8(&page).unwrap_or_default().trim();
        let is_number = (1..=32).contains(&text.len()) && text.starts_with(|first: char| first.is_ascii_digit());
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte));
        if !is_number || !is_plain {
            return Err(Fault::NotMlflow(format!("{} answers, but not as an MLflow server does", self.place())));
        }
        self.post::<IgnoredAny>("2.0/mlflow/experiments/search", &json!({"max_results": 1})).await?;
        Ok(text.to_owned())
    }
}
