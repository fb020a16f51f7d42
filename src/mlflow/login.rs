//! The login that MLflow's own clients would use.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;

/// The value of `Authorization`. Not shown by `Debug`.
#[derive(Clone)]
pub struct Login(pub(crate) HeaderValue);

impl Login {
    /// A user with a password, else a token; none without either. The values are not quoted in the error.
    pub fn new(user: Option<&str>, password: Option<&str>, token: Option<&str>) -> Result<Option<Self>, &'static str> {
        let text = match (user, token) {
            (Some(user), _) => format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.unwrap_or_default()))),
            (None, Some(token)) => format!("Bearer {token}"),
            (None, None) => return Ok(None),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| "MLFLOW_TRACKING_TOKEN has characters that no header may have")?;
        value.set_sensitive(true);
        Ok(Some(Self(value)))
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_what_mlflows_clients_send_and_is_never_shown() {
        let told = |user, password, token| Login::new(user, password, token).unwrap().map(|login| login.0.to_str().unwrap().to_owned());
        assert_eq!(told(None, Some("x"), None), None);
        assert_eq!(told(Some("me"), Some("hunter2"), Some("t")).as_deref(), Some("Basic bWU6aHVudGVyMg=="));
        assert_eq!(told(None, None, Some("t")).as_deref(), Some("Bearer t"));
        let login = Login::new(None, None, Some("hunter2")).unwrap().unwrap();
        assert!(!format!("{login:?} {:?}", login.0).contains("hunter2"));
        assert!(!Login::new(None, None, Some("hunter2\n")).unwrap_err().contains("hunter2"));
    }
}
