package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ReadmeTest {
    @TempDir
    Path folder;

    @Test
    void the_quick_start_runs_as_it_stands() throws Exception {
        Matcher block = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(Files.readString(Path.of("README.md")));
        assertTrue(block.find());
        Path source = Files.writeString(folder.resolve("QuickStart.java"), block.group(1));
        try (RealServer server = new RealServer(folder)) {
            String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
            var command = new ProcessBuilder(java, "-cp", "target/classes", source.toString()).redirectErrorStream(true);
            command.environment().put("XUID_SERVER", server.address);
            Process process = command.start();
            String said = new String(process.getInputStream().readAllBytes());
            assertEquals(0, process.waitFor(), said);
            assertTrue(said.matches("\\d{10,19}, made at 20\\d\\d-.*\n"), said);
        }
    }
}
