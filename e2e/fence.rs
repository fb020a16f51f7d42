//! NetworkPolicies put in force on the local cluster, whose network heeds none by itself: for what pods of the test's own
//! namespaces send and are sent, and for nothing else, so that other tests go on as before. For these packets all policies
//! count, also those of the pod at the other end.
//!
//! `rules` makes iptables rules of the policies, in chains of ours that are asked first about what crosses the bridge.
//! They go with this value, and with the test's process when that is killed.

mod block;
mod labels;
mod rules;

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub use rules::render;

use crate::kubectl::kubectl;

/// The bridge that pods and node meet on.
const BRIDGE: &str = "slipway0";

/// Waits until its input ends, which is when the test lets go of it or is killed, and takes away all chains whose name is
/// the first one's or begins with it. The jumps to them go first, and rules before chains, since they name each other.
const KEEPER: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
iptables-save -t filter | awk -v first="$0" '
  function ours(chain) { return chain == first || index(chain, first "-") == 1 }
  /^:/ && ours(substr($1, 2)) { chains[++count] = substr($1, 2) }
  /^-A/ && !ours($2) && ours($NF) { jumps = jumps "-D" substr($0, 3) "\n" }
  END {
    printf "*filter\n%s", jumps
    for (i = 1; i <= count; i++) print "-F " chains[i]
    for (i = 1; i <= count; i++) print "-X " chains[i]
    print "COMMIT"
  }' | iptables-restore --noflush -w 5
"#;

pub struct Fence {
    first: String,
    within: Vec<String>,
    chains: BTreeSet<String>,
    keeper: Child,
}

impl Fence {
    /// Whether the node is this machine, and we are who may fence it.
    pub fn is_possible() -> bool {
        Path::new("/sys/class/net").join(BRIDGE).exists() && rustix::process::geteuid().is_root()
    }

    /// Around the pods that these namespaces have now. `name` tells a test's fence from another's; what an interrupted run
    /// left of it is cleared.
    #[track_caller]
    pub fn around(name: &str, within: &[&str]) -> Self {
        let first = format!("SLIPWAY-{}", name.to_uppercase());
        let cleared = keeper(&first, Stdio::null()).wait();
        assert!(matches!(cleared, Ok(status) if status.success()), "what was left of {first} should be cleared: {cleared:?}");
        let within = within.iter().map(|namespace| (*namespace).to_owned()).collect();
        let mut fence = Self { keeper: keeper(&first, Stdio::piped()), first, within, chains: BTreeSet::new() };
        fence.renew();
        // What passes between pods, what comes from elsewhere, and what is for the node itself. What the node sends, as the
        // kubelet's probes, is nobody's to refuse.
        let places = [format!("FORWARD 1 -i {BRIDGE}"), format!("FORWARD 1 ! -i {BRIDGE} -o {BRIDGE}"), format!("INPUT 1 -i {BRIDGE}")];
        let mut text = "*filter\n".to_owned();
        text.extend(places.iter().map(|place| format!("-I {place} -j {}\n", fence.first)));
        restore(&(text + "COMMIT\n"));
        fence
    }

    /// Puts in force what policies, pods and namespaces are now.
    #[track_caller]
    pub fn renew(&mut self) {
        let list = kubectl("get networkpolicies,namespaces,pods --all-namespaces").json();
        let objects = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let chains = render(&self.first, &self.within, objects).unwrap_or_else(|e| panic!("the policies cannot be put in force: {e}"));
        let names: BTreeSet<String> = chains.keys().cloned().collect();
        let mut text = "*filter\n".to_owned();
        // To declare a chain is to empty it.
        text.extend(self.chains.union(&names).map(|chain| format!(":{chain} - [0:0]\n")));
        text.extend(chains.iter().flat_map(|(chain, rules)| rules.iter().map(move |rule| format!("-A {chain} {rule}\n"))));
        text.extend(self.chains.difference(&names).map(|chain| format!("-X {chain}\n")));
        restore(&(text + "COMMIT\n"));
        self.chains = names;
    }

    /// What iptables has of a fence of this name.
    #[track_caller]
    pub fn traces(name: &str) -> Vec<String> {
        let saved = Command::new("iptables-save").args(["-t", "filter"]).output().unwrap_or_else(|e| panic!("iptables-save: {e}"));
        assert!(saved.status.success(), "iptables-save: {saved:?}");
        let (text, first) = (String::from_utf8_lossy(&saved.stdout), format!("SLIPWAY-{}", name.to_uppercase()));
        text.lines().filter(|line| line.contains(&first)).map(str::to_owned).collect()
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// In a group of its own: what ends the test from a terminal does not end it.
#[track_caller]
fn keeper(first: &str, input: Stdio) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", KEEPER, first]).stdin(input).process_group(0);
    command.spawn().unwrap_or_else(|e| panic!("sh cannot be run: {e}"))
}

/// One transaction: all of it or nothing.
#[track_caller]
fn restore(text: &str) {
    let mut command = Command::new("iptables-restore");
    command.args(["--noflush", "-w", "5"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("iptables-restore cannot be run: {e}"));
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap_or_else(|e| panic!("iptables-restore did not end well: {e}"));
    let well = output.status.success() && matches!(written, Some(Ok(())));
    assert!(well, "iptables-restore refused:\n{}{text}", String::from_utf8_lossy(&output.stderr));
}
