//! The specification told as one story: docs/story.md is played, block by block, on a cluster that has not heard it, and after each
//! chapter what the specification says is looked for by REST, kubectl, Git, the database and the servers that were spoken to.
//!
//! `hack/test story` runs this, and nothing else does: it takes a cluster for itself and some twenty minutes. Figures are the story's
//! own (`sums`, `marks`, `money`), and never those of an answer.
//!
//! `stage` is where it takes place, `shell` plays the page, `servers` with `model` and `receiver` are the world outside, `follower` is
//! the GitOps controller; all others are chapters.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod broker;
mod canary;
mod end;
mod follower;
mod gate;
mod handbook;
mod history;
mod image;
mod knowledge;
mod marks;
mod model;
mod money;
mod outside;
mod people;
mod project;
mod receiver;
mod servers;
mod shell;
mod stage;
mod sums;
mod talk;

use stage::Stage;

#[test]
fn the_story_is_as_it_is_told() {
    let mut stage = Stage::set();
    let stage = &mut stage;
    people::two_teams(stage);
    people::their_people(stage);
    people::who_may_what(stage);
    outside::integrations(stage);
    outside::the_platforms_own(stage);
    knowledge::the_handbook(stage);
    knowledge::tools(stage);
    project::a_project(stage);
    project::its_repository(stage);
    history::its_history(stage);
    history::it_reads_the_handbook(stage);
    talk::people_talk(stage);
    talk::by_openais_client(stage);
    talk::what_it_remembers(stage);
    marks::a_bad_mark(stage);
    marks::evaluations(stage);
    gate::a_gate(stage);
    gate::one_that_fails(stage);
    gate::one_that_passes(stage);
    gate::who_lowers_it(stage);
    canary::a_canary(stage);
    canary::the_webhook(stage);
    canary::its_promotion(stage);
    canary::a_way_back(stage);
    money::begins();
    broker::the_other_team(stage);
    broker::a_days_work(stage);
    broker::its_canaries(stage);
    money::money(stage);
    money::it_ends(stage);
    image::an_image_of_its_own(stage);
    end::everything_is_killed(stage);
    end::two_agents_go(stage);
    end::the_end(stage);
}
