// Misbehaving clients, a misbehaving engine, full disks: healthy sessions keep their text to the byte, everything taken comes back.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Client, append, expectedText, form, metric, noise, rawSocket, request, residentMb, sendAudio, sleep, startFake, until, upload, vllmRun, wav } from './harness.mjs';

const UPGRADE = 'GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n';
const audio = noise(48000, 11);
const text = (event) => {
  const payload = Buffer.from(JSON.stringify(event)), head = Buffer.alloc(payload.length < 126 ? 6 : 8);
  head[0] = 0x81;
  if (payload.length < 126) head[1] = 0x80 | payload.length;
  else { head[1] = 0xfe; head.writeUInt16BE(payload.length, 2); }
  return Buffer.concat([head, payload]);
};
const UPDATE = text({ type: 'session.update', model: 'demo' }), START = text({ type: 'input_audio_buffer.commit' });
const FINAL = text({ type: 'input_audio_buffer.commit', final: true }), APPEND = text(append(noise(8000, 5)));
const waitFor = (socket, what) => new Promise((resolve) => {
  let got = '';
  const look = (part) => { got += part.toString('latin1'); if (got.includes(what)) { socket.off('data', look); resolve(); } };
  socket.on('data', look);
  socket.on('close', resolve);
});

// Sessions that behave, all the while `act` runs; their text must be right.
async function besideHealthy(server, count, act) {
  const expected = await expectedText(server, audio);
  const url = `ws://127.0.0.1:${server.port}/v1/realtime`;
  let running = true, rounds = 0;
  const healthy = Array.from({ length: count }, async () => {
    const client = await Client.open(url);
    do {
      assert.equal((await vllmRun('', audio, { client })).text, expected);
      ++rounds;
    } while (running);
    await client.close();
  });
  try {
    await act(expected);
  } finally {
    running = false;
  }
  await Promise.all(healthy);
  assert.ok(rounds >= count);
}
async function nothingLeft(server) {
  await until(async () => await metric(server.base, 'vllm:num_requests_running') === 0, 'places given back');
  await until(async () => (await server.command('sessions')).sessions === 0, 'slots given back');
  assert.equal(await metric(server.base, 'vllm:websocket_connections_active'), 0);
  assert.equal(await metric(server.base, 'voxrt_buffered_audio_bytes'), 0);
  assert.equal(await metric(server.base, 'voxrt_buffered_text_bytes'), 0);
}

describe('clients', () => {
  let server;
  before(async () => { server = await startFake({ 'max-sessions': 40, 'max-connections': 3000, 'handshake-timeout': 2 }); });
  after(() => server.stop());

  const { body, headers } = form({}, wav(audio));
  const post = `POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: ${headers['content-type']}\r\nContent-Length: ${body.length}\r\n\r\n`;
  const states = {
    'before a word': async () => {},
    'in the request line': async (socket) => socket.write('GET /v1/re'),
    'right after the upgrade request': async (socket) => socket.write(UPGRADE),
    'after the greeting': async (socket) => { socket.write(UPGRADE); await waitFor(socket, 'session.created'); },
    'in a frame header': async (socket) => { socket.write(UPGRADE); await waitFor(socket, 'session.created'); socket.write(APPEND.subarray(0, 3)); },
    'in an append': async (socket) => { socket.write(UPGRADE); await waitFor(socket, 'session.created'); socket.write(UPDATE); socket.write(START); socket.write(APPEND.subarray(0, 9000)); },
    'after audio': async (socket) => { socket.write(UPGRADE); await waitFor(socket, 'session.created'); socket.write(Buffer.concat([UPDATE, START, APPEND, APPEND])); },
    'while deltas come': async (socket) => { socket.write(UPGRADE); await waitFor(socket, 'session.created'); socket.write(Buffer.concat([UPDATE, START, ...Array(20).fill(APPEND)])); await waitFor(socket, 'transcription.delta'); },
    'after the end': async (socket) => { socket.write(UPGRADE); await waitFor(socket, 'session.created'); socket.write(Buffer.concat([UPDATE, START, APPEND, FINAL])); },
    'in an upload': async (socket) => { socket.write(post); socket.write(body.subarray(0, 50000)); },
    'after an upload': async (socket) => { socket.write(post); socket.write(body); },
  };
  test('RST in every state, 330 times beside 8 healthy sessions', async () => {
    await besideHealthy(server, 8, async () => {
      for (let round = 0; round < 30; ++round) {
        await Promise.all(Object.values(states).map(async (state) => {
          const socket = await rawSocket(server.port);
          await state(socket);
          await sleep(Math.random() * 10);
          socket.resetAndDestroy();
        }));
      }
    });
    await nothingLeft(server);
  });

  test('10,000 connects and disconnects: every place comes back, memory stays', async () => {
    const kinds = Object.values(states).slice(0, 9);
    await vllmRun(`ws://127.0.0.1:${server.port}/v1/realtime`, audio);
    const before = residentMb(server.pid);
    let left = 10000;
    await Promise.all(Array.from({ length: 32 }, async () => {
      for (let index = --left; index >= 0; index = --left) {
        const socket = await rawSocket(server.port);
        // One in eight runs a session; the rest never get that far.
        await kinds[index % 8 === 0 ? index / 8 % kinds.length : index % 3](socket);
        if (index % 2) socket.destroy(); else socket.resetAndDestroy();
      }
    }));
    await nothingLeft(server);
    const grown = residentMb(server.pid) - before;
    assert.ok(grown < 64, `grew by ${grown.toFixed(1)} MB`);
  });

  test('2000 idle sockets and slow headers: small, closed in time, healthy sessions unharmed', async () => {
    const before = residentMb(server.pid);
    const sockets = [];
    await besideHealthy(server, 4, async () => {
      for (let i = 0; i < 20; ++i) sockets.push(...await Promise.all(Array.from({ length: 100 }, () => rawSocket(server.port))));
      sockets.forEach((socket) => socket.on('error', () => {}));
      const slow = sockets.slice(0, 100);
      for (const socket of slow) socket.write('GET /health HTTP/1.1\r\nX: ');
      const grown = residentMb(server.pid) - before;
      assert.ok(grown < 300, `grew by ${grown.toFixed(1)} MB`);
      const dripping = setInterval(() => slow.forEach((socket) => socket.writable && socket.write('a')), 200);
      await until(() => sockets.every((socket) => socket.readableEnded || socket.destroyed || (socket.resume(), false)), 'all closed', 15000);
      clearInterval(dripping);
    });
    await nothingLeft(server);
  });

  test('a client that reads a message now and then gets merged deltas and every final', async () => {
    const expected = await expectedText(server, audio);
    const client = await Client.open(`ws://127.0.0.1:${server.port}/v1/realtime`);
    client.send({ type: 'session.update', model: 'demo' });
    client.socket.pause();
    for (let i = 0; i < 40; ++i) {
      client.send({ type: 'input_audio_buffer.commit' });
      sendAudio(client, audio, 96000);
      client.send({ type: 'input_audio_buffer.commit', final: true });
    }
    await until(async () => await metric(server.base, 'vllm:request_success_total') >= 40, 'transcribed');
    client.socket.resume();
    for (let i = 0; i < 40; ++i) assert.equal((await client.next('transcription.done')).text, expected);
    await client.close();
  });

  test('ping floods and empty frames', async () => {
    const client = await Client.open(`ws://127.0.0.1:${server.port}/v1/realtime`);
    for (let i = 0; i < 2000; ++i) client.socket.ping('x');
    for (let i = 0; i < 200; ++i) client.send(Buffer.alloc(0));
    assert.equal((await vllmRun('', audio, { client })).text, await expectedText(server, audio));
    await client.close();
  });

  test('fragmented messages and one-byte writes', async () => {
    const expected = await expectedText(server, audio);
    const client = await Client.open(`ws://127.0.0.1:${server.port}/v1/realtime`);
    client.send({ type: 'session.update', model: 'demo' });
    client.send({ type: 'input_audio_buffer.commit' });
    const message = JSON.stringify(append(audio));
    for (let i = 0; i < message.length; i += 10000) client.socket.send(message.slice(i, i + 10000), { fin: i + 10000 >= message.length });
    client.send({ type: 'input_audio_buffer.commit', final: true });
    assert.equal((await client.next('transcription.done')).text, expected);
    await client.close();
  });
});

describe('limits', () => {
  const run = (options, act) => async () => {
    const server = await startFake(options);
    try {
      await act(server, `ws://127.0.0.1:${server.port}`);
    } finally {
      await server.stop();
    }
  };
  test('over capacity: 503 with a retry hint before the upgrade, and again welcome', run({ 'max-sessions': 2 }, async (server, ws) => {
    const clients = [await Client.open(ws + '/v1/realtime'), await Client.open(ws + '/v1/audio/transcriptions/realtime')];
    await assert.rejects(Client.open(ws + '/v1/realtime'), (error) => error.response.statusCode === 503 && error.response.headers['retry-after'] === '1');
    assert.equal((await upload(server.base, {}, wav(audio))).status, 503);
    const old = await upload(server.base, {}, wav(audio), { 'user-agent': 'OpenAI/JS 4.104.0' });
    assert.equal(old.headers['x-should-retry'], 'false');
    await clients[0].close();
    await until(async () => { try { await (await Client.open(ws + '/v1/realtime')).close(); return true; } catch { return false; } }, 'welcome again');
    await clients[1].close();
  }));
  test('idle clients get their error and 1008', run({ 'idle-timeout': 1 }, async (server, ws) => {
    const vllm = await Client.open(ws + '/v1/realtime'), mistral = await Client.open(ws + '/v1/audio/transcriptions/realtime'), openai = await Client.open(ws + '/v1/realtime?intent=transcription');
    assert.equal((await vllm.next('error')).code, 'idle_timeout');
    assert.equal((await mistral.next('error')).error.code, 408);
    assert.equal((await openai.next('error')).error.code, 'session_expired');
    for (const client of [vllm, mistral, openai]) assert.equal((await client.closed).code, 1008);
  }));
  test('a session length is announced and kept', run({ 'max-session-seconds': 2 }, async (server, ws) => {
    const client = await Client.open(ws + '/v1/realtime?intent=transcription');
    const created = await client.next('session.created');
    assert.ok(created.session.expires_at - created.created === 2);
    client.send({ type: 'session.update', session: {} });
    assert.equal((await client.next('session.warning')).code, 'expiring');
    assert.equal((await client.next('error')).error.code, 'session_expired');
    assert.equal((await client.closed).code, 1008);
  }));
  test('a backlog over its limit pauses reading and loses nothing', run({ 'session-memory': 65536, 'max-session-backlog': 2 << 20 }, async (server, ws) => {
    const long = noise(16000 * 240, 3);  // 7.7 MB
    assert.equal((await vllmRun(ws + '/v1/realtime', long, { step: 32000 })).text, await expectedText(server, long));
  }));
  test('a backlog that never shrinks ends with buffer_full and 1013', run({ 'session-memory': 65536, 'max-session-backlog': 1 << 20, 'push-back': 1, 'max-lag': 0 }, async (server, ws) => {
    await server.command('stall');
    const client = await Client.open(ws + '/v1/realtime');
    client.send({ type: 'session.update', model: 'demo' });
    client.send({ type: 'input_audio_buffer.commit' });
    sendAudio(client, noise(16000 * 200), 32000);
    assert.equal((await client.next('error')).code, 'buffer_full');
    assert.equal((await client.closed).code, 1013);
    await server.command('resume');
    await nothingLeft(server);
  }));
  test('a client that never reads is let go, with bounded memory', run({ 'slow-reader': 2, 'max-outbound': 200000 }, async (server, ws) => {
    const client = await Client.open(ws + '/v1/realtime');
    client.socket.pause();
    client.socket._socket.on('error', () => {});
    const flood = JSON.stringify({ type: 'x'.repeat(200) });  // each is answered with as much
    for (let i = 0; i < 60000; ++i) client.send(flood);
    await until(async () => await metric(server.base, 'voxrt_disconnects_total') >= 1, 'let go', 30000);
    client.socket.terminate();
    assert.ok(residentMb(server.pid) < 400);
    await nothingLeft(server);
  }));
  // An answer of 5 MB, more than the sockets between take, for a client that never reads it.
  const neverRead = async (server) => {
    const { body, headers } = form({ stream: 'true', stream_include_usage: 'true' }, wav(noise(2000 * 8000, 3), 4000, 8));
    const socket = await rawSocket(server.port);
    socket.on('error', () => {});
    socket.pause();
    socket.write(`POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: ${headers['content-type']}\r\nContent-Length: ${body.length}\r\n\r\n`);
    socket.write(body);
    return socket;
  };
  const openUploads = (server) => fs.readdirSync(`/proc/${server.pid}/fd`).filter((fd) => {
    try { return fs.readlinkSync(`/proc/${server.pid}/fd/${fd}`).endsWith('(deleted)'); } catch { return false; }
  }).length;
  test('a client that never reads its streamed answer is let go, its place, file and memory come back', run({ 'slow-reader': 2, 'max-upload': 64 << 20 }, async (server) => {
    await vllmRun(`ws://127.0.0.1:${server.port}/v1/realtime`, audio);
    const before = residentMb(server.pid);
    const connections = async () => await metric(server.base, 'voxrt_connections') - 1;  // but the one that asks
    await until(async () => await connections() === 0, 'no connection');
    let sockets;
    await besideHealthy(server, 4, async () => {
      sockets = await Promise.all([1, 2].map(() => neverRead(server)));
      await until(async () => openUploads(server) === 2, 'both uploads arrive');
      await until(async () => openUploads(server) === 0, 'let go', 60000);
    });
    await nothingLeft(server);
    await until(async () => await connections() === 0, 'connections closed');
    const grown = residentMb(server.pid) - before;
    assert.ok(grown < 100, `grew by ${grown.toFixed(1)} MB`);
    sockets.forEach((socket) => socket.destroy());
  }));
  test('a transcribed file holds no place while its answer is unread', run({ 'slow-reader': 600, 'max-upload': 64 << 20, 'max-sessions': 1 }, async (server, ws) => {
    const socket = await neverRead(server);
    await until(async () => await metric(server.base, 'vllm:num_requests_running') === 1, 'running', 60000);
    await until(async () => await metric(server.base, 'vllm:num_requests_running') === 0, 'given back', 60000);
    assert.equal((await vllmRun(ws + '/v1/realtime', audio)).text, await expectedText(server, audio));
    let answer = '';
    socket.on('data', (part) => { answer += part.toString('latin1'); });
    socket.resume();  // reads at last: nothing is lost
    await until(() => answer.endsWith('0\r\n\r\n'), 'the whole answer');
    assert.ok(answer.length > 5e6 && answer.includes('data: [DONE]'), `${answer.length} bytes`);
    socket.destroy();
  }));
  test('slow uploads are told so', run({ 'body-progress': 1 }, async (server) => {
    const socket = await rawSocket(server.port);
    socket.write('POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 100000\r\n\r\n--x');
    await waitFor(socket, 'HTTP/1.1 408');
    socket.destroy();
  }));
  test('connections of one address', run({ 'max-connections-per-address': 3 }, async (server) => {
    const sockets = await Promise.all(Array.from({ length: 6 }, () => rawSocket(server.port)));
    sockets.forEach((socket) => socket.on('error', () => {}).resume());
    await until(() => sockets.filter((socket) => socket.readableEnded || socket.destroyed).length === 3, 'three were closed');
    sockets.forEach((socket) => socket.destroy());
  }));
  test('a connect storm beyond --max-connections is served bit by bit', run({ 'max-connections': 50 }, async (server) => {
    const answers = await Promise.all(Array.from({ length: 400 }, () => request(server.base, { path: '/health', headers: { connection: 'close' } })));
    assert.ok(answers.every((answer) => answer.status === 200));
  }));
  test('no room on disk: uploads 507, live audio buffer_full, others unharmed', run({ 'temp-dir': '/nonexistent/voxrt', 'session-memory': 100000, 'max-upload': 40 << 20 }, async (server, ws) => {
    const big = await upload(server.base, {}, wav(noise(16000 * 60)));
    assert.equal(big.status, 507, big.text);
    await server.command('stall');
    const client = await Client.open(ws + '/v1/realtime');
    client.send({ type: 'session.update', model: 'demo' });
    client.send({ type: 'input_audio_buffer.commit' });
    sendAudio(client, noise(16000 * 80), 32000);
    assert.equal((await client.next('error')).code, 'buffer_full');
    assert.equal((await client.closed).code, 1013);
    await server.command('resume');
    assert.equal(JSON.parse((await upload(server.base, {}, wav(audio))).text).text, (await expectedText(server, audio)).trimStart());
    await nothingLeft(server);
  }));
  test('SSE streams are kept alive, slow JSON is padded', run({ 'sse-ping': 0.2, 'padding-after': 0.5 }, async (server) => {
    await server.command('stall');
    const answers = [upload(server.base, { stream: 'true' }, wav(audio)), upload(server.base, {}, wav(audio))];
    await sleep(1500);
    await server.command('resume');
    const [stream, json] = await Promise.all(answers);
    assert.match(stream.text, /^: ping\n\n/);
    assert.match(json.text, /^ +\{/);
    assert.ok(JSON.parse(json.text).text.length > 10);
  }));
});

describe('engine', () => {
  test('stalled: health turns red, newcomers are refused, paced sessions end with 1013, then all is well again', async () => {
    const server = await startFake({ stall: 1, 'max-lag': 1 }), ws = `ws://127.0.0.1:${server.port}`;
    const client = await Client.open(ws + '/v1/realtime');
    client.send({ type: 'session.update', model: 'demo' });
    client.send({ type: 'input_audio_buffer.commit' });
    await server.command('stall');
    const pace = setInterval(() => client.socket.readyState === 1 && client.send(append(noise(1600))), 100);
    await until(async () => (await request(server.base, { path: '/health' })).status === 503, 'red');
    assert.equal((await request(server.base, { path: '/ready' })).status, 503);
    await assert.rejects(Client.open(ws + '/v1/realtime'), (error) => error.response.statusCode === 503);
    assert.equal((await client.next('error')).code, 'buffer_full');
    assert.equal((await client.closed).code, 1013);
    clearInterval(pace);
    await server.command('resume');
    await until(async () => (await request(server.base, { path: '/health' })).status === 200, 'green');
    assert.equal((await vllmRun(ws + '/v1/realtime', audio)).text, await expectedText(server, audio));
    await server.stop();
  });
  test('behind its sessions, a server with a measured capacity takes on nobody; caught up, it does', async () => {
    const server = await startFake({ 'max-lag': 0, 'max-sessions': 32, 'admit-by-load': 1 }), ws = `ws://127.0.0.1:${server.port}/v1/realtime`;
    const client = await Client.open(ws);
    client.send({ type: 'session.update', model: 'demo' });
    client.send({ type: 'input_audio_buffer.commit' });
    await server.command('stall');
    const pace = setInterval(() => client.send(append(noise(1600))), 100);
    const refused = async () => { try { await (await Client.open(ws)).close(); return undefined; } catch (error) { return error.response; } };
    await until(async () => (await refused()) !== undefined, 'behind');
    const answer = await refused();
    assert.equal(answer.statusCode, 503);
    assert.equal(answer.headers['retry-after'], '2');
    const file = await upload(server.base, {}, wav(audio));
    assert.equal(JSON.parse(file.text).error.code, 'behind');
    await server.command('resume');
    await until(async () => (await refused()) === undefined, 'welcome again');
    await until(async () => await metric(server.base, 'voxrt_session_places_free') === 31, 'all places');
    clearInterval(pace);
    await client.close();
    await server.stop();
  });
  test('one failing session ends with 1011 in its dialect, its neighbours go on', async () => {
    const server = await startFake({}), ws = `ws://127.0.0.1:${server.port}`;
    const neighbour = await Client.open(ws + '/v1/realtime');
    for (const [path, type, code] of [['/v1/realtime', 'input_audio_buffer.append', 'processing_error'], ['/v1/audio/transcriptions/realtime', 'input_audio.append', 500]]) {
      const client = await Client.open(ws + path);
      await client.next('session.created');
      if (code !== 500) { client.send({ type: 'session.update', model: 'demo' }); client.send({ type: 'input_audio_buffer.commit' }); }
      await server.command('fail');
      client.send(append(audio, type));
      const error = await client.next('error');
      assert.equal(error.code ?? error.error.code, code);
      assert.equal((await client.closed).code, 1011);
      assert.equal((await vllmRun('', audio, { client: neighbour })).text, await expectedText(server, audio));
    }
    await neighbour.close();
    await nothingLeft(server);
    await server.stop();
  });
  test('lost: everybody is told, the process ends for its supervisor', async () => {
    const server = await startFake({ 'drain-timeout': 3 }), ws = `ws://127.0.0.1:${server.port}`;
    const client = await Client.open(ws + '/v1/realtime?intent=transcription');
    client.send({ type: 'session.update', session: { audio: { input: { format: { type: 'audio/pcm', rate: 16000 } } } } });
    await client.next('session.updated');
    await server.command('lose');
    client.send(append(audio));
    client.send({ type: 'input_audio_buffer.commit' });
    assert.equal((await client.next('error')).error.type, 'server_error');
    assert.equal((await client.closed).code, 1011);
    assert.equal((await server.exited).code, 3);
  });
});
