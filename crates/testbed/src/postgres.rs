//! A real PostgreSQL: clusters of our own, and a fresh database for each test.
//!
//! A test that only needs a database takes [`Database::fresh`]. It is on the server that all tests
//! of a run share: `cargo xtask test` starts one and names it in [`SHARED_VARIABLE`]; without that
//! each test process starts its own, which costs about half a second. A test that breaks the
//! server starts a [`Cluster`].
//!
//! Every server listens on the loopback address only, lets everybody in, keeps its data in a
//! temporary folder, and goes away with the process that started it, however that ends.

mod binaries;
mod cluster;
mod keeper;
mod processes;
mod replica;
mod server;

pub use self::binaries::Binaries;
pub use self::cluster::{Cluster, Shutdown};
pub use self::replica::{Replica, Replication};
pub use self::server::{Database, SHARED_VARIABLE, Server, shared};
