//! What other tests stand on does what is said of it.

mod postgres;
mod proxy;
mod recorder;

/// Looks until it is so; each look asks a server and takes some milliseconds.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    const LOOKS_MAX: usize = 1_000;
    assert!((0..LOOKS_MAX).any(|_| is_so()), "still not so: {what}");
}
