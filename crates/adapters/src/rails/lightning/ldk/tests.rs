//! Two nodes that pay each other over connections of this machine, with crashes between any two
//! writes of either.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use bitcoin::hashes::{Hash as _, sha256};
use domain::currency::Currency;
use domain::money::Money;
use domain::rail::Rail;
use lightning::io::Error as FileError;
use lightning::util::persist::KVStoreSync;
use ports::rail::{Cause, Flow, Party};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::SystemClock;
use crate::entropy::SystemEntropy;

/// Nodes on one machine take a second at most, and CI has other things to do.
const LIMIT: Duration = Duration::from_secs(30);

/// More writes than any test makes.
const ALL: i64 = i64::MAX;

/// The files of a machine that stops to write at some point, as in a power cut.
struct Dying {
    files: Files,
    writes_left: AtomicI64,
}

impl Dying {
    fn check(&self) -> Result<(), FileError> {
        match self.writes_left.fetch_sub(1, Ordering::SeqCst) {
            left if left > 0 => Ok(()),
            _ => Err(FileError::new(lightning::io::ErrorKind::Other, "the machine is dead")),
        }
    }
}

impl KVStoreSync for Dying {
    fn read(&self, first: &str, second: &str, key: &str) -> Result<Vec<u8>, FileError> {
        self.files.read(first, second, key)
    }

    fn write(&self, first: &str, second: &str, key: &str, to: Vec<u8>) -> Result<(), FileError> {
        self.check()?;
        self.files.write(first, second, key, to)
    }

    fn remove(&self, first: &str, second: &str, key: &str, lazy: bool) -> Result<(), FileError> {
        self.check()?;
        self.files.remove(first, second, key, lazy)
    }

    fn list(&self, first: &str, second: &str) -> Result<Vec<String>, FileError> {
        self.files.list(first, second)
    }
}

/// A node that runs, on a folder that outlives it.
struct Running {
    node: Arc<Node>,
    arrivals: mpsc::UnboundedReceiver<TransactionId>,
    files: Arc<Dying>,
    stop: CancellationToken,
    work: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.work.await.unwrap();
    }
}

type Opened = (Arc<Node>, mpsc::UnboundedReceiver<TransactionId>);

/// A clock that can be moved on.
#[derive(Default)]
struct Moved(AtomicI64);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_millis(self.0.load(Ordering::SeqCst))
    }

    fn machine(&self) -> Timestamp {
        self.now()
    }

    fn uptime(&self) -> Duration {
        SystemClock.uptime()
    }
}

/// A place for a node: its folder, its key, its address and its clock.
struct Place {
    clock: Arc<Moved>,
    folder: TempDir,
    secret: [u8; 32],
    address: SocketAddr,
}

impl Place {
    async fn new(secret: u8) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (folder, address) = (TempDir::new().unwrap(), free.local_addr().unwrap());
        Self { clock: Arc::default(), folder, secret: [secret; 32], address }
    }

    fn named(&self) -> NodePeer {
        format!("{}@{}", node_id(&self.secret), self.address).parse().unwrap()
    }

    fn open(&self, files: Files, peers: Vec<NodePeer>) -> Result<Opened, StartError> {
        let settings = Settings { secret: self.secret, peers };
        Node::open(files, settings, Arc::clone(&self.clock) as _, &SystemEntropy)
    }

    async fn start(&self, peers: Vec<NodePeer>) -> Running {
        let files = files(self.folder.path().to_owned());
        let files = Arc::new(Dying { files, writes_left: AtomicI64::new(ALL) });
        let (node, arrivals) = self.open(Arc::clone(&files) as _, peers).unwrap();
        assert_eq!(node.node(), node_id(&self.secret));
        let listener = TcpListener::bind(self.address).await.unwrap();
        let stop = CancellationToken::new();
        let over = stop.clone().cancelled_owned();
        let work = tokio::spawn(Arc::clone(&node).run(listener, over));
        Running { node, arrivals, files, stop, work }
    }
}

/// A payer and a payee that know each other, with their channels open.
async fn pair() -> (Place, Place, Running, Running) {
    let (first, second) = (Place::new(1).await, Place::new(2).await);
    let payer = first.start(vec![second.named()]).await;
    let payee = second.start(vec![first.named()]).await;
    ready(&payer.node).await;
    ready(&payee.node).await;
    (first, second, payer, payee)
}

/// Waits until the node can pay over two channels: its own and that of its peer.
async fn ready(node: &Arc<Node>) {
    let node = Arc::clone(node);
    until("two channels", move || {
        let ready = node.manager.list_usable_channels();
        (ready.len() == 2).then_some(())
    })
    .await;
}

/// Looks until the other thread of a node has come so far.
async fn until<T: Send + 'static>(
    what: &'static str,
    mut look: impl FnMut() -> Option<T> + Send + 'static,
) -> T {
    let found = move || testbed::wait::until(what, LIMIT, || Ok(look()));
    tokio::task::spawn_blocking(found).await.unwrap().unwrap()
}

/// How much a node can still pay over its own channel, and be paid over that of its peer.
fn room(node: &Node) -> (u64, u64) {
    let channels = node.manager.list_channels();
    let own = channels.iter().filter(|channel| channel.is_outbound);
    let other = channels.iter().filter(|channel| !channel.is_outbound);
    (
        own.map(|channel| channel.outbound_capacity_msat).sum(),
        other.map(|channel| channel.inbound_capacity_msat).sum(),
    )
}

/// Waits until the payer has sent as much more as `before`, and the payee has it.
async fn moved(payer: &Node, payee: &Node, before: (u64, u64), payments: u64) {
    let left = |before: u64| before - payments * AMOUNT as u64;
    let expected = (left(before.0), left(before.1));
    let deadline = now().plus_millis(LIMIT.as_millis() as i64);
    while (room(payer).0, room(payee).1) != expected {
        assert!(now() < deadline, "{:?}, not {expected:?}", (room(payer), room(payee)));
        tokio::task::yield_now().await;
    }
}

fn payment(last: u8) -> TransactionId {
    let text = format!("Transaction:019aa2f0-0000-7000-8000-0000000000{last:02x}");
    TransactionId::parse(&text).expect("an id")
}

fn msat(minor: i64) -> Money {
    Money::positive(minor, Currency::MSAT).expect("an amount")
}

fn now() -> Timestamp {
    SystemClock.now()
}

const AMOUNT: i64 = 5_000_123;

fn invoice(payee: &Node, last: u8) -> String {
    let made_at = now();
    let new = NewInvoice {
        payment: payment(last),
        msat: msat(AMOUNT),
        description: b"[]",
        made_at,
        expires_at: made_at.plus_millis(INVOICE_MILLIS),
    };
    let text = payee.create_invoice(&new).expect("an invoice");
    assert_eq!(payee.create_invoice(&new), Some(text.clone()), "the same has the same");
    text
}

fn order(flow: Flow, last: u8, invoice: Option<&str>) -> Instruction {
    let address = UmaAddress::parse("$bob@vasp.test").expect("an address");
    Instruction {
        key: payment(last),
        flow,
        cause: Cause::Quote,
        rail: Rail::Lightning,
        amount: msat(AMOUNT),
        party: Party::Uma { address, invoice: invoice.map(str::to_owned) },
        remittance: None,
        purpose: None,
        since: now(),
        settings: None,
    }
}

/// Gives an order until it has an answer.
async fn settled(payer: &Node, invoice: &str) -> RailReply {
    let order = order(Flow::PayOut, 0, Some(invoice));
    let deadline = now().plus_millis(LIMIT.as_millis() as i64);
    loop {
        let reply = payer.pay(&order, invoice, now()).await;
        match reply.answer {
            RailAnswer::Pending { .. } => tokio::task::yield_now().await,
            _ => return reply,
        }
        assert!(now() < deadline, "still {reply:?}");
    }
}

async fn is_paid(node: &Running, last: u8) {
    let (node, order) = (Arc::clone(&node.node), order(Flow::PullIn, last, None));
    until("the payee has it", move || {
        (node.arrived(&order, now()).unwrap() == RailAnswer::Settled).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_pay_each_other() {
    let (_first, _second, mut left, mut right) = pair().await;
    let (to_right, to_left) =
        ((room(&left.node).0, room(&right.node).1), (room(&right.node).0, room(&left.node).1));
    for last in 1..=3 {
        let text = invoice(&right.node, last);
        let read = left.node.read_invoice(&text).unwrap();
        assert_eq!((read.msat, &read.node), (msat(AMOUNT), &right.node.node()));
        let reply = settled(&left.node, &text).await;
        assert_eq!(reply.answer, RailAnswer::Settled);
        let preimage = right.node.invoices.preimage_of(payment(last));
        assert_eq!(sha256::Hash::hash(&preimage).to_byte_array(), read.payment_hash);
        let words = RailWords::new(None, None, Some(&hex(&preimage)));
        assert_eq!(reply.words, words, "the preimage is the receipt");
        is_paid(&right, last).await;
        assert_eq!(right.arrivals.recv().await, Some(payment(last)));
    }
    let text = invoice(&left.node, 9);
    assert_eq!(settled(&right.node, &text).await.answer, RailAnswer::Settled);
    is_paid(&left, 9).await;
    assert_eq!(left.arrivals.recv().await, Some(payment(9)));
    moved(&left.node, &right.node, to_right, 3).await;
    moved(&right.node, &left.node, to_left, 1).await;
}

fn hex(bytes: &[u8]) -> String {
    use bitcoin::hex::DisplayHex as _;
    bytes.to_lower_hex_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_given_often_pays_once() {
    let (_first, _second, payer, payee) = pair().await;
    let before = (room(&payer.node).0, room(&payee.node).1);
    let text = invoice(&payee.node, 1);
    let order = order(Flow::PayOut, 1, Some(&text));
    let asked: Vec<_> = (0..8).map(|_| payer.node.pay(&order, &text, now())).collect();
    for reply in futures_util::future::join_all(asked).await {
        assert_eq!(reply.answer, RailAnswer::Settled);
    }
    let later = now().plus_millis(INVOICE_MILLIS * 2);
    assert_eq!(payer.node.pay(&order, &text, later).await.answer, RailAnswer::Settled);
    is_paid(&payee, 1).await;
    assert_eq!(payee.node.arrived(&order, later).unwrap(), RailAnswer::Settled);
    moved(&payer.node, &payee.node, before, 1).await;
}

/// The payment after a crash of the payer, or of the payee, before the write of this number.
async fn crashed(is_payer: bool, writes: i64) {
    let (first, second, mut payer, mut payee) = pair().await;
    let before = (room(&payer.node).0, room(&payee.node).1);
    let text = invoice(&payee.node, 1);
    let dying = if is_payer { &payer } else { &payee };
    dying.files.writes_left.store(writes, Ordering::SeqCst);
    let order = order(Flow::PayOut, 1, Some(&text));
    let (node, files) = (Arc::clone(&payer.node), Arc::clone(&dying.files));
    let begun = tokio::spawn({
        let text = text.clone();
        async move { node.pay(&order, &text, now()).await }
    });
    // More writes than there are in a payment never come, and then it is over.
    let over = begun.abort_handle();
    until("the crash or the end", move || {
        let is_dead = files.writes_left.load(Ordering::SeqCst) < 0;
        (is_dead || over.is_finished()).then_some(())
    })
    .await;
    begun.abort();
    if is_payer {
        payer.stop().await;
        payer = first.start(vec![second.named()]).await;
    } else {
        payee.stop().await;
        payee = second.start(vec![first.named()]).await;
    }
    let reply = settled(&payer.node, &text).await;
    assert_eq!(reply.answer, RailAnswer::Settled, "after {writes} writes: {:?}", reply.words);
    is_paid(&payee, 1).await;
    moved(&payer.node, &payee.node, before, 1).await;
    payer.stop().await;
    payee.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payer_that_crashes_pays_once() {
    for writes in 0..=8 {
        crashed(true, writes).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payee_that_crashes_is_paid_once() {
    for writes in 0..=9 {
        crashed(false, writes).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invoice_that_is_given_up_is_not_taken() {
    let (_first, _second, payer, payee) = pair().await;
    let before = (room(&payer.node).0, room(&payee.node).1);
    let text = invoice(&payee.node, 1);
    let order = order(Flow::PullIn, 1, None);
    let asked = |after: i64| payee.node.arrived(&order, order.since.plus_millis(after)).unwrap();
    let expires_at = order.since.plus_millis(INVOICE_MILLIS);
    assert_eq!(asked(0), RailAnswer::Pending { ask_again_at: expires_at });
    let closed = RailAnswer::Failed(RailFailure::TimedOut, Proof::Closed);
    assert_eq!(asked(INVOICE_MILLIS), closed);
    assert_eq!(asked(0), closed, "it stays so");
    assert_eq!(settled(&payer.node, &text).await.answer, RailAnswer::Refused);
    moved(&payer.node, &payee.node, before, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payee_that_is_away_is_paid_when_it_comes_back() {
    let (first, second, payer, payee) = pair().await;
    let (late, paid) = (invoice(&payee.node, 1), invoice(&payee.node, 2));
    payee.stop().await;
    let node = Arc::clone(&payer.node);
    until("it is away", move || node.manager.list_usable_channels().is_empty().then_some(())).await;
    let order = |text: &str| order(Flow::PayOut, 1, Some(text));
    for text in [&late, &paid] {
        let reply = payer.node.pay(&order(text), text, now()).await;
        assert!(matches!(reply.answer, RailAnswer::Pending { .. }), "{reply:?}");
    }
    // The clock of a platform may be ahead; invoices expire by the server's.
    let ahead = now().plus_millis(INVOICE_MILLIS);
    let reply = payer.node.pay(&order(&late), &late, ahead).await;
    assert!(matches!(reply.answer, RailAnswer::Pending { .. }), "{reply:?}");
    first.clock.0.store(INVOICE_MILLIS, Ordering::SeqCst);
    let reply = payer.node.pay(&order(&late), &late, now()).await;
    assert_eq!(reply.answer, RailAnswer::Failed(RailFailure::TimedOut, Proof::OtherSide));
    first.clock.0.store(0, Ordering::SeqCst);
    let payee = second.start(vec![first.named()]).await;
    ready(&payer.node).await;
    assert_eq!(settled(&payer.node, &paid).await.answer, RailAnswer::Settled);
    is_paid(&payee, 2).await;
    let reply = payer.node.pay(&order(&late), &late, now()).await;
    assert_eq!(
        reply.answer,
        RailAnswer::Failed(RailFailure::TimedOut, Proof::OtherSide),
        "it stays so"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invoice_is_paid_once_also_by_a_node_that_lost_its_folder() {
    let (mut first, second, payer, payee) = pair().await;
    let text = invoice(&payee.node, 1);
    assert_eq!(settled(&payer.node, &text).await.answer, RailAnswer::Settled);
    is_paid(&payee, 1).await;
    payer.stop().await;
    first.folder = TempDir::new().unwrap();
    let payer = first.start(vec![second.named()]).await;
    let node = Arc::clone(&payer.node);
    until("a new channel", move || (!node.manager.list_usable_channels().is_empty()).then_some(()))
        .await;
    let before = (room(&payer.node).0, room(&payee.node).1);
    assert_eq!(settled(&payer.node, &text).await.answer, RailAnswer::Refused);
    moved(&payer.node, &payee.node, before, 0).await;
    let text = invoice(&payee.node, 2);
    assert_eq!(settled(&payer.node, &text).await.answer, RailAnswer::Settled);
    moved(&payer.node, &payee.node, before, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gets_no_channel() {
    let (payee_place, stranger_place) = (Place::new(1).await, Place::new(3).await);
    let payee = payee_place.start(vec![]).await;
    let stranger = stranger_place.start(vec![]).await;
    let id = PublicKey::from_str(&payee.node.node()).unwrap();
    stranger.node.connect(id, &payee_place.address.to_string()).await.expect("a connection");
    let node = Arc::clone(&stranger.node);
    until("a request for a channel", move || {
        node.manager.create_channel(id, peers::CHANNEL_SAT, 0, 0, None, None).ok()
    })
    .await;
    let node = Arc::clone(&stranger.node);
    until("its refusal", move || node.manager.list_channels().is_empty().then_some(())).await;
    assert!(payee.node.manager.list_channels().is_empty());
    let text = invoice(&stranger.node, 1);
    assert_eq!(payee.node.read_invoice(&text), Err(InvalidInvoice::NoChannel));
}

#[tokio::test]
async fn a_folder_is_of_one_node() {
    let (own, other) = (Place::new(1).await, Place::new(2).await);
    let open = |place: &Place, folder: &Path| place.open(files(folder.to_owned()), vec![]);
    open(&own, own.folder.path()).unwrap();
    open(&own, own.folder.path()).unwrap();
    let refused = open(&other, own.folder.path()).err().unwrap().to_string();
    for id in [node_id(&own.secret), node_id(&other.secret)] {
        assert!(refused.contains(&id), "{refused}");
    }
}

#[test]
fn a_peer_is_a_node_and_perhaps_its_address() {
    let id = node_id(&[1; 32]);
    for good in [id.clone(), format!("{id}@vasp.test:9735"), format!("{id}@[::1]:9735")] {
        assert_eq!(good.parse::<NodePeer>().unwrap().to_string(), good);
    }
    let wrong = [String::new(), id[2..].to_owned(), format!("{id}@"), format!("{id}@host")];
    let more = [format!("{id}@:9735"), format!("{id}@host:99999"), format!("05{}", &id[2..])];
    for text in wrong.iter().chain(&more) {
        assert_eq!(text.parse::<NodePeer>(), Err(WrongPeer), "{text}");
    }
}
