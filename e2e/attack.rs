//! Slipway as the chart installs it, on an API server without a node: accounts, roles and admission policies by Helm, and
//! the manager's roles as processes of the working tree, each under its own account's token and with the chart's settings.
//! What attackers need besides are accounts of their own, which are ServiceAccounts here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Value, json};
use slipway_peers::{Cgroup, Server, free_port, is_root, repository};
use tempfile::TempDir;

use crate::api::{Api, binary};
use crate::kubectl::{Kubectl, Outcome, program};
use crate::platform;
use crate::poll;
use crate::second::Second;

/// What tests of deletions, quotas and tokens need of Kubernetes' own controllers.
const CONTROLLERS: &str = "namespace-controller,resourcequota-controller,serviceaccount-token-controller";
/// The chart's limit of the memory of manager and REST.
pub const MEMORY: u64 = 256 * 1024 * 1024;
/// Where attackers have their accounts.
const PEOPLE: &str = "people";

static SHARED: Mutex<Weak<Installation>> = Mutex::new(Weak::new());

/// An API server with the chart on it, and the operator at work, with its memory limited where that can be done.
pub struct Installation {
    operator: Server,
    // After the process.
    _group: Option<Cgroup>,
    folder: TempDir,
    second: Second,
}

impl Installation {
    /// The one of this test program: the first test that needs it begins it, and it ends with the last.
    #[track_caller]
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let this = Arc::new(Self::start());
            *shared = Arc::downgrade(&this);
            this
        })
    }

    #[track_caller]
    fn start() -> Self {
        let second = Second::with_controllers(CONTROLLERS);
        second.apply_as("v1", &json!({"kind": "Namespace", "metadata": {"name": PEOPLE}}));
        let mut helm = Command::new(std::env::var_os("HELM").unwrap_or_else(|| repository().join(".local/bin/helm").into()));
        // There is nobody to run a hook's pods.
        helm.args(["upgrade", "--install", "slipway"]).arg(repository()).args(["--namespace", platform::NAMESPACE]);
        helm.args(["--create-namespace", "--no-hooks", "--kubeconfig"]).arg(second.kubeconfig());
        let output = helm.output().unwrap_or_else(|e| panic!("{} cannot be run: {e}", helm.get_program().display()));
        assert!(output.status.success(), "Helm should install the chart: {}", String::from_utf8_lossy(&output.stderr));
        let folder = TempDir::new().unwrap_or_else(|e| panic!("no folder: {e}"));
        let group = is_root().then(|| Cgroup::with_memory(MEMORY));
        let command = group.as_ref().map_or_else(|| Command::new(binary()), |group| group.command(binary()));
        let operator = operator(&second, folder.path(), command);
        Self { operator, _group: group, folder, second }
    }

    /// `kubectl LINE` as an administrator.
    pub fn kubectl(&self, line: impl AsRef<str>) -> Kubectl {
        self.second.kubectl(line.as_ref())
    }

    /// `kubectl LINE` as one who calls with this token.
    pub fn kubectl_with(&self, token: &str, line: impl AsRef<str>) -> Kubectl {
        let kubeconfig = kubeconfig(&self.second, self.folder.path(), token);
        Kubectl::new(&format!("--kubeconfig={} {}", kubeconfig.display(), line.as_ref()))
    }

    /// A Team whose namespace has what the operator makes in it; the namespace's name. The quota comes after the bindings that the
    /// platform's accounts need there, and until it has counted what it names, nothing of that can be made.
    #[track_caller]
    pub fn team(&self, slug: &str) -> String {
        self.second.team(slug);
        let namespace = format!("team-{slug}");
        poll(120, || {
            let quota = self.kubectl(format!("get resourcequota slipway -n {namespace} --ignore-not-found")).json();
            let named = quota["spec"]["hard"].as_object();
            let is_counted = named.is_some_and(|named| named.keys().all(|name| quota["status"]["used"][name].is_string()));
            if is_counted { Ok(()) } else { Err(format!("the quota of {namespace} should count what it names: {quota}")) }
        });
        namespace
    }

    /// How many agents the quota of a namespace knows of, once it counts: until then nothing can be made there.
    #[track_caller]
    pub fn agents_counted(&self, namespace: &str) -> String {
        poll(120, || {
            let quota = self.kubectl(format!("get resourcequota slipway -n {namespace} --ignore-not-found")).json();
            let counted = quota["status"]["used"]["count/agents.agents.slipway.dev"].as_str().map(str::to_owned);
            counted.ok_or_else(|| format!("the quota of {namespace} does not count agents yet"))
        })
    }

    /// An object of any kind with its `apiVersion`, applied by an administrator. A quota that was changed a moment ago is waited for:
    /// those of the first teams are given our own kinds a minute later, see [`Self::team`].
    #[track_caller]
    pub fn apply(&self, object: &Value) {
        let apply = self.kubectl("apply -f -").input(object);
        poll(60, || {
            let Outcome { code, stdout, stderr } = apply.run();
            let early = ["status unknown for quota", "Operation cannot be fulfilled on resourcequotas"];
            if code != Some(0) && early.iter().any(|words| stderr.contains(words)) {
                return Err(stderr);
            }
            assert!(code == Some(0), "{apply}\nshould succeed, ended with {code:?}:\n{stderr}{stdout}");
            Ok(())
        });
    }

    /// A person of this name: the user's name as Kubernetes has it, and a token.
    #[track_caller]
    pub fn person(&self, name: &str) -> Person {
        self.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": PEOPLE}}));
        Person { user: format!("system:serviceaccount:{PEOPLE}:{name}"), token: token(&self.second, PEOPLE, name) }
    }

    /// A person who has this ClusterRole in a namespace.
    #[track_caller]
    pub fn member(&self, name: &str, role: &str, namespace: &str) -> Person {
        let person = self.person(name);
        self.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("{name}-{role}"), "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": PEOPLE}],
        }));
        self.heeds(&person, role, namespace);
        person
    }

    /// A person who is a platform admin.
    #[track_caller]
    pub fn platform_admin(&self, name: &str) -> Person {
        const ROLE: &str = "slipway-platform-admin";
        let person = self.person(name);
        self.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": PEOPLE}],
        }));
        self.heeds(&person, ROLE, "");
        person
    }

    /// Waits until the API server heeds the binding of this ClusterRole in a namespace, or in all: until then it refuses what the role
    /// allows, and in other words than a policy does. The last verb of a role's first rule is one that lesser roles have not.
    #[track_caller]
    fn heeds(&self, person: &Person, role: &str, namespace: &str) {
        let first = self.kubectl(format!("get clusterrole {role}")).json()["rules"][0].clone();
        let last = |field: &str| first[field].as_array().and_then(|all| all.last()?.as_str()).unwrap_or_default();
        let (resource, subresource) = last("resources").split_once('/').unwrap_or((last("resources"), ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": person.user, "resourceAttributes": {
                "namespace": namespace, "group": last("apiGroups"), "resource": resource, "subresource": subresource, "verb": last("verbs"),
            }},
        });
        poll(30, || {
            let answer = self.kubectl("create -f -").input(&review).json();
            if answer["status"]["allowed"] == true { Ok(()) } else { Err(format!("{} should have {role}: {answer}", person.user)) }
        });
    }

    /// The token of an account of the platform, such as `slipway-rest`: what an attacker has who took over its pod.
    #[track_caller]
    pub fn token_of(&self, account: &str) -> String {
        token(&self.second, platform::NAMESPACE, account)
    }

    /// A token of an account of the platform that is meant for this audience.
    #[track_caller]
    pub fn token_for(&self, account: &str, audience: &str) -> String {
        let line = format!("create token {account} -n {} --audience={audience}", platform::NAMESPACE);
        self.kubectl(line).ok().trim().to_owned()
    }

    /// REST under its own account with the chart's settings, and these besides.
    #[track_caller]
    pub fn rest(&self, environment: &[(&str, &str)]) -> Api {
        self.rest_by(Command::new(binary()), environment)
    }

    /// The same with the memory limit of this group.
    #[track_caller]
    pub fn rest_within(&self, group: &Cgroup, environment: &[(&str, &str)]) -> Api {
        self.rest_by(group.command(binary()), environment)
    }

    #[track_caller]
    fn rest_by(&self, mut command: Command, environment: &[(&str, &str)]) -> Api {
        settle(&self.second, self.folder.path(), &mut command, &format!("deployment/{}", platform::REST));
        Api::start_as(command, environment)
    }

    /// The state role under its own account with the chart's settings, and its folder in this one.
    #[track_caller]
    pub fn state(&self, folder: &Path) -> Api {
        let mut command = Command::new(binary());
        settle(&self.second, self.folder.path(), &mut command, &format!("statefulset/{}", platform::STATE));
        let (port, health) = (free_port(), free_port());
        command.env("SLIPWAY_STATE_FOLDER", folder.join("history")).env("TMPDIR", folder);
        command.env("SLIPWAY_STATE_LISTEN", format!("127.0.0.1:{port}")).env("SLIPWAY_LISTEN", format!("127.0.0.1:{health}"));
        Api::served(Server::start(command, &format!("http://127.0.0.1:{health}/readyz")), port, health)
    }

    /// The id of the operator's process.
    pub fn operator(&self) -> u32 {
        self.operator.id()
    }

    /// One operator more under the manager's account, with the memory limit of this group; it takes no lease.
    #[track_caller]
    pub fn operator_within(&self, group: &Cgroup) -> Server {
        operator(&self.second, self.folder.path(), group.command(binary()))
    }

    /// The path of an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        self.second.kubeconfig()
    }
}

/// Somebody with an account of their own.
pub struct Person {
    pub user: String,
    pub token: String,
}

#[track_caller]
fn operator(second: &Second, folder: &Path, mut command: Command) -> Server {
    settle(second, folder, &mut command, &format!("deployment/{}", platform::MANAGER));
    let listen = format!("127.0.0.1:{}", free_port());
    command.env("SLIPWAY_LISTEN", &listen).env("SLIPWAY_LEADER_ELECTION", "false");
    Server::start(command, &format!("http://{listen}/readyz"))
}

/// Gives a process the account of this workload, and the variables that the chart gives it.
#[track_caller]
fn settle(second: &Second, folder: &Path, command: &mut Command, workload: &str) {
    let object = second.kubectl(&format!("get {workload} -n {}", platform::NAMESPACE)).json();
    let pod = &object["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().unwrap_or_default();
    for variable in pod["containers"][0]["env"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
            command.env(name, value);
        }
    }
    // The state role's Service is nobody here.
    command.env_remove("SLIPWAY_STATE_URL").env("SLIPWAY_SERVICE_ACCOUNT", account);
    command.env("KUBECONFIG", kubeconfig(second, folder, &token(second, platform::NAMESPACE, account)));
}

#[track_caller]
fn token(second: &Second, namespace: &str, account: &str) -> String {
    second.kubectl(&format!("create token {account} -n {namespace} --duration=2h")).ok().trim().to_owned()
}

/// The file of an administrator's kubeconfig with this token in place of the certificate.
#[track_caller]
fn kubeconfig(second: &Second, folder: &Path, token: &str) -> PathBuf {
    let mut config = Command::new(program());
    config.arg("--kubeconfig").arg(second.kubeconfig()).args(["config", "view", "--raw", "-o", "json"]);
    let output = config.output().unwrap_or_else(|e| panic!("kubectl cannot be run: {e}"));
    let mut config: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("a kubeconfig as JSON: {e}"));
    config["users"][0]["user"] = json!({"token": token});
    let file = tempfile::Builder::new().prefix("kubeconfig-").tempfile_in(folder).unwrap_or_else(|e| panic!("no file: {e}"));
    let (_, path) = file.keep().unwrap_or_else(|e| panic!("a file that stays: {e}"));
    fs::write(&path, config.to_string()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}
