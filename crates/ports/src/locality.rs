//! Whether only this machine reaches the server, and what follows for its own requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::outbound::Reach;

/// A latch that says whether only this machine reaches the server. Clones share it.
///
/// It begins as the configuration says. The first sign of a client elsewhere ends it for the life
/// of the process, so it is asked anew at each use and never kept as a value.
#[derive(Debug, Clone)]
pub struct Locality(Arc<AtomicBool>);

impl Locality {
    /// A server that only its own machine reaches, or not.
    pub fn new(is_local: bool) -> Self {
        Self(Arc::new(AtomicBool::new(is_local)))
    }

    /// Whether only this machine reaches the server, as far as it knows by now.
    pub fn is_local(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that others reach the server. Tells whether it was local until now.
    pub fn end(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Where requests of platforms may go whose money is not real.
#[derive(Debug, Clone)]
pub struct TestReach {
    locality: Locality,
    allows_private: bool,
}

impl TestReach {
    /// Private networks are reached while the server is local, or always if the operator allows it.
    pub const fn new(locality: Locality, allows_private: bool) -> Self {
        Self { locality, allows_private }
    }

    /// How far a request may go that is sent now.
    pub fn now(&self) -> Reach {
        match self.allows_private || self.locality.is_local() {
            true => Reach::Private,
            false => Reach::Public,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_networks_are_reached_until_the_first_sign_of_others() {
        for (is_local, allows, before, after) in [
            (true, false, Reach::Private, Reach::Public),
            (true, true, Reach::Private, Reach::Private),
            (false, false, Reach::Public, Reach::Public),
            (false, true, Reach::Private, Reach::Private),
        ] {
            let locality = Locality::new(is_local);
            let reach = TestReach::new(locality.clone(), allows);
            assert_eq!(reach.now(), before);
            assert_eq!((locality.end(), locality.end()), (is_local, false));
            assert_eq!(reach.now(), after);
        }
    }
}
