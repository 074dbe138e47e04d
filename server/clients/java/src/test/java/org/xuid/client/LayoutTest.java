package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Instant;
import org.junit.jupiter.api.Test;

/** Arithmetic of ids. */
class LayoutTest {
    @Test
    void the_parts_of_an_id_are_found_without_a_call() {
        Layout layout = new Layout(1_524_153_600_000L, 1_000, 41, 10, 12);
        IdParts parts = layout.parts(1_128_275_363_336_683_521L);
        assertEquals(Instant.parse("2026-10-28T02:43:28.962Z"), parts.time());
        assertEquals(32, parts.worker());
        assertEquals(1, parts.sequence());
        assertThrows(IllegalArgumentException.class, () -> layout.parts(-1));
        IdParts lowest = new Layout(0, 10_000, 39, 16, 8, 1).parts(7L << 24 | 5 << 16 | 3);
        assertEquals(70, lowest.unixMs());
        assertEquals(3, lowest.worker());
        assertEquals(5, lowest.sequence());
        Layout opaque = new Layout(0, 1_000, 41, 10, 12, 2);
        assertThrows(UnsupportedOperationException.class, () -> opaque.parts(7));
        Layout fine = new Layout(0, 10, 60, 0, 3);
        assertEquals((Long.MAX_VALUE >>> 3) / 100, fine.parts(Long.MAX_VALUE).unixMs());
        assertEquals(0, fine.parts(Long.MAX_VALUE).worker());
        Layout coarse = new Layout(0, 1_000_000, 33, 20, 10);
        assertEquals(((1L << 33) - 1) * 1_000, coarse.parts(Long.MAX_VALUE).unixMs());
    }

    @Test
    void a_run_honours_its_stride() {
        Run run = new Run(1, 4, 4_096);
        assertArrayEquals(new long[] {1, 4_097, 8_193, 12_289}, run.ids().toArray());
        assertEquals(12_289, run.last());
        assertEquals(8_193, run.id(2));
        assertThrows(IndexOutOfBoundsException.class, () -> run.id(4));
        assertEquals(run, new Run(1, 4, 4_096));
    }
}
