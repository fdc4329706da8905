//! One exchange with an endpoint: an event goes out, signed, and something comes back or not.

use std::time::Duration;

use domain::delivery::{self, Attempt, Outcome};
use domain::event::Event;
use domain::platform::Platform;
use ports::outbound::{Method, OutboundAnswer, OutboundFailure, OutboundRequest};

use crate::app::App;
use crate::locality;
use crate::webhooks::signature::Signer;

/// The result of an exchange.
pub(crate) struct Exchange {
    /// As it is kept.
    pub(crate) attempt: Attempt,
    /// As it came.
    pub(crate) answer: Result<OutboundAnswer, OutboundFailure>,
    /// For how many milliseconds the endpoint wants to be left alone, if it says so.
    pub(crate) retry_after: Option<i64>,
}

/// Sends an event to its platform's endpoint once.
pub(crate) async fn exchange(
    app: &App,
    platform: &Platform,
    signer: &Signer,
    event: &Event,
    within: Duration,
) -> Exchange {
    let (at, started) = (app.now(platform.ahead), app.uptime());
    let answer = match platform.webhook_endpoint.clone() {
        Some(url) => {
            let request = OutboundRequest {
                method: Method::Post,
                url,
                reach: locality::reach(app, platform),
                // Receivers compare with the time on their own clocks, whatever the platform's
                // shows, and whatever records have.
                headers: signer.headers(event, app.machine_now()),
                body: event.body.clone(),
                within,
            };
            app.env().outbound.send(request).await
        }
        None => Err(OutboundFailure::Refused("the platform has no endpoint".to_owned())),
    };
    let took = app.uptime().saturating_sub(started);
    let millis = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
    metrics::histogram!("switchyard_webhook_attempt_seconds").record(took);
    let (mut peer, mut retry_after) = (None, None);
    let outcome = match &answer {
        Ok(answer) => {
            peer = answer.peer;
            let asked = answer.retry_after.map(|asked| asked.delay(app.machine_now()).as_millis());
            retry_after = asked.map(|millis| i64::try_from(millis).unwrap_or(i64::MAX));
            let kept = delivery::ANSWER_MAX.min(app.env().answer_bytes_shown());
            let body = answer.body.iter().copied().take(kept).collect();
            Outcome::Answered { status: answer.status, body }
        }
        Err(OutboundFailure::Refused(why)) => Outcome::Refused(why.clone()),
        Err(OutboundFailure::Unreachable) => Outcome::Unreachable,
        Err(OutboundFailure::TimedOut) => Outcome::TimedOut,
    };
    Exchange { attempt: Attempt { at, millis, peer, outcome }, answer, retry_after }
}
