// What the JavaScript client tests share: the steps' printed form, the data, and how read data is checked.
//
// A program prints `VERSION x`, then one line per step, `STEP name ok|fail detail`, and exits 1 if one failed.

import { randomBytes } from 'node:crypto'
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export const bootstrap = process.env.BOOTSTRAP
export const run = randomBytes(4).toString('hex')
export const partitions = 3
// An hour ago; records are one second apart, so that a seek by time has something to find.
export const firstMs = Date.now() - 3_600_000

let failed = false

export function version (name) {
  let dir = dirname(createRequire(import.meta.url).resolve(name))
  for (;;) {
    try {
      const found = JSON.parse(readFileSync(join(dir, 'package.json')))
      if (found.name === name) return console.log(`VERSION ${found.version}`)
    } catch {}
    dir = dirname(dir)
  }
}

export async function step (name, body) {
  const begin = Date.now()
  try {
    const detail = await limit(body(), 60_000)
    console.log(`STEP ${name} ok ${detail} (${((Date.now() - begin) / 1000).toFixed(1)} s)`)
  } catch (error) {
    failed = true
    const causes = [error, ...(error.errors ?? []), error.cause].filter(Boolean).map(e => e.message ?? `${e}`)
    console.log(`STEP ${name} fail ${causes.join(': ').replace(/\s+/g, ' ')}`)
  }
}

async function limit (promise, ms) {
  let timer
  const late = new Promise((_resolve, reject) => { timer = setTimeout(() => reject(new Error(`not done in ${ms} ms`)), ms) })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Ends the program whatever timers and sockets a client left behind. */
export function finish () {
  process.exit(failed ? 1 : 0)
}

export function check (condition, text) {
  if (!condition) throw new Error(text)
}

export const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

export async function until (what, condition, ms = 20_000) {
  const deadline = Date.now() + ms
  while (!(await condition())) {
    check(Date.now() < deadline, `no ${what} within ${ms} ms`)
    await pause(50)
  }
}

/** One codec's records; one in ten is a tombstone, one header key comes twice. */
export function records (codec) {
  return Array.from({ length: 30 }, (_, i) => ({
    partition: i % partitions,
    key: `${codec}-${i}`,
    value: i % 10 === 9 ? null : `${codec} ${i} `.repeat(20),
    headers: [['codec', codec], ['n', `${i}`], ['n', 'again']],
    ms: firstMs + i * 1000
  }))
}

/** Records for the group: their values are numbers, spread over four partitions. */
export function numbered (first, last) {
  return Array.from({ length: last - first }, (_, i) => ({ partition: (first + i) % 4, key: null, value: `${first + i}`, headers: [], ms: firstMs }))
}

/** `read`: records with offset in the order received. */
export function checkRead (codecs, read) {
  for (let p = 0; p < partitions; p++) {
    const want = codecs.flatMap(records).filter(r => r.partition === p)
    const got = read.filter(r => r.partition === p)
    check(got.length === want.length, `partition ${p}: ${got.length} records, not ${want.length}`)
    got.forEach((r, i) => {
      check(i === 0 || r.offset > got[i - 1].offset, `partition ${p} out of order at ${r.offset}`)
      const { offset, ...rest } = r
      const [g, w] = [rest, want[i]].map(({ partition, key, value, headers, ms }) => JSON.stringify({ partition, key, value, headers, ms }))
      check(g === w, `got ${g}, not ${w}`)
    })
  }
  return `${read.length} records of ${codecs.length} codecs`
}

export function checkNumbers (values, first, last) {
  const sorted = values.map(Number).sort((a, b) => a - b)
  check(JSON.stringify(sorted) === JSON.stringify(numbered(first, last).map(r => Number(r.value))), `got ${sorted}`)
}

export const queueTopic = `queue-${run}`
/** Makes a topic a queue as well. */
export const queueConfig = { name: 'queue.enable', value: 'true' }
const queueWishes = { urgent: ['towpath-priority', '9'], later: ['towpath-deliver-after', '2s'], stale: ['towpath-ttl', '100ms'] }
const queueValues = [...['usual', 'urgent', 'later', 'stale'], ...Array.from({ length: 20 }, (_, i) => `${i}`)]

/** Sends to the queue's topic by `send(records)`; its messages are worked (`queue_worker.py`) as soon as those are there that say how they want to be delivered. */
export async function sendToQueue (send) {
  for (let first = 0; first < queueValues.length; first += 4) {
    if (first === 4) console.log(`QUEUE ${queueTopic}`)
    await send(queueValues.slice(first, first + 4).map(value => ({ partition: 0, key: null, value, headers: queueWishes[value] ? [queueWishes[value]] : [], ms: Date.now() })))
  }
}

/** `read`: what a group read from the beginning, in the order received. */
export function checkQueue (read) {
  const got = JSON.stringify(read.map(({ value, headers }) => [value, headers]))
  check(got === JSON.stringify(queueValues.map(value => [value, queueWishes[value] ? [queueWishes[value]] : []])), got)
  return `${read.length} records read as a log while they are worked`
}
