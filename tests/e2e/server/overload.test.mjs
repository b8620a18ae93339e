// More clients than the real engine can serve, all live: who is taken on gets its text to the byte, the others are told at once and when to
// come back, and who comes back as told is served.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Client, append, clip, metric, pcm, sleep, startVoxrt, transcribe, until } from './harness.mjs';

const file = clip('espeak_en_8.wav'), sound = pcm(file), TICK = 2560;
let expected;
before(() => { expected = transcribe(file); });

// The clip at the pace of a voice.
async function speak(client) {
  await client.next('session.created');
  client.send({ type: 'session.update', model: 'demo' });
  client.send({ type: 'input_audio_buffer.commit' });
  const begin = Date.now();
  for (let at = 0; at < sound.length; at += TICK) {
    await sleep(begin + at / 32 - Date.now());
    client.send(append(sound.subarray(at, at + TICK)));
  }
  client.send({ type: 'input_audio_buffer.commit', final: true });
  const done = await client.next('transcription.done', 120000);
  return done.text.trim();
}

async function overload(server, beyond) {
  const places = Number(/max_sessions=(\d+)/.exec(server.log.find((line) => line.includes('server.ready')))[1]);
  const url = server.base.replace('http', 'ws') + '/v1/realtime';
  const refusals = [], texts = [];
  let slowestRefusalMs = 0, open = 0, most = 0;
  await Promise.all(Array.from({ length: places + beyond }, async () => {
    for (;;) {
      const begin = Date.now();
      try {
        const client = await Client.open(url);
        most = Math.max(most, ++open);
        texts.push(await speak(client));
        --open;
        return void await client.close();
      } catch (error) {
        if (error.response === undefined) throw error;
        slowestRefusalMs = Math.max(slowestRefusalMs, Date.now() - begin);
        const parts = [];
        for await (const part of error.response) parts.push(part);
        refusals.push({ status: error.response.statusCode, ...JSON.parse(Buffer.concat(parts).toString()).error });
        await sleep(1000 * Number(error.response.headers['retry-after']));
      }
    }
  }));
  return { places, refusals, texts, most, slowestRefusalMs };
}

describe('overload', () => {
  for (const [name, args, beyond] of [['a given number of sessions', ['--max-sessions', '6'], 12], ['a measured number', ['--max-sessions', 'auto', '--threads', '1'], 40]]) {
    test(name, async () => {
      const server = await startVoxrt(args);
      try {
        const { places, refusals, texts, most, slowestRefusalMs } = await overload(server, beyond);
        assert.equal(texts.length, places + beyond);
        for (const text of texts) assert.equal(text, expected);
        assert.ok(refusals.length >= beyond, `${refusals.length} refusals`);
        for (const { status, code } of refusals) assert.ok(status === 503 && ['full', 'behind'].includes(code), `${status} ${code}`);
        assert.ok(most <= places, `${most} of ${places} at once`);
        assert.equal(await metric(server.base, 'voxrt_refusals_total'), refusals.length);
        await until(async () => await metric(server.base, 'vllm:num_requests_running') === 0, 'places given back');
        console.log(`${places} places, ${texts.length} clients, ${refusals.length} refusals, the slowest in ${slowestRefusalMs} ms`);
      } finally {
        await server.stop();
      }
    });
  }
});
