//! MCP over standard input and output of a program, which is started like that of a cli tool and ends with the connection.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tempfile::TempDir;
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::connection::MAX_MESSAGE_BYTES;
use crate::cli::process::{ProcessGroup, command};

/// The time in which a program has to exit after the end of its input.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Program {
    pipe: AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>,
    child: Child,
    group: ProcessGroup,
    _folder: TempDir,
}

impl Program {
    pub(super) fn start(binary: &Path, arguments: &[String]) -> io::Result<Self> {
        let folder = TempDir::new()?;
        // Standard error may contain user data and is not logged.
        let mut child =
            command(binary, arguments, folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let group = ProcessGroup::of(&child);
        match (child.stdout.take(), child.stdin.take()) {
            (Some(stdout), Some(stdin)) => {
                let pipe = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(MAX_MESSAGE_BYTES);
                Ok(Self { pipe, child, group, _folder: folder })
            }
            _ => Err(io::Error::other("its standard input and output are not available")),
        }
    }
}

impl Transport<RoleClient> for Program {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.pipe.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<ServerJsonRpcMessage>> + Send {
        self.pipe.receive()
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.pipe.close().await?;
        if timeout(EXIT_TIMEOUT, self.child.wait()).await.is_err() {
            self.group.kill();
            self.child.wait().await?;
        }
        Ok(())
    }
}
