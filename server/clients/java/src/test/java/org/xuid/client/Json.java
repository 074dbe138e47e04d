package org.xuid.client;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.xuid.client.internal.wire.JsonFields;

/** As much of JSON as tests and the conformance program need: objects, arrays, strings, whole numbers, words. */
public final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** A value: Map, List, String, Long, Boolean or null. */
    public static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value();
        if (json.next() != 0) {
            throw json.wrong("the end");
        }
        return value;
    }

    /** A JSON text of the same kinds of values; other numbers as they print. */
    public static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    @SuppressWarnings("unchecked")
    public static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map) {
            char open = '{';
            for (Map.Entry<?, ?> field : ((Map<?, ?>) value).entrySet()) {
                out.append(open);
                write(field.getKey(), out);
                out.append(':');
                write(field.getValue(), out);
                open = ',';
            }
            out.append(open == '{' ? "{}" : "}");
        } else if (value instanceof List) {
            char open = '[';
            for (Object element : (List<?>) value) {
                out.append(open);
                write(element, out);
                open = ',';
            }
            out.append(open == '[' ? "[]" : "]");
        } else if (value instanceof String) {
            JsonFields fields = new JsonFields();
            fields.text("", (String) value);
            out.append(fields.toString(), 4, fields.toString().length() - 1);
        } else {
            out.append(value);
        }
    }

    private Object value() {
        char first = next();
        if (first == '{') {
            Map<String, Object> fields = new LinkedHashMap<>();
            elements('}', () -> {
                String key = string();
                expect(':');
                fields.put(key, value());
            });
            return fields;
        }
        if (first == '[') {
            List<Object> values = new ArrayList<>();
            elements(']', () -> values.add(value()));
            return values;
        }
        return first == '"' ? string() : word();
    }

    private void elements(char end, Runnable element) {
        at++;
        while (next() != end) {
            element.run();
            if (next() == ',') {
                at++;
            } else if (next() != end) {
                throw wrong("a comma or " + end);
            }
        }
        at++;
    }

    private String string() {
        expect('"');
        StringBuilder out = new StringBuilder();
        while (text.charAt(at) != '"') {
            char unit = text.charAt(at++);
            if (unit != '\\') {
                out.append(unit);
                continue;
            }
            char escaped = text.charAt(at++);
            if (escaped == 'u') {
                out.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
                at += 4;
            } else {
                int known = "bfnrt".indexOf(escaped);
                out.append(known < 0 ? escaped : "\b\f\n\r\t".charAt(known));
            }
        }
        at++;
        return out.toString();
    }

    private Object word() {
        int begin = at;
        while (at < text.length() && ",]} \t\n".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        String word = text.substring(begin, at);
        switch (word) {
            case "true":
                return true;
            case "false":
                return false;
            case "null":
                return null;
            default:
                return Long.parseLong(word);
        }
    }

    private void expect(char wanted) {
        if (next() != wanted) {
            throw wrong(String.valueOf(wanted));
        }
        at++;
    }

    private char next() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private IllegalArgumentException wrong(String wanted) {
        return new IllegalArgumentException("no JSON at " + at + ": " + wanted + " was expected");
    }
}
