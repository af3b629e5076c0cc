import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs one Kafka tool after another in this process, because starting a process takes longer than what most of
 * them do. A line on standard input is a class and its arguments, separated by the unit separator; the answer is
 * one line: the exit status and, in base64, what was printed.
 */
public class Host {
    private static final String SEPARATOR = "\u001f";

    /** The status of the first exit: some tools catch what stops them and exit once more. */
    private static Integer exited;

    public static void main(String[] none) throws Exception {
        Exit.Procedure stop = (status, message) -> {
            if (exited == null) {
                exited = status;
            }
            throw new IllegalStateException("exit " + status);
        };
        Exit.setExitProcedure(stop);
        Exit.setHaltProcedure(stop);
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            int status = run(line.split(SEPARATOR, -1), new PrintStream(said, true, StandardCharsets.UTF_8));
            answers.println(status + " " + Base64.getEncoder().encodeToString(said.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String[] words, PrintStream said) throws Exception {
        exited = null;
        System.setOut(said);
        System.setErr(said);
        try {
            Object arguments = Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
        } catch (InvocationTargetException failed) {
            if (exited == null) {
                failed.getCause().printStackTrace(said);
                exited = 1;
            }
        }
        return exited == null ? 0 : exited;
    }
}
