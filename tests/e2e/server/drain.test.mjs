// SIGTERM: what was begun ends with its text, by its client or, at the limit, by the server; nothing is cut without a word.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Client, append, certificate, expectedText, form, noise, rawSocket, request, sendAudio, sleep, startFake, until, upload, wav } from './harness.mjs';

const audio = noise(48000, 11);
const TIME_OVER = 'The server is going away and the time to finish is over';

// One session of every dialect, its audio sent and not ended. `final` waits for the final text.
const COMPLETED = 'conversation.item.input_audio_transcription.completed';
const GA = { type: 'session.update', session: { type: 'transcription', audio: { input: { format: { type: 'audio/pcm', rate: 16000 } } } } };
const dialects = {
  vllm: {
    path: '/v1/realtime', first: [{ type: 'session.update', model: 'demo' }, { type: 'input_audio_buffer.commit' }], delta: 'transcription.delta',
    final: async (client) => (await client.next('transcription.done')).text,
    error: (event) => event.code === 'going_away' && event.error === TIME_OVER,
  },
  openai: {
    path: '/v1/realtime?intent=transcription', first: [GA], delta: 'conversation.item.input_audio_transcription.delta',
    final: async (client) => {
      const { item_id } = await client.next('input_audio_buffer.committed');
      const completed = await client.next(COMPLETED);
      assert.equal(completed.item_id, item_id);
      return completed.transcript;
    },
    error: (event) => event.error.code === 'going_away' && event.error.type === 'server_error',
  },
  'openai with voice activity detection': {
    path: '/v1/realtime?intent=transcription', delta: 'conversation.item.input_audio_transcription.delta',
    first: [{ ...GA, session: { ...GA.session, audio: { input: { ...GA.session.audio.input, turn_detection: { type: 'server_vad' } } } } }],
    final: async (client) => (await client.next(COMPLETED)).transcript,
    error: (event) => event.error.code === 'going_away',
  },
  mistral: {
    path: '/v1/audio/transcriptions/realtime', first: [], append: 'input_audio.append', delta: 'transcription.text.delta',
    final: async (client) => (await client.next('transcription.done')).text,
    error: (event) => event.error.code === 503 && event.error.type === 'server_error',
  },
};
async function speak(server, dialect) {
  const client = await Client.open(`ws://127.0.0.1:${server.port}${dialect.path}`);
  await client.next('session.created');
  for (const event of dialect.first) client.send(event);
  sendAudio(client, audio, 4096, dialect.append);
  return client;
}
const logged = (server, start) => server.log.filter((line) => line.includes(start));
// The head of an upload and a part of its body; answer() resolves with everything the server said.
async function beginUpload(server, share, fields = {}) {
  const { body, headers } = form(fields, wav(audio));
  const socket = await rawSocket(server.port);
  const parts = [];
  const over = new Promise((resolve, reject) => { socket.on('data', (part) => parts.push(part)).on('end', () => resolve(Buffer.concat(parts).toString())).on('error', reject); });
  socket.write(`POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: ${headers['content-type']}\r\nContent-Length: ${body.length}\r\n\r\n`);
  socket.write(body.subarray(0, body.length * share));
  return { socket, rest: body.subarray(body.length * share), answer: () => over };
}

describe('drain', () => {
  test('SIGTERM: not ready, nobody new, running utterances finish, idle ones get 1001, exit 0', async () => {
    const server = await startFake({}), ws = `ws://127.0.0.1:${server.port}`;
    const expected = await expectedText(server, audio);
    const idle = await Client.open(ws + '/v1/realtime'), busy = await Client.open(ws + '/v1/realtime');
    busy.send({ type: 'session.update', model: 'demo' });
    busy.send({ type: 'input_audio_buffer.commit' });
    sendAudio(busy, audio.subarray(0, 40000));
    await busy.next('transcription.delta');
    server.child.kill('SIGTERM');
    assert.equal((await idle.closed).code, 1001);
    assert.equal((await request(server.base, { path: '/ready' })).status, 503);
    assert.equal((await request(server.base, { path: '/health' })).status, 200);
    await assert.rejects(Client.open(ws + '/v1/realtime'), (error) => error.response.statusCode === 503);
    sendAudio(busy, audio.subarray(40000));
    busy.send({ type: 'input_audio_buffer.commit', final: true });
    assert.equal((await busy.next('transcription.done')).text, expected);
    assert.equal((await busy.closed).code, 1001);
    assert.equal((await server.exited).code, 0);
  });
  test('a second signal ends it at once', async () => {
    const server = await startFake({ log: 'info' });
    const client = await speak(server, dialects.vllm);
    await client.next('transcription.delta');
    server.child.kill('SIGTERM');
    await until(async () => (await request(server.base, { path: '/ready' })).status === 503, 'draining');
    server.child.kill('SIGTERM');
    assert.equal((await server.exited).code, 0);
    await client.closed;
    assert.match(logged(server, 'server.drained')[0], / complete=false cut=1 /);
  });
  for (const [name, dialect] of Object.entries(dialects)) {
    test(`at the limit ${name} gets its whole text, then 1001 and the reason`, async () => {
      const server = await startFake({ 'drain-timeout': 1, log: 'info' });
      const expected = await expectedText(server, audio);
      const client = await speak(server, dialect);
      await client.next(dialect.delta);
      server.child.kill('SIGTERM');
      const text = await dialect.final(client);
      if (!name.includes('voice')) assert.equal(text, expected);
      assert.equal(client.all.filter((e) => e.type === dialect.delta).map((e) => e.delta ?? e.text).join(''), text);
      assert.ok(text.length > 40);
      assert.deepEqual(await client.closed, { code: 1001, reason: TIME_OVER });
      assert.equal(client.all.filter((e) => e.type === 'error').length, 0);
      assert.equal((await server.exited).code, 0);
      assert.match(logged(server, 'session.close')[0], / code=1001 .* audio_s=3\.00$/);
      assert.match(logged(server, 'server.drained')[0], / complete=false cut=1 /);
    });
  }
  test('with voice activity detection silence is no running utterance', async () => {
    const server = await startFake({}), { path, first } = dialects['openai with voice activity detection'];
    const client = await Client.open(`ws://127.0.0.1:${server.port}${path}`);
    for (const event of first) client.send(event);
    sendAudio(client, Buffer.concat([audio, Buffer.alloc(32000)]));
    await client.next(COMPLETED);
    client.send(append(Buffer.alloc(32000)));
    server.child.kill('SIGTERM');
    assert.deepEqual(await client.closed, { code: 1001, reason: 'The server is going away' });
    assert.equal((await server.exited).code, 0);
  });
  test('over TLS too', async () => {
    const { cert, key } = certificate();
    const server = await startFake({ 'drain-timeout': 1, 'tls-cert': cert, 'tls-key': key, log: 'info' });
    const expected = await expectedText(server, audio);
    const client = await Client.open(`wss://127.0.0.1:${server.tls_port}/v1/audio/transcriptions/realtime`);
    sendAudio(client, audio, 4096, 'input_audio.append');
    await client.next('transcription.text.delta');
    server.child.kill('SIGTERM');
    assert.equal(await dialects.mistral.final(client), expected);
    assert.deepEqual(await client.closed, { code: 1001, reason: TIME_OVER });
    assert.equal((await server.exited).code, 0);
    assert.match(logged(server, 'session.close')[0], / code=1001 .* audio_s=3\.00$/);
  });
  test('audio and commits that come after the limit change nothing', async () => {
    const server = await startFake({ 'drain-timeout': 0.5 });
    const expected = await expectedText(server, audio);
    const client = await speak(server, dialects.vllm);
    await client.next('transcription.delta');
    await server.command('stall');
    server.child.kill('SIGTERM');
    await sleep(1000);
    sendAudio(client, audio);
    client.send({ type: 'input_audio_buffer.commit', final: true });
    await sleep(200);
    await server.command('resume');
    assert.equal(await dialects.vllm.final(client), expected);
    assert.equal((await client.closed).code, 1001);
    assert.equal((await server.exited).code, 0);
  });
  test('text that does not come within 5 s of the limit: an error in the dialect, 1001, exit 0', async () => {
    const server = await startFake({ 'drain-timeout': 0.5, 'max-lag': 0, log: 'info' });
    const clients = [];
    for (const dialect of Object.values(dialects)) clients.push([await speak(server, dialect), dialect]);
    await server.command('stall');
    for (const [client, dialect] of clients) client.send(append(audio, dialect.append));
    const upload = await beginUpload(server, 1), stream = await beginUpload(server, 1, { stream: 'true' });
    await until(async () => JSON.parse((await request(server.base, { path: '/ready' })).text).sessions === 6, 'all run');
    server.child.kill('SIGTERM');
    for (const [client, dialect] of clients) {
      const error = await client.next('error');
      assert.ok(dialect.error(error), JSON.stringify(error));
      assert.deepEqual(await client.closed, { code: 1001, reason: TIME_OVER });
    }
    assert.match(await upload.answer(), /^HTTP\/1\.1 503 [^]*Retry-After: 1[^]*"code":"draining"/);
    assert.match(await stream.answer(), /^HTTP\/1\.1 200 [^]*\ndata: \{"error":\{"message":"The server is going away[^]*"code":"draining"\}\}\n\n/);
    assert.equal((await server.exited).code, 0);
    assert.match(logged(server, 'server.drained')[0], / complete=false cut=6 /);
    assert.deepEqual(logged(server, 'session.close').map((line) => / code=(\d+)/.exec(line)[1]), ['1001', '1001', '1001', '1001']);
  });
  test('uploads: one that arrives in time gets its text, one that does not is told so', async () => {
    const server = await startFake({ 'drain-timeout': 1.5, log: 'info' });
    const expected = (await expectedText(server, audio)).trimStart();
    const quick = await beginUpload(server, 0.5), slow = await beginUpload(server, 0.5);
    await sleep(200);
    server.child.kill('SIGTERM');
    await until(async () => (await request(server.base, { path: '/ready' })).status === 503, 'draining');
    assert.equal((await upload(server.base, {}, wav(audio))).status, 503);
    quick.socket.write(quick.rest);
    assert.ok((await quick.answer()).includes(JSON.stringify(expected)));
    assert.match(await slow.answer(), /^HTTP\/1\.1 503 [^]*Retry-After: 1[^]*"message":"The server is going away and the time to finish is over"/);
    assert.equal((await server.exited).code, 0);
    assert.match(logged(server, 'server.drained')[0], / complete=false cut=1 seconds=1\./, 'a client that went is not waited for');
  });
  test('nothing cut: complete', async () => {
    const server = await startFake({ log: 'info' });
    const client = await speak(server, dialects.mistral);
    server.child.kill('SIGTERM');
    await until(() => logged(server, 'server.drain ').length === 1, 'draining');
    client.send({ type: 'input_audio.end' });
    await client.next('transcription.done');
    assert.equal((await client.closed).code, 1000);
    assert.equal((await server.exited).code, 0);
    assert.match(logged(server, 'server.drained')[0], / complete=true cut=0 /);
  });
});
