package org.xuid.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Assumptions;

/** A server of the binary that XUID_BIN names, on a free port, with a folder of its own. */
final class RealServer implements AutoCloseable {
    private static final Pattern LISTENING = Pattern.compile("listening on ([^ ,]+:\\d+)");

    private final Process process;
    final String address;

    RealServer(Path folder, String... more) throws IOException {
        String binary = System.getenv("XUID_BIN");
        Assumptions.assumeTrue(binary != null, "XUID_BIN does not name a server: not tried");
        List<String> command = new ArrayList<>(List.of(binary, "serve", "--listen", "127.0.0.1:0", "--admin",
                "127.0.0.1:0", "--data-dir", folder.resolve("data").toString(), "--sequences", "registry"));
        command.addAll(List.of(more));
        Path log = folder.resolve("log");
        process = new ProcessBuilder(command).redirectError(log.toFile()).start();
        String banner;
        var out = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        banner = out.readLine();
        Matcher found = LISTENING.matcher(String.valueOf(banner));
        if (!found.find()) {
            close();
            throw new IOException("the server does not serve: " + banner + "\n" + Files.readString(log));
        }
        address = found.group(1);
    }

    /** As by `kill -9`. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    @Override
    public void close() {
        process.destroy();
        try {
            if (!process.waitFor(20, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException interrupted) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
