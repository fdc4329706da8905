//! Two servers on one journal: one leads and appends, the other takes over.
//!
//! 1. **Append.** Rows are appended by one statement that takes effect only while the leadership
//!    row has the leader's epoch and holder, and the row before the first is the one that the
//!    leader knows. It may take effect long after it was sent.
//! 2. **Answers.** One batch at a time. Each unit of a batch is answered after the append, also one
//!    that only found the answer of another. If the append fails, none of the answers leaves.
//! 3. **A lost answer.** An append whose answer was lost is sent again, the same bytes. If its rows
//!    are there, the leader asks whether it still leads; then it answers.
//! 4. **Stepping down.** A leader whose append was refused forgets its memory. The edge repeats
//!    each request that was not answered, under the same key, at whichever server leads.
//! 5. **Reads.** A leader begins each read with the question whether it still leads.
//!
//! A server may be frozen at any point, and go on after another has taken over. It may crash while
//! its statement is on the way.

use stateright::{Model, Property};

/// The payments that clients want. The first client repeats its request by itself, so that the same
/// payment is asked for twice at the same time.
const WANTED: [u8; 3] = [1, 1, 2];

/// The payment that is read.
const READ: u8 = 1;

/// Take-overs in a history: the first, and one back.
const TAKE_OVERS_MAX: u8 = 2;

/// Times that a server freezes, that one crashes, that an answer of the database is lost, and that
/// the edge is out of patience: once each, as every pair of them is many histories already.
const FAULTS_MAX: u8 = 1;

/// A rule that is taken out, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// All rules hold.
    Nothing,
    /// Appends do not look at the leadership.
    Fence,
    /// Units are answered before the append.
    Append,
    /// A unit that found the answer of another of its batch is answered at once.
    WaitOfReplays,
    /// The edge repeats a request under a new key.
    Key,
    /// A leader reads its memory without a question.
    Question,
}

/// A row of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    key: u8,
    payment: u8,
}

/// An append on its way to the database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Statement {
    server: usize,
    epoch: u8,
    first: usize,
    rows: Vec<Row>,
}

/// The answer of the database to an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The rows are in the journal.
    Appended,
    /// The rows were in the journal already.
    WasThere,
    /// Another row is at their place, or another server leads.
    Refused,
}

/// The batch of a leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    rows: Vec<Row>,
    requests: Vec<usize>,
    wire: Wire,
}

/// The way of a batch's append.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Wire {
    /// It was not sent, or its answer was lost.
    Idle,
    /// It is on the way to the database, or its answer is on the way back.
    Busy,
}

/// A server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// The epoch in which it believes to lead.
    leads: Option<u8>,
    /// Rows of the journal that it knows.
    end: usize,
    batch: Option<Batch>,
    is_frozen: bool,
}

/// The way of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// It waits at the edge, under this key.
    Waiting {
        /// The key.
        key: u8,
    },
    /// A server has it.
    At {
        /// The key.
        key: u8,
        /// The server.
        server: usize,
    },
    /// Its client was answered that the payment was made.
    Answered,
}

/// The way of a read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    /// It has not come.
    Ahead,
    /// It has come.
    Arrived {
        /// Whether the payment was answered then.
        must_see: bool,
    },
    /// It was answered.
    Answered {
        /// Whether the payment was answered when it came.
        must_see: bool,
        /// Whether the answer has it.
        found: bool,
    },
}

/// Faults that have happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    take_overs: u8,
    freezes: u8,
    crashes: u8,
    lost: u8,
    repeats: u8,
}

/// The state of both servers, their database and their clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    journal: Vec<Row>,
    epoch: u8,
    holder: usize,
    servers: [Server; 2],
    statements: Vec<Statement>,
    replies: Vec<(usize, u8, usize, Reply)>,
    requests: Vec<Request>,
    read: Read,
    faults: Faults,
    /// Whether rows of a leader were appended after another had taken over.
    is_late: bool,
}

/// A step of any of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A leader runs the units of all requests that wait.
    Begin(usize),
    /// It sends the append, for the first time or again.
    Send(usize),
    /// The database carries out the statement of this number.
    Execute(usize),
    /// The answer of this number reaches its server.
    Deliver(usize),
    /// It is lost.
    Lose(usize),
    /// A server takes over.
    TakeOver(usize),
    /// A server freezes.
    Freeze(usize),
    /// It goes on.
    Thaw(usize),
    /// A server crashes. Its statements may be on the way.
    Crash(usize),
    /// The edge is out of patience with a server and takes a request back.
    Repeat(usize),
    /// A read comes.
    ReadArrives,
    /// A server answers it.
    ReadAt(usize),
}

/// The model of two servers.
pub struct Cluster {
    /// The rule that is taken out.
    pub without: Without,
}

impl State {
    fn leads(&self, server: usize) -> bool {
        self.servers[server].leads == Some(self.epoch) && self.holder == server
    }

    fn has(&self, payment: u8) -> bool {
        self.journal.iter().any(|row| row.payment == payment)
    }

    /// A server that does not lead any more forgets its memory, and the edge takes its requests
    /// back.
    fn step_down(&mut self, server: usize, is_alive: bool) {
        self.servers[server] =
            Server { is_frozen: self.servers[server].is_frozen && is_alive, ..Server::default() };
        for request in &mut self.requests {
            if let Request::At { key, server: at } = *request
                && at == server
            {
                *request = Request::Waiting { key };
            }
        }
    }

    fn answer(&mut self, server: usize, requests: &[usize]) {
        for number in requests {
            if matches!(self.requests[*number], Request::At { server: at, .. } if at == server) {
                self.requests[*number] = Request::Answered;
            }
        }
    }

    fn arrived(&mut self) {
        let is_answered =
            |(payment, request): (&u8, &Request)| *payment == READ && *request == Request::Answered;
        let must_see = WANTED.iter().zip(&self.requests).any(is_answered);
        self.read = Read::Arrived { must_see };
    }
}

impl Cluster {
    /// Runs the units of all requests that wait, one after the other, on the leader's memory.
    fn begin(&self, state: &mut State, server: usize) {
        let (mut rows, mut requests): (Vec<Row>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut replayed = Vec::new();
        let end = state.servers[server].end;
        for (number, payment) in WANTED.into_iter().enumerate() {
            let Request::Waiting { key } = state.requests[number] else { continue };
            state.requests[number] = Request::At { key, server };
            requests.push(number);
            let known = state.journal[..end].iter().any(|row| row.key == key);
            if known || rows.iter().any(|row| row.key == key) {
                replayed.push(number);
            } else {
                rows.push(Row { key, payment });
            }
        }
        // A batch that only found answers in the journal has nothing to wait for.
        if rows.is_empty() || self.without == Without::Append {
            state.answer(server, &requests);
        }
        if self.without == Without::WaitOfReplays {
            state.answer(server, &replayed);
        }
        if !rows.is_empty() {
            state.servers[server].batch = Some(Batch { rows, requests, wire: Wire::Idle });
        }
    }

    fn send(&self, state: &mut State, server: usize) -> Option<()> {
        let Server { leads, end, batch, .. } = &mut state.servers[server];
        let batch = batch.as_mut()?;
        batch.wire = Wire::Busy;
        let (epoch, first, rows) = ((*leads)?, *end, batch.rows.clone());
        state.statements.push(Statement { server, epoch, first, rows });
        Some(())
    }

    fn execute(&self, state: &mut State, number: usize) {
        let Statement { server, epoch, first, rows } = state.statements.remove(number);
        let is_fenced = (epoch, server) != (state.epoch, state.holder);
        let reply = if state.journal.get(first..first + rows.len()) == Some(&rows[..]) {
            Reply::WasThere
        } else if state.journal.len() == first && (!is_fenced || self.without == Without::Fence) {
            state.is_late |= is_fenced;
            state.journal.extend(rows);
            Reply::Appended
        } else {
            Reply::Refused
        };
        state.replies.push((server, epoch, first, reply));
    }

    fn deliver(&self, state: &mut State, number: usize) {
        let (server, epoch, first, reply) = state.replies.remove(number);
        let still_leads = state.leads(server);
        let this = &mut state.servers[server];
        // The server has crashed since, or answered by another reply.
        if this.leads != Some(epoch) || this.end != first || this.batch.is_none() {
            return;
        }
        match reply {
            Reply::Refused => return state.step_down(server, true),
            Reply::WasThere if !still_leads => return state.step_down(server, true),
            Reply::Appended | Reply::WasThere => {}
        }
        if let Some(Batch { rows, requests, .. }) = this.batch.take() {
            this.end += rows.len();
            state.answer(server, &requests);
        }
    }

    fn repeat(&self, state: &mut State, number: usize) {
        state.faults.repeats += 1;
        if let Request::At { key, .. } = state.requests[number] {
            let key = if self.without == Without::Key { 10 + key } else { key };
            state.requests[number] = Request::Waiting { key };
        }
    }

    fn read(&self, state: &mut State, server: usize) {
        let Read::Arrived { must_see } = state.read else { return };
        if state.leads(server) || self.without == Without::Question {
            let end = state.servers[server].end;
            let found = state.journal[..end].iter().any(|row| row.payment == READ);
            state.read = Read::Answered { must_see, found };
        } else {
            state.step_down(server, true);
        }
    }

    fn server_actions(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let (server, faults) = (&state.servers[number], &state.faults);
        if server.is_frozen {
            actions.push(Action::Thaw(number));
            return;
        }
        if faults.freezes < FAULTS_MAX && server.leads.is_some() {
            actions.push(Action::Freeze(number));
        }
        if faults.crashes < FAULTS_MAX && server.leads.is_some() {
            actions.push(Action::Crash(number));
        }
        if server.leads.is_none() && faults.take_overs < TAKE_OVERS_MAX {
            actions.push(Action::TakeOver(number));
        }
        let waits = |request: &Request| matches!(request, Request::Waiting { .. });
        match (&server.leads, &server.batch) {
            (None, _) => {}
            (Some(_), None) if state.requests.iter().any(waits) => {
                actions.push(Action::Begin(number));
            }
            (Some(_), Some(Batch { wire: Wire::Idle, .. })) => actions.push(Action::Send(number)),
            (Some(_), _) => {}
        }
        if server.leads.is_some() && matches!(state.read, Read::Arrived { .. }) {
            actions.push(Action::ReadAt(number));
        }
    }
}

impl Model for Cluster {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = Server { leads: Some(1), ..Server::default() };
        vec![State {
            journal: Vec::new(),
            epoch: 1,
            holder: 0,
            servers: [first, Server::default()],
            statements: Vec::new(),
            replies: Vec::new(),
            requests: WANTED.iter().map(|key| Request::Waiting { key: *key }).collect(),
            read: Read::Ahead,
            faults: Faults::default(),
            is_late: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for number in 0..state.servers.len() {
            self.server_actions(state, number, actions);
        }
        actions.extend((0..state.statements.len()).map(Action::Execute));
        for (number, reply) in state.replies.iter().enumerate() {
            if !state.servers[reply.0].is_frozen {
                actions.push(Action::Deliver(number));
            }
            if state.faults.lost < FAULTS_MAX {
                actions.push(Action::Lose(number));
            }
        }
        if state.faults.repeats < FAULTS_MAX {
            let at = |it: &Request| matches!(it, Request::At { .. });
            let taken = state.requests.iter().enumerate().filter(|(_, request)| at(request));
            actions.extend(taken.map(|(number, _)| Action::Repeat(number)));
        }
        if state.read == Read::Ahead {
            actions.push(Action::ReadArrives);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin(server) => self.begin(&mut state, server),
            Action::Send(server) => self.send(&mut state, server)?,
            Action::Execute(number) => self.execute(&mut state, number),
            Action::Deliver(number) => self.deliver(&mut state, number),
            Action::Lose(number) => {
                let (server, ..) = state.replies.remove(number);
                state.faults.lost += 1;
                if let Some(batch) = &mut state.servers[server].batch {
                    batch.wire = Wire::Idle;
                }
            }
            Action::TakeOver(server) => {
                state.faults.take_overs += 1;
                (state.epoch, state.holder) = (state.epoch + 1, server);
                let (leads, end) = (Some(state.epoch), state.journal.len());
                state.servers[server] = Server { leads, end, ..Server::default() };
            }
            Action::Freeze(server) => {
                state.faults.freezes += 1;
                state.servers[server].is_frozen = true;
            }
            Action::Thaw(server) => state.servers[server].is_frozen = false,
            Action::Crash(server) => {
                state.faults.crashes += 1;
                state.step_down(server, false);
            }
            Action::Repeat(number) => self.repeat(&mut state, number),
            Action::ReadArrives => state.arrived(),
            Action::ReadAt(server) => self.read(&mut state, server),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PAID_ONCE, |_, state: &State| {
                let rows = &state.journal;
                let is_again =
                    |at: usize| rows[at + 1..].iter().any(|row| row.payment == rows[at].payment);
                !(0..rows.len()).any(is_again)
            }),
            Property::always(ANSWERED_IS_KEPT, |_, state: &State| {
                let requests = WANTED.iter().zip(&state.requests);
                requests
                    .into_iter()
                    .all(|(payment, request)| *request != Request::Answered || state.has(*payment))
            }),
            Property::always(READS_SEE, |_, state: &State| {
                !matches!(state.read, Read::Answered { must_see: true, found: false })
            }),
            Property::always(FENCED, |_, state: &State| !state.is_late),
            Property::sometimes("everything is answered after a take-over", |_, state: &State| {
                let is_over = |it: &Request| *it == Request::Answered;
                state.faults.take_overs == 1 && state.requests.iter().all(is_over)
            }),
            Property::sometimes("an append is found again", |_, state: &State| {
                state.replies.iter().any(|reply| reply.3 == Reply::WasThere)
            }),
            Property::sometimes("an append is refused", |_, state: &State| {
                state.replies.iter().any(|reply| reply.3 == Reply::Refused)
            }),
            Property::sometimes("a read sees a payment after a take-over", |_, state: &State| {
                let sees = matches!(state.read, Read::Answered { must_see: true, found: true });
                sees && state.faults.take_overs > 0
            }),
        ]
    }
}

/// No payment is in the journal twice.
pub const PAID_ONCE: &str = "a payment is made once";
/// An answer is in the journal.
pub const ANSWERED_IS_KEPT: &str = "what was answered is in the journal";
/// A read that came after an answer sees what was answered.
pub const READS_SEE: &str = "a read sees what was acknowledged";
/// Nothing of an old leader is appended after a take-over.
pub const FENCED: &str = "nothing of an old leader is appended";

#[cfg(test)]
mod tests {
    use stateright::Checker as _;

    use super::*;

    fn broken(without: Without, property: &'static str) {
        let checker = Cluster { without }.checker().spawn_bfs().join();
        let path = checker.assert_any_discovery(property);
        println!("without {without:?}, {property:?} breaks after: {:?}", path.into_actions());
    }

    #[test]
    fn the_rules_hold() {
        let checker = Cluster { without: Without::Nothing }.checker().spawn_bfs().join();
        println!("{} states", checker.unique_state_count());
        checker.assert_properties();
    }

    #[test]
    fn without_the_fence_an_old_leader_appends() {
        broken(Without::Fence, FENCED);
    }

    #[test]
    fn an_answer_before_the_append_may_be_lost() {
        broken(Without::Append, ANSWERED_IS_KEPT);
    }

    #[test]
    fn a_replay_that_does_not_wait_may_be_untrue() {
        broken(Without::WaitOfReplays, ANSWERED_IS_KEPT);
    }

    #[test]
    fn a_request_that_is_repeated_under_a_new_key_is_paid_twice() {
        broken(Without::Key, PAID_ONCE);
    }

    #[test]
    fn without_the_question_an_old_leader_reads_its_memory() {
        broken(Without::Question, READS_SEE);
    }
}
