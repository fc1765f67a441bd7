import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** Appends the changes of a connector to a file, a line each, until one has a text. Properties, file, text. */
public class Debezium {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(reader);
        }
        CountDownLatch done = new CountDownLatch(1);
        AtomicBoolean seen = new AtomicBoolean();
        Writer out = Files.newBufferedWriter(
            Path.of(arguments[1]), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties)
            .using((success, message, error) -> {
                if (error != null) {
                    error.printStackTrace();
                }
                done.countDown();
            })
            .notifying((events, committer) -> {
                try {
                    for (ChangeEvent<String, String> event : events) {
                        out.write("{\"key\":" + event.key() + ",\"value\":" + event.value() + "}\n");
                        committer.markProcessed(event);
                        if (event.value() != null && event.value().contains(arguments[2])) {
                            seen.set(true);
                            done.countDown();
                        }
                    }
                    out.flush();
                } catch (IOException fault) {
                    throw new UncheckedIOException(fault);
                }
                committer.markBatchFinished();
            })
            .build();
        ExecutorService pool = Executors.newSingleThreadExecutor();
        pool.execute(engine);
        done.await(Long.parseLong(arguments[3]), TimeUnit.SECONDS);
        try {
            engine.close();
        } catch (IllegalStateException ended) {
            // It has failed, which its completion has told.
        }
        pool.shutdown();
        pool.awaitTermination(30, TimeUnit.SECONDS);
        out.close();
        System.exit(seen.get() ? 0 : 1);
    }
}
