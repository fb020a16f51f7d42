//! nginx as a plain proxy before the runtime: what passing a request on costs somebody who does nothing else.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::http;
use crate::start::Process;

pub(crate) struct Nginx {
    _process: Process,
    folder: PathBuf,
    pub port: u16,
}

impl Nginx {
    /// One worker on `core`. What is asked below `prefix` goes to the server at `to`, without the prefix; and so does what
    /// is asked of any other agent, at the cost of looking for its name.
    pub(crate) fn start(core: &str, prefix: &str, to: u16) -> anyhow::Result<Self> {
        let port = http::free_port()?;
        let folder = std::env::temp_dir().join(format!("slipway-bench-nginx-{port}"));
        fs::create_dir_all(&folder)?;
        let place = folder.display();
        let temporary =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {place}/{kind};")).join("\n");
        let settings = format!(
            "daemon off; master_process off; worker_processes 1; pid {place}/pid; error_log {place}/error.log;
             worker_rlimit_nofile 16384;
             events {{ worker_connections 8192; }}
             http {{
               access_log off; keepalive_requests 100000000;
               {temporary}
               upstream agent {{ server 127.0.0.1:{to}; keepalive 64; keepalive_requests 100000000; }}
               server {{
                 listen 127.0.0.1:{port};
                 location = /healthz {{ return 200 \"ok\"; }}
                 proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off;
                 location {prefix}/ {{ proxy_pass http://agent/; }}
                 location /api/v1/agents/ {{ rewrite ^/api/v1/agents/[^/]+/(.*)$ /$1 break; proxy_pass http://agent; }}
               }}
             }}"
        );
        fs::write(folder.join("nginx.conf"), settings)?;
        let mut command = Command::new("taskset");
        command.args(["-c", core, "nginx", "-p"]).arg(&folder).arg("-c").arg(folder.join("nginx.conf"));
        let process = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))?;
        let nginx = Self { _process: process, folder, port };
        let begun = Instant::now();
        while http::get(port, "/healthz").is_err() {
            if begun.elapsed() > Duration::from_secs(10) {
                bail!("nginx does not answer: {}", fs::read_to_string(nginx.folder.join("error.log")).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}
