//! rs-snowflake 0.6: generators behind `&mut self`, so one a thread, or one in a Mutex.
//!
//! Its burst is `lazy_generate`: the clock is read when the generator is made and never again, each 4,096 ids are
//! called a millisecond. A generator made anew soon after, as by a restart, repeats what the one before had issued
//! ahead of the clock. It is a counter in a thread's hands, and how fast depends on where it lies: the compiler inlines
//! it, and in a loop that owns the generator the count never leaves its register. Behind a pointer it is stored and
//! loaded again with each id, at a tenth or an eleventh of that. Both are measured. Its bucket keeps 4,091 such ids in
//! a vector. Sustained it is `generate`, which looks at the clock every 4,096 ids and waits for it, spinning.

use snowflake::{SnowflakeIdBucket, SnowflakeIdGenerator};

use super::peer::{locked, peer, per_worker};
use crate::subject::{Subject, Supply};

/// Machine and node have five bits each.
const FIELD: u64 = 32;
const WORKERS: u64 = FIELD * FIELD;

pub(super) fn subjects() -> Vec<Subject> {
    use Supply::{Burst, Sustained};
    vec![
        peer("rs-snowflake/per-thread", "a SnowflakeIdGenerator a thread, lazy_generate", Burst, || {
            per_worker(WORKERS, |worker| {
                let mut generator = generator(worker);
                move || generator.lazy_generate().cast_unsigned()
            })
        }),
        peer("rs-snowflake/per-thread-in-box", "the same behind a pointer", Burst, || {
            per_worker(WORKERS, |worker| {
                let mut generator = Box::new(generator(worker));
                move || generator.lazy_generate().cast_unsigned()
            })
        }),
        peer("rs-snowflake/bucket", "a SnowflakeIdBucket a thread", Burst, || {
            per_worker(WORKERS, |worker| {
                let mut bucket = SnowflakeIdBucket::new((worker / FIELD) as i32, (worker % FIELD) as i32);
                move || bucket.get_id().cast_unsigned()
            })
        }),
        peer("rs-snowflake/mutex", "a SnowflakeIdGenerator in a Mutex, lazy_generate", Burst, || {
            locked(SnowflakeIdGenerator::new(1, 1), |generator| generator.lazy_generate().cast_unsigned())
        }),
        peer(
            "rs-snowflake/per-thread-sustained",
            "a SnowflakeIdGenerator a thread, generate",
            Sustained,
            || {
                per_worker(WORKERS, |worker| {
                    let mut generator = generator(worker);
                    move || generator.generate().cast_unsigned()
                })
            },
        ),
        peer(
            "rs-snowflake/mutex-sustained",
            "a SnowflakeIdGenerator in a Mutex, generate",
            Sustained,
            || locked(SnowflakeIdGenerator::new(1, 1), |generator| generator.generate().cast_unsigned()),
        ),
    ]
}

fn generator(worker: u64) -> SnowflakeIdGenerator {
    SnowflakeIdGenerator::new((worker / FIELD) as i32, (worker % FIELD) as i32)
}
