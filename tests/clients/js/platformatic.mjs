// @platformatic/kafka against BOOTSTRAP, in the last version for Node 20. Its zstd needs Node 22.15 or later.

import zlib from 'node:zlib'
import { Admin, Consumer, MessagesStreamFallbackModes, MessagesStreamModes, Producer } from '@platformatic/kafka'
import {
  bootstrap, check, checkNumbers, checkQueue, checkRead, finish, firstMs, numbered, partitions, pause, queueConfig, queueTopic, records, run, sendToQueue, step,
  until, version
} from './steps.mjs'

const topic = `plt-${run}`
const groupTopic = `plt-g-${run}`
const groupId = `plt-${run}`
const codecs = ['none', 'gzip', 'snappy', 'lz4', ...(zlib.zstdCompressSync ? ['zstd'] : [])]
const base = { clientId: 'platformatic-test', bootstrapBrokers: [bootstrap], retries: 5, retryDelay: 200 }

async function send (topic, batch, options = {}) {
  const producer = new Producer({ ...base, ...options })
  const buffer = text => text === null ? undefined : Buffer.from(text)
  const messages = batch.map(({ partition, key, value, headers, ms }) => ({
    topic,
    partition,
    key: buffer(key),
    value: buffer(value),
    headers: new Map(headers.map(([name, content]) => [Buffer.from(name), Buffer.from(content)])),
    timestamp: BigInt(ms)
  }))
  await producer.send({ messages, acks: -1, ...options })
  await producer.close()
  return `${batch.length} records`
}

const plain = ({ partition, offset, key, value, headers, timestamp }) => ({
  partition,
  offset: Number(offset),
  key: key?.length ? key.toString() : null,
  value: value?.length ? value.toString() : null,
  headers: [...headers].map(([name, content]) => [name.toString(), content.toString()]),
  ms: Number(timestamp)
})

/** A group member: its stream commits each message once it was taken. */
async function join (groupId, topic = groupTopic) {
  const consumer = new Consumer({ ...base, groupId, sessionTimeout: 10_000, rebalanceTimeout: 10_000, heartbeatInterval: 500, maxWaitTime: 200, autocommit: false })
  const member = { assigned: new Set(), values: [], read: [], error: null }
  consumer.on('consumer:group:join', ({ assignments }) => {
    member.assigned = new Set(assignments?.find(a => a.topic === topic)?.partitions ?? [])
  })
  const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.COMMITTED, fallbackMode: MessagesStreamFallbackModes.EARLIEST })
  stream.on('error', error => { member.error = error })
  const reading = (async () => {
    for await (const message of stream) {
      member.values.push(message.value.toString())
      member.read.push(plain(message))
      await message.commit()
    }
  })().catch(error => { member.error = error })
  member.leave = async () => {
    await stream.close()
    await reading
    await consumer.close(true)
    if (member.error) throw member.error
  }
  return member
}

version('@platformatic/kafka')
const admin = new Admin(base)
await step('create', async () => {
  await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
  await admin.createTopics({ topics: [groupTopic], partitions: 4, replicas: 1 })
  await until('topics', async () => {
    const names = await admin.listTopics()
    return names.includes(topic) && names.includes(groupTopic)
  })
  return 'two topics'
})
for (const codec of codecs) {
  await step(`publish-${codec}`, () => send(topic, records(codec), { compression: codec }))
}
console.log(`TOPIC ${topic} ${codecs}`)

/** Reads from the given offsets, without a commit, until `enough`. */
async function read (name, options, enough) {
  const consumer = new Consumer({ ...base, groupId: `${groupId}-${name}`, maxWaitTime: 200, autocommit: false })
  const stream = await consumer.consume({ topics: [topic], ...options })
  const got = []
  stream.on('data', message => got.push(plain(message)))
  await until('record', () => enough(got))
  await stream.close()
  await consumer.close(true)
  return got
}

await step('read', async () => checkRead(codecs, await read('read', { mode: MessagesStreamModes.EARLIEST }, got => got.length >= codecs.length * 30)))
await step('seek-by-time', async () => {
  const consumer = new Consumer({ ...base, groupId: `${groupId}-times` })
  const found = (await consumer.listOffsets({ topics: [topic], timestamp: BigInt(firstMs + 10_000) })).get(topic)
  await consumer.close(true)
  const offsets = found.map((offset, partition) => ({ topic, partition, offset }))
  const got = await read('seek', { mode: MessagesStreamModes.MANUAL, offsets }, got => got.some(r => r.partition === 1))
  const first = got.find(r => r.partition === 1)
  check(first.key === 'none-10', `first record is ${first.key}`)
  return `offset ${first.offset}`
})
await step('idempotent', () => send(topic, records('none'), { idempotent: true }))
await step('queue', async () => {
  await admin.createTopics({ topics: [queueTopic], partitions: 1, replicas: 1, configs: [queueConfig] })
  const reader = await join(`${groupId}-queue`, queueTopic)
  await sendToQueue(batch => send(queueTopic, batch))
  await until('24 records', () => reader.read.length >= 24)
  await reader.leave()
  return checkQueue(reader.read)
})

let a, b
await step('group-of-two', async () => {
  [a, b] = await Promise.all([join(groupId), join(groupId)])
  await until('share for both', () => a.assigned.size === 2 && b.assigned.size === 2)
  // A member that joined first may still be fetching for all four partitions, and this client hands out what such a
  // fetch returns (other brokers' too): it is over after `maxWaitTime`.
  await pause(500)
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
  const [group] = await admin.listConsumerGroupOffsets({ groups: [groupId] })
  const sum = group.topics.flatMap(t => t.partitions).reduce((n, p) => n + Number(p.committedOffset), 0)
  check(sum === 60, `${sum} committed, not 60`)
  return '60 committed'
})
await step('resume', async () => {
  await send(groupTopic, numbered(60, 70))
  const c = await join(groupId)
  await until('ten more', () => c.values.length >= 10)
  await pause(500)
  await c.leave()
  checkNumbers(c.values, 60, 70)
  return 'only the new ones'
})
finish()
