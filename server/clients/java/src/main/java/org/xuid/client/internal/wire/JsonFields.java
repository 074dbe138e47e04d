package org.xuid.client.internal.wire;

import java.util.LinkedHashMap;
import java.util.Map;

/** The fields of a JSON object that is sent, in the order in which they were said first. */
public final class JsonFields {
    private final Map<String, String> fields = new LinkedHashMap<>();

    /** A field whose value is JSON already. */
    public void raw(String key, String json) {
        fields.put(key, json);
    }

    /** As a string: many readers keep numbers in 53 bits. */
    public void number(String key, long number) {
        if (number < 0) {
            throw new IllegalArgumentException(key + " is " + number + ", and 0 to 2^63 - 1 are allowed");
        }
        raw(key, "\"" + number + "\"");
    }

    /** A field of text. */
    public void text(String key, String text) {
        StringBuilder json = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char unit = text.charAt(i);
            if (unit == '"' || unit == '\\') {
                json.append('\\').append(unit);
            } else if (unit < ' ') {
                json.append(String.format("\\u%04x", (int) unit));
            } else {
                json.append(unit);
            }
        }
        raw(key, json.append('"').toString());
    }

    @Override
    public String toString() {
        StringBuilder json = new StringBuilder("{");
        fields.forEach((key, value) -> {
            json.append(json.length() > 1 ? "," : "").append('"').append(key).append("\":").append(value);
        });
        return json.append('}').toString();
    }
}
