//! A journal in memory, whose answers can be lost and whose last rows can go, as those of a server
//! can. It keeps the rules of the real ones, so that the commit path is tested without them.

use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::{AppendError, Appended, Journal, Leader, Leadership, Row};
use crate::error::StoreError;

/// A fault of the next append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not arrive, and no answer comes.
    LosesRequest,
    /// It takes effect, and no answer comes.
    LosesAnswer,
    /// There is no room.
    IsFull,
}

/// A connection to a journal that is gone with its process. Clones are connections to the same.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    rows: Vec<Row>,
    leadership: Option<Leadership>,
    fault: Option<Fault>,
}

impl MemoryJournal {
    /// Lets the next append fail.
    pub fn fail(&self, fault: Fault) {
        self.0.lock().fault = Some(fault);
    }

    /// Loses its last rows, as a failover to a standby does that had not got them.
    pub fn lose(&self, rows: usize) {
        let state = &mut *self.0.lock();
        state.rows.truncate(state.rows.len().saturating_sub(rows));
    }
}

impl State {
    fn append(&mut self, leader: Leader, rows: &[Row]) -> Result<Appended, AppendError> {
        let Some(first) = rows.first() else { return Ok(Appended::Now) };
        let at = usize::try_from(first.seq - 1).map_err(|_| AppendError::Deposed)?;
        if self.rows.get(at..at + rows.len()) == Some(rows) {
            return Ok(Appended::Before);
        }
        let last = self.rows.last().map(|row| row.hash);
        let follows = self.rows.len() == at && last.is_none_or(|hash| hash == first.previous);
        if self.leadership.map(|it| it.leader) != Some(leader) || !follows {
            return Err(AppendError::Deposed);
        }
        self.rows.extend_from_slice(rows);
        Ok(Appended::Now)
    }
}

impl Journal for MemoryJournal {
    fn append(&mut self, leader: Leader, rows: &[Row]) -> Result<Appended, AppendError> {
        let state = &mut *self.0.lock();
        let lost = || AppendError::Lost("the connection was lost".to_owned());
        match state.fault.take() {
            None => state.append(leader, rows),
            Some(Fault::LosesRequest) => Err(lost()),
            Some(Fault::LosesAnswer) => state.append(leader, rows).and(Err(lost())),
            Some(Fault::IsFull) => Err(StoreError::DiskFull.into()),
        }
    }

    fn take_over(
        &mut self,
        seen: Option<Leadership>,
        holder: Uuid,
    ) -> Result<Option<Leader>, StoreError> {
        let state = &mut *self.0.lock();
        if state.leadership != seen {
            return Ok(None);
        }
        let leader = Leader { epoch: seen.map_or(0, |seen| seen.leader.epoch) + 1, holder };
        state.leadership = Some(Leadership { leader, beat: 0 });
        Ok(Some(leader))
    }

    fn renew(&mut self, leader: Leader) -> Result<bool, StoreError> {
        let state = &mut *self.0.lock();
        let own = state.leadership.as_mut().filter(|found| found.leader == leader);
        Ok(own.map(|found| found.beat += 1).is_some())
    }

    fn leadership(&mut self) -> Result<Option<Leadership>, StoreError> {
        Ok(self.0.lock().leadership)
    }

    fn rows(&mut self, after: u64, max: u32) -> Result<Vec<Row>, StoreError> {
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        Ok(self.0.lock().rows.iter().skip(after).take(max as usize).cloned().collect())
    }
}
