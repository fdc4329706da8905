//! The server under test with an allocator that counts. Counting costs time, so nothing else is
//! measured with it.

use std::alloc::System;
use std::process::ExitCode;

use bench::child;
use bench::yardsticks::{self, Allocated};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn allocated() -> Allocated {
    let stats = INSTRUMENTED_SYSTEM.stats();
    Allocated { count: stats.allocations + stats.reallocations, bytes: stats.bytes_allocated }
}

/// Behind the name of the command are the options of `switchyard serve`.
fn main() -> ExitCode {
    let options: Vec<_> = std::env::args().skip(2).collect();
    let served = child::end_with_parent().and_then(|()| yardsticks::serve(&options, allocated));
    served.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        ExitCode::from,
    )
}
