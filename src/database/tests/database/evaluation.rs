//! Results of evaluations: one for each case, also when two pods write it, and none of another attempt.

use serde_json::json;
use slipway_database::EvaluationResult;

use crate::Database;

fn result(case: usize, text: &str) -> EvaluationResult {
    EvaluationResult { case, digest: vec![1, 2], result: json!({"output": text}) }
}

#[tokio::test]
async fn a_case_has_one_result_and_old_ones_are_deleted() {
    let database = Database::migrated().await;
    let (store, other) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_2").await);
    assert!(store.keep_evaluation_result("ev_1", &result(0, "first \u{0}")).await.unwrap());
    assert!(!store.keep_evaluation_result("ev_1", &result(0, "second")).await.unwrap(), "a case is scored once");
    assert!(other.keep_evaluation_result("ev_1", &result(0, "another agent's")).await.unwrap());
    assert!(store.keep_evaluation_result("ev_1", &result(1, "by a prompt of before")).await.unwrap());
    let anew = EvaluationResult { digest: vec![3], ..result(1, "by the present prompt") };
    assert_eq!(
        [store.keep_evaluation_result("ev_1", &anew).await, store.keep_evaluation_result("ev_1", &anew).await],
        [Ok(true), Ok(false)],
        "what was scored by something else is scored anew, and that once"
    );
    for case in 2..1500 {
        store.keep_evaluation_result("ev_1", &result(case, "x")).await.unwrap();
    }
    let kept = store.evaluation_results("ev_1").await.unwrap();
    assert_eq!((kept.len(), &kept[0], &kept[1]), (1500, &result(0, "first \u{0}"), &anew));
    assert_eq!(kept.iter().map(|kept| kept.case).collect::<Vec<_>>(), (0..1500).collect::<Vec<_>>());
    assert_eq!(store.evaluation_results("ev_2").await.unwrap(), []);
    let tenants = database.tenants();
    assert_eq!(tenants.evaluation_results("a", "ag_1", "ev_1").await.unwrap(), kept, "the manager reads the same");
    assert_eq!(tenants.evaluation_results("a", "ag_2", "ev_1").await.unwrap(), [result(0, "another agent's")]);
    assert_eq!(tenants.evaluation_results("b", "ag_1", "ev_1").await.unwrap(), []);
    database
        .raw(&database.url)
        .await
        .ask("update slipway.evaluation_results set created_at = now() - interval '31 days' where place >= 10")
        .await
        .unwrap();
    assert_eq!(database.tenants().delete_old_evaluation_results().await, Ok(1490));
    assert_eq!(store.evaluation_results("ev_1").await.unwrap().len(), 10);
}

#[tokio::test]
async fn the_managers_results_of_a_run_take_the_place_of_all_others() {
    let database = Database::migrated().await;
    let (store, other) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_2").await);
    for case in [0, 1, 999] {
        store.keep_evaluation_result("ev_1", &result(case, "forged")).await.unwrap();
    }
    store.keep_evaluation_result("ev_2", &result(0, "another run's")).await.unwrap();
    other.keep_evaluation_result("ev_1", &result(0, "another agent's")).await.unwrap();
    let tenants = database.tenants();
    let checked: Vec<_> = (0..250).map(|case| EvaluationResult { digest: Vec::new(), ..result(case, "checked \u{0}") }).collect();
    for _ in 0..2 {
        tenants.replace_evaluation_results("a", "ag_1", "ev_1", &checked).await.unwrap();
        assert_eq!(tenants.evaluation_results("a", "ag_1", "ev_1").await.unwrap(), checked);
    }
    // Of a result without a digest no run takes anything.
    assert_eq!(store.delete_other_evaluation_results("ev_1", &[vec![1, 2]]).await, Ok(250));
    assert_eq!(store.evaluation_results("ev_2").await.unwrap(), [result(0, "another run's")]);
    assert_eq!(other.evaluation_results("ev_1").await.unwrap(), [result(0, "another agent's")]);
    let far = EvaluationResult { case: usize::MAX, ..result(0, "") };
    assert!(tenants.replace_evaluation_results("a", "ag_1", "ev_2", &[far]).await.is_err());
    assert_eq!(store.evaluation_results("ev_2").await.unwrap().len(), 1, "all is replaced, or nothing");
}

#[tokio::test]
async fn results_of_another_attempt_are_deleted() {
    let database = Database::migrated().await;
    let (store, other) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_2").await);
    let last_place = usize::try_from(i32::MAX).unwrap();
    for case in [0, 1, 2, 3, last_place] {
        store.keep_evaluation_result("ev_1", &result(case, "former")).await.unwrap();
    }
    store.keep_evaluation_result("ev_2", &result(0, "another run's")).await.unwrap();
    other.keep_evaluation_result("ev_1", &result(0, "another agent's")).await.unwrap();
    // Three cases, of which the second is what it was.
    let digests = [vec![9], vec![1, 2], vec![1]];
    assert_eq!(store.delete_other_evaluation_results("ev_1", &digests).await, Ok(4));
    assert_eq!(store.evaluation_results("ev_1").await.unwrap(), [result(1, "former")]);
    assert_eq!(store.delete_other_evaluation_results("ev_1", &digests).await, Ok(0), "asked again, it changes nothing");
    assert_eq!(store.delete_other_evaluation_results("ev_1", &[]).await, Ok(1));
    assert_eq!(store.evaluation_results("ev_1").await.unwrap(), []);
    assert_eq!(store.evaluation_results("ev_2").await.unwrap(), [result(0, "another run's")]);
    assert_eq!(other.evaluation_results("ev_1").await.unwrap(), [result(0, "another agent's")]);
}
