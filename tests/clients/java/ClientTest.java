// The Java client against BOOTSTRAP; run as a source file: java -cp CLASSPATH ClientTest.java
//
// Prints `VERSION x`, then one line per step, `STEP name ok|fail detail`, and exits 1 if one failed.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ClientTest {
    static final String BOOTSTRAP = System.getenv("BOOTSTRAP");
    static final String RUN = UUID.randomUUID().toString().substring(0, 8);
    static final String TOPIC = "jav-" + RUN, GROUP_TOPIC = "jav-g-" + RUN, GROUP = "jav-" + RUN;
    static final int PARTITIONS = 3, PER_CODEC = 30;
    // An hour ago; records are one second apart, so that a seek by time has something to find.
    static final long FIRST_MS = System.currentTimeMillis() - 3_600_000;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    static boolean failed = false;

    public static void main(String[] args) throws Exception {
        Properties built = new Properties();
        built.load(ClassLoader.getSystemResourceAsStream("kafka/kafka-version.properties"));
        System.out.println("VERSION " + built.getProperty("version"));
        Properties config = new Properties();
        config.put("bootstrap.servers", BOOTSTRAP);
        config.put("default.api.timeout.ms", "20000");
        config.put("request.timeout.ms", "10000");
        Admin admin = Admin.create(config);
        step("create", () -> create(admin));
        for (String codec : CODECS) {
            step("publish-" + codec, () -> send(TOPIC, records(codec), Map.of("compression.type", codec, "enable.idempotence", "false")));
        }
        System.out.println("TOPIC " + TOPIC + " " + String.join(",", CODECS));
        step("read", ClientTest::read);
        step("seek-by-time", () -> seekByTime(admin));
        step("idempotent", () -> send(TOPIC, records("none"), Map.of("enable.idempotence", "true")));
        step("queue", () -> queue(admin));
        groupSteps(admin);
        step("admin", () -> admin(admin));
        System.out.flush();
        // Closing would wait for what a failed step left behind.
        Runtime.getRuntime().halt(failed ? 1 : 0);
    }

    static void step(String name, Callable<String> body) {
        long begin = System.currentTimeMillis();
        try {
            String detail = body.call();
            System.out.printf("STEP %s ok %s (%.1f s)%n", name, detail, (System.currentTimeMillis() - begin) / 1000.0);
        } catch (Throwable error) {
            failed = true;
            System.out.printf("STEP %s fail %s%n", name, error.toString().replaceAll("\\s+", " "));
        }
    }

    static void check(boolean condition, String text) {
        if (!condition) throw new AssertionError(text);
    }

    static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + 20_000;
        while (!condition.call()) {
            check(System.currentTimeMillis() < deadline, "no " + what + " within 20 s");
            Thread.sleep(20);
        }
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    /** One codec's records; one in ten is a tombstone, one header key comes twice. */
    static List<ProducerRecord<byte[], byte[]>> records(String codec) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < PER_CODEC; i++) {
            String value = i % 10 == 9 ? null : (codec + " " + i + " ").repeat(20);
            records.add(new ProducerRecord<>(TOPIC, i % PARTITIONS, FIRST_MS + i * 1000L, bytes(codec + "-" + i), bytes(value),
                    List.of(new RecordHeader("codec", bytes(codec)), new RecordHeader("n", bytes("" + i)), new RecordHeader("n", bytes("again")))));
        }
        return records;
    }

    static List<ProducerRecord<byte[], byte[]>> numbered(int first, int last) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = first; i < last; i++) records.add(new ProducerRecord<>(GROUP_TOPIC, i % 4, FIRST_MS, null, bytes("" + i)));
        return records;
    }

    static String create(Admin admin) throws Exception {
        admin.createTopics(List.of(new NewTopic(TOPIC, PARTITIONS, (short) 1), new NewTopic(GROUP_TOPIC, 4, (short) 1))).all().get();
        until("topics", () -> admin.listTopics().names().get().containsAll(List.of(TOPIC, GROUP_TOPIC)));
        return "two topics, cluster " + admin.describeCluster().clusterId().get();
    }

    static String send(String topic, List<ProducerRecord<byte[], byte[]>> records, Map<String, String> options) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", BOOTSTRAP);
        config.put("acks", "all");
        config.put("linger.ms", "20");
        config.put("delivery.timeout.ms", "20000");
        config.put("request.timeout.ms", "10000");
        config.putAll(options);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) sent.add(producer.send(record));
            for (Future<RecordMetadata> one : sent) one.get(20, TimeUnit.SECONDS);
        }
        return records.size() + " records";
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, String> options) {
        Properties config = new Properties();
        config.put("bootstrap.servers", BOOTSTRAP);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("default.api.timeout.ms", "20000");
        config.putAll(options);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> parts() {
        List<TopicPartition> parts = new ArrayList<>();
        for (int p = 0; p < PARTITIONS; p++) parts.add(new TopicPartition(TOPIC, p));
        return parts;
    }

    static String read() throws Exception {
        Map<Integer, List<ConsumerRecord<byte[], byte[]>>> got = new HashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(parts());
            consumer.seekToBeginning(parts());
            Map<TopicPartition, Long> ends = consumer.endOffsets(parts());
            until("end of the topic", () -> {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) got.computeIfAbsent(r.partition(), p -> new ArrayList<>()).add(r);
                return ends.entrySet().stream().allMatch(e -> consumer.position(e.getKey()) >= e.getValue());
            });
        }
        int count = 0;
        for (int p = 0; p < PARTITIONS; p++) {
            List<ProducerRecord<byte[], byte[]>> want = new ArrayList<>();
            for (String codec : CODECS) for (ProducerRecord<byte[], byte[]> r : records(codec)) if (r.partition() == p) want.add(r);
            List<ConsumerRecord<byte[], byte[]>> have = got.getOrDefault(p, List.of());
            check(have.size() == want.size(), "partition " + p + ": " + have.size() + " records, not " + want.size());
            for (int i = 0; i < have.size(); i++) {
                ConsumerRecord<byte[], byte[]> h = have.get(i);
                ProducerRecord<byte[], byte[]> w = want.get(i);
                check(i == 0 || h.offset() > have.get(i - 1).offset(), "partition " + p + " out of order at " + h.offset());
                check(Objects.equals(text(h.key()), text(w.key())) && Objects.equals(text(h.value()), text(w.value()))
                        && h.headers().equals(w.headers()) && h.timestamp() == w.timestamp(),
                        "at " + h.offset() + ": " + text(h.key()) + " " + h.headers() + " " + h.timestamp() + ", not " + text(w.key()) + " " + w.headers() + " " + w.timestamp());
                count++;
            }
        }
        return count + " records of " + CODECS.size() + " codecs";
    }

    static String seekByTime(Admin admin) throws Exception {
        TopicPartition one = parts().get(1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(one, FIRST_MS + 10_000)).get(one);
            check(consumer.offsetsForTimes(Map.of(one, System.currentTimeMillis() + 60_000)).get(one) == null, "found something in the future");
            consumer.assign(List.of(one));
            consumer.seek(one, found.offset());
            List<ConsumerRecord<byte[], byte[]>> first = new ArrayList<>();
            until("record", () -> {
                consumer.poll(Duration.ofMillis(200)).forEach(first::add);
                return !first.isEmpty();
            });
            check(text(first.get(0).key()).equals("none-10"), "first record is " + text(first.get(0).key()));
            long latest = admin.listOffsets(Map.of(one, OffsetSpec.latest())).partitionResult(one).get().offset();
            long highest = admin.listOffsets(Map.of(one, OffsetSpec.maxTimestamp())).partitionResult(one).get().offset();
            check(latest == 50 && highest >= 0 && highest < 50, "latest " + latest + ", highest timestamp at " + highest);
            return "offset " + found.offset();
        }
    }

    /** A queue's topic is read as a log while its messages are worked (queue_worker.py); those of the first batch say how. */
    static String queue(Admin admin) throws Exception {
        String topic = "queue-" + RUN;
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of("queue.enable", "true")))).all().get();
        Map<String, RecordHeader> wishes = Map.of(
                "urgent", new RecordHeader("towpath-priority", bytes("9")), "later", new RecordHeader("towpath-deliver-after", bytes("2s")),
                "stale", new RecordHeader("towpath-ttl", bytes("100ms")));
        List<String> values = new ArrayList<>(List.of("usual", "urgent", "later", "stale"));
        for (int i = 0; i < 20; i++) values.add("" + i);
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (String value : values) {
            List<Header> headers = wishes.containsKey(value) ? List.of(wishes.get(value)) : List.of();
            sent.add(new ProducerRecord<>(topic, 0, null, null, bytes(value), headers));
        }
        for (int first = 0; first < sent.size(); first += 4) {
            if (first == 4) System.out.println("QUEUE " + topic);
            send(topic, sent.subList(first, first + 4), Map.of());
        }
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of("group.id", topic))) {
            reader.subscribe(List.of(topic));
            until("24 records", () -> {
                reader.poll(Duration.ofMillis(200)).forEach(read::add);
                return read.size() >= sent.size();
            });
            reader.commitSync();
        }
        for (int i = 0; i < read.size(); i++) {
            ConsumerRecord<byte[], byte[]> r = read.get(i);
            check(text(r.value()).equals(values.get(i)) && r.headers().equals(sent.get(i).headers()), "at " + i + ": " + text(r.value()) + " " + r.headers());
        }
        return read.size() + " records read as a log while they are worked";
    }

    /** A group member in a thread of its own. */
    static class Member extends Thread {
        final KafkaConsumer<byte[], byte[]> consumer;
        final Set<Integer> assigned = java.util.Collections.synchronizedSet(new TreeSet<>());
        final List<Integer> values = java.util.Collections.synchronizedList(new ArrayList<>());
        volatile boolean stop;
        volatile Throwable error;

        Member(String group, Map<String, String> options) {
            Map<String, String> all = new HashMap<>(Map.of("group.id", group, "session.timeout.ms", "10000", "heartbeat.interval.ms", "500"));
            all.putAll(options);
            consumer = consumer(all);
            consumer.subscribe(List.of(GROUP_TOPIC), new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> added) {
                    added.forEach(p -> assigned.add(p.partition()));
                }

                public void onPartitionsRevoked(Collection<TopicPartition> taken) {
                    taken.forEach(p -> assigned.remove(p.partition()));
                }
            });
            setDaemon(true);
            start();
        }

        public void run() {
            try {
                while (!stop) {
                    for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) values.add(Integer.valueOf(text(r.value())));
                    try {
                        consumer.commitSync();
                    } catch (RebalanceInProgressException retriedByTheNextRound) {
                        // Cooperative members keep reading while they rebalance; the next commit covers this one.
                    }
                }
                consumer.close();
            } catch (Throwable thrown) {
                error = thrown;
            }
        }

        void leave() throws Exception {
            stop = true;
            join(15_000);
            if (error != null) throw new AssertionError("member failed", error);
        }
    }

    static void checkNumbers(List<Integer> values, int first, int last) {
        Set<Integer> seen = new HashSet<>(values);
        check(values.size() == last - first && seen.size() == values.size() && values.stream().allMatch(v -> first <= v && v < last),
                values.size() + " values (" + seen.size() + " different), not " + (last - first));
    }

    static void groupSteps(Admin admin) {
        Member[] members = new Member[2];
        step("group-of-two", () -> {
            Member a = members[0] = new Member(GROUP, Map.of());
            Member b = members[1] = new Member(GROUP, Map.of());
            until("share for both", () -> a.assigned.size() == 2 && b.assigned.size() == 2);
            send(GROUP_TOPIC, numbered(0, 40), Map.of());
            until("forty records", () -> a.values.size() + b.values.size() >= 40);
            List<Integer> all = new ArrayList<>(a.values);
            all.addAll(b.values);
            checkNumbers(all, 0, 40);
            return a.values.size() + "+" + b.values.size() + " records";
        });
        step("one-leaves", () -> {
            Member a = members[0], b = members[1];
            b.leave();
            until("take-over", () -> a.assigned.size() == 4);
            send(GROUP_TOPIC, numbered(40, 60), Map.of());
            until("twenty more", () -> a.values.size() + b.values.size() >= 60);
            return "the other has all partitions";
        });
        step("commit", () -> {
            members[0].leave();
            long sum = admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get().values().stream().mapToLong(o -> o.offset()).sum();
            check(sum == 60, sum + " committed, not 60");
            return "60 committed";
        });
        step("resume", () -> {
            send(GROUP_TOPIC, numbered(60, 70), Map.of());
            Member c = new Member(GROUP, Map.of());
            until("ten more", () -> c.values.size() >= 10);
            Thread.sleep(300);
            c.leave();
            checkNumbers(c.values, 60, 70);
            return "only the new ones";
        });
        step("cooperative", () -> {
            Map<String, String> cooperative = Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
            Member a = new Member(GROUP + "-coop", cooperative);
            until("all for one", () -> a.assigned.size() == 4);
            Member b = new Member(GROUP + "-coop", cooperative);
            until("share for both", () -> a.assigned.size() == 2 && b.assigned.size() == 2);
            b.leave();
            until("take-over", () -> a.assigned.size() == 4);
            a.leave();
            return "two members, then one";
        });
        step("static-member", () -> {
            Map<String, String> fixed = Map.of("group.instance.id", "one");
            Member a = new Member(GROUP + "-static", fixed);
            until("all", () -> a.assigned.size() == 4 && a.values.size() >= 70);
            a.leave();
            Member again = new Member(GROUP + "-static", fixed);
            until("all again", () -> again.assigned.size() == 4);
            again.leave();
            check(again.values.isEmpty(), "read again: " + again.values);
            return "came back under its name";
        });
    }

    static String admin(Admin admin) throws Exception {
        String topic = "jav-a-" + RUN;
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of("retention.ms", "3600000")))).all().get();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        until("config", () -> admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value().equals("3600000"));
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all().get();
        until("list config", () -> admin.describeConfigs(List.of(resource)).all().get().get(resource).get("cleanup.policy").value().equals("delete,compact"));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        until("three partitions", () -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 3);
        TopicPartition first = new TopicPartition(topic, 0);
        send(topic, List.of(new ProducerRecord<>(topic, 0, bytes("k"), bytes("v")), new ProducerRecord<>(topic, 0, bytes("k"), bytes("w"))), Map.of());
        long low = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(1))).lowWatermarks().get(first).get().lowWatermark();
        check(low == 1, "low watermark " + low);
        check(admin.listOffsets(Map.of(first, OffsetSpec.earliest())).partitionResult(first).get().offset() == 1, "log start is not 1");
        int broker = admin.describeCluster().nodes().get().iterator().next().id();
        check(admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).values().stream()
                .anyMatch(d -> d.replicaInfos().containsKey(first)), "partition not in any log directory");
        check(admin.listGroups().all().get().stream().anyMatch(g -> g.groupId().equals(GROUP)), "group not listed");
        check(admin.describeConsumerGroups(List.of(GROUP)).all().get().get(GROUP).members().isEmpty(), "group not empty");
        admin.describeProducers(List.of(new TopicPartition(TOPIC, 0))).all().get();
        admin.deleteConsumerGroupOffsets(GROUP, Set.of(new TopicPartition(GROUP_TOPIC, 0))).all().get();
        admin.deleteConsumerGroups(List.of(GROUP)).all().get();
        admin.deleteTopics(List.of(topic)).all().get();
        until("topic gone", () -> !admin.listTopics().names().get().contains(topic));
        return "configs, partitions, records, log directories, groups, producers, topics";
    }
}
