//! Plays the controllers and the node that would run an agent's pods: as soon as a Deployment is there, its status says that
//! all its pods are.

use std::io::{self, BufRead, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::ground::ask;
use crate::http::UnreadReply;

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// For the namespaces whose names begin so; it lasts as long as this.
pub(super) struct Pods(Arc<AtomicBool>);

impl Pods {
    pub(super) fn of(server: SocketAddr, namespaces: String) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                // A watch that was lost begins again with all that there is.
                drop(follow(server, &namespaces, &end));
                thread::sleep(POLL_INTERVAL);
            }
        });
        Self(ended)
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn follow(server: SocketAddr, namespaces: &str, end: &AtomicBool) -> io::Result<()> {
    let mut answer = UnreadReply::ask(TcpStream::connect(server)?, "GET", "/apis/apps/v1/deployments?watch=true", &[], b"")?;
    answer.body.get_ref().set_read_timeout(Some(POLL_INTERVAL))?;
    let mut line = Vec::new();
    while !end.load(Ordering::SeqCst) {
        match answer.body.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                let event: Value = serde_json::from_slice(&std::mem::take(&mut line))?;
                let deployment = &event["object"];
                let is_ours = deployment["metadata"]["namespace"].as_str().is_some_and(|namespace| namespace.starts_with(namespaces));
                if is_ours && event["type"] != "DELETED" {
                    run(server, deployment)?;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Says that all pods are there and of the present template, if that is not said yet.
pub(super) fn run(server: SocketAddr, deployment: &Value) -> io::Result<()> {
    let (metadata, status) = (&deployment["metadata"], &deployment["status"]);
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    let is_said = counts.iter().all(|count| status[count].as_i64().unwrap_or(0) == wanted);
    if is_said && status["observedGeneration"] == metadata["generation"] {
        return Ok(());
    }
    let mut said = json!({"observedGeneration": metadata["generation"]});
    for count in counts {
        said[count] = json!(wanted);
    }
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/{}/status", text("namespace"), text("name"));
    let headers = [("Content-Type", "application/merge-patch+json")];
    // One that has gone or changed since is heard of again.
    ask(server, "PATCH", &path, &headers, &json!({"status": said})).map(drop)
}
