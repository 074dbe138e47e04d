package org.xuid.client.internal.wire;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/** Bytes to be sent, little-endian, that grow as they are appended. Not safe for threads. */
public final class Bytes {
    static final VarHandle SHORT = view(short[].class);
    static final VarHandle INT = view(int[].class);
    static final VarHandle LONG = view(long[].class);

    private byte[] data = new byte[1_024];
    private int length;

    private static VarHandle view(Class<?> array) {
        return MethodHandles.byteArrayViewVarHandle(array, ByteOrder.LITTLE_ENDIAN);
    }

    /** The memory, of which the first {@link #length} bytes count. It changes when bytes are appended. */
    public byte[] data() {
        return data;
    }

    /** How many bytes there are. */
    public int length() {
        return length;
    }

    /** Drops all bytes, and keeps memory for as many as are usual. */
    public void clear() {
        length = 0;
        if (data.length > 1 << 20) {
            data = new byte[1_024];
        }
    }

    /** Appends one byte. */
    public Bytes u8(int value) {
        int at = room(1);
        data[at] = (byte) value;
        return this;
    }

    /** Appends 16 bits. */
    public Bytes u16(int value) {
        int at = room(2);
        SHORT.set(data, at, (short) value);
        return this;
    }

    /** Appends 32 bits. */
    public Bytes u32(int value) {
        int at = room(4);
        INT.set(data, at, value);
        return this;
    }

    /** Appends 64 bits. */
    public Bytes u64(long value) {
        int at = room(8);
        LONG.set(data, at, value);
        return this;
    }

    /** Appends bytes. */
    public Bytes raw(byte[] bytes) {
        int at = room(bytes.length);
        System.arraycopy(bytes, 0, data, at, bytes.length);
        return this;
    }

    /** Appends a byte of length, and the bytes, 255 at most. */
    public Bytes shortRaw(byte[] bytes) {
        assert bytes.length <= 255 : bytes.length;
        return u8(bytes.length).raw(bytes);
    }

    /** A copy. */
    public byte[] toArray() {
        return Arrays.copyOf(data, length);
    }

    /** Makes room, and returns where it begins. The field {@code data} is to be read after it: it may be another array. */
    private int room(int more) {
        int at = length;
        int need = Math.addExact(at, more);
        if (need > data.length) {
            data = Arrays.copyOf(data, Math.max(need, Math.multiplyExact(data.length, 2)));
        }
        length = need;
        return at;
    }
}
