//! The smallest server: `cargo run --example hello`, then `curl 127.0.0.1:8080/healthz`.

use slipway_http::{Error, Reply, Request, ServerLimits, listen, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = listen(([127, 0, 0, 1], 8080).into())?;
    let handler = |request: Request| async move {
        match request.path() {
            "/healthz" => Ok(Reply::text("ok\n")),
            _ => Err(Error::not_found("there is nothing here")),
        }
    };
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    serve(listener, ServerLimits::default(), handler, shutdown).await;
    Ok(())
}
