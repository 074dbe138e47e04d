package org.xuid.client;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.xuid.client.internal.base.Settings;
import org.xuid.client.internal.wire.JsonFields;
import org.xuid.client.internal.wire.Request;

/**
 * The numbers of one name, from whatever server its {@link XuidClient} is connected to. Immutable, and safe for
 * threads.
 *
 * <p>Numbers of one server ascend. Those of several interleave, except where the sequence is {@code strict}.
 *
 * <p>All calls throw {@link XuidException}. Among the refusals are {@code NO_SEQUENCE}, {@code FORBIDDEN} and
 * {@code EXHAUSTED}, which stay, and {@code STORE_AWAY} and {@code STORE_BEHIND}, which may pass.
 */
public final class Sequence {
    private final XuidClient client;
    private final String name;

    Sequence(XuidClient client, String name) {
        Request.name(name);
        this.client = client;
        this.name = name;
    }

    /**
     * Its name.
     *
     * @return 1 to 128 bytes of UTF-8
     */
    public String name() {
        return name;
    }

    /**
     * One number, greater than every ordered one that the same server answered with before. The server decides how long
     * it waits for one.
     *
     * @return a number of 0 to 2^63 - 1
     */
    public long next() {
        return XuidClient.await(this::nextAsync);
    }

    /**
     * As {@link #next}.
     *
     * @return the number to come
     */
    public CompletableFuture<Long> nextAsync() {
        return client.call(Request.sequenceNext(name));
    }

    /**
     * Exactly {@code count} numbers, ascending, within 50 ms.
     *
     * @param count 1 to the server's limit
     * @return the numbers
     */
    public long[] array(int count) {
        return array(count, Order.ORDERED, XuidClient.WAIT);
    }

    /**
     * Exactly {@code count} numbers, or an error after {@code wait}.
     *
     * @param count 1 to the server's limit
     * @param order {@link Order#ORDERED}, or {@link Order#ANY} for the fastest
     * @param wait how long the server may wait for them; above 60 s counts as 60 s
     * @return the numbers
     */
    public long[] array(int count, Order order, Duration wait) {
        return XuidClient.await(() -> arrayAsync(count, order, wait));
    }

    /**
     * As {@link #array(int, Order, Duration)}.
     *
     * @param count 1 to the server's limit
     * @param order {@link Order#ORDERED} or {@link Order#ANY}
     * @param wait how long the server may wait for them
     * @return the numbers to come
     */
    public CompletableFuture<long[]> arrayAsync(int count, Order order, Duration wait) {
        return client.call(Request.sequenceArray(name, count, order.ordinal(), XuidClient.ms(wait)));
    }

    /**
     * Exactly {@code count} numbers as runs, or an error after {@code wait}. Their stride is the increment of the
     * sequence.
     *
     * @param count 1 to the server's limit
     * @param order {@link Order#ORDERED}, or {@link Order#ANY} for the fastest
     * @param wait how long the server may wait for them; above 60 s counts as 60 s
     * @return runs that add up to the count
     */
    public List<Run> runs(int count, Order order, Duration wait) {
        return XuidClient.await(() -> runsAsync(count, order, wait));
    }

    /**
     * As {@link #runs}.
     *
     * @param count 1 to the server's limit
     * @param order {@link Order#ORDERED} or {@link Order#ANY}
     * @param wait how long the server may wait for them
     * @return the runs to come
     */
    public CompletableFuture<List<Run>> runsAsync(int count, Order order, Duration wait) {
        return client.call(Request.sequenceRuns(name, count, order.ordinal(), XuidClient.ms(wait), false));
    }

    /**
     * Exactly {@code count} numbers in one run, within 50 ms.
     *
     * @param count 1 to the server's limit
     * @return one run
     */
    public Run take(int count) {
        return take(count, Order.ORDERED, XuidClient.WAIT);
    }

    /**
     * Exactly {@code count} numbers in one run, or an error after {@code wait}: {@code COUNT} where the server cannot
     * put so many into one run.
     *
     * @param count 1 to the server's limit
     * @param order {@link Order#ORDERED}, or {@link Order#ANY} for the fastest
     * @param wait how long the server may wait for them; above 60 s counts as 60 s
     * @return one run
     */
    public Run take(int count, Order order, Duration wait) {
        return XuidClient.await(() -> contiguous(count, order, wait)).get(0);
    }

    /**
     * As {@link #take(int, Order, Duration)}.
     *
     * @param count 1 to the server's limit
     * @param order {@link Order#ORDERED} or {@link Order#ANY}
     * @param wait how long the server may wait for them
     * @return the run to come
     */
    public CompletableFuture<Run> takeAsync(int count, Order order, Duration wait) {
        // The link lets no other number of runs through.
        return contiguous(count, order, wait).thenApply(runs -> runs.get(0));
    }

    /**
     * What the server knows of it.
     *
     * @return a JSON object
     */
    public String info() {
        return XuidClient.await(() -> client.call(Request.sequenceInfo(name)));
    }

    /**
     * Begins it. The same once more succeeds and changes nothing; with other settings it is refused as {@code EXISTS}.
     *
     * @param settings what it is to be
     * @return a JSON object, as of {@link #info}
     */
    public String create(Settings settings) {
        return create(settings.toString());
    }

    /**
     * Changes what is said.
     *
     * @param changes what is to change
     * @return a JSON object, as of {@link #info}
     */
    public String alter(Changes changes) {
        return alter(changes.toString());
    }

    String create(String json) {
        return XuidClient.await(() -> client.call(Request.sequenceCreate(name, json)));
    }

    String alter(String json) {
        return XuidClient.await(() -> client.call(Request.sequenceAlter(name, json)));
    }

    private CompletableFuture<List<Run>> contiguous(int count, Order order, Duration wait) {
        return client.call(Request.sequenceRuns(name, count, order.ordinal(), XuidClient.ms(wait), true));
    }

    /**
     * What a new sequence is to be; what is not said is the server's default. Each setter changes the object and
     * returns it.
     *
     * <pre>{@code
     * var settings = new Sequence.Settings().start(1_000_000).description("orders of the shop");
     * client.sequence("orders").create(settings);
     * }</pre>
     */
    public static final class Settings {
        private final JsonFields fields = new JsonFields();

        /** The defaults: 1, 2, 3, ... */
        public Settings() {}

        /**
         * No number is below. Defaults to 1.
         *
         * @param start 0 to 2^63 - 1
         * @return this
         */
        public Settings start(long start) {
            fields.number("start", start);
            return this;
        }

        /**
         * The least that a server is granted at once. Too small, and its store is asked often; too large, and a crash
         * leaves a wider gap. Defaults to the server's setting, 1,000.
         *
         * @param step 1 or more
         * @return this
         */
        public Settings step(long step) {
            fields.number("step", step);
            return this;
        }

        /**
         * Issued are numbers that leave a remainder when they are divided by an increment. Defaults to all numbers.
         *
         * @param increment 1 or more
         * @param remainder 0 to {@code increment - 1}
         * @return this
         */
        public Settings increment(long increment, long remainder) {
            fields.number("increment", increment);
            fields.number("remainder", remainder);
            return this;
        }

        /**
         * No number is above. Defaults to 2^63 - 1.
         *
         * @param last 0 to 2^63 - 1
         * @return this
         */
        public Settings last(long last) {
            fields.number("last", last);
            return this;
        }

        /**
         * Whether it ascends over all servers, at the cost of a change of the store for each batch of requests.
         * Defaults to no.
         *
         * @param strict true: over all servers; false: over each
         * @return this
         */
        public Settings strict(boolean strict) {
            fields.raw("strict", Boolean.toString(strict));
            return this;
        }

        /**
         * For people. Defaults to nothing.
         *
         * @param text at most 256 bytes of UTF-8
         * @return this
         */
        public Settings description(String text) {
            fields.text("description", text);
            return this;
        }

        /**
         * The JSON object that is sent.
         *
         * @return a text
         */
        @Override
        public String toString() {
            return fields.toString();
        }
    }

    /** What is to change of a sequence; what is not said stays. Each setter changes the object and returns it. */
    public static final class Changes {
        private final JsonFields fields = new JsonFields();

        /** Nothing yet. */
        public Changes() {}

        /**
         * The least that a server is granted at once, from its next grant on.
         *
         * @param step 1 or more
         * @return this
         */
        public Changes step(long step) {
            fields.number("step", step);
            return this;
        }

        /**
         * The highest number that may be issued.
         *
         * @param last a number above the one before
         * @return this
         */
        public Changes last(long last) {
            fields.number("last", last);
            return this;
        }

        /**
         * Ends the sequence: no number is granted any more, to any server.
         *
         * @return this
         */
        public Changes retired() {
            fields.text("last", "retired");
            return this;
        }

        /**
         * For people.
         *
         * @param text at most 256 bytes of UTF-8
         * @return this
         */
        public Changes description(String text) {
            fields.text("description", text);
            return this;
        }

        /**
         * The JSON object that is sent.
         *
         * @return a text
         */
        @Override
        public String toString() {
            return fields.toString();
        }
    }
}
