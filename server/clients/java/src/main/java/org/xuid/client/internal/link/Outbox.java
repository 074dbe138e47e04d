package org.xuid.client.internal.link;

import java.io.IOException;
import java.io.OutputStream;
import org.xuid.client.internal.base.Worker;
import org.xuid.client.internal.wire.Bytes;
import org.xuid.client.internal.wire.Request;

/**
 * The write side of a link. A thread that has appended writes by itself while what is in flight is so little that the
 * socket takes it without waiting: that saves a change of threads, which costs more than the write. Above that the
 * writer thread does it, so that neither a caller with a deadline nor the reader ever waits in a write. Of the client's own
 * threads no other one writes.
 *
 * <p>Its lock is the link's.
 *
 * <p>An Error, as of a stack or a memory that is used up, may come at any call of a caller's thread. After one that comes
 * between the first byte of a frame and the last, the link is of no use: {@link #torn}.
 */
final class Outbox {
    /**
     * Requests and bytes without a reply up to which a write does not wait. What was answered was read by the server, so
     * at most these lie in the sockets, and the smallest receive window in use is 64 KiB.
     */
    private static final int DIRECT_REQUESTS = 128;
    private static final long DIRECT_BYTES = 8 * 1_024;
    /** So often in a row a thread writes what others append meanwhile, before it leaves that to the writer. */
    private static final int DIRECT_ROUNDS = 4;

    private final Link link;
    private final OutputStream out;
    private final Thread reader;
    private final Thread writer;

    // Behind the lock of the link.
    private Bytes appended = new Bytes();
    private Bytes spare = new Bytes();
    private boolean isWriting;
    private boolean isStopped;
    /**
     * What came in the middle of a frame that was appended or written. The writer ends the link for it: where it came
     * there may be no room for another call.
     */
    volatile Throwable torn;
    private long unansweredBytes;

    Outbox(Link link, OutputStream out, Thread reader) {
        this.link = link;
        this.out = out;
        this.reader = reader;
        writer = new Worker("xuid-writer " + link.server.address(), () -> {
            try {
                write();
            } catch (Throwable error) {
                link.end(link.lost(null));
                throw error;
            }
        });
    }

    void start() {
        writer.start();
    }

    /** Behind the lock of the link. */
    void append(Request request, long requestId) {
        request.encode(appended, requestId);
        unansweredBytes += request.frameLength();
    }

    /** Behind the lock of the link. */
    void answered(Request request) {
        unansweredBytes -= request.frameLength();
    }

    /** Sees to it that what a caller appended is written. */
    void flush() {
        Thread current = Thread.currentThread();
        if (current == reader) {
            // What callbacks append while replies are handed out shares one write behind the last of them.
            return;
        }
        if (current instanceof Worker) {
            // Deadlines and dials depend on it. A write within TLS may wait for one that a server holds up, however little it is.
            wakeWriter();
        } else {
            flushBatch();
        }
    }

    /** Writes what was appended, or wakes the writer. */
    void flushBatch() {
        for (int round = 0; ; round++) {
            boolean writes = false;
            try {
                Bytes batch;
                synchronized (link) {
                    if (torn == null && (isWriting || isStopped || appended.length() == 0)) {
                        // A thread that writes looks again when it is done.
                        return;
                    }
                    boolean isLittle =
                            link.pending().size() <= DIRECT_REQUESTS && unansweredBytes <= DIRECT_BYTES;
                    if (torn != null || !isLittle || round == DIRECT_ROUNDS) {
                        link.notifyAll();
                        return;
                    }
                    writes = true;
                    batch = take();
                }
                if (!put(batch)) {
                    return;
                }
            } catch (Throwable error) {
                if (writes) {
                    torn = error;
                    wakeWriter();
                }
                throw error;
            }
        }
    }

    /** Has the writer look again. */
    void wakeWriter() {
        synchronized (link) {
            link.notifyAll();
        }
    }

    void stop() {
        synchronized (link) {
            isStopped = true;
            link.notifyAll();
        }
    }

    /** The life of the writer. */
    private void write() {
        while (true) {
            Bytes batch;
            synchronized (link) {
                while (!isStopped && torn == null && (isWriting || appended.length() == 0)) {
                    try {
                        link.wait();
                    } catch (InterruptedException stray) {
                        // The client interrupts no writer: it ends with its link.
                    }
                }
                if (isStopped) {
                    return;
                }
                if (torn != null) {
                    break;
                }
                batch = take();
            }
            if (!put(batch)) {
                return;
            }
        }
        link.end(link.lost(new IOException("a request was cut off: " + torn, torn)));
    }

    private Bytes take() {
        isWriting = true;
        Bytes batch = appended;
        appended = spare;
        return batch;
    }

    /** False: writing is over. */
    private boolean put(Bytes batch) {
        try {
            out.write(batch.data(), 0, batch.length());
            out.flush();
        } catch (IOException failed) {
            link.writeFailed(failed);
            return false;
        }
        synchronized (link) {
            batch.clear();
            spare = batch;
            isWriting = false;
        }
        return true;
    }
}
