//! What keeps ids from coming twice, by name, so that a test can take one guard out and must then find out.
//!
//! The code asks [`Guard::holds`] where a guard stands. In an ordinary build every guard holds, which the compiler
//! knows: it costs nothing there. On the path of a hit nothing is asked but under `cfg(test)`. Which test finds
//! out what is missing stands in one table, `testing::mutants`, and a test of it fails where a guard has none.
//!
//! # Invariants
//! - I1 what is out is out for one thread and for as long as [`Guard::without`] runs, a panic included: tests run side
//!   by side. A model of loom runs all its threads on one, and so does a simulation.

/// Names the guards, and lists them.
macro_rules! guards {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A guard that a negative control can take out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(any(not(test), loom), allow(dead_code, reason = "some stand in code for tests only"))]
        pub(crate) enum Guard {
            $($(#[$doc])* $name,)*
        }

        #[cfg(all(test, not(loom)))]
        impl Guard {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

guards! {
    /// An engine that was configured with another layout than its registry's is not built (U1).
    LayoutCompared,
    /// A folder that belongs to another cluster is refused (U1).
    FolderOfCluster,
    /// A spill of another cluster or layout is refused (U1).
    SpillOfCluster,

    /// Only a worker whose mark is not above the clock is chosen.
    MarkNotAhead,
    /// A window begins at the mark it replaces, or later (U2).
    WindowAfterMark,
    /// A window does not begin below the registry's floor (U2).
    Floor,
    /// No window reaches further than two minutes beyond the registry's time.
    FurthestWindow,
    /// A write names the version of what it replaces (U2).
    VersionCompared,
    /// An unknown outcome is "not ours" until a re-read shows our token and operation (U2).
    UnknownIsNotOurs,
    /// The re-read compares the token.
    OwnToken,
    /// The re-read compares the operation.
    OwnOperation,
    /// The re-read compares the end: a copy of this machine counts its operations as this process does.
    OwnEnd,
    /// A claim in doubt is ours only if the record shows its operation and its end (U2).
    ClaimCompared,
    /// Of several renewals in doubt, the one whose operation the record shows is the one that was stored (U2).
    RenewalCompared,
    /// A window that comes back for a worker which was left is dropped (U2).
    RenewalOfHeldWorker,
    /// A worker whose record went back is left for good (U2).
    RecordWentBack,
    /// What is handed back begins after the last tick of which an id was cut.
    HandBackWholeTicks,
    /// What is handed back is cut no more.
    HandBackLast,
    /// The minter is sealed before the rest of its window is handed back (U2).
    SealFirst,

    /// A file gets its name only where there is none: a registry that is there is not made again (U1, U2).
    NamedOnce,
    /// A copied registry is told from the one that its header was written for.
    FileIdentity,
    /// A write to an ensemble names the era that it was begun in (U2).
    EraNamed,
    /// A version that was read in an earlier era fits nothing in a later one (U2).
    EraTagged,
    /// After a connection to an ensemble a sync comes before everything else.
    SyncFirst,
    /// A look around in an ensemble that was broken off half-way has shown nothing (U2).
    LookToItsEnd,
    /// An answer of an ensemble counts only over the connection that was looked around in (U2).
    SameConnection,
    /// An era that the registry, or another process of the folder, knows to be over is over for this process, too (U2).
    EndedLearnt,
    /// What a folder remembers of an ensemble counts only with its checksum.
    HintChecked,
    /// What another process may have left unsynced is synced before a change.
    SyncBefore,
    /// After a failed sync everything is written again before it is believed.
    WrittenAgain,
    /// What was in doubt is noted for later processes when it is believed (U2, U4).
    DoubtNoted,
    /// A registry that says less than its folder knew is refused (U2, U4).
    HintCompared,
    /// A registry that is written over under a process is refused as a whole, and one that another process knows more of
    /// when a worker is taken (U2, U4).
    PutBackRefused,
    /// A hint says nothing that the registry did not: it is written after the record.
    HintLast,
    /// What opening believes is durable by then.
    SyncAtOpening,
    /// The first copy of a record is durable before the second is touched.
    SyncBetween,
    /// A record is written twice.
    SecondCopy,
    /// What another process may have left unsynced of the headers is synced before one is written.
    HeaderSyncBefore,
    /// The first header is durable before the second is touched.
    HeaderSyncBetween,
    /// Of two headers the one that is not sound is written first.
    HeaderSpareFirst,

    /// The frontier passes all of a run before the run is handed out (U3).
    FrontierFirst,
    /// What a failed append may have written is waste (U3).
    FailedAppendWasted,
    /// A run that comes to a ticket which is over goes back (U3).
    TicketReturns,

    /// A grant in doubt is ours only if the mark shows its token and operation (U4).
    GrantCompared,
    /// A mark is moved before its extents are used (U4).
    MarkFirst,
    /// A spill that was opened is read from the registry's mark on, and not from what its file says (U4).
    MarkOfRegistry,
    /// A grant begins at the registry's mark as it is now (U4).
    GrantAtMark,
    /// A spill without a mark is refused (U4).
    AbsentMarkRefused,
    /// A spill whose mark went back is given up (U4).
    MarkWentBack,

    /// A slot is emptied by one swap (U5).
    TakeBySwap,
    /// A refill stores in empty slots only (U5).
    RefillOnlyEmpty,
    /// A request for a refill is taken down before it is answered, so that none is lost.
    AnswerFirst,
    /// Whoever takes what a refill put in sees that the request for it was answered.
    AnswerSeen,
    /// A panic of the producer takes requests for refills down.
    PanicAnswers,
    /// A hand is of its own engine and of this generation (U3, U7).
    GenerationCompared,
    /// The generation is read before the run is taken (U7).
    GenerationBeforeTake,
    /// A turn-over voids what threads and handles hold (U7).
    TurnOverVoids,
    /// A stop voids it once more after its sweeps: a thread may have taken a block between the two.
    StopVoidsAgain,
    /// A thread that waits reads the generation before: of a run that comes after a voiding it uses one id (U3, U7).
    GenerationBeforeWait,
    /// A shutdown or turn-over voids what handles hold (U7).
    LimitVoided,
    /// The generation is over before a limit is zeroed.
    GenerationThenLimits,
    /// A handle reads the generation before it takes the run that its limit is for.
    GenerationBeforeLimit,
    /// A handle looks at the generation again after it set its limit.
    LimitLooksAgain,
    /// These four accesses have one order.
    LimitInOrder,
    /// A forked child finds the page wiped.
    ForkPage,
    /// A stop that a forked child goes on with leaves its parent's spill alone (U3).
    ForkedAtStop,

    /// Nothing is cut above engine time (U6).
    NotAboveClock,
    /// Engine time goes back at a switch of worker only.
    ClockBackAtSwitch,
    /// Nothing is cut beyond the end of a window (U6).
    WindowEnd,
    /// A run ends with its tick, and does not go on in the next worker's (U6).
    SequenceEnd,
    /// An ordered id waits for a tick above the last one.
    OrderedRises,
    /// The last ordered id is remembered over held workers and switches.
    OrderedAboveLast,
    /// The last id of an ordered run is remembered, and not its first.
    OrderedRunWhole,

    /// What is too old when it leaves a window is wasted (U7).
    AgeOfWindow,
    /// What is too old when it leaves the spill is wasted (U7).
    AgeOfSpill,
    /// What is too old when the call is done that waited with it goes back (U7).
    AgeOfTicket,
    /// What a call gives back after more than a second is not fresh any more (U7).
    AgeOfReturns,

    /// A leap of the clock voids what threads and handles hold.
    LeapDropsRuns,
    /// It does so after ring and queue are empty: a thread may take a block until then.
    LeapVoidsLast,
    /// It does so at the reading that sees it, be it a caller's.
    LeapVoidsAtOnce,
    /// No call cuts from a window between that reading and the turn that drops it.
    LeapStopsCuts,
    /// It drops the queue.
    LeapDropsQueue,
    /// It drops the ring.
    LeapDropsRing,
    /// It drops what calls gave back.
    LeapDropsReturns,
    /// It drops what calls that wait have gathered.
    LeapDropsGathered,
    /// What a call took before it, and gives back after it, is wasted.
    LeapWastesReturns,
    /// What a call took before it, and has in hand when it has all that it asked for, is wasted.
    LeapWastesInHand,
    /// What a call was done with before it, and did not read, is wasted: the call waits on.
    LeapWastesDone,
    /// It drops what the minter set aside.
    LeapDropsAside,
    /// It drops what the producer has in its hands, grants included.
    LeapDropsReserve,
    /// It drops the windows.
    LeapDropsWindows,
    /// It drops a claim whose answer is under way.
    LeapDropsClaim,
    /// It has the registry thread forget who it was.
    LeapResetsIdentity,
    /// The registry thread draws another token then.
    LeapDrawsToken,
    /// It forgets a claim in doubt.
    LeapForgetsClaim,
    /// It forgets a grant in doubt.
    LeapForgetsGrant,
    /// A worker that comes under a leap which no turn has dealt with is left: no other one is handed back for it.
    LeapBeforeAnswers,
    /// A stop looks for a leap that no turn has seen.
    LeapAtStop,
    /// A copy of this process that the registry shows voids what is held, as a leap does.
    CopyVoids,
    /// It gives up what is in the spill, too: ids that both held may have been put there since.
    CopyGivesUpSpill,
    /// So does a leap: the registry may have gone back with the machine, and a copy may have run for seconds before its clock was set.
    LeapGivesUpSpill,
    /// What is given up is taken out of the file as well: the process may be killed before the registry answers.
    LeapErasesSpill,

    /// A segment is taken from by one addition (Q4).
    SegmentTakeIsOne,
    /// A grant below one that was used is no segment: ordered calls would go back (I1 of `sequence::chain::held`).
    SegmentsAscend,
    /// What is left of a name below an ordered id that it issued is for calls in no promised order.
    RestBelowIsLoose,
    /// The ids of a grant leave the remainder of their name.
    GrantFits,
    /// They end at the name's last number.
    GrantEnds,
    /// A take of neighbours over a seam joins what touches, and nothing else.
    ContiguousTouches,
    /// A name occurs once in a batch.
    AskedOnce,
    /// An unknown outcome is no grant (Q2).
    UnknownIsNoGrant,
    /// A grant is used after the witness took it as unseen, and not before (Q5).
    WitnessFirst,
    /// The witness compares with what all nodes saw (Q5).
    WitnessCompared,
    /// What the witness took out of a gap is no gap any more (Q5).
    GapCutOut,
    /// Below the first grant after a fence nothing is known to be unseen (Q5).
    OpenedIsSeen,
    /// Where a process was granted more than the witness saw, nothing below that is known to be unseen (Q5).
    OwnAboveWitness,
    /// Without a witness a store of another identity closes its names until a fence.
    IdentityCompared,
    /// Another store is gone on with after a fence of its own that is news, and not for one of before it was left.
    FenceIsNews,
    /// A store is gone on with after the folder says so.
    IdentityIsKept,
    /// A store whose witness is new, or there no more, closes its names until a fence.
    WitnessChangeFenced,
    /// So does one that lacks the fence which that needed.
    FenceStays,
    /// Beside a witness that does not see the grants of all, the store is watched.
    UnsharedIsWatched,
    /// What such a witness saw before a grant is asked for, also in an earlier life, is a mark of the store.
    OwnRecordIsMark,
    /// No grant moves a mark that went back: others would not notice that it did.
    GrantAboveFloor,
    /// Behind a fence a name is made no lower than a person said: it may have been there before.
    NewNamesAbove,
    /// Names that a mark which went back closed stay closed in later lives.
    ClosingIsKept,
    /// Leftovers are used after their mark in the registry was raised (Q6).
    LeftoversClaimed,
    /// The mark is raised above the serial that was claimed (Q6).
    SerialRaised,
    /// Leftovers whose mark is absent are not used (Q6).
    LeftoversAbsentRefused,
    /// What an earlier life left tells how far its store had come, also where it is not used.
    LeftMarksKept,
    /// A name refuses what it holds in a forked child (Q7).
    SequenceForked,
    /// A stop that a forked child goes on with leaves its parent's leftovers alone (Q7).
    SequencesForkedAtStop,
    /// A leap of the clock voids what names hold (Q7).
    LeapVoidsSegments,
    /// It voids leftovers that no name has taken yet (Q7).
    LeapVoidsLeftovers,
    /// It drops a grant that is under way (Q7).
    LeapDropsSegment,
    /// The call that meets a leap after it took an id without looking at the clock wastes the id (Q7).
    LeapWastesHit,
    /// What a thread gives back belongs to the generation of its name, or is wasted (Q7).
    BackInItsGeneration,
    /// What is saved while the clock leaps is not kept (Q7).
    LeapDropsSaved,
    /// It drops leftovers whose claim is under way (Q7).
    LeapDropsClaimed,
    /// What a call was served with before it, and did not read, is wasted (Q7).
    LeapWastesServed,
    /// A strict grant below numbers that the witness saw is not used.
    StrictAboveSeen,
    /// A strict grant serves the calls that waited when it was asked for, and no later one.
    StrictServesWhoAsked,
    /// What was taken between two notes counts as of the first of them, so that what is held keeps to its bound.
    TakenAsOfEarliest,
    /// A strict name holds nothing that a later call could get.
    StrictHoldsNothing,
    /// A grant below one that this process used is not used, where it is strict or no witness says that it is unseen.
    GrantAboveOwn,
}

#[cfg(test)]
thread_local! {
    /// A bit for each guard that is out.
    static OUT: std::cell::Cell<[u64; 4]> = const { std::cell::Cell::new([0; 4]) };
}

impl Guard {
    /// Whether it stands: always, but in a thread whose test took it out.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a constant, but in tests")]
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "it names the guard"))]
    pub(crate) fn holds(self) -> bool {
        #[cfg(test)]
        return OUT.get()[self as usize / 64] >> (self as u32 % 64) & 1 == 0;
        #[cfg(not(test))]
        true
    }

    /// Whether none is out.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn all_hold() -> bool {
        OUT.get().iter().all(|out| *out == 0)
    }

    /// Does something without these guards, and without those that are out already.
    #[cfg(test)]
    pub(crate) fn without<T>(guards: &[Self], body: impl FnOnce() -> T) -> T {
        /// Puts them back, whatever happens.
        struct Back([u64; 4]);
        impl Drop for Back {
            fn drop(&mut self) {
                OUT.set(self.0);
            }
        }
        let mut out = OUT.get();
        for guard in guards {
            out[*guard as usize / 64] |= 1 << (*guard as u32 % 64);
        }
        let _back = Back(OUT.replace(out));
        body()
    }
}
