package org.xuid.client.internal.wire;

/** Texts of others, made fit for one line of a log. */
public final class Text {
    private Text() {}

    /** The text, with another character in the place of each control character. */
    public static String printable(String text) {
        StringBuilder out = new StringBuilder(text.length());
        text.codePoints().forEach(point -> out.appendCodePoint(Character.isISOControl(point) ? 0xfffd : point));
        return out.toString();
    }
}
