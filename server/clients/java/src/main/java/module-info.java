/**
 * A client of xuid servers: 64-bit ids that are never issued twice, and numbers of named sequences.
 *
 * <p>Begin at {@link org.xuid.client.XuidClient}. The module needs nothing but {@code java.base}.
 */
module org.xuid.client {
    exports org.xuid.client;
}
