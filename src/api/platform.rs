//! The platform's own configuration, as far as it is changed while it runs: ConfigMap `slipway-platform` in the
//! platform's namespace and, for what nobody should read, the Secret of the same name. REST writes them; the operator
//! and the state role heed them.

use url::Url;

pub const NAME: &str = "slipway-platform";
/// The MLflow server that agents send traces to. It takes the place of the one that the manager was installed with.
pub const MLFLOW_URI: &str = "mlflow_uri";
/// The Prometheus server from which REST reads what agents did, where the platform has no database.
pub const PROMETHEUS_URL: &str = "prometheus_url";
/// Where the state repositories are mirrored to: a URL, in which `{team}` may stand.
pub const STATE_REPO: &str = "state_repo";
/// The branch there, in which `{team}` may stand.
pub const STATE_BRANCH: &str = "state_branch";
/// For ssh: the host's keys.
pub const STATE_KNOWN_HOSTS: &str = "state_known_hosts";
/// For https: the certificates that sign for the host, in place of the usual ones.
pub const STATE_CA: &str = "state_ca";
/// The audience of tokens that the state role is shown. A token for the API server is no use there, so that nobody who
/// takes the state role over, or listens, gets one.
pub const STATE_AUDIENCE: &str = "slipway-state";
/// In the Secret: for https.
pub const STATE_TOKEN: &str = "state_token";
/// In the Secret: a private key without a passphrase, for ssh.
pub const STATE_SSH_KEY: &str = "state_ssh_key";

/// Why a URL cannot be one that everybody may read, as it ends up in agents' ConfigMaps. It is not quoted: it may hold
/// a password.
pub fn public_url_fault(text: &str) -> Option<&'static str> {
    match Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => Some("it should begin with http:// or https://"),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Some("it must hold no user and password; agents get these from a Secret")
        }
        Ok(_) if text.len() > 2048 => Some("it should have at most 2048 characters"),
        Ok(_) => None,
        Err(_) => Some("it is no URL, such as http://collector.example.com:4318"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_everybody_may_read_holds_no_password() {
        for good in ["https://mlflow.example.com", "http://mlflow:5000/base"] {
            assert_eq!(public_url_fault(good), None, "{good}");
        }
        for (wrong, says) in [
            ("https://me:hunter2@mlflow", "Secret"),
            ("https://me@mlflow", "Secret"),
            ("ftp://x", "http://"),
            ("mlflow", "no URL"),
            ("", "no URL"),
            ("otel:4318", "http://"),
            (&format!("http://{}", "a".repeat(2048)), "2048"),
        ] {
            let fault = public_url_fault(wrong).unwrap();
            assert!(fault.contains(says) && !fault.contains("hunter2"), "{wrong}: {fault}");
        }
    }
}
