//! Approval requests: the call that lets a platform decide on an incoming payment (contract 7.3;
//! reliability 5.3).
//!
//! It carries the event of the payment, signed like every delivery. It is made once, by the server
//! that committed the payment and as soon as it is committed, beside the deliveries and their
//! retries, which can never delay it. A request that a crash has lost is not sent again: the
//! payment's deadline passes, and without an answer nothing is approved.

use std::time::Duration;

use domain::approval::{Approval, Event as Decision};
use domain::event::Event;
use domain::id::TransactionId;
use domain::platform::Platform;
use domain::transaction::Transaction;
use ports::outbound::{OutboundAnswer, OutboundFailure};
use store::origin::Actor;

use crate::app::App;
use crate::error::{Error, TransactionError};
use crate::presenter::ApprovalAnswer;
use crate::webhooks::exchange::{Exchange, exchange};
use crate::webhooks::signature::Signer;
use crate::{incoming, owners, webhooks};

/// Sends an approval request, and decides as its answer says if that still counts. `request` is the
/// event of the payment as it was committed. A failure here leaves the payment to its deadline.
pub async fn send(app: &App, request: Event) {
    let app = &app.acting_for(Actor::job("REQUEST_APPROVAL"), None);
    let id = TransactionId::from_uuid(request.resource);
    let slots = app.approval_slots().of(request.platform);
    let _slot = slots.acquire().await;
    match send_now(app, request).await {
        Ok(()) => {}
        Err(Error::Transaction(TransactionError::NotPendingApproval { status, .. })) => {
            let status = status.name();
            tracing::info!(transaction = %id, status, "an answer came too late and is ignored");
        }
        Err(error) => {
            tracing::error!(transaction = %id, %error, "a platform's answer could not be kept");
        }
    }
}

async fn send_now(app: &App, request: Event) -> Result<(), Error> {
    let (id, platform) = (TransactionId::from_uuid(request.resource), request.platform);
    let store = app.store();
    let found = tokio::try_join!(store.get::<Platform>(platform), store.get::<Approval>(id));
    let (Some(platform), Some(approval)) = found.map_err(Error::Store)? else { return Ok(()) };
    let now = app.now(platform.ahead);
    if !approval.is_open(now) {
        return app
            .write(move |unit| webhooks::record_approval_request(unit, &request, None, now))
            .await;
    }
    let left = approval.decide_by().millis().saturating_sub(now.millis());
    let (signer, left) =
        (Signer::of(app, &platform, now), Duration::from_millis(left.unsigned_abs()));
    let Exchange { attempt, answer, .. } = exchange(app, &platform, &signer, &request, left).await;
    let (received_at, platform) = (app.server_now(), platform.id);
    let said = match &answer {
        Ok(answer) => app.env().presenter.approval_answer(&answer.body),
        Err(_) => ApprovalAnswer::default(),
    };
    let status = answer.as_ref().map_or(0, |answer| answer.status);
    let failure = answer.as_ref().err().map(ToString::to_string);
    let decision = decision(&answer, &said);
    tracing::info!(transaction = %id, status, failure, decision = decision.name(), "asked");
    let unit_app = app.clone();
    app.write(move |unit| {
        let now = owners::platform(unit, platform)?.ahead.shows(received_at);
        let (decision, receiver) = (decision.clone(), &said.receiver);
        let decided = incoming::decide(&unit_app, unit, platform, id, decision, receiver, now);
        if let Err(error) = &decided {
            if error.is_failure() {
                return Err(error.clone());
            }
            unit.discard();
        }
        // Also what came too late has been attempted.
        webhooks::record_approval_request(unit, &request, Some(&attempt), now)?;
        Ok(decided.map(drop::<Transaction>))
    })
    .await?
}

/// The decision of an answer (contract 7.3). A 409 is an error too: this is the first request.
fn decision(answer: &Result<OutboundAnswer, OutboundFailure>, said: &ApprovalAnswer) -> Decision {
    match answer.as_ref().map(|answer| answer.status) {
        Ok(200) if said.has_shape => Decision::AnsweredYes,
        Ok(202) => Decision::PutOff,
        Ok(403) => Decision::AnsweredNo(said.reason.clone()),
        Ok(422) => Decision::AnsweredIncomplete(said.required_fields.clone()),
        Ok(_) | Err(OutboundFailure::Refused(_) | OutboundFailure::Unreachable) => Decision::Failed,
        Err(OutboundFailure::TimedOut) => Decision::TimedOut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_decides_as_the_contract_says() {
        let (reason, fields) = (Some("NO".to_owned()), vec!["TAX_ID"]);
        let said = ApprovalAnswer {
            has_shape: true,
            reason: reason.clone(),
            required_fields: fields.clone(),
            ..ApprovalAnswer::default()
        };
        for status in 100..=999 {
            let body = Vec::new();
            let answer = Ok(OutboundAnswer { status, body, retry_after: None, peer: None });
            let expected = match status {
                200 => Decision::AnsweredYes,
                202 => Decision::PutOff,
                403 => Decision::AnsweredNo(reason.clone()),
                422 => Decision::AnsweredIncomplete(fields.clone()),
                _ => Decision::Failed,
            };
            assert_eq!(decision(&answer, &said), expected, "{status}");
            // A body that is not as documented approves nothing.
            let misshapen = ApprovalAnswer { has_shape: false, ..said.clone() };
            let expected = if status == 200 { Decision::Failed } else { expected };
            assert_eq!(decision(&answer, &misshapen), expected, "{status}");
        }
        for (failure, expected) in [
            (OutboundFailure::Refused("10.0.0.1".to_owned()), Decision::Failed),
            (OutboundFailure::Unreachable, Decision::Failed),
            (OutboundFailure::TimedOut, Decision::TimedOut),
        ] {
            assert_eq!(decision(&Err(failure), &said), expected);
        }
    }
}
