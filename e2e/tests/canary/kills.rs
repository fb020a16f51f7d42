//! An operator that is killed at each of its writes while a canary begins and while it ends, once before the API server has heard of
//! the write and once after: the next one comes to the same end as one that lives, and all of it is told once.

use serde_json::{Value, json};
use slipway_e2e::When;
use slipway_e2e::fault::{Ground, Home, Manager, Trial};

/// The agent that all of it is about.
const AGENT: &str = "helper";
const STARTED: &str = "AgentCanaryStarted";
const PROMPT: &str = "one";
const OTHER: &str = "two";

/// How a canary ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    RolledBack,
    Promoted,
}

impl End {
    /// What asks for it.
    fn action(self) -> &'static str {
        match self {
            Self::RolledBack => "rollback",
            Self::Promoted => "promote",
        }
    }

    /// The reason of the Event that tells of it, and of the one that would tell of the other end.
    fn events(self) -> [&'static str; 2] {
        let [promoted, rolled_back] = ["AgentCanaryPromoted", "AgentCanaryRolledBack"];
        if self == Self::Promoted { [promoted, rolled_back] } else { [rolled_back, promoted] }
    }

    /// After so many lives things are as before: a promotion leaves the agent another prompt, and the next one gives it back.
    fn period(self) -> usize {
        if self == Self::Promoted { 2 } else { 1 }
    }

    /// The prompt of the canary in this life, and the agent's after it.
    fn prompts(self, life: usize) -> (&'static str, &'static str) {
        match self {
            Self::RolledBack => (OTHER, PROMPT),
            Self::Promoted if life.is_multiple_of(2) => (OTHER, OTHER),
            Self::Promoted => (PROMPT, PROMPT),
        }
    }

    fn begin(self, home: &Home, life: usize) {
        let (prompt, _) = self.prompts(life);
        home.change(AGENT, &json!({"canary": {"enabled": true, "weight": 10, "systemPrompt": prompt}}));
    }

    fn end(self, home: &Home) {
        home.annotate(AGENT, &json!({"agents.slipway.dev/canary-action": self.action()}));
    }

    /// One life without a kill: what is seen once the canary serves and once there is none, and how many writes each took.
    fn lived(self, trial: &mut Trial, life: usize) -> [(Value, usize); 2] {
        let first = trial.managers[0].door().written();
        self.begin(&trial.home, life);
        trial.until("a canary that serves", |trial| trial.home.canary(AGENT)["phase"] == "Serving");
        let serving = trial.rests(AGENT, "DeploymentReady", "the beginning of a canary");
        let second = trial.managers[0].door().written();
        self.end(&trial.home);
        trial.until("the end of a canary", |trial| trial.home.canary(AGENT).is_null());
        let ended = trial.rests(AGENT, "DeploymentReady", "the end of a canary");
        [(serving, second - first), (ended, trial.managers[0].door().written() - second)]
    }

    /// Canaries begin and end again and again, and each time the manager is killed one write later; until it is not, because there
    /// is no such write.
    fn killed(self, name: &str, when: When) {
        let ground = Ground::new(name);
        let mut trial = settled(&ground);
        // What is made once and stays is there after the first.
        self.lived(&mut trial, 0);
        let calm: Vec<_> = (1..=self.period()).map(|life| self.lived(&mut trial, life)).collect();
        assert_ne!(calm[0][0].0, calm[0][1].0, "a canary should be seen");
        let mut kills = [0, 0];
        let mut ended = [false, false];
        let mut life = self.period();
        while ended != [true, true] {
            life += 1;
            for at in [0, 1] {
                let door = trial.managers[0].door().clone();
                if !ended[at] {
                    door.arm(kills[at] + 1, when);
                }
                if at == 0 {
                    self.begin(&trial.home, life);
                } else {
                    self.end(&trial.home);
                }
                let after = format!("a kill {when:?} write {} of the {} of a canary", kills[at] + 1, ["beginning", "end"][at]);
                trial.comes_to(&calm[(life - 1) % self.period()][at].0, &after);
                if door.disarm() {
                    kills[at] += 1;
                } else {
                    ended[at] = true;
                }
                self.is_told(&trial.home, [life + 1, life + at], &after);
                assert!(kills[at] < 40, "it never came to an end without a kill: {:?}", door.writes());
            }
            self.is_as_asked(&trial.home, life);
        }
        // Writes that follow each other closely may become one.
        for at in [0, 1] {
            assert!(kills[at] > 0 && kills[at] + 3 >= calm[0][at].1, "{} writes, and {} kills {when:?} them", calm[0][at].1, kills[at]);
        }
    }

    /// So many beginnings and ends have been told, each once, and no other end.
    #[track_caller]
    fn is_told(self, home: &Home, [begun, ended]: [usize; 2], after: &str) {
        let told = home.told(AGENT);
        let count = |reason: &str| told.iter().filter(|found| *found == reason).count();
        let [end, other] = self.events();
        let found = [STARTED, end, other, "AgentCanaryRefused"].map(count);
        assert_eq!(found, [begun, ended, 0, 0], "after {after}");
    }

    /// The spec is what was asked for, and nothing is left that was the canary's.
    #[track_caller]
    fn is_as_asked(self, home: &Home, life: usize) {
        let agent = home.get("apis/agents.slipway.dev/v1", "agents", AGENT);
        let (_, prompt) = self.prompts(life);
        assert_eq!((&agent["spec"]["canary"], &agent["spec"]["systemPrompt"]), (&Value::Null, &json!(prompt)), "{agent:#}");
        let sight = home.sight();
        let of_canary = |name: &&String| name.contains(&format!("/{AGENT}-canary")) || name.ends_with("-primary");
        let left: Vec<&String> = sight.as_object().into_iter().flat_map(serde_json::Map::keys).filter(of_canary).collect();
        assert!(left.is_empty(), "these are nobody's: {left:?}");
    }
}

/// A trial on a team that has an agent which serves.
fn settled(ground: &Ground) -> Trial<'_> {
    let home = ground.home();
    let manager = Manager::alone(&home);
    let mut trial = Trial::new(home, vec![manager], Home::sight);
    trial.home.team();
    trial.settled_in();
    trial.home.agent(AGENT, &json!({"systemPrompt": PROMPT}));
    trial.rests(AGENT, "DeploymentReady", "creating it");
    trial
}

#[test]
fn a_rollback_survives_a_kill_before_every_write() {
    End::RolledBack.killed("undone", When::Before);
}

#[test]
fn a_rollback_survives_a_kill_after_every_write() {
    End::RolledBack.killed("reverted", When::After);
}

#[test]
fn a_promotion_survives_a_kill_before_every_write() {
    End::Promoted.killed("promoted", When::Before);
}

#[test]
fn a_promotion_survives_a_kill_after_every_write() {
    End::Promoted.killed("raised", When::After);
}
