//! Copies of which no clock leaps: the registry shows one of them that there is another, by a record with its own token.
//! From then on it issues nothing that the other one had or gets, and neither does a process that opens its disk.
//! Before that both may issue the same: that is what nothing can tell.

use super::*;

/// Which of the two was told, by how many ids it had got then, and what is wrong.
fn met(seed: u64) -> Result<[Option<usize>; 2], String> {
    let mut worlds = [before(seed), before(seed)];
    let registry = lock(&worlds[0].link.to).clone();
    registry.mend();
    registry.fail_reads(0);
    worlds[1].link.put_to(&registry);
    worlds[1].rng = Rng::new(!seed);
    let mut told = [None; 2];
    for _ in 0..150 {
        for (world, told) in worlds.iter_mut().zip(&mut told) {
            world.act(false);
            note(world, told);
        }
    }
    for _ in 0..20 {
        for (world, told) in worlds.iter_mut().zip(&mut told) {
            world.live(1);
            note(world, told);
        }
    }
    // One that was told stops first, and another process opens its disk.
    let first = usize::from(told[0].is_none());
    worlds[first].stop()?;
    let disk = worlds[first].disk.clone();
    let now = worlds[first].time.now();
    let mut third = World::begin(Rng::new(seed ^ 3), &registry, now, disk, WORKERS);
    for _ in 0..12 {
        third.live(1);
        worlds[1 - first].live(1);
    }
    worlds[1 - first].stop()?;
    third.stop()?;
    for (at, told) in told.iter().enumerate() {
        let Some(known) = *told else { continue };
        let (one, other) = (&worlds[at], &worlds[1 - at]);
        if one.engine.stats().windows.switches.clock > 0 {
            // It handed back before what the other one has as well, and may have taken that again.
            continue;
        }
        let mut all = vec![("the one that was told", &one.got[known..]), ("the other", &other.got[..])];
        if at == first {
            // It had this one's disk.
            all.push(("a third", &third.got[..]));
        }
        // The other one may have been told, too: what it had before is not to be told apart from what is here.
        if let Some(why) = twice(&all) {
            return Err(why);
        }
    }
    Ok(told)
}

/// One of the two stops, and is told in that alone: whether it was, and what is wrong. It held one worker, as with two
/// the first may be handed back before the second shows the copy.
fn met_at_stop(seed: u64) -> Result<bool, String> {
    let mut worlds = [before(seed), before(seed)];
    let registry = lock(&worlds[0].link.to).clone();
    registry.mend();
    registry.fail_reads(0);
    worlds[1].link.put_to(&registry);
    worlds[1].rng = Rng::new(!seed);
    let [one, two] = &mut worlds;
    let is_alone = one.assembly.shared.settings.workers == 1 && one.todo.is_empty();
    // It has a window left, and hands it back, when the other one's record has moved on.
    two.live(3);
    let copies = |world: &World| lock(&world.assembly.shared.tally).copies;
    let before = copies(one);
    one.stop()?;
    let is_told = (before, copies(one)) == (0, 1) && copies(two) == 0;
    let mut third = World::begin(Rng::new(seed ^ 3), &registry, two.time.now(), one.disk.clone(), WORKERS);
    for _ in 0..12 {
        third.live(1);
        two.live(1);
    }
    two.stop()?;
    third.stop()?;
    if !is_told || !is_alone {
        return Ok(false);
    }
    twice(&[("the other", &two.got[..]), ("a third", &third.got[..])]).map_or(Ok(true), Err)
}

/// How many ids it had got when it was told, and that was dealt with.
fn note(world: &mut World, told: &mut Option<usize>) {
    if told.is_none() && lock(&world.assembly.shared.tally).copies > 0 {
        while !world.answers.is_empty() {
            world.deliver();
        }
        world.turn();
        *told = Some(world.got.len());
    }
}

#[test]
fn a_process_that_meets_a_copy_of_itself_issues_nothing_that_the_copy_has() {
    let told = (0..TWINS).filter(|n| met(seed(*n)).unwrap_or_else(|why| panic!("{n}: {why}")) != [None; 2]);
    let told = told.count() as u64;
    assert!(told > TWINS * 3 / 4, "{told} of {TWINS} were told");
}

#[test]
fn a_process_that_meets_a_copy_of_itself_in_its_stop_leaves_nothing_that_the_copy_has() {
    let told = (0..TWINS).filter(|n| met_at_stop(seed(*n)).unwrap_or_else(|why| panic!("{n}: {why}")));
    let told = told.count() as u64;
    assert!(told > TWINS / 20, "{told} of {TWINS} were told");
    let found = Guard::without(&[Guard::CopyGivesUpSpill], || {
        (0..MOST).find_map(|n| Some((n, met_at_stop(seed(n)).err()?)))
    });
    let Some((n, why)) = found else { panic!("nothing is wrong in {MOST} twins where the spill is kept") };
    println!("twins {n}: {why}");
    assert!(why.contains("an id came twice"), "{why}");
    assert_eq!(met_at_stop(seed(n)), Ok(true), "with every guard in place");
}

#[test]
fn a_process_that_keeps_what_a_copy_of_it_has_is_found_out() {
    for guard in [Guard::CopyVoids, Guard::CopyGivesUpSpill] {
        let found = Guard::without(&[guard], || (0..MOST).find_map(|n| Some((n, met(seed(n)).err()?))));
        let Some((n, why)) = found else { panic!("without {guard:?} nothing is wrong in {MOST} twins") };
        println!("without {guard:?}, twins {n}: {why}");
        assert!(why.contains("an id came twice"), "{why}");
        assert!(met(seed(n)).is_ok(), "with every guard in place");
    }
}
