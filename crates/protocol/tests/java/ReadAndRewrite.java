import java.io.BufferedReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with Kafka's own classes and writes them again: the bytes must be the same.
 * Input lines: message name, version, bytes in hexadecimal. Run by `cargo xtask protocol compare`.
 */
public class ReadAndRewrite {
    private static final String[] CLASS_NAMES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
    };

    public static void main(String[] args) throws Exception {
        int same = 0;
        int wrong = 0;
        try (BufferedReader lines = Files.newBufferedReader(Path.of(args[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ", -1);
                String problem = problem(words[0], Short.parseShort(words[1]), words[2]);
                if (problem == null) {
                    same++;
                } else {
                    wrong++;
                    System.out.println(words[0] + " " + words[1] + ": " + problem);
                }
            }
        }
        System.out.println(same + " messages read and rewritten, " + wrong + " wrong");
        System.exit(wrong == 0 && same > 0 ? 0 : 1);
    }

    private static String problem(String name, short version, String hex) {
        byte[] bytes = HexFormat.of().parseHex(hex);
        try {
            Message message = create(name);
            ByteBuffer input = ByteBuffer.wrap(bytes);
            message.read(new ByteBufferAccessor(input), version);
            if (input.hasRemaining()) {
                return input.remaining() + " bytes left over";
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(output), cache, version);
            return Arrays.equals(output.array(), bytes) ? null : "rewritten differently: " + message;
        } catch (Exception e) {
            return e.toString();
        }
    }

    private static Message create(String name) throws ReflectiveOperationException {
        for (String pattern : CLASS_NAMES) {
            try {
                Class<?> type = Class.forName(String.format(pattern, name));
                return (Message) type.getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException e) {
                // Each package holds only some of the messages.
            }
        }
        throw new ClassNotFoundException(name);
    }
}
