//! The tables of Leaf and tinyid, with their own programs' statements beside ours.

use std::thread;

use xuid_engine::sequence::store::database::open;
use xuid_engine::sequence::store::{Ask, Fence, NewSequence, Outcome, fence};
use xuid_tests::Sql;

use crate::fixture::{Ranges, Server, ask, create, grant, grant_one, name, on_both, patient};

on_both!(
    leaf_s_servers_and_ours_share_a_row,
    leaf_s_first_segment_begins_at_its_mark,
    a_row_below_the_floor_of_an_ask_is_not_moved_in_any_shape,
    tinyid_s_servers_and_ours_share_a_row,
    tinyid_s_first_segment_begins_above_its_mark,
    an_update_time_of_seconds_is_written_and_a_timestamp_is_the_database_s,
    behind_a_fence_a_name_begins_above_what_the_fence_says_in_any_shape,
);

const GRANTS: usize = 40;

pub(crate) fn leaf_table(server: &Server) {
    let table = if server.is_mariadb() {
        // As in Leaf's README, with its collation.
        "CREATE TABLE leaf_alloc (
           biz_tag varchar(128) NOT NULL DEFAULT '', max_id bigint(20) NOT NULL DEFAULT '1', step int(11) NOT NULL,
           description varchar(256) DEFAULT NULL,
           update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
           PRIMARY KEY (biz_tag)) ENGINE=InnoDB DEFAULT CHARSET=utf8"
    } else {
        "CREATE TABLE leaf_alloc (
           biz_tag varchar(128) NOT NULL DEFAULT '' PRIMARY KEY, max_id bigint NOT NULL DEFAULT 1, step int NOT NULL,
           description varchar(256), update_time timestamp NOT NULL DEFAULT now())"
    };
    let mut sql = server.sql();
    sql.exec(table).unwrap();
    sql.exec("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 2000)").unwrap();
}

pub(crate) fn tiny_id_table(server: &Server) {
    let table = if server.is_mariadb() {
        // As in tinyid's db.sql.
        "CREATE TABLE tiny_id_info (
           id bigint(20) unsigned NOT NULL AUTO_INCREMENT, biz_type varchar(63) NOT NULL DEFAULT '',
           begin_id bigint(20) NOT NULL DEFAULT '0', max_id bigint(20) NOT NULL DEFAULT '0', step int(11) DEFAULT '0',
           delta int(11) NOT NULL DEFAULT '1', remainder int(11) NOT NULL DEFAULT '0',
           create_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',
           update_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00', version bigint(20) NOT NULL DEFAULT '0',
           PRIMARY KEY (id), UNIQUE KEY uniq_biz_type (biz_type)) ENGINE=InnoDB AUTO_INCREMENT=1 DEFAULT CHARSET=utf8"
    } else {
        "CREATE TABLE tiny_id_info (
           id bigserial PRIMARY KEY, biz_type varchar(63) NOT NULL DEFAULT '' UNIQUE,
           begin_id bigint NOT NULL DEFAULT 0, max_id bigint NOT NULL DEFAULT 0, step int DEFAULT 0,
           delta int NOT NULL DEFAULT 1, remainder int NOT NULL DEFAULT 0,
           create_time timestamp NOT NULL DEFAULT '2010-01-01', update_time timestamp NOT NULL DEFAULT '2010-01-01',
           version bigint NOT NULL DEFAULT 0)"
    };
    let mut sql = server.sql();
    sql.exec(table).unwrap();
    sql.exec(
        "INSERT INTO tiny_id_info (biz_type, begin_id, max_id, step, delta, remainder) \
         VALUES ('test_odd', 1, 1, 100000, 2, 1)",
    )
    .unwrap();
}

/// A name that was made since the dump, and lost with it, is made again by who uses it next.
fn behind_a_fence_a_name_begins_above_what_the_fence_says_in_any_shape(server: &mut Server) {
    leaf_table(server);
    tiny_id_table(server);
    drop(server.prepared());
    for shape in ["xuid", "leaf", "tinyid"] {
        let mut ours = open(&server.url(), &patient(shape)).unwrap();
        let new = |start| NewSequence { start, ..NewSequence::default() };
        assert_eq!(ours.create(&name("before"), &new(1)).unwrap().next, 1);
        let whole = |above| Fence { above: Some(above), margin: Some(7), ..Fence::default() };
        assert_eq!(fence(&mut *ours, &whole(70_000)).unwrap().new_start, Some(70_007), "{shape}");
        let mut theirs = open(&server.url(), &patient(shape)).unwrap();
        for (text, start, next) in [("lost", 1, 70_007), ("moved over", 90_000, 90_000)] {
            assert_eq!(theirs.create(&name(text), &new(start)).unwrap().next, next, "{shape} {text}");
        }
        let Outcome::Granted { first, .. } = grant_one(&mut *theirs, "lost") else { panic!("{shape}") };
        assert_eq!(first, 70_007, "{shape}");
        // The row that says so is no sequence, and rises as a mark does.
        let names: Vec<_> = theirs.list("", "", 100).unwrap().into_iter().map(|row| row.name).collect();
        assert!(names.contains(&name("lost")) && names.iter().all(|name| !name.as_str().starts_with('@')));
        assert_eq!(theirs.unusable().unwrap(), None);
        assert_eq!(fence(&mut *ours, &whole(100)).unwrap().new_start, Some(70_014), "{shape}");
        assert_eq!(theirs.create(&name("later"), &new(1)).unwrap().next, 70_014, "{shape}");
        // A name that a folder knows, and the store does not, came further.
        let known = [(name("gone"), 5_000_000)].into();
        let done = fence(&mut *ours, &Fence { known, ..whole(1) }).unwrap();
        assert_eq!(done.absent, [(name("gone"), 5_000_007)]);
        assert_eq!(theirs.create(&name("gone"), &new(1)).unwrap().next, 5_000_007, "{shape}");
        for (said, told) in [(1, 5_000_007), (6_000_000, 6_000_000)] {
            let said = Fence { new_start: Some(said), ..whole(1) };
            assert_eq!(fence(&mut *ours, &said).unwrap().new_start, Some(told), "{shape}");
        }
    }
}

fn a_row_below_the_floor_of_an_ask_is_not_moved_in_any_shape(server: &mut Server) {
    leaf_table(server);
    tiny_id_table(server);
    let mut ours = server.prepared();
    create(&mut *ours, "order");
    let of_shape = |shape| open(&server.url(), &patient(shape)).unwrap();
    for (mut store, text, mark) in
        [(ours, "order", 1), (of_shape("leaf"), "order", 1), (of_shape("tinyid"), "test_odd", 2)]
    {
        let mut granted = |floor| grant(&mut *store, &[Ask { floor, ..ask(text) }]).remove(0);
        for _ in 0..2 {
            assert_eq!(granted(mark + 1), Outcome::Behind { next: mark });
        }
        let outcome = granted(mark);
        assert!(matches!(outcome, Outcome::Granted { first, .. } if first == mark), "{text}: {outcome:?}");
    }
}

/// What Leaf does for a segment, which is `max_id - step .. max_id`.
pub(crate) fn leaf_takes(sql: &mut Sql) -> (u64, u64) {
    sql.exec("BEGIN").unwrap();
    sql.exec("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'order'").unwrap();
    let rows = sql.rows("SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = 'order'").unwrap();
    sql.exec("COMMIT").unwrap();
    let (max, step): (u64, u64) = (rows[0][1].parse().unwrap(), rows[0][2].parse().unwrap());
    (max - step, max)
}

/// What tinyid does for a segment, which is the numbers above the old mark up to the new one, both as our marks; `None`
/// if another program was quicker, after which it tries again.
pub(crate) fn tinyid_takes(sql: &mut Sql) -> Option<(u64, u64)> {
    let rows = sql
        .rows("SELECT id, max_id, step, version FROM tiny_id_info WHERE biz_type = 'test_odd' LIMIT 1")
        .unwrap();
    let [id, max, step, version] = [0, 1, 2, 3].map(|at| rows[0][at].parse::<u64>().unwrap());
    let new = max + step;
    let update = format!(
        "UPDATE tiny_id_info SET max_id = {new}, update_time = now(), version = version + 1 \
         WHERE id = {id} AND max_id = {max} AND version = {version} AND biz_type = 'test_odd'"
    );
    (sql.changed(&update).unwrap() == 1).then_some((max + 1, new + 1))
}

/// Two of our stores and two of the other programs, all on one row.
fn beside(
    server: &Server,
    table: &str,
    text: &str,
    theirs: impl Fn(&mut Sql) -> Option<(u64, u64)> + Sync,
) -> Ranges {
    let (url, sql_of) = (server.url(), || server.sql());
    let (theirs, options) = (&theirs, patient(table));
    let ours = || {
        let (mut store, mut ranges) = (open(&url, &options).unwrap(), Ranges::default());
        while ranges.count(text) < GRANTS {
            let outcomes = grant(&mut *store, &[ask(text)]);
            assert!(matches!(outcomes[0], Outcome::Granted { .. }), "{outcomes:?}");
            ranges.take(&[ask(text)], &outcomes);
        }
        ranges
    };
    let other = || {
        let (mut sql, mut ranges) = (sql_of(), Ranges::default());
        while ranges.count(text) < GRANTS {
            if let Some((first, end)) = theirs(&mut sql) {
                ranges.add(text, first, end);
            }
        }
        ranges
    };
    let mut all = Ranges::default();
    thread::scope(|scope| {
        let threads = [scope.spawn(ours), scope.spawn(ours), scope.spawn(other), scope.spawn(other)];
        for thread in threads {
            all.join(thread.join().unwrap());
        }
    });
    all
}

fn leaf_s_servers_and_ours_share_a_row(server: &mut Server) {
    leaf_table(server);
    let ranges = beside(server, "leaf", "order", |sql| Some(leaf_takes(sql)));
    let mark = server.sql().number("SELECT max_id FROM leaf_alloc").unwrap();
    assert_eq!((ranges.total("order"), ranges.end("order")), (mark - 1, mark));
}

fn leaf_s_first_segment_begins_at_its_mark(server: &mut Server) {
    leaf_table(server);
    let mut store = open(&server.url(), &patient("leaf")).unwrap();
    let outcome = grant_one(&mut *store, "order");
    assert!(matches!(outcome, Outcome::Granted { first: 1, end: 2_001, .. }), "{outcome:?}");
    assert_eq!(leaf_takes(&mut server.sql()), (2_001, 4_001));
}

fn tinyid_s_servers_and_ours_share_a_row(server: &mut Server) {
    tiny_id_table(server);
    let ranges = beside(server, "tinyid", "test_odd", tinyid_takes);
    let mark = server.sql().number("SELECT max_id FROM tiny_id_info").unwrap() + 1;
    assert_eq!((ranges.total("test_odd"), ranges.end("test_odd")), (mark - 2, mark));
    let version = server.sql().number("SELECT version FROM tiny_id_info").unwrap();
    assert_eq!(version, 4 * GRANTS as u64);
}

fn tinyid_s_first_segment_begins_above_its_mark(server: &mut Server) {
    tiny_id_table(server);
    let mut store = open(&server.url(), &patient("tinyid")).unwrap();
    let Outcome::Granted { first, end, settings } = grant_one(&mut *store, "test_odd") else { panic!() };
    // A hundred thousand ids, each two above the one before; the first is above the mark of 1, and odd.
    assert_eq!((first, end, settings.increment, settings.remainder), (2, 200_002, 2, 1));
    let id = (first..end).find(|number| number % 2 == 1).unwrap();
    assert_eq!(id, 3);
    let new = server.sql().rows("SELECT max_id, version FROM tiny_id_info").unwrap();
    assert_eq!(new, [["200001", "1"]]);
    let row = store.read(&name("test_odd")).unwrap();
    assert_eq!((row.next, row.settings.step), (200_002, 100_000));
}

/// Both are found in the wild: the one in Leaf's repository, the other in what was made after it.
fn an_update_time_of_seconds_is_written_and_a_timestamp_is_the_database_s(server: &mut Server) {
    let mut sql = server.sql();
    sql.exec(
        "CREATE TABLE leaf_seconds (
           id int PRIMARY KEY, biz_tag varchar(128) NOT NULL UNIQUE, max_id bigint NOT NULL, step int NOT NULL,
           description varchar(256), update_time bigint NOT NULL)",
    )
    .unwrap();
    sql.exec("INSERT INTO leaf_seconds VALUES (1, 'order', 1, 10, 'orders', 0)").unwrap();
    let mut store = open(&server.url(), &patient("leaf:leaf_seconds")).unwrap();
    assert!(matches!(grant_one(&mut *store, "order"), Outcome::Granted { first: 1, end: 11, .. }));
    let now = xuid_tests::clock::unix_ms() / 1_000;
    let written = sql.number("SELECT update_time FROM leaf_seconds").unwrap();
    assert!(written.abs_diff(now) < 600, "{written} at {now}");
    let kept = sql.rows("SELECT id, step, description FROM leaf_seconds").unwrap();
    assert_eq!(kept, [["1", "10", "orders"]]);
}
