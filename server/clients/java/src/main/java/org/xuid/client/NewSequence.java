package org.xuid.client;

/**
 * What a new sequence is to be; what is not said is the server's default. Each setter changes the object and returns it.
 *
 * <pre>{@code
 * client.sequence("orders").create(new NewSequence().start(1_000_000).step(5_000).description("orders of the shop"));
 * }</pre>
 */
public final class NewSequence {
    private final JsonFields fields = new JsonFields();

    /** The defaults: 1, 2, 3, ... */
    public NewSequence() {}

    /**
     * No number is below. Defaults to 1.
     *
     * @param start 0 to 2^63 - 1
     * @return this
     */
    public NewSequence start(long start) {
        fields.number("start", start);
        return this;
    }

    /**
     * The least that a server is granted at once. Too small, and its store is asked often; too large, and a crash leaves a
     * wider gap. Defaults to the server's setting, 1,000.
     *
     * @param step 1 or more
     * @return this
     */
    public NewSequence step(long step) {
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
    public NewSequence increment(long increment, long remainder) {
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
    public NewSequence last(long last) {
        fields.number("last", last);
        return this;
    }

    /**
     * Whether it ascends over all servers, at the cost of a change of the store for each batch of requests. Defaults to
     * no.
     *
     * @param strict true: over all servers; false: over each
     * @return this
     */
    public NewSequence strict(boolean strict) {
        fields.raw("strict", Boolean.toString(strict));
        return this;
    }

    /**
     * For people. Defaults to nothing.
     *
     * @param text at most 256 bytes of UTF-8
     * @return this
     */
    public NewSequence description(String text) {
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
