//! Which MLflow server is written to, and whether that goes well.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Fault, Login, Mlflow};

/// The server that is in effect; its connections are kept. Only the one that the platform was installed with is sent the platform's
/// login: who changes the URI while the platform runs does not get it.
#[derive(Default)]
pub struct Servers {
    installed: Option<String>,
    login: Option<Login>,
    last: Mutex<Option<(String, Arc<Mlflow>)>>,
}

impl Servers {
    pub fn new(installed: Option<String>, login: Option<Login>) -> Self {
        Self { installed, login, last: Mutex::default() }
    }

    pub fn at(&self, uri: &str) -> Result<Arc<Mlflow>, Fault> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, server)) = &*last
            && of == uri
        {
            return Ok(server.clone());
        }
        let server = Arc::new(Mlflow::new(uri, self.login(uri))?);
        *last = Some((uri.to_owned(), server.clone()));
        Ok(server)
    }

    fn login(&self, uri: &str) -> Option<Login> {
        self.login.clone().filter(|_| self.installed.as_deref() == Some(uri))
    }
}

/// Why the last attempt failed, if it did: a log needs no more than the changes.
#[derive(Debug, Default)]
pub struct LastFailure(Mutex<Option<&'static str>>);

impl LastFailure {
    /// Notes how an attempt went; says whether the one before went otherwise.
    pub fn has_changed(&self, failure: Option<&'static str>) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *last, failure) != failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_is_for_the_server_that_the_platform_was_installed_with() {
        let installed = "https://mlflow.example.com";
        let servers = Servers::new(Some(installed.to_owned()), Login::new(None, None, Some("hunter2")).unwrap());
        assert!(servers.login(installed).is_some());
        for other in ["https://elsewhere.example.com", "https://mlflow.example.com.evil.example", ""] {
            assert!(servers.login(other).is_none(), "{other}");
        }
    }

    #[test]
    fn only_another_outcome_is_a_change() {
        let standing = LastFailure::default();
        let told = [None, Some("Slow"), Some("Slow"), Some("Unreachable"), None, None].map(|failure| standing.has_changed(failure));
        assert_eq!(told, [false, true, false, true, true, false]);
    }
}
