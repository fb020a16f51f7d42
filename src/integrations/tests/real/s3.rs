//! S3, played by Moto, which checks keys and rights once it is told to.

use serde_json::{Value, json};
use slipway_api::integration::IntegrationType;
use slipway_peers::{Server, moto, plain_http};

use crate::support::{connected, failed, tried};

/// Whom Moto takes for the owner before it looks at signatures.
fn owner(service: &str) -> String {
    format!("AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=x")
}

/// A user's keys; the user may list buckets' objects, and not the buckets.
fn reader(moto: &Server) -> (String, String) {
    let scope = owner("iam");
    let form = |form: &str| {
        let headers = [("authorization", &*scope), ("content-type", "application/x-www-form-urlencoded")];
        let (status, answer) = plain_http("POST", &format!("{}/", moto.url()), &headers, &format!("{form}&Version=2010-05-08"));
        assert_eq!(status, 200, "{form}: {answer}");
        answer
    };
    form("Action=CreateUser&UserName=reader");
    let keys = form("Action=CreateAccessKey&UserName=reader");
    let element = |name: &str| keys.split_once(&format!("<{name}>")).unwrap().1.split('<').next().unwrap().to_owned();
    // {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:ListBucket"],"Resource":"*"}]}
    let policy = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C%22Action%22%3A%5B%22s3%3AListBucket%22%5D%2C%22Resource%22%3A%22%2A%22%7D%5D%7D";
    form(&format!("Action=PutUserPolicy&UserName=reader&PolicyName=p&PolicyDocument={policy}"));
    (element("AccessKeyId"), element("SecretAccessKey"))
}

#[tokio::test]
async fn keys_are_accepted_or_not() {
    let moto = moto();
    let (status, answer) = plain_http("PUT", &format!("{}/docs", moto.url()), &[("authorization", &owner("s3"))], "");
    assert_eq!(status, 200, "{answer}");
    let (id, secret) = reader(&moto);
    assert_eq!(plain_http("POST", &format!("{}/moto-api/reset-auth", moto.url()), &[], "0").0, 200);

    let bucket = |bucket: &str| json!({"endpoint": moto.url(), "bucket": bucket});
    let with = async |config: Value, id: &str, secret: &str| {
        tried(IntegrationType::S3, config, &[("access_key_id", id), ("secret_access_key", secret)]).await
    };
    connected(&with(bucket("docs"), &id, &secret).await, "list the bucket");
    failed(&with(bucket("none"), &id, &secret).await, "NotFound", "there is no bucket none");
    connected(&with(json!({"endpoint": moto.url()}), &id, &secret).await, "they list no buckets");
    for config in [bucket("docs"), json!({"endpoint": moto.url()})] {
        failed(&with(config.clone(), &id, "hunter2").await, "Unauthorized", "secret_access_key does not belong to access_key_id");
        failed(&with(config, "hunter2", &secret).await, "Unauthorized", "access_key_id is not known");
    }
}

#[tokio::test]
async fn buckets_are_counted_where_they_may_be_listed() {
    let moto = moto();
    for name in ["one", "two"] {
        assert_eq!(plain_http("PUT", &format!("{}/{name}", moto.url()), &[("authorization", &owner("s3"))], "").0, 200);
    }
    let login = [("access_key_id", "AKIAIOSFODNN7EXAMPLE"), ("secret_access_key", "hunter2")];
    connected(&tried(IntegrationType::S3, json!({"endpoint": moto.url()}), &login).await, "they list 2 buckets");
}
