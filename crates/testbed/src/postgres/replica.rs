//! A standby that follows a cluster, and failing over to it.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::binaries;
use super::cluster::{Cluster, Shutdown};
use super::server::Server;
use crate::wait;

/// A standby that was just copied has nothing to catch up with: less than a second.
const STREAMING_WITHIN: Duration = Duration::from_secs(60);

/// Whether a commit waits for the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// A commit is acknowledged when the standby has it on its disk too: failing over loses
    /// nothing, and nothing is acknowledged while the standby is away.
    Synchronous,
    /// A commit does not wait: failing over loses what was not sent yet.
    Asynchronous,
}

/// A standby: it can be read, and takes over when it is [promoted](Self::promote).
#[derive(Debug)]
pub struct Replica {
    cluster: Cluster,
}

impl Cluster {
    /// A standby of this cluster on a port of its own. It has everything and follows when this
    /// returns; with [`Replication::Synchronous`] commits wait for it from then on.
    ///
    /// # Errors
    ///
    /// If this cluster does not run or the standby does not start.
    pub fn replica(&self, replication: Replication) -> Result<Replica> {
        let mut standby = Cluster::prepare(self.binaries().clone(), &[])?;
        let name = format!("standby_{}", standby.port());
        let source = format!("{}?application_name={name}", self.server().url_of(""));
        let mut command = standby.command("pg_basebackup");
        command.arg("--pgdata").arg(standby.data()).args(["--dbname", &source]);
        // The slot keeps the log for a standby that is away for a while.
        command.args(["--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast"]);
        // As in a new cluster, the first files need not be safe: they are still at the source.
        command.args(["--create-slot", "--slot", &name, "--no-sync"]);
        binaries::output(command).context("copying the cluster")?;
        standby.start_first()?;
        let state = match replication {
            Replication::Synchronous => {
                self.set("synchronous_standby_names", &name)?;
                "streaming|sync"
            }
            Replication::Asynchronous => "streaming|async",
        };
        let sql = format!(
            "select state, sync_state from pg_stat_replication where application_name = '{name}'"
        );
        wait::until("the standby follows", STREAMING_WITHIN, || {
            Ok((self.server().query(&sql)? == state).then_some(()))
        })?;
        Ok(Replica { cluster: standby })
    }
}

impl Replica {
    /// Where it is reached, for reading.
    pub fn server(&self) -> &Server {
        self.cluster.server()
    }

    /// Makes it a primary on a new timeline; it takes writes when this returns. Fence the old
    /// primary first by [killing](Cluster::kill) it, or both take writes.
    ///
    /// # Errors
    ///
    /// If it does not run or does not end its recovery.
    pub fn promote(self) -> Result<Cluster> {
        let promoted = self.cluster.server().query("select pg_promote()")?;
        anyhow::ensure!(promoted == "t", "the standby was not promoted within a minute");
        Ok(self.cluster)
    }

    /// Ends the standby as `shutdown` says; a synchronous primary acknowledges nothing until it
    /// was [resumed](Self::resume).
    ///
    /// # Errors
    ///
    /// If it does not run or does not end.
    pub fn stop(&mut self, shutdown: Shutdown) -> Result<()> {
        self.cluster.stop(shutdown)
    }

    /// Starts the standby again; it catches up by itself.
    ///
    /// # Errors
    ///
    /// If it runs already or does not start.
    pub fn resume(&mut self) -> Result<()> {
        self.cluster.resume()
    }
}
