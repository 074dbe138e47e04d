package org.xuid.client;

/** What is to change of a sequence; what is not said stays. Each setter changes the object and returns it. */
public final class SequenceChanges {
    private final JsonFields fields = new JsonFields();

    /** Nothing yet. */
    public SequenceChanges() {}

    /**
     * The least that a server is granted at once, from its next grant on.
     *
     * @param step 1 or more
     * @return this
     */
    public SequenceChanges step(long step) {
        fields.number("step", step);
        return this;
    }

    /**
     * The highest number that may be issued.
     *
     * @param last a number above the one before
     * @return this
     */
    public SequenceChanges last(long last) {
        fields.number("last", last);
        return this;
    }

    /**
     * Ends the sequence: no number is granted any more, to any server.
     *
     * @return this
     */
    public SequenceChanges retired() {
        fields.text("last", "retired");
        return this;
    }

    /**
     * For people.
     *
     * @param text at most 256 bytes of UTF-8
     * @return this
     */
    public SequenceChanges description(String text) {
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
