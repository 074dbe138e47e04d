package org.xuid.client;

/** Which ids a server may answer with. */
public enum Order {
    // The ordinals are the numbers of the wire.

    /**
     * Any that were not issued yet, from the server's reserve as well: ids may be as old as its {@code max_age} (an
     * hour by default; two seconds at light load). The fastest.
     */
    ANY,
    /** Ids of a tick of now. Not for sequences. */
    FRESH,
    /**
     * Greater than every ordered id that the same server answered with before; of a sequence, than every ordered number
     * of it. The ids of one reply ascend.
     */
    ORDERED
}
