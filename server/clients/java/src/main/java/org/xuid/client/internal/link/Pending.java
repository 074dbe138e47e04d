package org.xuid.client.internal.link;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.xuid.client.internal.wire.Request;

/**
 * The requests in flight on one connection, behind the lock of their link.
 *
 * <ul>
 *   <li>I1 a request id is never used twice on one connection, so a late reply meets no other request;
 *   <li>I2 a waiter is taken once.
 * </ul>
 *
 * <p>A request id is a slot's index below its serial number, which grows with each use (I1). Serials begin at 1, so that
 * ids below 2^32 are free for HELLO and GOAWAY.
 */
public final class Pending {
    /** A place of one request. */
    public static final class Slot {
        private final int index;
        private int serial;
        /** What was asked; null: the slot is free. */
        public Request request;
        /** Who waits; null: the link itself, or a caller that gave up. */
        public Call<?> call;
        /** The server may take its time until then, because the request says so. */
        public long due;

        private Slot(int index) {
            this.index = index;
        }
    }

    private Slot[] slots = new Slot[16];
    private int made;
    private int[] free = new int[16];
    private int freeCount;

    /** Puts a request into a slot and returns its id. */
    public long insert(Request request, Call<?> call, long due) {
        int index = freeCount > 0 ? free[--freeCount] : grow();
        Slot slot = slots[index];
        // 2^32 uses of one slot take longer than any connection lives.
        slot.serial = slot.serial == -1 ? 1 : slot.serial + 1;
        slot.request = request;
        slot.call = call;
        slot.due = due;
        return (long) slot.serial << 32 | index;
    }

    /** The request of that id while it is in flight, or null. */
    public Slot find(long requestId) {
        long index = requestId & 0xffff_ffffL;
        if (index >= made) {
            return null;
        }
        Slot slot = slots[(int) index];
        return slot.request != null && slot.serial == (int) (requestId >>> 32) ? slot : null;
    }

    /** Frees the slot of a request that was answered. */
    public void release(Slot slot) {
        slot.request = null;
        slot.call = null;
        free[freeCount++] = slot.index;
    }

    /** How many requests are in flight. */
    public int size() {
        return made - freeCount;
    }

    /** The slots in use. */
    public List<Slot> used() {
        List<Slot> used = new ArrayList<>(size());
        for (int i = 0; i < made; i++) {
            if (slots[i].request != null) {
                used.add(slots[i]);
            }
        }
        return used;
    }

    private int grow() {
        if (made == slots.length) {
            // Both or none, where memory is used up.
            int[] wider = Arrays.copyOf(free, made * 2);
            slots = Arrays.copyOf(slots, made * 2);
            free = wider;
        }
        slots[made] = new Slot(made);
        return made++;
    }
}
