// sqs-consumer against SQS: one by one, in batches, with failures, and with the extension of leases that it calls heartbeats.

import { CreateQueueCommand, DeleteQueueCommand, GetQueueAttributesCommand, SQSClient, SendMessageBatchCommand, SendMessageCommand } from '@aws-sdk/client-sqs'
import { Consumer } from 'sqs-consumer'
import { check, finish, pause, run, step, until, version } from './steps.mjs'

const sqs = new SQSClient({ endpoint: process.env.SQS, region: 'us-east-1', credentials: { accessKeyId: 'any', secretAccessKey: 'key' }, maxAttempts: 1 })
const queues = []

async function queue (name, Attributes = {}) {
  const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: `sqsc-${run}-${name}`, Attributes }))
  queues.push(QueueUrl)
  return QueueUrl
}

const put = (QueueUrl, bodies) =>
  sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries: bodies.map((MessageBody, i) => ({ Id: `${i}`, MessageBody })) }))

async function left (QueueUrl) {
  const names = ['ApproximateNumberOfMessages', 'ApproximateNumberOfMessagesNotVisible']
  const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: names }))
  return Object.values(Attributes).reduce((sum, value) => sum + Number(value), 0)
}

/** Runs a consumer while `body` runs; what went wrong inside of it is thrown here. */
async function consuming (queueUrl, options, body) {
  const consumer = Consumer.create({ queueUrl, sqs, waitTimeSeconds: 2, ...options })
  const errors = []
  consumer.on('error', error => errors.push(error))
  consumer.on('timeout_error', error => errors.push(error))
  consumer.start()
  const detail = await body(consumer)
  const stopped = new Promise(resolve => consumer.once('stopped', resolve))
  consumer.stop({ abort: true })
  await stopped
  check(errors.length === 0, `${errors[0]}`)
  return detail
}

version('sqs-consumer')
await step('one-by-one', async () => {
  const url = await queue('one')
  const seen = []
  return consuming(url, { handleMessage: async message => { seen.push(message.Body); return message } }, async () => {
    const bodies = Array.from({ length: 10 }, (_, i) => `${i}`)
    await put(url, bodies)
    await until('ten messages', () => seen.length >= 10)
    await until('empty queue', async () => await left(url) === 0)
    check(JSON.stringify([...seen].sort()) === JSON.stringify(bodies), `${seen}`)
    return 'ten handled and deleted'
  })
})
await step('batches', async () => {
  const url = await queue('batch')
  const seen = []
  // What the handler returns is deleted; the rest comes back.
  const handleMessageBatch = async messages => {
    seen.push(...messages.map(message => message.Body))
    return messages.filter(message => message.Body !== 'bad' || seen.filter(body => body === 'bad').length > 1)
  }
  return consuming(url, { batchSize: 10, visibilityTimeout: 2, handleMessageBatch }, async () => {
    await put(url, ['1', '2', 'bad', '3', '4'])
    await until('empty queue', async () => seen.length >= 6 && await left(url) === 0)
    check(seen.filter(body => body === 'bad').length === 2 && seen.length === 6, `${seen}`)
    return 'what was not returned came again'
  })
})
await step('failure', async () => {
  const url = await queue('failure', { VisibilityTimeout: '30' })
  const tries = []
  const handleMessage = async message => {
    tries.push(Date.now())
    if (tries.length < 3) throw new Error('not yet')
    return message
  }
  let failed = 0
  return consuming(url, { handleMessage, terminateVisibilityTimeout: true }, async consumer => {
    consumer.on('processing_error', () => failed++)
    await put(url, ['f'])
    await until('third try', () => tries.length >= 3)
    await until('empty queue', async () => await left(url) === 0)
    check(failed === 2 && tries[2] - tries[0] < 20_000, `${failed} failures in ${tries[2] - tries[0]} ms`)
    return 'given back at once, twice'
  })
})
await step('heartbeat', async () => {
  const url = await queue('heartbeat')
  let count = 0
  const handleMessage = async message => { count++; await pause(4200); return message }
  return consuming(url, { handleMessage, visibilityTimeout: 3, heartbeatInterval: 1 }, async () => {
    await sqs.send(new SendMessageCommand({ QueueUrl: url, MessageBody: 'slow' }))
    await until('end of the work', async () => count > 0 && await left(url) === 0)
    check(count === 1, `handled ${count} times`)
    return 'held for 4.2 s with a timeout of 3 s'
  })
})
for (const QueueUrl of queues) await sqs.send(new DeleteQueueCommand({ QueueUrl }))
finish()
