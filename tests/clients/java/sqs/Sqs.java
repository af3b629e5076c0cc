import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;

/** What the cycle asks of an SDK; both generations implement it, and check the MD5 of bodies and attributes on their own. */
interface Sqs {
    /** A message attribute; one of text and bytes is null. */
    record Attribute(String type, String text, ByteBuffer bytes) {}

    /** A message to send; what is null is not said. */
    record Out(String body, Map<String, Attribute> attributes, Integer delay, String group, String dedup) {
        static Out of(String body) {
            return new Out(body, Map.of(), null, null, null);
        }
    }

    /** A message that was received. */
    record In(String id, String handle, String body, Map<String, String> system, Map<String, Attribute> attributes) {}

    record Sent(String id, String sequence) {}

    /** The ids that went well, and the codes of those that did not by their ids. */
    record Batch(List<String> successful, Map<String, String> failed) {}

    record Move(String handle, String status, long moved) {}

    /** How the SDK tells of an error: the simple name of its exception, the code and HTTP's status. */
    record Refusal(String type, String code, int status) {}

    String create(String name, Map<String, String> attributes);

    String url(String name);

    /** Every page, of this many each. */
    List<String> list(String prefix, int page);

    Map<String, String> attributes(String queue);

    void set(String queue, Map<String, String> attributes);

    void tag(String queue, Map<String, String> tags);

    void untag(String queue, List<String> names);

    Map<String, String> tags(String queue);

    Sent send(String queue, Out message);

    /** Their ids are their numbers. */
    Batch sendBatch(String queue, List<Out> messages);

    /** At most one; `visibility` may be null. */
    List<In> receive(String queue, int wait, Integer visibility);

    void delete(String queue, String handle);

    /** Their ids are their numbers. */
    Batch deleteBatch(String queue, List<String> handles);

    void changeVisibility(String queue, String handle, int seconds);

    void purge(String queue);

    void deleteQueue(String queue);

    List<String> sources(String deadLetterQueue);

    String startMove(String sourceArn, Integer perSecond, String destinationArn);

    List<Move> moves(String sourceArn);

    long cancelMove(String handle);

    Refusal refusal(RuntimeException error);
}
