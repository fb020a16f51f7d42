//! Many invalid tokens.

use std::time::Duration;

use reqwest::Method;
use slipway_rest::Authentication;

use crate::{Api, settings};

async fn asks(api: &Api, token: &str) -> crate::ApiAnswer {
    let bearer = format!("Bearer {token}");
    api.call(Method::GET, "/agents", &[("authorization", &bearer), ("x-team", "a")], None).await
}

#[tokio::test]
async fn three_hundred_bad_tokens_are_not_as_many_reviews() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    assert_eq!(asks(&api, "ada@example.com").await.status, 200);
    let (mut invalid, mut later) = (0, 0);
    for at in 0..300 {
        let answer = asks(&api, &format!("bad-{at}")).await;
        match answer.status.as_u16() {
            401 => invalid += 1,
            429 => {
                assert!(answer.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() >= 1);
                later += 1;
            }
            other => unreachable!("{other}: {}", answer.body),
        }
    }
    assert!(api.cluster.reviews() < 100, "{} reviews of {invalid} tokens, {later} were put off", api.cluster.reviews());
    assert!(later > 200, "{later}");
    // A token that was valid stays exempt when it is reviewed again.
    tokio::time::sleep(Duration::from_millis(5100)).await;
    while asks(&api, &format!("bad-again-{}", api.cluster.reviews())).await.status != 429 {}
    let before = api.cluster.reviews();
    assert_eq!(asks(&api, "ada@example.com").await.status, 200);
    assert!(api.cluster.reviews() > before, "what was believed has to be asked again by now");
}
