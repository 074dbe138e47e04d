use super::*;

fn identity(current: &str, recorded: Option<&str>) -> Identity {
    Identity { current: current.to_owned(), recorded: recorded.map(str::to_owned), fenced: None }
}

/// A life of the folder, beside that witness.
fn life(folder: &Path, witness: &str) -> KnownIdentity {
    KnownIdentity::open(Some(folder)).unwrap().with_witness(Some(witness.to_owned()))
}

#[test]
fn a_store_is_another_one_until_it_is_fenced_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = KnownIdentity::open(Some(folder.path())).unwrap();
    assert_eq!(known.shows(&identity("a", None)), Shows::First);
    assert!(matches!(known.shows(&identity("b", Some("a"))), Shows::Other(_)), "a copy, at first sight");
    known.learn(&identity("a", None)).unwrap();
    let known = KnownIdentity::open(Some(folder.path())).unwrap();
    assert_eq!((known.known(), known.shows(&identity("a", Some("a")))), (Some("a"), Shows::Known));
    assert!(matches!(known.shows(&identity("b", None)), Shows::Other(_)));
    assert!(matches!(known.shows(&identity("b", Some("a"))), Shows::Other(_)), "promoted");
    assert!(matches!(known.shows(&identity("b", Some("b"))), Shows::Other(_)), "no fence wrote that");
    assert_eq!(known.shows(&fenced("b", "1")), Shows::Fenced);
    assert!(matches!(known.shows(&identity("a", Some("b"))), Shows::Other(_)), "put back");
}

/// As after a life beside a witness that was believed, which learnt it without a fence.
#[test]
fn a_store_in_which_another_one_is_written_is_not_told_as_what_it_is() {
    let mut known = KnownIdentity::default();
    known.learn(&identity("a", Some("b"))).unwrap();
    let Shows::Other(why) = known.shows(&identity("a", Some("b"))) else { panic!("it is the known one") };
    assert!(why.contains("is a") && why.contains("was b"), "{why}");
}

fn fenced(current: &str, at: &str) -> Identity {
    Identity { fenced: Some(at.to_owned()), ..identity(current, Some(current)) }
}

#[test]
fn a_store_that_was_left_is_gone_on_with_after_a_later_fence_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || KnownIdentity::open(Some(folder.path())).unwrap();
    let mut known = open();
    known.learn(&identity("a", Some("a"))).unwrap();
    known.learn(&fenced("a", "100.25")).unwrap();
    for older in [identity("a", None), fenced("a", "99")] {
        known.learn(&older).unwrap();
    }
    assert_eq!(open().shows(&fenced("b", "200")), Shows::Fenced);
    assert!(matches!(open().shows(&fenced("b", "100")), Shows::Other(_)), "before the known one was");
    known.learn(&fenced("b", "200")).unwrap();
    let mut known = open();
    assert_eq!((known.known(), known.shows(&fenced("b", "200"))), (Some("b"), Shows::Known));
    let is_other = |known: &KnownIdentity, found: &Identity| matches!(known.shows(found), Shows::Other(_));
    for (current, at) in [("a", "100.25"), ("a", "99"), ("a", "150"), ("c", "199.9")] {
        assert!(is_other(&known, &fenced(current, at)), "{current} fenced at {at}");
    }
    assert!(is_other(&known, &identity("a", None)) && is_other(&known, &identity("c", None)));
    for (current, at) in [("a", "200.5"), ("a", "1000"), ("c", "200.5")] {
        assert_eq!(known.shows(&fenced(current, at)), Shows::Fenced, "{current} fenced at {at}");
    }
    // In words that are no numbers, another one is a later one.
    known.learn(&fenced("c", "on monday")).unwrap();
    known.learn(&fenced("d", "on tuesday")).unwrap();
    assert!(is_other(&open(), &fenced("c", "on monday")));
    assert_eq!(open().shows(&fenced("c", "on sunday")), Shows::Fenced);
}

/// Whether a life goes on after one that had that witness: at once, and after a fence.
fn goes_on_after(before: &str, now: &str) -> [bool; 2] {
    let folder = tempfile::tempdir().unwrap();
    let open = |witness: Option<&str>| {
        KnownIdentity::open(Some(folder.path())).unwrap().with_witness(witness.map(str::to_owned))
    };
    open(Some(before)).learn(&fenced("a", "100")).unwrap();
    // The registry was the store for a while, which says nothing of it.
    open(None).learn(&identity("registry", None)).unwrap();
    open(None).learn(&fenced("a", "100")).unwrap();
    let mut known = open(Some(now));
    let at_once = known.shows(&fenced("a", "100")) == Shows::Known;
    for unproven in [identity("a", Some("a")), fenced("a", "99"), identity("a", None)] {
        assert!(!known.is_witness_changed() || matches!(known.shows(&unproven), Shows::Other(_)));
    }
    let news = fenced("a", "101");
    let after_fence = [Shows::Known, Shows::Fenced].contains(&known.shows(&news));
    known.learn(&news).unwrap();
    assert_eq!(open(Some(now)).shows(&news), Shows::Known, "a change is one once");
    [at_once, after_fence]
}

#[test]
fn a_witness_that_is_new_or_gone_needs_a_fence() {
    for (before, now) in [("zookeeper", NO_WITNESS), (NO_WITNESS, "local"), ("local", "zookeeper")] {
        assert_eq!(goes_on_after(before, now), [false, true]);
        assert_eq!(goes_on_after(now, now), [true, true]);
        let goes_on = Guard::without(&[Guard::WitnessChangeFenced], || goes_on_after(before, now));
        assert_eq!(goes_on, [true, true]);
    }
}

/// A replica that was promoted, and that was gone on with without a fence: with a witness none was needed.
#[test]
fn a_store_is_not_gone_back_to_for_the_fence_that_its_copy_tells_of() {
    for at in ["100", "on monday"] {
        let mut known = KnownIdentity::default();
        known.learn(&Identity { fenced: Some(at.to_owned()), ..identity("b", Some("a")) }).unwrap();
        assert!(matches!(known.shows(&fenced("a", at)), Shows::Other(_)), "{at}");
    }
}

#[test]
fn of_stores_that_were_left_the_latest_are_remembered_and_a_file_of_before_that_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(NAME), br#"{"version":1,"identity":"a"}"#).unwrap();
    let mut known = KnownIdentity::open(Some(folder.path())).unwrap();
    assert_eq!(known.shows(&fenced("a", "1")), Shows::Known);
    for round in 0..40 {
        known.learn(&fenced(&format!("host {}", round % 20), &round.to_string())).unwrap();
    }
    let known = KnownIdentity::open(Some(folder.path())).unwrap();
    let left = known.kept.iter().flat_map(|kept| &kept.left);
    let left: Vec<&str> = left.map(|left| left.identity.as_str()).collect();
    let latest: Vec<String> = (3..19).map(|host| format!("host {host}")).collect();
    assert_eq!((known.known(), left), (Some("host 19"), latest.iter().map(String::as_str).collect()));
}

/// Else the next life would go on with what the other one left.
#[test]
fn what_another_process_of_the_folder_closed_stays_closed() {
    let folder = tempfile::tempdir().unwrap();
    let open = || life(folder.path(), "local");
    let mut one = open();
    one.learn(&fenced("a", "100")).unwrap();
    let mut other = open();
    one.close("the mark went back", Some(&"100".to_owned())).unwrap();
    other.learn(&fenced("a", "200")).unwrap();
    let closed = Some(("the mark went back".to_owned(), Some("100".to_owned())));
    assert_eq!(open().closed(), closed);
    assert_eq!(open().fenced(), Some(&"200".to_owned()));
    // Who opens what it did not close itself leaves that to the other one.
    other.open_closed().unwrap();
    assert_eq!(open().closed(), closed);
    one.open_closed().unwrap();
    assert_eq!(
        (open().closed(), open().fenced()),
        (None, Some(&"200".to_owned())),
        "and the later fence stays"
    );
}

/// Two servers of a folder write at once, and each what the other one has not read.
#[test]
fn what_many_write_at_once_is_all_kept() {
    let folder = tempfile::tempdir().unwrap();
    let open = || life(folder.path(), "local");
    open().learn(&fenced("a", "100")).unwrap();
    for round in 101..151_u32 {
        let (mut one, mut other) = (open(), open());
        std::thread::scope(|scope| {
            scope.spawn(|| one.close("the mark went back", Some(&"100".to_owned())).unwrap());
            scope.spawn(|| other.learn(&fenced("a", &round.to_string())).unwrap());
        });
        assert!(open().closed().is_some(), "round {round}");
        assert_eq!(open().fenced(), Some(&round.to_string()));
        one.open_closed().unwrap();
    }
}

/// Such a process may be stopped, and would hold up its neighbour for ever.
#[test]
fn a_folder_that_another_process_keeps_locked_is_waited_for_for_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = locked(folder.path()).unwrap();
    let refused = life(folder.path(), "local").learn(&fenced("a", "100")).unwrap_err();
    assert!(refused.to_string().contains("another process has locked"), "{refused}");
    drop(theirs);
    life(folder.path(), "local").learn(&fenced("a", "100")).unwrap();
}

/// Only where its records are, and were, do they tell how far numbers came.
#[test]
fn a_folder_tells_less_than_was_granted_where_its_witness_was_elsewhere() {
    let after = |lives: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        for (witness, at) in lives.iter().zip(100..) {
            life(folder.path(), witness).learn(&fenced("a", &format!("{at}"))).unwrap();
        }
        unseen_in(folder.path()).unwrap()
    };
    let says = |lives: &[&str], text: &str| {
        let unseen = after(lives);
        assert!(unseen.as_ref().is_some_and(|unseen| unseen.contains(text)), "{lives:?}: {unseen:?}");
    };
    assert_eq!(after(&[]), None);
    assert_eq!(after(&["local c1"]), None);
    // Another server shares the folder now, or none does any more: the records are those of before.
    assert_eq!(after(&["local c1", "local c1 of all", "local c1"]), None);
    says(&["zookeeper c1"], "is zookeeper c1");
    says(&["local c1", NO_WITNESS], "has no witness");
    for other in [NO_WITNESS, "zookeeper c1", "local c2"] {
        says(&[other, "local c1"], "another witness once");
        says(&["local c1", other, "local c1", "local c1 of all"], "another witness once");
    }
}

/// It says of any change that there was one.
#[test]
fn a_changed_witness_of_an_earlier_program_may_have_been_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let said = br#"{"version":1,"identity":"a","witness":"local c1","was_changed":true}"#;
    std::fs::write(folder.path().join(NAME), said).unwrap();
    assert!(unseen_in(folder.path()).unwrap().is_some());
    life(folder.path(), "local c1").learn(&fenced("a", "101")).unwrap();
    assert!(unseen_in(folder.path()).unwrap().is_some());
}

/// Its user may read `xuid_store` by now, or `xuid sequence init` has just made it: neither raised a mark.
#[test]
fn a_time_that_could_not_be_read_before_is_no_fence() {
    let folder = tempfile::tempdir().unwrap();
    let open = |witness| life(folder.path(), witness);
    open("zookeeper").learn(&identity("a", None)).unwrap();
    let mut known = open(NO_WITNESS);
    let is_other = |known: &KnownIdentity, found: &Identity| matches!(known.shows(found), Shows::Other(_));
    for _ in 0..2 {
        assert!(is_other(&known, &identity("a", None)));
        assert!(is_other(&known, &fenced("a", "100")), "of a fence of long ago, perhaps");
        known.note_fence(&identity("a", None)).unwrap();
        known.note_fence(&fenced("a", "100")).unwrap();
    }
    known = open(NO_WITNESS);
    assert!(is_other(&known, &fenced("a", "100")));
    assert_eq!(known.shows(&fenced("a", "101")), Shows::Fenced);
}

/// What could be read, and said that there was none, is no reason to wait for two.
#[test]
fn the_first_fence_of_a_store_that_could_be_read_before_is_news() {
    let folder = tempfile::tempdir().unwrap();
    let open = |witness| life(folder.path(), witness);
    open("zookeeper").learn(&identity("a", Some("a"))).unwrap();
    assert!(matches!(open(NO_WITNESS).shows(&identity("a", Some("a"))), Shows::Other(_)));
    assert_eq!(open(NO_WITNESS).shows(&fenced("a", "100")), Shows::Fenced);
}

/// `xuid sequence init` wrote its identity since, and no fence.
#[test]
fn the_first_fence_of_a_store_that_could_be_read_later_is_news() {
    let folder = tempfile::tempdir().unwrap();
    let open = |witness| life(folder.path(), witness);
    open("zookeeper").learn(&identity("a", None)).unwrap();
    open("zookeeper").learn(&identity("a", Some("a"))).unwrap();
    assert!(matches!(open(NO_WITNESS).shows(&identity("a", Some("a"))), Shows::Other(_)));
    assert_eq!(open(NO_WITNESS).shows(&fenced("a", "100")), Shows::Fenced);
}

/// Only a person gets over a fence that is gone.
#[test]
fn a_store_that_lacks_the_fence_that_its_witness_needed_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let open = |witness| life(folder.path(), witness);
    open(NO_WITNESS).learn(&fenced("a", "100")).unwrap();
    open("local").learn(&fenced("a", "200")).unwrap();
    let known = || open("local");
    let without = [identity("a", Some("a")), identity("a", None)];
    for lacking in [fenced("a", "100"), fenced("b", "100")].into_iter().chain(without) {
        assert!(matches!(known().shows(&lacking), Shows::Other(_)), "{lacking:?}");
    }
    for at in ["200", "200.000", "201"] {
        assert_eq!(known().shows(&fenced("a", at)), Shows::Known);
    }
    known().vouch(&fenced("b", "100")).unwrap();
    assert!(matches!(known().shows(&fenced("a", "100")), Shows::Other(_)), "of another one");
    known().vouch(&fenced("a", "100")).unwrap();
    assert_eq!(known().shows(&fenced("a", "100")), Shows::Known);
}

/// Else no change of it would ever be noticed there.
#[test]
fn a_folder_of_before_notes_its_witness_with_the_next_grant() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(NAME), br#"{"version":1,"identity":"a"}"#).unwrap();
    let open = |witness| life(folder.path(), witness);
    open("local").learn(&identity("a", None)).unwrap();
    assert_eq!(open("local").shows(&identity("a", None)), Shows::Known);
    assert!(matches!(open(NO_WITNESS).shows(&identity("a", None)), Shows::Other(_)));
}

/// A key with a wrong letter is no key, and what it said would be as if it never was; a fence of the year 5000 would make each
/// later one none.
#[test]
fn a_file_with_a_flipped_bit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = |witness| life(folder.path(), witness);
    open(NO_WITNESS).learn(&fenced("a", "1764328677.123")).unwrap();
    open("local").learn(&fenced("a", "1764328777.456")).unwrap();
    let path = folder.path().join(NAME);
    let whole = std::fs::read(&path).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let opened = KnownIdentity::open(Some(folder.path()));
        assert!(opened.is_err(), "bit {bit}: {}", String::from_utf8_lossy(&bytes));
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(open("local").has_witness_missed());
}

#[test]
fn a_file_of_another_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(NAME), br#"{"version":2,"identity":"a"}"#).unwrap();
    assert!(KnownIdentity::open(Some(folder.path())).unwrap_err().to_string().contains("version is 2"));
}
