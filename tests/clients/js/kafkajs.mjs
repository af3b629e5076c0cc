// kafkajs against BOOTSTRAP. It ships gzip only; the other codecs are plugged in, as its users do.

import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import * as lz4 from 'lz4-napi'
import zstdCodec from 'zstd-codec'
import {
  bootstrap, check, checkNumbers, checkQueue, checkRead, finish, firstMs, numbered, partitions, pause, queueConfig, queueTopic, records, run, sendToQueue, step,
  until, version
} from './steps.mjs'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs
const topic = `kjs-${run}`
const groupTopic = `kjs-g-${run}`
const groupId = `kjs-${run}`
const codecs = ['none', 'gzip', 'snappy', 'lz4', 'zstd']

const zstd = await new Promise(resolve => zstdCodec.ZstdCodec.run(z => resolve(new z.Streaming())))
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrameSync(encoder.buffer),
  decompress: async buffer => lz4.decompressFrameSync(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer))
})

const kafka = new Kafka({ brokers: [bootstrap], clientId: 'kafkajs-test', logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100, retries: 8 } })

async function send (topic, batch, codec = 'none', options = {}) {
  const producer = kafka.producer({ createPartitioner: () => ({ message }) => message.partition, allowAutoTopicCreation: false, ...options })
  await producer.connect()
  const messages = batch.map(({ partition, key, value, headers, ms }) => {
    const grouped = {}
    for (const [name, content] of headers) (grouped[name] ??= []).push(content)
    return { partition, key, value, headers: grouped, timestamp: `${ms}` }
  })
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD }[codec]
  await producer.send({ topic, messages, compression, acks: -1 })
  await producer.disconnect()
  return `${batch.length} records`
}

/** A group member: `assigned` follows its joins, `values` what it was given. */
async function join (groupId, topic, onMessage, fromBeginning = true) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10_000, rebalanceTimeout: 10_000, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
  const member = { consumer, assigned: new Set(), values: [], leave: () => consumer.disconnect() }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { member.assigned = new Set(payload.memberAssignment[topic] ?? []) })
  consumer.on(consumer.events.REBALANCING, () => member.assigned.clear())
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning })
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => onMessage ? onMessage(partition, message) : member.values.push(message.value.toString())
  })
  return member
}

const plain = (partition, { offset, key, value, headers, timestamp }) => ({
  partition,
  offset: Number(offset),
  key: key?.toString() ?? null,
  value: value?.toString() ?? null,
  headers: Object.entries(headers).flatMap(([name, content]) => [content].flat().map(one => [name, one.toString()])),
  ms: Number(timestamp)
})

version('kafkajs')
const admin = kafka.admin()
await step('create', async () => {
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }, { topic: groupTopic, numPartitions: 4, replicationFactor: 1 }], waitForLeaders: true })
  return 'two topics'
})
for (const codec of codecs) {
  await step(`publish-${codec}`, () => send(topic, records(codec), codec))
}
console.log(`TOPIC ${topic} ${codecs}`)
await step('read', async () => {
  const read = []
  const reader = await join(`${groupId}-read`, topic, (partition, message) => read.push(plain(partition, message)))
  await until('end of the topic', () => read.length >= codecs.length * 30)
  await reader.leave()
  return checkRead(codecs, read)
})
await step('seek-by-time', async () => {
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, firstMs + 10_000)
  const offset = found.find(p => p.partition === 1).offset
  const read = []
  // Without the seek this group would start at the end and see nothing.
  const reader = await join(`${groupId}-seek`, topic, (partition, message) => read.push(plain(partition, message)), false)
  await until('assignment', () => reader.assigned.size === partitions)
  reader.consumer.seek({ topic, partition: 1, offset })
  await until('record', () => read.length > 0)
  await reader.leave()
  check(read[0].key === 'none-10' && read[0].offset === Number(offset), `first record is ${read[0].key} at ${read[0].offset}`)
  return `offset ${offset}`
})
await step('idempotent', () => send(topic, records('none'), 'none', { idempotent: true, maxInFlightRequests: 1 }))
await step('queue', async () => {
  await admin.createTopics({ topics: [{ topic: queueTopic, numPartitions: 1, replicationFactor: 1, configEntries: [queueConfig] }], waitForLeaders: true })
  const read = []
  const reader = await join(`${groupId}-queue`, queueTopic, (partition, message) => read.push(plain(partition, message)))
  await sendToQueue(batch => send(queueTopic, batch))
  await until('24 records', () => read.length >= 24)
  await reader.leave()
  return checkQueue(read)
})

let a, b
await step('group-of-two', async () => {
  [a, b] = await Promise.all([join(groupId, groupTopic), join(groupId, groupTopic)])
  await until('share for both', () => a.assigned.size === 2 && b.assigned.size === 2)
  await send(groupTopic, numbered(0, 40))
  await until('forty records', () => a.values.length + b.values.length >= 40)
  checkNumbers([...a.values, ...b.values], 0, 40)
  return `${a.values.length}+${b.values.length} records`
})
await step('one-leaves', async () => {
  await b.leave()
  await until('take-over', () => a.assigned.size === 4)
  await send(groupTopic, numbered(40, 60))
  await until('twenty more', () => a.values.length + b.values.length >= 60)
  return 'the other has all partitions'
})
await step('commit', async () => {
  await a.leave()
  const [{ partitions: committed }] = await admin.fetchOffsets({ groupId, topics: [groupTopic] })
  const sum = committed.reduce((n, p) => n + Number(p.offset), 0)
  check(sum === 60, `${sum} committed, not 60`)
  return '60 committed'
})
await step('resume', async () => {
  await send(groupTopic, numbered(60, 70))
  const c = await join(groupId, groupTopic)
  await until('ten more', () => c.values.length >= 10)
  await pause(500)
  await c.leave()
  checkNumbers(c.values, 60, 70)
  return 'only the new ones'
})
finish()
