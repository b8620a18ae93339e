// The three dialects and the HTTP routes, message by message, on the fake engine: text depends on every sample.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { X509Certificate } from 'node:crypto';
import tls from 'node:tls';
import { after, before, describe, test } from 'node:test';
import { Client, append, certificate, expectedText, form, metric, noise, rawSocket, request, scratch, sendAudio, sleep, startFake, until, upload, vllmRun, wav } from './harness.mjs';

let server, ws;
const audio = noise(40000, 7);
let expected;
before(async () => {
  const { cert, key } = certificate();
  server = await startFake({ 'tls-cert': cert, 'tls-key': key });
  ws = `ws://127.0.0.1:${server.port}`;
  expected = await expectedText(server, audio);
  assert.ok(expected.length > 40);
});
after(() => server.stop());

describe('vLLM', () => {
  for (const step of [1279, 4096, 999, 80000]) {
    test(`whole flow in ${step}-byte chunks`, async () => {
      const { text, deltas, usage } = await vllmRun(ws + '/v1/realtime', audio, { step });
      assert.equal(text, expected);
      assert.equal(deltas, text);
      assert.deepEqual(usage, { prompt_tokens: 39, total_tokens: 39 + 43, completion_tokens: 43, prompt_tokens_details: null });
    });
  }
  test('over TLS, and twice on one socket', async () => {
    const client = await Client.open(`wss://localhost:${server.tls_port}/v1/realtime`);
    await client.next('session.created');
    assert.equal((await vllmRun('', audio, { client })).text, expected);
    assert.equal((await vllmRun('', audio, { client })).text, expected);
    await client.close();
  });
  test('final without audio and without start', async () => {
    const client = await Client.open(ws + '/v1/realtime');
    client.send({ type: 'session.update', model: 'demo' });
    client.send({ type: 'input_audio_buffer.commit', final: true });
    assert.equal((await client.next('transcription.done')).text, '');
    client.send({ type: 'input_audio_buffer.clear' });
    assert.equal((await client.next('error')).code, 'unknown_event');
    await client.close();
  });
  for (const together of [false, true]) test(`${together ? 'one segment' : 'piece by piece'} without waiting for an answer, then a half-close: the final text still comes`, async () => {
    const socket = await rawSocket(server.port);
    if (together) socket.cork();
    socket.write('GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n');
    const frame = (text) => {
      const payload = Buffer.from(text), head = Buffer.alloc(payload.length < 126 ? 6 : payload.length < 65536 ? 8 : 14);
      head[0] = 0x81;
      if (payload.length < 126) head[1] = 0x80 | payload.length;
      else if (payload.length < 65536) { head[1] = 0xfe; head.writeUInt16BE(payload.length, 2); } else { head[1] = 0xff; head.writeBigUInt64BE(BigInt(payload.length), 2); }
      return Buffer.concat([head, payload]);  // mask of zeros
    };
    socket.write(frame(JSON.stringify({ type: 'session.update', model: 'demo' })));
    socket.write(frame(JSON.stringify(append(audio))));
    socket.write(frame(JSON.stringify({ type: 'input_audio_buffer.commit', final: true })));
    if (together) socket.uncork();
    socket.end();
    const parts = [];
    for await (const part of socket) parts.push(part);
    const text = Buffer.concat(parts).toString('latin1');
    assert.match(text, /transcription\.done/);
    assert.ok(text.includes(JSON.stringify(expected).slice(1, -1)), 'the whole text');
  });
});

describe('OpenAI', () => {
  test('GA with 24 kHz resampled, deltas before the commit', async () => {
    const client = await Client.open(ws + '/v1/realtime?intent=transcription');
    const created = await client.next('session.created');
    assert.equal(created.session.type, 'transcription');
    client.send({ type: 'session.update', session: { type: 'transcription', audio: { input: { format: { type: 'audio/pcm', rate: 16000 }, transcription: { model: 'demo' } } } } });
    assert.equal((await client.next('session.updated')).session.audio.input.format.rate, 16000);
    sendAudio(client, audio);
    const delta = await client.next('conversation.item.input_audio_transcription.delta');
    client.send({ type: 'input_audio_buffer.commit' });
    const committed = await client.next('input_audio_buffer.committed');
    assert.equal(committed.item_id, delta.item_id);
    const completed = await client.next('conversation.item.input_audio_transcription.completed');
    assert.equal(completed.transcript, expected);
    assert.equal(completed.usage.seconds, 2.5);
    const joined = client.all.filter((e) => e.type.endsWith('.delta')).map((e) => e.delta).join('');
    assert.equal(joined, expected);
    await client.close();
  });
  test('24 kHz default and G.711 are served', async () => {
    for (const [format, bytes] of [[{ type: 'audio/pcm', rate: 24000 }, noise(48000, 3)], [{ type: 'audio/pcmu' }, noise(8000, 4)], [{ type: 'audio/pcma' }, noise(8000, 5)]]) {
      const client = await Client.open(ws + '/v1/realtime?intent=transcription');
      client.send({ type: 'session.update', session: { type: 'transcription', audio: { input: { format } } } });
      sendAudio(client, bytes, 3001);
      client.send({ type: 'input_audio_buffer.commit' });
      const completed = await client.next('conversation.item.input_audio_transcription.completed');
      assert.equal(completed.usage.seconds, 2);
      await client.close();
    }
  });
  test('voice activity ends utterances without a commit', async () => {
    const client = await Client.open(ws + '/v1/realtime?intent=transcription');
    client.send({ type: 'session.update', session: { type: 'transcription', audio: { input: { format: { type: 'audio/pcm', rate: 16000 }, turn_detection: { type: 'server_vad', silence_duration_ms: 300 } } } } });
    sendAudio(client, Buffer.concat([Buffer.alloc(16000), audio, Buffer.alloc(32000)]));
    await client.next('input_audio_buffer.speech_started');
    await client.next('input_audio_buffer.speech_stopped');
    const completed = await client.next('conversation.item.input_audio_transcription.completed');
    assert.ok(completed.transcript.length > 10);
    await client.close();
  });
  test('unknown model and call_id are refused before the upgrade', async () => {
    for (const query of ['model=nope', 'call_id=x']) {
      await assert.rejects(Client.open(ws + '/v1/realtime?' + query), (error) => error.response.statusCode === 404);
    }
  });
});

describe('Mistral', () => {
  test('update, append, flush and end: one done, then close 1000', async () => {
    const client = await Client.open(ws + '/v1/audio/transcriptions/realtime?model=demo');
    await client.next('session.created');
    client.send({ type: 'session.update', session: { audio_format: { encoding: 'pcm_s16le', sample_rate: 16000 } } });
    await client.next('session.updated');
    sendAudio(client, audio, 4096, 'input_audio.append');
    client.send({ type: 'input_audio.flush' });
    client.send({ type: 'input_audio.end' });
    const done = await client.next('transcription.done');
    assert.equal(done.text, expected);
    assert.ok(Number.isInteger(done.usage.prompt_audio_seconds));
    assert.equal((await client.closed).code, 1000);
    assert.equal(client.all.filter((e) => e.type === 'transcription.done').length, 1);
    assert.equal(client.all.filter((e) => e.type === 'transcription.text.delta').map((e) => e.text).join(''), expected);
  });
  test('an unknown model is an error event, then close 1008', async () => {
    const client = await Client.open(ws + '/v1/audio/transcriptions/realtime?model=nope');
    assert.equal((await client.next()).error.code, 404);
    assert.equal((await client.closed).code, 1008);
    const strange = await Client.open(ws + '/v1/audio/transcriptions/realtime?model=' + '%ff' + '%C3%A4'.repeat(200));
    assert.equal((await strange.next()).error.code, 404);
    assert.equal((await strange.closed).code, 1008, 'the reason is valid UTF-8');
  });
});

describe('bad input', () => {
  test('garbage is answered and the session lives', async () => {
    const client = await Client.open(ws + '/v1/realtime');
    client.send({ type: 'session.update', model: 'demo' });
    for (const bad of ['{', '[]', '{"type":1}', '{"type":"x"}', '{"type":"input_audio_buffer.append","audio":"@@"}', '{"type":"input_audio_buffer.append","audio":{}}', '['.repeat(1000), Buffer.from([1, 2, 3])]) {
      client.send(bad);
      await client.next('error');
    }
    assert.equal((await vllmRun('', audio, { client })).text, expected);
    await client.close();
  });
  test('invalid UTF-8 closes with 1007, a huge frame with 1009, compression is declined', async () => {
    let client = await Client.open(ws + '/v1/realtime', { perMessageDeflate: true });
    assert.equal(client.socket.extensions, '');
    client.socket._sender.sendFrame([Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0xff, 0xfe])]);
    assert.equal((await client.closed).code, 1007);
    client = await Client.open(ws + '/v1/realtime');
    client.socket._sender.sendFrame([Buffer.from([0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0])]);  // 1 GiB announced
    assert.equal((await client.closed).code, 1009);
  });
  test('a RIFF header in the first chunk is removed or explained', async () => {
    assert.equal((await vllmRun(ws + '/v1/realtime', wav(audio))).text, expected);
    const client = await Client.open(ws + '/v1/realtime');
    client.send({ type: 'session.update', model: 'demo' });
    client.send(append(wav(audio, 44100)));
    assert.match((await client.next('error')).error, /44100 Hz/);
    await client.close();
  });
  test('the client close is answered within a second, also in mid-utterance', async () => {
    const client = await Client.open(ws + '/v1/realtime');
    client.send({ type: 'session.update', model: 'demo' });
    client.send({ type: 'input_audio_buffer.commit' });
    sendAudio(client, noise(16000 * 60, 2), 64000);
    const begin = Date.now();
    client.socket.close(1000);
    await client.closed;
    assert.ok(Date.now() - begin < 1000);
  });
});

describe('HTTP', () => {
  test('operations', async () => {
    assert.equal((await request(server.base, { path: '/health' })).status, 200);
    assert.deepEqual(JSON.parse((await request(server.base, { path: '/ready' })).text).status, 'ready');
    assert.equal((await request(server.base, { path: '/ping' })).status, 200);
    assert.ok(JSON.parse((await request(server.base, { path: '/version' })).text).version);
    const metrics = await request(server.base, { path: '/metrics' });
    for (const name of ['vllm:num_requests_running', 'vllm:websocket_connection_duration_seconds_bucket', 'voxrt_lag_seconds_bucket', 'voxrt_session_places_free', 'voxrt_resident_bytes']) {
      assert.ok(metrics.text.includes(name), name);
    }
    const value = (name) => Number(metrics.text.split('\n').find((line) => line.startsWith(name + '{')).split(' ').at(-1));
    assert.ok(value('voxrt_live_steps_total') > 0);
    assert.equal(value('voxrt_step_seconds_count'), value('voxrt_live_steps_total'));
    assert.equal(value('voxrt_batch_sessions_count'), value('voxrt_live_steps_total'));
    assert.equal(value('voxrt_batch_sessions_sum'), value('voxrt_live_ticks_total'));
    const models = JSON.parse((await request(server.base, { path: '/v1/models' })).text);
    assert.equal(models.data[0].id, 'demo');
    assert.equal(JSON.parse((await request(server.base, { path: '/v1/models/demo' })).text).id, 'demo');
    assert.equal((await request(server.base, { path: '/v1/models/a%2Fb' })).status, 404);
    for (const page of ['/', '/status']) assert.match((await request(server.base, { path: page })).headers['content-type'], /text\/html/);
  });
  test('refusals', async () => {
    const nothing = await request(server.base, { path: '/nothing' });
    assert.equal(nothing.status, 404);
    assert.equal(JSON.parse(nothing.text).error.code, 'not_found');
    assert.ok(nothing.headers['x-request-id']);
    assert.equal((await request(server.base, { path: '/v1/realtime' })).status, 426);
    assert.equal((await request(server.base, { path: '/v1/models', method: 'POST' })).status, 405);
    assert.equal((await request(server.base, { path: '/v1/audio/transcriptions' })).status, 405);
    assert.equal((await request(server.base, { method: 'POST', path: '/v1/audio/transcriptions', headers: { 'content-type': 'application/json' }, body: '{}' })).status, 415);
    assert.equal((await request(server.base, { path: '/health', headers: { x: 'y'.repeat(20000) } })).status, 431);
    assert.equal((await request(server.base, { path: '/v1/models', headers: { origin: 'http://evil.example' } })).status, 403);
  });
  test('requests that lie or end early are answered', async () => {
    const post = (head) => `POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n${head}\r\n\r\n`;
    const upgrade = (version, key) => `GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: ${version}\r\n${key}\r\n`;
    const cases = [
      [post('Content-Length: 18446744073709551615'), /^HTTP\/1\.1 413 /], [post('Content-Length: -1'), /^HTTP\/1\.1 400 /],
      [post('Content-Length: 5\r\nTransfer-Encoding: chunked') + '0\r\n\r\nGET /health HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 400 (?!.*HTTP\/1\.1 200)/s],
      [post('Content-Length: 1000') + '--x\r\n', /^HTTP\/1\.1 400 [^]*The body ends early, after 5 bytes/], [post('Transfer-Encoding: chunked') + '5\r\n--x\r\n\r\n', /^HTTP\/1\.1 400 [^]*ends early/],
      [upgrade(12, 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'), /^HTTP\/1\.1 426 [^]*Sec-WebSocket-Version: 13[^]*"error"/], [upgrade(13, ''), /^HTTP\/1\.1 400 [^]*"param":"Sec-WebSocket-Key"/],
      ['GET /v1/models/%ff HTTP/1.1\r\nHost: x\r\n\r\n', /^HTTP\/1\.1 404 /],
    ];
    for (const [bytes, wanted] of cases) {
      const socket = await rawSocket(server.port), parts = [];
      socket.end(bytes);
      for await (const part of socket) parts.push(part);
      assert.match(Buffer.concat(parts).toString(), wanted, bytes);
    }
  });
  test('every format of an upload', async () => {
    const file = wav(audio);
    const text = expected.trimStart();
    const json = JSON.parse((await upload(server.base, { model: 'demo' }, file)).text);
    assert.equal(json.text, text);
    assert.equal(json.usage.seconds, 3);
    assert.equal((await upload(server.base, { response_format: 'text' }, file)).text, text + '\n');
    assert.match((await upload(server.base, { response_format: 'srt' }, file)).text, /^1\n00:00:00,\d{3} --> /);
    const vtt = await upload(server.base, { response_format: 'vtt' }, file);
    assert.match(vtt.text, /^WEBVTT\n\n/);
    assert.match(vtt.headers['content-type'], /text\/vtt/);
    const verbose = JSON.parse((await upload(server.base, { response_format: 'verbose_json', 'timestamp_granularities[]': 'word' }, file)).text);
    assert.equal(verbose.duration, 2.5);
    assert.ok(verbose.words.length > 5);
  });
  test('every stream form of an upload', async () => {
    const file = wav(audio);
    const events = (text) => text.split('\n').filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)));
    const openai = await upload(server.base, { stream: 'true' }, file);
    assert.equal(openai.headers['content-type'], 'text/event-stream');
    assert.equal(events(openai.text).filter((e) => e.type === 'transcript.text.delta').map((e) => e.delta).join(''), expected.trimStart());
    assert.ok(openai.text.endsWith('data: [DONE]\n\n'));
    const mistral = await upload(server.base, { stream: 'true', diarize: 'false' }, file);
    assert.match(mistral.text, /event: transcription\.done\n/);
    assert.ok(!mistral.text.includes('[DONE]'));
    const old = await upload(server.base, { stream: 'true', stream_include_usage: 'true' }, file);
    assert.equal(events(old.text).flatMap((e) => e.choices).map((c) => c.delta.content).join(''), expected.trimStart());
  });
  test('bad uploads name the parameter', async () => {
    const cases = [[{}, null, 'file'], [{}, Buffer.alloc(0), 'file'], [{}, Buffer.from('this is no sound at all, only text'), 'file'], [{ response_format: 'xml' }, wav(audio), 'response_format'],
      [{ temperature: '7' }, wav(audio), 'temperature'], [{ stream: 'true', response_format: 'srt' }, wav(audio), 'stream']];
    for (const [fields, file, param] of cases) {
      const answer = await upload(server.base, fields, file ?? undefined);
      assert.equal(answer.status, 400, answer.text);
      assert.equal(JSON.parse(answer.text).error.param, file !== null && file.length === 0 ? 'file' : param);
    }
    assert.equal((await upload(server.base, { model: 'nope' }, wav(audio))).status, 404);
  });
  test('a WAV without samples is an empty transcript in every format', async () => {
    const silent = wav(Buffer.alloc(0));
    const get = async (fields) => { const answer = await upload(server.base, fields, silent); assert.equal(answer.status, 200, answer.text); return answer.text; };
    const json = JSON.parse(await get({}));
    assert.deepEqual([json.text, json.usage.seconds, json.usage.completion_tokens], ['', 0, 0]);
    const verbose = JSON.parse(await get({ response_format: 'verbose_json', 'timestamp_granularities[]': 'word' }));
    assert.deepEqual([verbose.text, verbose.duration, verbose.segments, verbose.words], ['', 0, [], []]);
    assert.equal(await get({ response_format: 'text' }), '\n');
    assert.equal(await get({ response_format: 'srt' }), '');
    assert.equal(await get({ response_format: 'vtt' }), 'WEBVTT\n\n');
    assert.match(await get({ stream: 'true' }), /^data: \{"type":"transcript\.text\.done","text":""/);
    assert.match(await get({ stream: 'true', diarize: 'false' }), /^event: transcription\.done\ndata: .*"text":""/);
  });
  test('errors name no flags of the command line', async () => {
    for (const file of [Buffer.from('this is no sound at all, only text'), Buffer.from('RIFF\x10\0\0\0WAVEfmt '), wav(audio, 1), wav(audio, 9000000), Buffer.alloc(5000)]) {
      const answer = await upload(server.base, {}, file);
      assert.equal(answer.status, 400, answer.text);
      assert.ok(!answer.text.includes('--'), answer.text);
    }
  });
  test('a body that is refused early is still read, so that the client sees the answer', async () => {
    const answer = await request(server.base, { method: 'POST', path: '/v1/audio/transcriptions', headers: { 'content-type': 'multipart/form-data; boundary=x', 'content-length': 60 << 20 }, body: Buffer.alloc(60 << 20) });
    assert.equal(answer.status, 413);
  });
  test('chunked from a pipe with the file first and tiny chunks, Expect: 100-continue, keep-alive', async () => {
    const { body, headers } = form({ model: 'demo' }, wav(audio));
    const socket = await rawSocket(server.port);
    const parts = [];
    socket.on('data', (part) => parts.push(part));
    const text = () => Buffer.concat(parts).toString();
    for (let round = 1; round <= 2; ++round) {
      socket.write(`POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: ${headers['content-type']}\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n`);
      await until(() => text().split('100 Continue').length === round + 1, '100 Continue');
      for (let i = 0; i < body.length; i += 7777) {
        const piece = body.subarray(i, i + 7777);
        socket.write(`${piece.length.toString(16)}\r\n`);
        socket.write(piece);
        socket.write('\r\n');
      }
      socket.write('0\r\n\r\n');
      await until(() => text().split('"text"').length === round + 1, 'answer ' + round);
    }
    socket.destroy();
  });
  test('a vanished client gives its place back', async () => {
    await server.command('stall');
    const { body, headers } = form({}, wav(noise(16000 * 20)));
    const socket = await rawSocket(server.port);
    socket.write(`POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: ${headers['content-type']}\r\nContent-Length: ${body.length}\r\n\r\n`);
    socket.write(body);
    await until(async () => await metric(server.base, 'vllm:num_requests_running') === 1, 'running');
    socket.destroy();
    await until(async () => await metric(server.base, 'vllm:num_requests_running') === 0, 'given back');
    await server.command('resume');
  });
});

describe('SIGHUP', () => {
  test('reads the certificate again; sessions go on, a bad file changes nothing', async () => {
    const folder = path.join(scratch, 'reload'), cert = path.join(folder, 'cert.pem'), key = path.join(folder, 'key.pem');
    fs.mkdirSync(folder);
    const first = certificate(), second = certificate('second');
    const install = (pair) => { fs.copyFileSync(pair.cert, cert); fs.copyFileSync(pair.key, key); };
    install(first);
    const reloaded = await startFake({ 'tls-cert': cert, 'tls-key': key });
    const shown = () => new Promise((resolve, reject) => {
      const socket = tls.connect({ port: reloaded.tls_port, host: '127.0.0.1', rejectUnauthorized: false }, () => { resolve(socket.getPeerCertificate().fingerprint256); socket.destroy(); });
      socket.on('error', reject);
    });
    const fingerprint = (pair) => new X509Certificate(fs.readFileSync(pair.cert)).fingerprint256;
    try {
      const running = [await Client.open(`ws://127.0.0.1:${reloaded.port}/v1/realtime`), await Client.open(`wss://127.0.0.1:${reloaded.tls_port}/v1/realtime`)];
      for (const client of running) {
        client.send({ type: 'session.update', model: 'demo' });
        client.send({ type: 'input_audio_buffer.commit' });
        client.send(append(audio.subarray(0, 40000)));
        await client.next('transcription.delta');
      }
      assert.equal(await shown(), fingerprint(first));
      install(second);
      reloaded.child.kill('SIGHUP');
      await until(async () => await shown() === fingerprint(second), 'the new certificate is shown');
      fs.writeFileSync(cert, 'no certificate');
      reloaded.child.kill('SIGHUP');
      for (const client of running) {
        client.send(append(audio.subarray(40000)));
        client.send({ type: 'input_audio_buffer.commit', final: true });
        assert.equal((await client.next('transcription.done')).text, expected);
        await client.close();
      }
      assert.equal(await shown(), fingerprint(second));
      assert.equal((await request(reloaded.base, { path: '/ready' })).status, 200);
    } finally {
      await reloaded.stop();
    }
  });
});

describe('keys and origins', () => {
  let locked;
  before(async () => { locked = await startFake({ 'api-key': ['one', 'two'], 'allowed-origin': 'https://app.example' }); });
  after(() => locked.stop());
  test('without a key: 401 before the upgrade, operations stay open', async () => {
    const refused = await request(locked.base, { path: '/v1/models' });
    assert.equal(refused.status, 401);
    assert.equal(refused.headers['www-authenticate'], 'Bearer');
    assert.equal((await request(locked.base, { path: '/health' })).status, 200);
    await assert.rejects(Client.open(`ws://127.0.0.1:${locked.port}/v1/realtime`), (error) => error.response.statusCode === 401);
  });
  test('every carrier of a key', async () => {
    for (const headers of [{ authorization: 'Bearer one' }, { 'x-api-key': 'two' }, { 'api-key': 'one' }]) {
      assert.equal((await request(locked.base, { path: '/v1/models', headers })).status, 200);
    }
    const client = await Client.open(`ws://127.0.0.1:${locked.port}/v1/realtime`, {}, ['realtime', 'openai-insecure-api-key.two', 'openai-beta.realtime-v1']);
    assert.equal(client.socket.protocol, 'realtime');
    await client.close();
    await assert.rejects(Client.open(`ws://127.0.0.1:${locked.port}/v1/realtime`, {}, ['openai-insecure-api-key.two']), (error) => error.response.statusCode === 400);
  });
  test('preflight needs no key and echoes the headers', async () => {
    const answer = await request(locked.base, { method: 'OPTIONS', path: '/v1/audio/transcriptions', headers: { origin: 'https://app.example', 'access-control-request-headers': 'authorization, x-stainless-os' } });
    assert.equal(answer.status, 204);
    assert.equal(answer.headers['access-control-allow-headers'], 'authorization, x-stainless-os');
    assert.equal(answer.headers['access-control-allow-origin'], 'https://app.example');
    assert.equal((await request(locked.base, { method: 'OPTIONS', path: '/v1/models', headers: { origin: 'https://evil.example' } })).status, 403);
  });
});
