package org.xuid.client;

import org.xuid.client.wire.Hello;

/** What a server said about itself when it was connected to. Immutable. */
public final class ServerInfo {
    private final String address;
    private final String version;
    private final String cluster;
    private final Layout layout;
    private final long maxCount;
    private final long maxInFlight;

    ServerInfo(String address, Hello hello) {
        this.address = address;
        version = hello.server;
        cluster = hello.cluster;
        layout = new Layout(hello.epochMs, hello.tickUs, hello.timeBits, hello.workerBits, hello.sequenceBits);
        maxCount = hello.maxCount;
        maxInFlight = hello.maxInFlight;
    }

    /**
     * Its address, as it was given.
     *
     * @return {@code host:port}
     */
    public String address() {
        return address;
    }

    /**
     * Its version, for people.
     *
     * @return a text such as {@code 0.1.0}
     */
    public String version() {
        return version;
    }

    /**
     * Its cluster. Two clusters can issue the same ids.
     *
     * @return 32 hexadecimal digits
     */
    public String cluster() {
        return cluster;
    }

    /**
     * How its ids are made.
     *
     * @return the layout
     */
    public Layout layout() {
        return layout;
    }

    /**
     * The most ids of one request.
     *
     * @return 131,072 or more
     */
    public long maxCount() {
        return maxCount;
    }

    /**
     * How many requests of one connection it takes before it answers some.
     *
     * @return 1 or more
     */
    public long maxInFlight() {
        return maxInFlight;
    }

    @Override
    public String toString() {
        return address + " (xuid " + version + ", cluster " + cluster + ")";
    }
}
