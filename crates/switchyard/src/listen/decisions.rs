//! The answers of `listen` to approval requests: the platform's endpoint puts them off, and this
//! client approves or rejects the payment, as a platform may that decides later.
//!
//! A platform without an endpoint is not asked. For as long as this runs it has one on this
//! machine, which only puts off.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{Refusal, Server};
use crate::command::{Failure, print};
use crate::config::Decision;

/// Where it puts off. One that an earlier run has left behind is known by it.
const PATH: &str = "/switchyard-listen";

/// A fact about the person who is paid, where the payer's side insists on one.
const FACTS: [(&str, &str); 5] = [
    ("FULL_NAME", "Ada Lovelace"),
    ("BIRTH_DATE", "1985-12-10"),
    ("NATIONALITY", "GB"),
    ("COUNTRY_OF_RESIDENCE", "GB"),
    ("EMAIL", "ada@example.com"),
];

/// The value of every other fact.
const ANY_FACT: &str = "sandbox";

/// Decides about incoming payments.
pub(super) struct Decider {
    decision: Decision,
    /// The endpoint that it has made, if the platform had none.
    endpoint: Option<Endpoint>,
}

impl Decider {
    /// Sees to it that the platform is asked.
    pub(super) async fn begin(server: &Server, decision: Decision) -> Result<Self, Failure> {
        // Money that is real is never approved by a program that has not looked at it.
        let _: Value = server.patiently("/sandbox/clock").await?;
        let config: Value = server.patiently("/config").await?;
        let endpoint = match config["webhookEndpoint"].as_str() {
            Some(url) if !is_left_behind(url) => {
                print(&format!(
                    "Approval requests are {decision} if the platform's endpoint puts them off \
                     with 202: {url}\n"
                ))?;
                None
            }
            Some(_) | None => {
                let endpoint = Endpoint::open().await?;
                set_endpoint(server, &json!(endpoint.url())).await?;
                print(&format!(
                    "The platform has no endpoint of its own: until this ends, approval requests \
                     come here and are {decision}\n"
                ))?;
                Some(endpoint)
            }
        };
        Ok(Self { decision, endpoint })
    }

    /// Takes away the endpoint that it has made.
    pub(super) async fn end(self, server: &Server) -> Result<(), Failure> {
        match self.endpoint {
            Some(_) => set_endpoint(server, &Value::Null).await,
            None => Ok(()),
        }
    }

    /// Decides, if this is an approval request. Says what came of it.
    pub(super) async fn decide(
        &self,
        server: &Server,
        event: &Value,
    ) -> Result<Option<String>, Failure> {
        let payment = &event["data"];
        let (Some(asked), Some(id)) =
            (payment["requestedReceiverCustomerInfoFields"].as_array(), payment["id"].as_str())
        else {
            return Ok(None);
        };
        let (verb, body) = match self.decision {
            Decision::Approved => ("approve", json!({ "receiverCustomerInfo": facts(asked) })),
            Decision::Rejected => ("reject", json!({})),
        };
        let path = format!("/transactions/{id}/{verb}");
        let said = match server.ask::<Value>(Method::POST, &path, Some(&body)).await {
            Ok(_) => self.decision.to_string(),
            // Another decision came first, or the time was over.
            Err(Refusal::Passing(why)) => format!("not {}: {why}", self.decision),
            Err(Refusal::Final(failure)) => format!("not {}: {failure}", self.decision),
        };
        Ok(Some(said))
    }
}

/// The facts that are insisted on.
fn facts(asked: &[Value]) -> Map<String, Value> {
    let mandatory = asked.iter().filter(|field| field["mandatory"] == true);
    let fact = |name: &str| {
        let known = FACTS.iter().find(|(known, _)| *known == name);
        known.map_or(ANY_FACT, |(_, value)| value)
    };
    let named = mandatory.filter_map(|field| field["name"].as_str());
    named.map(|name| (name.to_owned(), json!(fact(name)))).collect()
}

/// Whether an endpoint is one of an earlier run that was killed.
fn is_left_behind(url: &str) -> bool {
    let rest = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix(PATH));
    rest.and_then(|rest| rest.parse::<SocketAddr>().ok()).is_some_and(|it| it.ip().is_loopback())
}

async fn set_endpoint(server: &Server, url: &Value) -> Result<(), Failure> {
    let body = json!({ "webhookEndpoint": url });
    match server.ask::<Value>(Method::PATCH, "/config", Some(&body)).await {
        Ok(_) => Ok(()),
        Err(Refusal::Passing(why)) => {
            Err(Failure::new(format!("the platform's endpoint cannot be changed now: {why}")))
        }
        Err(Refusal::Final(failure)) => Err(failure),
    }
}

/// An endpoint on this machine, until it is dropped.
struct Endpoint {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Endpoint {
    async fn open() -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("this machine cannot be listened on: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let router = Router::new().route(PATH, post(async || StatusCode::ACCEPTED));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the endpoint on this machine has ended");
            }
        });
        Ok(Self { address, server })
    }

    fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.abort();
    }
}
