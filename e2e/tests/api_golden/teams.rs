//! Teams and their members.

use serde_json::{Value, json};
use slipway_e2e::{Api, Golden, Team, kubectl, poll, together};

#[test]
fn teams_and_members_answer_as_written_down() {
    let team = Team::planned(together(), "golden-teams");
    let api = Api::of(&team);
    let mut golden = Golden::of("api_golden/teams.json");
    let new = json!({"name": "Golden Teams", "slug": team.slug, "description": "Those who find things out."});
    let made = api.call("POST", "/teams").json(&new).send();
    golden.keep("POST /teams", &made);
    let path = format!("/teams/{}", made.json()["data"]["id"].as_str().unwrap_or_default());
    let call = |method: &str, rest: &str| api.call(method, &format!("{path}{rest}"));
    // Its namespace is there, and the list that calls are checked by knows of the team.
    team.ready();
    let list = || {
        let version = made.header("x-resource-version");
        poll(20, || {
            let reply = api.call("GET", "/teams?search=golden+teams").header("X-Resource-Version", version).send();
            if reply.json()["data"][0]["status"] == "ready" {
                Ok(reply)
            } else {
                Err(format!("the team should be listed as ready: {reply:?}"))
            }
        })
    };
    golden.keep("GET /teams", &list());

    let added = call("POST", "/members").json(&json!({"email": "Ada@example.com", "role": "developer"})).send();
    golden.keep("POST /teams/{team}/members", &added);
    golden.keep("GET /teams/{team}/members", &call("GET", "/members").send());
    let ada = format!("/members/{}", added.json()["data"]["id"].as_str().unwrap_or_default());
    golden.keep("PATCH /teams/{team}/members/{user}", &call("PATCH", &ada).json(&json!({"role": "admin"})).send());
    // How many there are is counted as the watches tell.
    let counts = |members: u64| {
        poll(20, || {
            let reply = call("GET", "").send();
            if reply.json()["data"]["member_count"] == members { Ok(reply) } else { Err(format!("{members} should be counted: {reply:?}")) }
        })
    };
    golden.keep("GET /teams/{team}", &counts(1));
    golden.keep("GET /teams with a member", &list());
    golden.keep("DELETE /teams/{team}/members/{user}", &call("DELETE", &ada).send());
    golden.keep("GET /teams/{team} without members", &counts(0));
    assert_eq!(call("GET", "/members").expect(200)["data"], Value::Array(Vec::new()));
    golden.keep("DELETE /teams/{team}", &call("DELETE", "").send());
    poll(60, || {
        let left = kubectl(format!("get team/{} namespace/{} --ignore-not-found -o name", team.slug, team.namespace)).ok();
        if left.is_empty() { Ok(()) } else { Err(format!("they should go: {left}")) }
    });
    golden.compare();
}
