//! Labels and annotations that Slipway sets, each spelled once.

pub const NAME: &str = "app.kubernetes.io/name";
pub const VERSION: &str = "app.kubernetes.io/version";
pub const PART_OF: &str = "app.kubernetes.io/part-of";
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Value of [`PART_OF`].
pub const PLATFORM: &str = "slipway";
/// Value of [`MANAGED_BY`] on everything the operator owns.
pub const OPERATOR: &str = "slipway-manager";

/// The agent that an object belongs to.
pub const AGENT: &str = "agents.slipway.dev/agent";
/// The ingestion that a Job or pod carries out.
pub const INGESTION: &str = "agents.slipway.dev/ingestion";
/// The EvaluationRun for which a Job or pod puts cases to an agent.
pub const EVALUATION: &str = "agents.slipway.dev/evaluation";
/// On pods that are no agent's: what they are of the platform, `worker`, `ingestion` or `evaluation`. NetworkPolicies of the team
/// select by it.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// The integration that a Job tests.
pub const INTEGRATION: &str = "agents.slipway.dev/integration";
/// The skill that a ConfigMap holds.
pub const SKILL: &str = "agents.slipway.dev/skill";
/// The track of the agent that an object belongs to: [`crate::Track::as_str`].
pub const TRACK: &str = "agents.slipway.dev/track";
/// The same on pods, for meshes that route by it.
pub const POD_VERSION: &str = "version";
/// On pods of an agent that answers the platform alone: `platform`. A NetworkPolicy of the team selects by it.
pub const ACCESS: &str = "agents.slipway.dev/access";
/// What the agent was built with; a label and nothing more.
pub const FRAMEWORK: &str = "agents.slipway.dev/framework";
/// On a Namespace: what its agents' pods may have, a line for each, by which admission policies judge; the name of a list is added.
pub const ALLOWED_POD_SETTINGS: &str = "allowed.agents.slipway.dev/";
/// On a Namespace: the slug of the team that owns it.
pub const TEAM: &str = "agents.slipway.dev/team";
/// On a RoleBinding: the id of the user whose membership it is.
pub const MEMBER: &str = "agents.slipway.dev/member";
/// On the same: the user's address.
pub const EMAIL: &str = "agents.slipway.dev/email";
/// On a Secret: `true` lets agents of its namespace use it.
pub const AGENT_READABLE: &str = "agents.slipway.dev/agent-readable";

/// The field manager of REST, by which its word is told from others'.
pub const REST: &str = "slipway-rest";
/// Who wrote the object last, by REST's word.
pub const CHANGED_BY: &str = "agents.slipway.dev/changed-by";
/// On an object made by REST: which call made it, as a hash of caller and Idempotency-Key.
pub const IDEMPOTENCY_KEY: &str = "agents.slipway.dev/idempotency-key";
/// On an object made by REST: a hash of what that call asked for.
pub const IDEMPOTENCY_BODY: &str = "agents.slipway.dev/idempotency-body";
/// On an Agent: `true` puts it away without deleting it. It has no pods then.
pub const ARCHIVED: &str = "agents.slipway.dev/archived";
/// On an Agent: when somebody last asked for new pods. It is copied to the pod template.
pub const RESTARTED_AT: &str = "agents.slipway.dev/restarted-at";
/// On an Agent: `true` or `false` in the place of `spec.suspend`, for those who do not own the spec.
pub const SUSPEND: &str = "agents.slipway.dev/suspend";
/// On an Agent: `promote` or `rollback`, what becomes of its canary. It is taken away once that is done.
pub const CANARY_ACTION: &str = "agents.slipway.dev/canary-action";
/// On an Agent: a number from 0 to 100 in the place of `spec.canary.weight`, for those who do not own the spec.
pub const CANARY_WEIGHT: &str = "agents.slipway.dev/canary-weight";
/// On an Agent: `true` leaves its rollouts to Flagger.
pub const FLAGGER: &str = "agents.slipway.dev/flagger";
/// On an Agent: the version of the release that somebody wants to run again. It is taken away once that is done.
pub const DEPLOY_RELEASE: &str = "agents.slipway.dev/deploy-release";
/// On an Agent: the releases that a guardrail policy had rolled back, by version, separated by commas. They are not rolled back again.
pub const ROLLED_BACK: &str = "agents.slipway.dev/rolled-back";
/// On an Integration: any text of at most 64 bytes. A new one asks for a test; `status.lastTest.id` has the last one that was answered.
pub const TEST: &str = "agents.slipway.dev/test";
/// On a Secret: any text, which counts as a part of what it holds. With another one the same login has been written anew, as for another host.
pub const WRITTEN: &str = "agents.slipway.dev/written";
/// On the Secret `in-<name>` of an Integration: scheme, host and port that the login in it was given for, as `https://metrics.example.com`.
/// It is sent nowhere else, whatever the Integration names by the time that it is seen.
pub const ORIGIN: &str = "agents.slipway.dev/origin";
/// On an Agent or a Team: the UID of an earlier one whose rows in the database it is to have, as after a restore.
pub const ADOPT: &str = "agents.slipway.dev/adopt";
/// On an AgentRelease that the controller made: the version that it stands for.
pub const RELEASE: &str = "agents.slipway.dev/release";

/// On an Event of ours: more about it, as JSON.
pub const PAYLOAD: &str = "agents.slipway.dev/payload";

/// On a ConfigMap or Secret that all of an agent's pods read as it is now, or that never changes: `disabled`, so that Flagger makes no copy of it.
pub const CONFIG_TRACKING: &str = "flagger.app/config-tracking";

/// On a pod template: SHA-256 of the ConfigMap's data.
pub const CONFIG_HASH: &str = "agents.slipway.dev/config-hash";
/// On a pod template: SHA-256 of all that a pod of it runs, by which a release is told from another.
pub const RUN_HASH: &str = "agents.slipway.dev/run-hash";
/// On a pod template: keyed hash of the Secrets the pod uses.
pub const SECRETS_HASH: &str = "agents.slipway.dev/secrets-hash";
