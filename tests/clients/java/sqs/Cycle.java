import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A full cycle of SQS. Prints `VERSION x`, then one line per step, `STEP name ok|fail detail`, and exits 1 if one failed.
 * With SQS_SIGNED, an endpoint with the access key SQS_KEY_ID and SQS_SECRET, signatures are tested too.
 */
final class Cycle {
    interface Connect {
        Sqs to(String endpoint, String key, String secret);
    }

    static final String ENDPOINT = System.getenv("SQS"), SIGNED = System.getenv("SQS_SIGNED");

    final Connect connect;
    final Sqs sqs;
    final String prefix;
    String main, dead, source;
    boolean failed = false;

    Cycle(String prefix, Connect connect) {
        this.connect = connect;
        this.sqs = connect.to(ENDPOINT, "any", "key");
        this.prefix = prefix + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    void run(String version) {
        System.out.println("VERSION " + version);
        step("create", this::create);
        step("list", this::list);
        step("attributes", this::attributes);
        step("tags", this::tags);
        step("message", this::message);
        step("batch", this::batch);
        step("delay", this::delay);
        step("visibility", this::visibility);
        step("long-poll", this::longPoll);
        step("fifo", this::fifo);
        step("dead-letters", this::deadLetters);
        step("move-task", this::moveTask);
        step("errors", this::errors);
        step("purge", this::purge);
        step("address", this::address);
        step("delete-queue", this::deleteQueue);
        if (SIGNED != null) step("signatures", this::signatures);
        System.out.flush();
        Runtime.getRuntime().halt(failed ? 1 : 0);
    }

    void step(String name, Callable<String> body) {
        long begin = System.currentTimeMillis();
        try {
            String detail = body.call();
            System.out.printf("STEP %s ok %s (%.1f s)%n", name, detail, (System.currentTimeMillis() - begin) / 1000.0);
        } catch (Throwable error) {
            failed = true;
            System.out.printf("STEP %s fail %s%n", name, error.toString().replaceAll("\\s+", " "));
        }
    }

    static void check(boolean condition, Object text) {
        if (!condition) throw new AssertionError(text);
    }

    static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + 20_000;
        while (!condition.call()) {
            check(System.currentTimeMillis() < deadline, "no " + what + " within 20 s");
            Thread.sleep(50);
        }
    }

    /** The call must fail with the SDK's exception of that name (where it is modelled), this code and this status. */
    void refused(String type, String code, int status, Runnable call) {
        try {
            call.run();
        } catch (RuntimeException error) {
            Sqs.Refusal found = sqs.refusal(error);
            check(found.code().equals(code) && found.status() == status, found + ": " + error.getMessage());
            check(type == null || found.type().equals(type), found + ", not a " + type);
            return;
        }
        throw new AssertionError(code + ": not refused");
    }

    String queue(String name, Map<String, String> attributes) {
        return sqs.create(prefix + "-" + name, attributes);
    }

    Sqs.In one(String queue) {
        List<Sqs.In> messages = sqs.receive(queue, 5, 30);
        check(messages.size() == 1, messages.size() + " messages within 5 s");
        return messages.get(0);
    }

    String create() {
        main = queue("main", Map.of("VisibilityTimeout", "30"));
        check(queue("main", Map.of("VisibilityTimeout", "30")).equals(main), "the same queue has another URL");
        refused("QueueNameExistsException", "QueueAlreadyExists", 400, () -> queue("main", Map.of("VisibilityTimeout", "31")));
        queue("main.fifo", Map.of("FifoQueue", "true", "ContentBasedDeduplication", "true"));
        return "standard and FIFO";
    }

    String list() {
        List<String> queues = sqs.list(prefix, 1);
        check(queues.size() == 2 && new HashSet<>(queues).size() == 2, queues);
        check(sqs.url(prefix + "-main").equals(main), "another URL");
        return "by page, by name";
    }

    String attributes() {
        sqs.set(main, Map.of("VisibilityTimeout", "45"));
        Map<String, String> found = sqs.attributes(main);
        check(found.get("VisibilityTimeout").equals("45") && found.get("QueueArn").endsWith(":" + prefix + "-main"), found);
        refused("InvalidAttributeValueException", "InvalidAttributeValue", 400, () -> sqs.set(main, Map.of("DelaySeconds", "901")));
        return found.size() + " of a standard queue";
    }

    String tags() {
        sqs.tag(main, Map.of("a", "1", "b", "2"));
        sqs.untag(main, List.of("a"));
        check(sqs.tags(main).equals(Map.of("b", "2")), sqs.tags(main));
        return "";
    }

    String message() {
        Map<String, Sqs.Attribute> attributes = Map.of(
                "text", new Sqs.Attribute("String", "gelb ✓", null),
                "number", new Sqs.Attribute("Number", "-12.50", null),
                "bytes", new Sqs.Attribute("Binary", null, ByteBuffer.wrap(new byte[] {0, 1, 2, -1})),
                "kind", new Sqs.Attribute("String.own", "x", null));
        String body = "täglich \uD83D\uDEA2 <&>\n";
        Sqs.Sent sent = sqs.send(main, new Sqs.Out(body, attributes, null, null, null));
        Sqs.In message = one(main);
        check(message.id().equals(sent.id()) && message.body().equals(body), message);
        check(message.attributes().equals(attributes), message.attributes());
        check(message.system().get("ApproximateReceiveCount").equals("1"), message.system());
        sqs.delete(main, message.handle());
        check(sqs.receive(main, 0, null).isEmpty(), "it is still there");
        return "four types of attributes";
    }

    String batch() {
        List<Sqs.Out> messages = new ArrayList<>();
        for (int i = 0; i < 10; i++) messages.add(new Sqs.Out("" + i, Map.of("n", new Sqs.Attribute("Number", "" + i, null)), i == 3 ? 901 : null, null, null));
        Sqs.Batch sent = sqs.sendBatch(main, messages);
        check(sent.successful().size() == 9 && sent.failed().equals(Map.of("3", "InvalidParameterValue")), sent);
        List<String> handles = new ArrayList<>();
        for (int i = 0; i < 9; i++) handles.add(one(main).handle());
        handles.add("no handle");
        Sqs.Batch deleted = sqs.deleteBatch(main, handles);
        check(deleted.successful().size() == 9 && deleted.failed().equals(Map.of("9", "ReceiptHandleIsInvalid")), deleted);
        List<Sqs.Out> many = Collections.nCopies(11, Sqs.Out.of("b"));
        refused("TooManyEntriesInBatchRequestException", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", 400, () -> sqs.sendBatch(main, many));
        refused("EmptyBatchRequestException", "AWS.SimpleQueueService.EmptyBatchRequest", 400, () -> sqs.sendBatch(main, List.of()));
        return "9 of 10 sent, 9 of 10 deleted";
    }

    String delay() {
        long begin = System.currentTimeMillis();
        sqs.send(main, new Sqs.Out("later", Map.of(), 1, null, null));
        sqs.delete(main, one(main).handle());
        long took = System.currentTimeMillis() - begin;
        check(took > 900, took);
        return "came after " + took + " ms";
    }

    String visibility() {
        sqs.send(main, Sqs.Out.of("again"));
        Sqs.In first = sqs.receive(main, 5, 1).get(0);
        Sqs.In second = one(main);
        check(second.system().get("ApproximateReceiveCount").equals("2"), second.system());
        sqs.delete(main, first.handle());
        check(sqs.attributes(main).get("ApproximateNumberOfMessagesNotVisible").equals("1"), "an old handle deleted a newer delivery");
        sqs.changeVisibility(main, second.handle(), 0);
        Sqs.In third = one(main);
        sqs.delete(main, third.handle());
        refused(null, "InvalidParameterValue", 400, () -> sqs.changeVisibility(main, third.handle(), 5));
        return "expires, ends at once, old handle worthless";
    }

    String longPoll() {
        long begin = System.currentTimeMillis();
        CompletableFuture.delayedExecutor(500, TimeUnit.MILLISECONDS).execute(() -> sqs.send(main, Sqs.Out.of("wake")));
        List<Sqs.In> messages = sqs.receive(main, 15, 30);
        long took = System.currentTimeMillis() - begin;
        check(messages.size() == 1 && took < 8000, messages.size() + " messages after " + took + " ms");
        sqs.delete(main, messages.get(0).handle());
        return "woke after " + took + " ms";
    }

    String fifo() {
        String queue = queue("groups.fifo", Map.of("FifoQueue", "true"));
        Sqs.Sent first = sqs.send(queue, new Sqs.Out("a1", Map.of(), null, "a", "1"));
        Sqs.Sent again = sqs.send(queue, new Sqs.Out("a1", Map.of(), null, "a", "1"));
        check(first.equals(again) && first.sequence() != null, "a repeat is answered with " + again + ", not " + first);
        sqs.send(queue, new Sqs.Out("a2", Map.of(), null, "a", "2"));
        sqs.send(queue, new Sqs.Out("b1", Map.of(), null, "b", "3"));
        Sqs.In a1 = one(queue), b1 = one(queue);
        check(a1.body().equals("a1") && b1.body().equals("b1"), a1 + ", " + b1);
        check(sqs.receive(queue, 0, 30).isEmpty(), "both groups are held");
        sqs.delete(queue, a1.handle());
        check(one(queue).body().equals("a2"), "not a2 after a1");
        return "order, group locks, repeats";
    }

    String deadLetters() throws Exception {
        dead = queue("dead", Map.of());
        String arn = sqs.attributes(dead).get("QueueArn");
        String policy = "{\"deadLetterTargetArn\":\"" + arn + "\",\"maxReceiveCount\":\"1\"}";
        source = queue("source", Map.of("RedrivePolicy", policy, "VisibilityTimeout", "30"));
        Sqs.Sent sent = sqs.send(source, Sqs.Out.of("poison"));
        check(sqs.receive(source, 5, 0).size() == 1, "nothing received");
        until("message gone", () -> sqs.receive(source, 0, 0).isEmpty());
        Sqs.In letter = sqs.receive(dead, 5, 0).get(0);
        check(letter.id().equals(sent.id()) && letter.system().get("DeadLetterQueueSourceArn").endsWith("-source"), letter);
        check(sqs.sources(dead).equals(List.of(source)), sqs.sources(dead));
        return "same id, source named";
    }

    String moveTask() throws Exception {
        String arn = sqs.attributes(dead).get("QueueArn");
        sqs.startMove(arn, null, null);
        until("completed move", () -> sqs.moves(arn).get(0).status().equals("COMPLETED"));
        check(sqs.moves(arn).get(0).moved() == 1, sqs.moves(arn));
        check(one(source).body().equals("poison"), "not back");
        for (int i = 0; i < 5; i++) sqs.send(dead, Sqs.Out.of("" + i));
        String handle = sqs.startMove(arn, 1, sqs.attributes(main).get("QueueArn"));
        check(sqs.moves(arn).get(0).handle().equals(handle), sqs.moves(arn));
        long moved = sqs.cancelMove(handle);
        check(moved < 5, moved);
        until("cancelled move", () -> sqs.moves(arn).get(0).status().equals("CANCELLED"));
        refused("ResourceNotFoundException", "ResourceNotFoundException", 404, () -> sqs.startMove(arn + "-none", null, null));
        return "one moved back, one cancelled";
    }

    String errors() {
        String code = "AWS.SimpleQueueService.NonExistentQueue";
        refused("QueueDoesNotExistException", code, 400, () -> sqs.url(prefix + "-none"));
        refused("QueueDoesNotExistException", code, 400, () -> sqs.send(main + "-none", Sqs.Out.of("b")));
        refused("ReceiptHandleIsInvalidException", "ReceiptHandleIsInvalid", 400, () -> sqs.delete(main, "no handle"));
        refused("InvalidMessageContentsException", "InvalidMessageContents", 400, () -> sqs.send(main, Sqs.Out.of("\ufffe")));
        return "as the SDK types them";
    }

    String purge() throws Exception {
        sqs.send(main, Sqs.Out.of("p"));
        sqs.purge(main);
        until("empty queue", () -> sqs.attributes(main).get("ApproximateNumberOfMessages").equals("0"));
        return "";
    }

    String address() {
        int port = URI.create(ENDPOINT).getPort();
        for (String host : List.of("localhost:" + port, "127.0.0.1:" + port)) {
            String url = connect.to("http://" + host, "any", "key").url(prefix + "-main");
            check(URI.create(url).getAuthority().equals(host), url);
        }
        return "by the client's own name of the server";
    }

    String deleteQueue() {
        List<String> queues = sqs.list(prefix, 1000);
        queues.forEach(sqs::deleteQueue);
        refused("QueueDoesNotExistException", "AWS.SimpleQueueService.NonExistentQueue", 400, () -> sqs.receive(main, 0, null));
        return queues.size() + " queues";
    }

    String signatures() {
        String key = System.getenv("SQS_KEY_ID"), secret = System.getenv("SQS_SECRET");
        connect.to(SIGNED, key, secret).list(prefix, 10);
        Sqs wrong = connect.to(SIGNED, key, "wrong"), nobody = connect.to(SIGNED, "AKIDNOBODY", secret);
        refused(null, "SignatureDoesNotMatch", 403, () -> wrong.list(prefix, 10));
        refused(null, "InvalidClientTokenId", 403, () -> nobody.list(prefix, 10));
        return "the right key only";
    }
}
