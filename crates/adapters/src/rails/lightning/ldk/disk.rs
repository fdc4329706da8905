//! The files of the node: its channels and the outcomes of payments.
//!
//! A change of a channel leaves the node only after it is on the disk: first the manager, which
//! knows every change that is under way, then the monitor of the channel. In the other order the
//! library would close the channel after a crash between the two.

use std::io;
use std::mem;
use std::sync::Arc;

use bitcoin::BlockHash;
use lightning::chain::ChannelMonitorUpdateStatus;
use lightning::chain::chainmonitor::Persist;
use lightning::chain::channelmonitor::{ChannelMonitor, ChannelMonitorUpdate};
use lightning::ln::types::ChannelId;
use lightning::sign::{InMemorySigner, KeysManager};
use lightning::util::persist::{
    CHANNEL_MANAGER_PERSISTENCE_KEY, CHANNEL_MANAGER_PERSISTENCE_PRIMARY_NAMESPACE,
    CHANNEL_MANAGER_PERSISTENCE_SECONDARY_NAMESPACE, CHANNEL_MONITOR_PERSISTENCE_PRIMARY_NAMESPACE,
    CHANNEL_MONITOR_PERSISTENCE_SECONDARY_NAMESPACE, KVStoreSync, MonitorName,
    read_channel_monitors,
};
use lightning::util::ser::Writeable as _;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::parts::{Manager, Monitors};

/// A place for files that are whole or not there.
pub type Files = Arc<dyn KVStoreSync + Send + Sync>;

/// The node's files, and the changes of channels that are not in them yet.
pub(super) struct Disk {
    files: Files,
    changes: Mutex<Vec<Change>>,
    /// Left by the last attempt to save; held while one saves.
    unsaved: Mutex<Unsaved>,
}

/// A channel as it is after a change.
struct Change {
    name: MonitorName,
    channel: ChannelId,
    update: u64,
    monitor: Vec<u8>,
}

#[derive(Default)]
struct Unsaved {
    changes: Vec<Change>,
    has_manager: bool,
}

impl Disk {
    pub(super) fn new(files: Files) -> Self {
        Self { files, changes: Mutex::default(), unsaved: Mutex::default() }
    }

    /// The channels as they were saved.
    pub(super) fn monitors(
        &self,
        keys: &Arc<KeysManager>,
    ) -> io::Result<Vec<(BlockHash, ChannelMonitor<InMemorySigner>)>> {
        let monitors = read_channel_monitors(Arc::clone(&self.files), &**keys, &**keys);
        monitors.map_err(Into::into)
    }

    /// The manager as it was saved; nothing in a new folder.
    pub(super) fn manager(&self) -> io::Result<Option<Vec<u8>>> {
        self.read(
            CHANNEL_MANAGER_PERSISTENCE_PRIMARY_NAMESPACE,
            CHANNEL_MANAGER_PERSISTENCE_SECONDARY_NAMESPACE,
            CHANNEL_MANAGER_PERSISTENCE_KEY,
        )
    }

    /// Saves what has changed, and lets the messages go that waited for it. The next call saves
    /// whatever this one cannot.
    pub(super) fn save(&self, manager: &Manager, monitors: &Monitors) -> io::Result<()> {
        let mut unsaved = self.unsaved.lock();
        // The changes first: the manager that is written after that knows them all.
        unsaved.changes.append(&mut mem::take(&mut *self.changes.lock()));
        unsaved.has_manager |= manager.get_and_clear_needs_persistence();
        if unsaved.has_manager || !unsaved.changes.is_empty() {
            self.files.write(
                CHANNEL_MANAGER_PERSISTENCE_PRIMARY_NAMESPACE,
                CHANNEL_MANAGER_PERSISTENCE_SECONDARY_NAMESPACE,
                CHANNEL_MANAGER_PERSISTENCE_KEY,
                manager.encode(),
            )?;
            unsaved.has_manager = false;
        }
        while let Some(change) = unsaved.changes.first() {
            self.files.write(
                CHANNEL_MONITOR_PERSISTENCE_PRIMARY_NAMESPACE,
                CHANNEL_MONITOR_PERSISTENCE_SECONDARY_NAMESPACE,
                &change.name.to_string(),
                change.monitor.clone(),
            )?;
            let (channel, update) = (change.channel, change.update);
            unsaved.changes.remove(0);
            if monitors.channel_monitor_updated(channel, update).is_err() {
                tracing::warn!(%channel, "lightning node has no such channel any more");
            }
        }
        Ok(())
    }

    /// A value that was kept under this name.
    pub(super) fn get<T: DeserializeOwned>(
        &self,
        folder: &str,
        key: &str,
    ) -> io::Result<Option<T>> {
        let bytes = self.read(folder, "", key)?;
        bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from)).transpose()
    }

    /// Keeps a value; it is on the disk afterwards.
    pub(super) fn put<T: Serialize>(&self, folder: &str, key: &str, value: &T) -> io::Result<()> {
        let bytes = serde_json::to_vec(value)?;
        self.files.write(folder, "", key, bytes).map_err(Into::into)
    }

    fn read(&self, folder: &str, below: &str, key: &str) -> io::Result<Option<Vec<u8>>> {
        match self.files.read(folder, below, key) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == lightning::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn note(&self, name: MonitorName, update: u64, monitor: &ChannelMonitor<InMemorySigner>) {
        let (channel, monitor) = (monitor.channel_id(), monitor.encode());
        self.changes.lock().push(Change { name, channel, update, monitor });
    }
}

impl Persist<InMemorySigner> for Disk {
    fn persist_new_channel(
        &self,
        name: MonitorName,
        monitor: &ChannelMonitor<InMemorySigner>,
    ) -> ChannelMonitorUpdateStatus {
        self.note(name, monitor.get_latest_update_id(), monitor);
        ChannelMonitorUpdateStatus::InProgress
    }

    fn update_persisted_channel(
        &self,
        name: MonitorName,
        update: Option<&ChannelMonitorUpdate>,
        monitor: &ChannelMonitor<InMemorySigner>,
    ) -> ChannelMonitorUpdateStatus {
        let update = update.map_or_else(|| monitor.get_latest_update_id(), |it| it.update_id);
        self.note(name, update, monitor);
        ChannelMonitorUpdateStatus::InProgress
    }

    fn archive_persisted_channel(&self, _: MonitorName) {}
}
