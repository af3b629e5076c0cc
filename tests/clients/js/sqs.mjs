// The AWS SDK for JavaScript against SQS. It posts to the queue's URL, and checks the MD5 of bodies itself.

import { createHash } from 'node:crypto'
import * as sdk from '@aws-sdk/client-sqs'
import { check, finish, pause, run, step, until, version } from './steps.mjs'

const prefix = `js-${run}`

function client (options = {}) {
  return new sdk.SQSClient({
    endpoint: process.env.SQS, region: 'us-east-1', credentials: { accessKeyId: 'any', secretAccessKey: 'key' }, maxAttempts: 1, ...options
  })
}

// Without an explicit endpoint the SDK would post to AWS for what has no queue; with one it takes the queue's URL only when told to.
const sqs = client({ useQueueUrlAsEndpoint: true })
const send = (action, input, to = sqs) => to.send(new sdk[`${action}Command`](input))
const queue = async (name, Attributes = {}) => (await send('CreateQueue', { QueueName: `${prefix}-${name}`, Attributes })).QueueUrl
const fifo = (name, attributes = {}) => queue(`${name}.fifo`, { FifoQueue: 'true', ...attributes })
const attribute = async (url, name) => (await send('GetQueueAttributes', { QueueUrl: url, AttributeNames: [name] })).Attributes[name]
const remove = (url, { ReceiptHandle }) => send('DeleteMessage', { QueueUrl: url, ReceiptHandle })
const handleOf = (url, { ReceiptHandle }) => ({ QueueUrl: url, ReceiptHandle })

async function receive (url, options = {}) {
  const asked = { QueueUrl: url, WaitTimeSeconds: 5, MessageSystemAttributeNames: ['All'], MessageAttributeNames: ['All'], ...options }
  return (await send('ReceiveMessage', asked)).Messages ?? []
}

async function drain (url, number) {
  const bodies = []
  while (bodies.length < number) {
    const messages = await receive(url, { MaxNumberOfMessages: 10 })
    check(messages.length > 0, `${bodies}, and nothing more within 5 s`)
    for (const message of messages) {
      bodies.push(message.Body)
      await remove(url, message)
    }
  }
  return bodies
}

/** The call must fail with the SDK's own type for the error, and the name that old clients know it by. */
async function refused (shape, legacy, status, call) {
  let error
  try {
    await call
  } catch (caught) {
    error = caught
  }
  check(error, `${shape}: not refused`)
  const found = `${error.name} ${error.Error?.Code} ${error.$metadata?.httpStatusCode}: ${error.message}`
  check(error.$metadata?.httpStatusCode === status && (error.name === shape || error.name === legacy), `not ${shape}: ${found}`)
  check(!sdk[shape] || error instanceof sdk[shape], `not an instance of ${shape}: ${found}`)
}

function md5OfAttributes (attributes) {
  const hash = createHash('md5')
  const part = data => {
    const length = Buffer.alloc(4)
    length.writeUInt32BE(Buffer.byteLength(data))
    hash.update(length).update(data)
  }
  for (const [name, { DataType, StringValue, BinaryValue }] of Object.entries(attributes).sort(([a], [b]) => a < b ? -1 : 1)) {
    part(name)
    part(DataType)
    hash.update(Buffer.from([BinaryValue ? 2 : 1]))
    part(BinaryValue ?? StringValue)
  }
  return hash.digest('hex')
}

version('@aws-sdk/client-sqs')
let main
await step('create', async () => {
  main = await queue('main', { VisibilityTimeout: '30' })
  check(await queue('main', { VisibilityTimeout: '30' }) === main, 'the same queue has another URL')
  await refused('QueueNameExists', 'QueueAlreadyExists', 400, queue('main', { VisibilityTimeout: '31' }))
  await fifo('main', { ContentBasedDeduplication: 'true' })
  return 'standard and FIFO'
})
await step('list', async () => {
  const { QueueUrls, NextToken } = await send('ListQueues', { QueueNamePrefix: prefix, MaxResults: 1 })
  const rest = await send('ListQueues', { QueueNamePrefix: prefix, MaxResults: 1, NextToken })
  check(QueueUrls.length === 1 && new Set([...QueueUrls, ...rest.QueueUrls]).size === 2, `${QueueUrls} then ${rest.QueueUrls}`)
  check((await send('GetQueueUrl', { QueueName: `${prefix}-main` })).QueueUrl === main, 'another URL')
  return 'by prefix, by page, by name'
})
await step('attributes', async () => {
  await send('SetQueueAttributes', { QueueUrl: main, Attributes: { VisibilityTimeout: '45' } })
  const { Attributes } = await send('GetQueueAttributes', { QueueUrl: main, AttributeNames: ['All'] })
  check(Attributes.VisibilityTimeout === '45' && Attributes.QueueArn.endsWith(`:${prefix}-main`), JSON.stringify(Attributes))
  await refused('InvalidAttributeValue', 'InvalidAttributeValue', 400, send('SetQueueAttributes', { QueueUrl: main, Attributes: { DelaySeconds: '901' } }))
  return `${Object.keys(Attributes).length} of a standard queue`
})
await step('tags', async () => {
  await send('TagQueue', { QueueUrl: main, Tags: { a: '1', b: '2' } })
  await send('UntagQueue', { QueueUrl: main, TagKeys: ['a'] })
  const { Tags } = await send('ListQueueTags', { QueueUrl: main })
  check(JSON.stringify(Tags) === '{"b":"2"}', JSON.stringify(Tags))
  return ''
})
await step('message', async () => {
  const attributes = {
    text: { DataType: 'String', StringValue: 'gelb ✓' },
    number: { DataType: 'Number', StringValue: '-12.50' },
    bytes: { DataType: 'Binary', BinaryValue: Uint8Array.from({ length: 256 }, (_, i) => i) },
    kind: { DataType: 'String.own', StringValue: 'x' }
  }
  const sent = await send('SendMessage', { QueueUrl: main, MessageBody: 'täglich \u{1f6a2} <&>\n', MessageAttributes: attributes })
  check(sent.MD5OfMessageAttributes === md5OfAttributes(attributes), `MD5 ${sent.MD5OfMessageAttributes}`)
  const [message] = await receive(main)
  check(message.MessageId === sent.MessageId && message.Body === 'täglich \u{1f6a2} <&>\n', JSON.stringify(message))
  check(message.MD5OfMessageAttributes === md5OfAttributes(message.MessageAttributes), `MD5 ${message.MD5OfMessageAttributes}`)
  check(Buffer.from(message.MessageAttributes.bytes.BinaryValue).equals(Buffer.from(attributes.bytes.BinaryValue)), 'other bytes')
  check(message.Attributes.ApproximateReceiveCount === '1', JSON.stringify(message.Attributes))
  await remove(main, message)
  check((await receive(main, { WaitTimeSeconds: 0 })).length === 0, 'it is still there')
  return 'four types of attributes'
})
await step('batch', async () => {
  const Entries = Array.from({ length: 10 }, (_, i) => ({ Id: `n${i}`, MessageBody: `${i}`, DelaySeconds: i === 3 ? 901 : 0 }))
  const { Successful, Failed } = await send('SendMessageBatch', { QueueUrl: main, Entries })
  check(Successful.length === 9 && Failed[0].Id === 'n3' && Failed[0].SenderFault, JSON.stringify(Failed))
  const held = []
  await until('nine messages', async () => held.push(...await receive(main, { MaxNumberOfMessages: 10 })) >= 9)
  const gone = [...held, { ReceiptHandle: 'no handle' }].map(({ ReceiptHandle }, i) => ({ Id: `d${i}`, ReceiptHandle }))
  const deleted = await send('DeleteMessageBatch', { QueueUrl: main, Entries: gone })
  check(deleted.Successful.length === 9 && deleted.Failed[0].Code === 'ReceiptHandleIsInvalid', JSON.stringify(deleted))
  const twice = [1, 2].map(() => ({ Id: 'same', MessageBody: 'b' }))
  await refused('BatchEntryIdsNotDistinct', 'AWS.SimpleQueueService.BatchEntryIdsNotDistinct', 400, send('SendMessageBatch', { QueueUrl: main, Entries: twice }))
  await refused('EmptyBatchRequest', 'AWS.SimpleQueueService.EmptyBatchRequest', 400, send('SendMessageBatch', { QueueUrl: main, Entries: [] }))
  return '9 of 10 sent, 9 of 10 deleted'
})
await step('delay', async () => {
  const begin = Date.now()
  await send('SendMessage', { QueueUrl: main, MessageBody: 'later', DelaySeconds: 1 })
  check((await drain(main, 1))[0] === 'later' && Date.now() - begin > 900, `after ${Date.now() - begin} ms`)
  return `came after ${Date.now() - begin} ms`
})
await step('visibility', async () => {
  await send('SendMessage', { QueueUrl: main, MessageBody: 'again' })
  const [first] = await receive(main, { VisibilityTimeout: 1 })
  const [second] = await receive(main)
  check(second.Attributes.ApproximateReceiveCount === '2', JSON.stringify(second.Attributes))
  await remove(main, first)
  check(await attribute(main, 'ApproximateNumberOfMessagesNotVisible') === '1', 'an old handle deleted a newer delivery')
  await send('ChangeMessageVisibility', { ...handleOf(main, second), VisibilityTimeout: 0 })
  const [third] = await receive(main)
  await remove(main, third)
  await refused('InvalidParameterValueException', 'InvalidParameterValue', 400, send('ChangeMessageVisibility', { ...handleOf(main, third), VisibilityTimeout: 5 }))
  return 'expires, ends at once, old handle worthless'
})
await step('long-poll', async () => {
  const begin = Date.now()
  const [messages] = await Promise.all([receive(main, { WaitTimeSeconds: 15 }), pause(500).then(() => send('SendMessage', { QueueUrl: main, MessageBody: 'wake' }))])
  const took = Date.now() - begin
  check(messages.length === 1 && took < 8000, `${messages.length} messages after ${took} ms`)
  await remove(main, messages[0])
  return `woke after ${took} ms`
})
await step('fifo', async () => {
  const url = await fifo('groups')
  const put = (body, group, id = body) => send('SendMessage', { QueueUrl: url, MessageBody: body, MessageGroupId: group, MessageDeduplicationId: id })
  const first = await put('a1', 'a')
  const again = await put('other', 'a', 'a1')
  check(first.MessageId === again.MessageId && first.SequenceNumber === again.SequenceNumber, 'a repeat has another id')
  await put('a2', 'a')
  await put('b1', 'b')
  const [a1] = await receive(url)
  const [b1] = await receive(url)
  check(a1.Body === 'a1' && b1.Body === 'b1', `${a1.Body}, ${b1.Body}`)
  check((await receive(url, { WaitTimeSeconds: 0 })).length === 0, 'both groups are held')
  await remove(url, a1)
  check((await drain(url, 1))[0] === 'a2', 'the group goes on')
  return 'order, group locks, repeats'
})
let arn, source
await step('dead-letters', async () => {
  const dead = await queue('dead')
  arn = await attribute(dead, 'QueueArn')
  source = await queue('source', { VisibilityTimeout: '0', RedrivePolicy: JSON.stringify({ deadLetterTargetArn: arn, maxReceiveCount: 1 }) })
  const { MessageId } = await send('SendMessage', { QueueUrl: source, MessageBody: 'poison' })
  await receive(source)
  await until('message gone', async () => (await receive(source, { WaitTimeSeconds: 0 })).length === 0)
  const [letter] = await receive(dead, { VisibilityTimeout: 0 })
  check(letter.MessageId === MessageId && letter.Attributes.DeadLetterQueueSourceArn.endsWith('-source'), JSON.stringify(letter))
  check((await send('ListDeadLetterSourceQueues', { QueueUrl: dead })).queueUrls[0] === source, 'another source')
  return 'same id, source named'
})
await step('move-task', async () => {
  await send('StartMessageMoveTask', { SourceArn: arn })
  const newest = async () => (await send('ListMessageMoveTasks', { SourceArn: arn })).Results[0]
  await until('completed move', async () => (await newest()).Status === 'COMPLETED')
  check((await receive(source))[0].Body === 'poison', 'not back')
  await refused('ResourceNotFoundException', 'ResourceNotFoundException', 404, send('StartMessageMoveTask', { SourceArn: `${arn}-none` }))
  return 'moved back'
})
await step('errors', async () => {
  const unknown = ['QueueDoesNotExist', 'AWS.SimpleQueueService.NonExistentQueue', 400]
  await refused(...unknown, send('GetQueueUrl', { QueueName: `${prefix}-none` }))
  await refused(...unknown, send('SendMessage', { QueueUrl: `${main}-none`, MessageBody: 'b' }))
  await refused('ReceiptHandleIsInvalid', 'ReceiptHandleIsInvalid', 400, remove(main, { ReceiptHandle: 'no handle' }))
  await refused('InvalidMessageContents', 'InvalidMessageContents', 400, send('SendMessage', { QueueUrl: main, MessageBody: '\ufffe' }))
  return 'as the SDK types them'
})
await step('purge', async () => {
  await send('SendMessage', { QueueUrl: main, MessageBody: 'p' })
  await send('PurgeQueue', { QueueUrl: main })
  await until('empty queue', async () => await attribute(main, 'ApproximateNumberOfMessages') === '0')
  return ''
})
await step('address', async () => {
  const { port } = new URL(process.env.SQS)
  for (const host of ['localhost', '127.0.0.1']) {
    const { QueueUrl } = await send('GetQueueUrl', { QueueName: `${prefix}-main` }, client({ endpoint: `http://${host}:${port}` }))
    check(new URL(QueueUrl).host === `${host}:${port}`, QueueUrl)
  }
  return "by the client's own name of the server"
})
await step('delete-queue', async () => {
  const { QueueUrls } = await send('ListQueues', { QueueNamePrefix: prefix })
  for (const QueueUrl of QueueUrls) await send('DeleteQueue', { QueueUrl })
  await refused('QueueDoesNotExist', 'AWS.SimpleQueueService.NonExistentQueue', 400, receive(main))
  return `${QueueUrls.length} queues`
})
if (process.env.SQS_SIGNED) {
  await step('signatures', async () => {
    const { SQS_SIGNED: endpoint, SQS_KEY_ID: accessKeyId, SQS_SECRET: secretAccessKey } = process.env
    const as = credentials => client({ endpoint, credentials })
    await send('ListQueues', {}, as({ accessKeyId, secretAccessKey }))
    await refused('SignatureDoesNotMatch', 'SignatureDoesNotMatch', 403, send('ListQueues', {}, as({ accessKeyId, secretAccessKey: 'wrong' })))
    await refused('InvalidClientTokenId', 'InvalidClientTokenId', 403, send('ListQueues', {}, as({ accessKeyId: 'AKIDNOBODY', secretAccessKey })))
    return 'the right key only'
  })
}
finish()
