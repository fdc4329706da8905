//! The leader as a forwarding server sees it: its name is checked before the first request, and
//! again after a failure.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use service::leadership::Leader;
use tokio::time::{Instant, timeout};

use super::{Forwarder, NAME_MAX, NAME_TIMEOUT, PAUSE, now, uri_at};

/// The leader as this server sees it.
pub(super) struct Peer {
    leader: Arc<Leader>,
    pub(super) trust: Trust,
    /// Whether it is being asked for its name.
    is_asked: bool,
    /// Until when nothing more is forwarded to it.
    paused_until: Option<Instant>,
}

impl Peer {
    pub(super) fn pause(&mut self) {
        self.paused_until = Some(now() + PAUSE);
    }
}

#[derive(Clone, Copy)]
pub(super) enum Trust {
    /// It has not said its name, or not since a request to it failed.
    New,
    /// It has said its name.
    Known,
    /// It was unreachable, or was another one.
    Not,
}

impl Forwarder {
    /// The leader, if it has said its name. One that has not is asked meanwhile.
    pub(super) fn destination(self: &Arc<Self>) -> Option<Arc<Leader>> {
        let leader = self.this.elsewhere().filter(|leader| leader.address.is_some())?;
        let mut peer = self.peer();
        if peer.as_ref().is_none_or(|known| known.leader != leader) {
            let leader = Arc::clone(&leader);
            *peer = Some(Peer { leader, trust: Trust::New, is_asked: false, paused_until: None });
        }
        let known = peer.as_mut()?;
        if known.paused_until.is_some_and(|until| now() < until) {
            return None;
        }
        if matches!(known.trust, Trust::Known) {
            return Some(leader);
        }
        self.ask_for_name(known);
        None
    }

    /// Asks a server for its name, unless it is being asked.
    fn ask_for_name(self: &Arc<Self>, peer: &mut Peer) {
        if std::mem::replace(&mut peer.is_asked, true) {
            return;
        }
        let (forwarder, leader) = (Arc::clone(self), Arc::clone(&peer.leader));
        tokio::spawn(async move {
            let name = timeout(NAME_TIMEOUT, forwarder.name_of(&leader)).await.ok().flatten();
            let is_it = name.is_some_and(|name| name == leader.server);
            let is_lost = forwarder.of(&leader, |peer| {
                peer.is_asked = false;
                if is_it {
                    peer.trust = Trust::Known;
                    return false;
                }
                peer.pause();
                !matches!(std::mem::replace(&mut peer.trust, Trust::Not), Trust::Not)
            });
            if is_lost == Some(true) {
                tracing::warn!(
                    server = leader.server,
                    "the leader is unreachable at its address, so that changes are executed here: \
                     see --peer-url if this goes on"
                );
            }
        });
    }

    /// Reads or changes the state of a server, unless another one leads by now.
    pub(super) fn of<T>(
        &self,
        leader: &Arc<Leader>,
        change: impl FnOnce(&mut Peer) -> T,
    ) -> Option<T> {
        self.peer().as_mut().filter(|peer| peer.leader == *leader).map(change)
    }

    /// Whether an answer that is late can still come. A server that hangs does not
    /// renew its lease, and does not tell its name before that.
    pub(super) fn may_still_answer(self: &Arc<Self>, leader: &Arc<Leader>) -> bool {
        let is_there = self.of(leader, |peer| {
            self.ask_for_name(peer);
            !matches!(peer.trust, Trust::Not)
        });
        is_there == Some(true) && self.this.elsewhere().as_ref() == Some(leader)
    }

    /// The name of the server at an address.
    async fn name_of(&self, leader: &Leader) -> Option<String> {
        let uri = uri_at(leader, "/peer")?;
        let answer = self.client.get(uri).await.ok()?;
        let bytes = to_bytes(Body::new(answer.into_body()), NAME_MAX).await.ok()?;
        let body: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        Some(body["server"].as_str()?.to_owned())
    }
}
