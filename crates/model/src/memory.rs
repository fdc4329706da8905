//! One server: a journal that is the truth, tables that follow it, and a memtable between the two.
//!
//! 1. **Projection.** The memtable is a chain of generations. The projector seals one at row
//!    `n`, writes exactly the fold of the rows up to `n` together with `applied = n`, and only
//!    then drops the generation (`base = n`). It writes nothing unless the tables stand where it
//!    left them.
//! 2. **Admission.** A row that was read from a table, or its absence, counts for a unit only if
//!    the memtable has no entry for its key and `base <= applied` of the snapshot that it was read
//!    from. Else it is read again.
//! 3. **Reads.** By key: the memtable, and on a miss a snapshot that is opened afterwards. A
//!    snapshot with `applied < base` says that the database went back: the memory is dropped and
//!    begins from the journal. A list waits until the tables have what was committed when it came.
//!
//! A payment has a key under which it is made once, and takes one from a balance.

use stateright::{Model, Property};

/// The balance at the beginning: more than all payments, so that none is refused for it.
const BALANCE: u8 = 9;

/// The keys of the requests. One comes twice: a client repeats what it has no answer to.
const REQUESTS: [u8; 3] = [1, 1, 2];

/// The key that is read.
const READ: u8 = 1;

/// A rule that is taken out, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// All rules hold.
    Nothing,
    /// Rows that were read from a table count whenever the memtable has no entry.
    Admission,
    /// A snapshot is opened before the memtable is looked at.
    OrderOfReads,
    /// Lists do not wait for the tables.
    Barrier,
    /// A step writes the newest states of the records in its generation.
    Fold,
    /// The server does not notice that the database went back.
    Applied,
}

/// A row of the journal: a payment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    /// The key of its request.
    pub key: u8,
    /// The balance after it.
    pub balance: u8,
}

/// The tables.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tables {
    /// Rows of the journal that they follow.
    pub applied: usize,
    balance: u8,
    keys: Vec<u8>,
}

impl Tables {
    /// The fold of the first rows of a journal.
    fn of(journal: &[Row], applied: usize) -> Self {
        let rows = &journal[..applied];
        let mut keys: Vec<_> = rows.iter().map(|row| row.key).collect();
        keys.sort_unstable();
        Self { applied, balance: rows.last().map_or(BALANCE, |row| row.balance), keys }
    }
}

/// The generation that the projector works on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sealed {
    at: usize,
    is_written: bool,
}

/// The way of a request through the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// It waits, and nothing is known for it.
    Waiting,
    /// Its rows were read from the tables, in a snapshot.
    Fetched(Tables),
    /// It was answered: whether it made the payment, or another had.
    Answered {
        /// Whether it made the payment.
        is_new: bool,
    },
}

/// The way of a read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    /// It has not come.
    Ahead,
    /// It has come.
    Arrived {
        /// Rows of the journal then.
        end: usize,
        /// Whether the payment was among them.
        must_see: bool,
    },
    /// It has looked at the memtable and found nothing.
    Missed {
        /// Whether the payment was there when it came.
        must_see: bool,
    },
    /// It has read a snapshot before it looks at the memtable.
    HasSnapshot {
        /// Whether the payment was there when it came.
        must_see: bool,
        /// Whether the snapshot has it.
        found: bool,
    },
    /// It was answered.
    Answered {
        /// Whether the payment was there when it came.
        must_see: bool,
        /// Whether the answer has it.
        found: bool,
    },
}

/// The state of the server and its database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    journal: Vec<Row>,
    tables: Tables,
    /// The tables before the last step, as long as a failover may bring them back.
    before: Option<Tables>,
    has_gone_back: bool,
    base: usize,
    sealed: Option<Sealed>,
    requests: Vec<Request>,
    get: Read,
    list: Read,
}

/// A step of any of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Rows for a request are read from the tables.
    Fetch(usize),
    /// A request runs, is committed and answered.
    Run(usize),
    /// The projector seals the generation.
    Seal,
    /// The projector writes it to the tables.
    Project,
    /// The projector drops it from the memtable.
    Drop,
    /// A failover to a standby takes the last step of the projector back. The journal is whole.
    GoBack,
    /// A read by key comes.
    GetArrives,
    /// It looks at the memtable.
    GetLooks,
    /// It opens a snapshot.
    GetReads,
    /// A list comes.
    ListArrives,
    /// It opens a snapshot.
    ListReads,
}

/// The model of one server.
pub struct Server {
    /// The rule that is taken out.
    pub without: Without,
}

impl State {
    /// Whether the memtable has an entry under this key.
    fn remembers(&self, key: u8) -> bool {
        self.journal[self.base..].iter().any(|row| row.key == key)
    }

    fn sees(&self, key: u8) -> bool {
        self.journal.iter().any(|row| row.key == key)
    }

    /// The database went back: everything in memory is dropped, and begins from the journal.
    fn restart(&mut self) {
        self.base = self.tables.applied;
        self.sealed = None;
        for request in &mut self.requests {
            if matches!(request, Request::Fetched(_)) {
                *request = Request::Waiting;
            }
        }
        if let Read::Missed { must_see } = self.get {
            self.get = Read::Arrived { end: 0, must_see };
        }
    }
}

impl Server {
    /// The tables as a snapshot shows them, unless it shows that the database went back.
    fn snapshot(&self, state: &mut State) -> Option<Tables> {
        if state.tables.applied < state.base && self.without != Without::Applied {
            state.restart();
            return None;
        }
        Some(state.tables.clone())
    }

    /// Whether rows of a snapshot count for a unit where the memtable has no entry.
    fn admits(&self, state: &State, snapshot: &Tables) -> bool {
        self.without == Without::Admission || state.base <= snapshot.applied
    }

    fn run(&self, state: &mut State, number: usize) {
        let Request::Fetched(fetched) = state.requests[number].clone() else { return };
        let key = REQUESTS[number];
        let remembered = state.journal[state.base..].last().map(|row| row.balance);
        let needs_tables = !state.remembers(key) || remembered.is_none();
        if needs_tables && !self.admits(state, &fetched) {
            state.requests[number] = Request::Waiting;
            return;
        }
        let is_new = !state.remembers(key) && !fetched.keys.contains(&key);
        if is_new {
            let balance = remembered.unwrap_or(fetched.balance) - 1;
            state.journal.push(Row { key, balance });
        }
        state.requests[number] = Request::Answered { is_new };
    }

    fn project(&self, state: &mut State) {
        // The first statement of a step: the tables stand where the last one left them.
        if state.tables.applied != state.base && self.without != Without::Applied {
            state.restart();
            return;
        }
        let Some(sealed) = &mut state.sealed else { return };
        let mut tables = Tables::of(&state.journal, sealed.at);
        if self.without == Without::Fold {
            tables.balance = state.journal.last().map_or(BALANCE, |row| row.balance);
        }
        sealed.is_written = true;
        state.before = Some(std::mem::replace(&mut state.tables, tables));
    }

    fn get_looks(&self, state: &mut State) {
        state.get = match state.get {
            Read::Arrived { must_see, .. } if state.remembers(READ) => {
                Read::Answered { must_see, found: true }
            }
            Read::Arrived { must_see, .. } => Read::Missed { must_see },
            Read::HasSnapshot { must_see, found } => {
                Read::Answered { must_see, found: found || state.remembers(READ) }
            }
            _ => return,
        };
    }

    fn get_reads(&self, state: &mut State) {
        let Some(tables) = self.snapshot(state) else { return };
        let found = tables.keys.contains(&READ);
        state.get = match state.get {
            Read::Arrived { must_see, .. } => Read::HasSnapshot { must_see, found },
            Read::Missed { must_see } => Read::Answered { must_see, found },
            _ => return,
        };
    }

    fn list_reads(&self, state: &mut State) {
        let Some(tables) = self.snapshot(state) else { return };
        let Read::Arrived { end, must_see } = state.list else { return };
        if tables.applied >= end || self.without == Without::Barrier {
            state.list = Read::Answered { must_see, found: tables.keys.contains(&READ) };
        }
    }

    fn read_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let snapshot_first = self.without == Without::OrderOfReads;
        match state.get {
            Read::Ahead => actions.push(Action::GetArrives),
            Read::Arrived { .. } if snapshot_first => actions.push(Action::GetReads),
            Read::Arrived { .. } | Read::HasSnapshot { .. } => actions.push(Action::GetLooks),
            Read::Missed { .. } => actions.push(Action::GetReads),
            Read::Answered { .. } => {}
        }
        match state.list {
            Read::Ahead => actions.push(Action::ListArrives),
            Read::Arrived { .. } => actions.push(Action::ListReads),
            _ => {}
        }
    }
}

impl Model for Server {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            journal: Vec::new(),
            tables: Tables::of(&[], 0),
            before: None,
            has_gone_back: false,
            base: 0,
            sealed: None,
            requests: vec![Request::Waiting; REQUESTS.len()],
            get: Read::Ahead,
            list: Read::Ahead,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, request) in state.requests.iter().enumerate() {
            match request {
                Request::Waiting => actions.push(Action::Fetch(number)),
                Request::Fetched(_) => actions.push(Action::Run(number)),
                Request::Answered { .. } => {}
            }
        }
        match &state.sealed {
            None if state.base < state.journal.len() => actions.push(Action::Seal),
            None => {}
            Some(Sealed { is_written: false, .. }) => actions.push(Action::Project),
            Some(_) => actions.push(Action::Drop),
        }
        if state.before.is_some() && !state.has_gone_back {
            actions.push(Action::GoBack);
        }
        self.read_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let (end, must_see) = (state.journal.len(), state.sees(READ));
        match action {
            Action::Fetch(number) => {
                if let Some(tables) = self.snapshot(&mut state) {
                    state.requests[number] = Request::Fetched(tables);
                }
            }
            Action::Run(number) => self.run(&mut state, number),
            Action::Seal => state.sealed = Some(Sealed { at: end, is_written: false }),
            Action::Project => self.project(&mut state),
            Action::Drop => {
                state.base = state.sealed.take()?.at;
            }
            Action::GoBack => {
                state.tables = state.before.take()?;
                state.has_gone_back = true;
            }
            Action::GetArrives => state.get = Read::Arrived { end, must_see },
            Action::GetLooks => self.get_looks(&mut state),
            Action::GetReads => self.get_reads(&mut state),
            Action::ListArrives => state.list = Read::Arrived { end, must_see },
            Action::ListReads => self.list_reads(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PAID_ONCE, |_, state: &State| {
                let rows = &state.journal;
                (0..rows.len()).all(|at| rows[at + 1..].iter().all(|row| row.key != rows[at].key))
            }),
            Property::always(BALANCE_IS_FOLD, |_, state: &State| {
                let fold = |at: usize| usize::from(BALANCE) - at - 1;
                let rows = state.journal.iter().enumerate();
                rows.into_iter().all(|(at, row)| usize::from(row.balance) == fold(at))
            }),
            Property::always(READS_SEE, |_, state: &State| {
                [&state.get, &state.list]
                    .iter()
                    .all(|read| !matches!(read, Read::Answered { must_see: true, found: false }))
            }),
            Property::always(TABLES_ARE_FOLD, |_, state: &State| {
                state.tables == Tables::of(&state.journal, state.tables.applied)
            }),
            Property::sometimes("a repeated request gets the first answer", |_, state: &State| {
                state.requests.contains(&Request::Answered { is_new: false })
            }),
            Property::sometimes("everything is projected", |_, state: &State| {
                state.base == 2 && state.tables.applied == 2
            }),
            Property::sometimes("a read by key sees a payment", |_, state: &State| {
                matches!(state.get, Read::Answered { must_see: true, found: true })
            }),
            Property::sometimes("a list sees a payment after a failover", |_, state: &State| {
                let sees = matches!(state.list, Read::Answered { must_see: true, found: true });
                state.has_gone_back && sees
            }),
        ]
    }
}

/// No key is in the journal twice.
pub const PAID_ONCE: &str = "a payment is made once";
/// Each balance follows from the rows before it.
pub const BALANCE_IS_FOLD: &str = "a balance is the fold of its entries";
/// A read that came after an answer sees what was answered.
pub const READS_SEE: &str = "a read sees what was acknowledged";
/// The tables are the fold of the rows that they say they follow.
pub const TABLES_ARE_FOLD: &str = "the tables are the fold of the journal";

#[cfg(test)]
mod tests {
    use stateright::Checker as _;

    use super::*;

    fn broken(without: Without, property: &'static str) {
        let checker = Server { without }.checker().spawn_bfs().join();
        let path = checker.assert_any_discovery(property);
        println!("without {without:?}, {property:?} breaks after: {:?}", path.into_actions());
    }

    #[test]
    fn the_rules_hold() {
        let checker = Server { without: Without::Nothing }.checker().spawn_bfs().join();
        println!("{} states", checker.unique_state_count());
        checker.assert_properties();
    }

    #[test]
    fn without_admission_a_payment_is_made_twice() {
        broken(Without::Admission, PAID_ONCE);
        broken(Without::Admission, BALANCE_IS_FOLD);
    }

    #[test]
    fn in_the_other_order_a_read_is_stale() {
        broken(Without::OrderOfReads, READS_SEE);
    }

    #[test]
    fn without_the_barrier_a_list_is_stale() {
        broken(Without::Barrier, READS_SEE);
    }

    #[test]
    fn a_step_that_writes_newer_states_makes_tables_that_never_were() {
        broken(Without::Fold, TABLES_ARE_FOLD);
    }

    #[test]
    fn a_database_that_went_back_is_noticed() {
        broken(Without::Applied, READS_SEE);
    }
}
