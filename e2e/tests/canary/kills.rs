//! An operator that is killed at each of its writes while a canary begins, while its weight changes and while it ends, once before the
//! API server has heard of the write and once after: the next one comes to the same end as one that lives, and all of it is told once.

use serde_json::{Value, json};
use slipway_e2e::When;
use slipway_e2e::fault::{Ground, Home, Manager, Trial};

/// The agent that all of it is about.
const AGENT: &str = "helper";
const STARTED: &str = "AgentCanaryStarted";
const PROMPT: &str = "one";
const OTHER: &str = "two";
/// What the annotation makes of the weight, which is 10 at the beginning.
const WEIGHT: u64 = 25;
/// A canary's life, in its order.
const SCENES: [&str; 3] = ["beginning", "change of weight", "end"];
const END: usize = 2;

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

    /// After this number of restarts things are as before: a promotion leaves the agent another prompt, and the next one gives it back.
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

    /// What a scene begins with.
    fn asks(self, home: &Home, scene: usize, life: usize) {
        let (prompt, _) = self.prompts(life);
        match scene {
            0 => home.change(AGENT, &json!({"canary": {"enabled": true, "weight": 10, "systemPrompt": prompt}})),
            END => home.annotate(AGENT, &json!({"agents.slipway.dev/canary-action": self.action()})),
            _ => home.annotate(AGENT, &json!({"agents.slipway.dev/canary-weight": WEIGHT.to_string()})),
        }
    }

    /// One life without a kill: what is seen after each scene, and how many writes it took.
    fn lived(self, trial: &mut Trial, life: usize) -> [(Value, usize); SCENES.len()] {
        [0, 1, END].map(|scene| {
            let (name, before) = (format!("the {} of a canary", SCENES[scene]), trial.managers[0].door().written());
            self.asks(&trial.home, scene, life);
            trial.until(&name, |trial| is_over(scene, &trial.home.canary(AGENT)));
            let seen = trial.rests(AGENT, "DeploymentReady", &name);
            (seen, trial.managers[0].door().written() - before)
        })
    }

    /// Canaries begin and end again and again, and each time the manager is killed one write later; until it is not, because there
    /// is no such write.
    fn killed(self, name: &str, when: When) {
        let ground = Ground::new(name);
        let mut trial = settled(&ground);
        // What is made once and stays is there after the first.
        self.lived(&mut trial, 0);
        let calm: Vec<_> = (1..=self.period()).map(|life| self.lived(&mut trial, life)).collect();
        assert!(calm[0][0].0 != calm[0][1].0 && calm[0][1].0 != calm[0][END].0, "a canary and its weight should be seen");
        let mut kills = [0; SCENES.len()];
        let mut ended = [false; SCENES.len()];
        let mut life = self.period();
        while ended.contains(&false) {
            life += 1;
            for at in [0, 1, END] {
                let door = trial.managers[0].door().clone();
                if !ended[at] {
                    door.arm(kills[at] + 1, when);
                }
                self.asks(&trial.home, at, life);
                let after = format!("a kill {when:?} write {} of the {} of a canary", kills[at] + 1, SCENES[at]);
                trial.comes_to(&calm[(life - 1) % self.period()][at].0, &after);
                if door.disarm() {
                    kills[at] += 1;
                } else {
                    ended[at] = true;
                }
                self.is_told(&trial.home, [life + 1, life + usize::from(at == END)], &after);
                assert!(kills[at] < 40, "it never came to an end without a kill: {:?}", door.writes());
            }
            self.is_as_asked(&trial.home, life);
        }
        // Writes that follow each other closely may become one.
        for at in [0, 1, END] {
            assert!(kills[at] > 0 && kills[at] + 3 >= calm[0][at].1, "{} writes, and {} kills {when:?} them", calm[0][at].1, kills[at]);
        }
    }

    /// This number of Events for beginnings and ends has been published, each once, and no other end.
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
        assert!(agent["metadata"]["annotations"]["agents.slipway.dev/canary-weight"].is_null(), "the weight was of this one: {agent:#}");
        let left: Vec<&String> = sight.as_object().into_iter().flat_map(serde_json::Map::keys).filter(of_canary).collect();
        assert!(left.is_empty(), "these are nobody's: {left:?}");
    }
}

/// Whether a scene has come to its end.
fn is_over(scene: usize, canary: &Value) -> bool {
    match scene {
        0 => canary["phase"] == "Serving",
        END => canary.is_null(),
        _ => canary["weight"] == WEIGHT,
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
