// Three replicas behind HAProxy with the configuration of docs/server.md: least connections, /ready as health check. One is drained, one
// is killed; new sessions go to the others.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Client, append, expectedText, freePort, noise, root, scratch, startFake, until, upload, vllmRun, metric, wav } from './harness.mjs';

const haproxy = ['/usr/sbin/haproxy', '/usr/bin/haproxy'].find((file) => fs.existsSync(file));

test('drain and loss of a replica', { skip: haproxy === undefined && 'haproxy is not installed' }, async () => {
  const replicas = [await startFake(), await startFake(), await startFake()];
  const port = await freePort();
  const page = fs.readFileSync(path.join(root, 'docs/server.md'), 'utf8');
  const template = /```haproxy\n([\s\S]*?)```/.exec(page)[1];
  let index = 0;
  const config = template.replace(/bind \S+/, `bind 127.0.0.1:${port}`).replace(/10\.0\.0\.\d+:8000/g, () => `127.0.0.1:${replicas[index++].port}`);
  assert.equal(index, 3);
  const file = path.join(scratch, 'haproxy.cfg');
  fs.writeFileSync(file, config);
  const check = spawnSync(haproxy, ['-c', '-f', file], { encoding: 'utf8' });
  assert.equal(check.status, 0, check.stderr);
  const proxy = spawn(haproxy, ['-db', '-f', file], { stdio: 'ignore' });
  try {
    const url = `ws://127.0.0.1:${port}/v1/realtime`, audio = noise(30000, 9);
    const expected = await expectedText(replicas[0], audio);
    await until(async () => { try { return (await vllmRun(url, audio)).text === expected; } catch { return false; } }, 'HAProxy serves');
    const active = () => Promise.all(replicas.map((replica) => metric(replica.base, 'vllm:websocket_connections_active')));

    // Least connections: six sessions spread two by two.
    const clients = [];
    for (let i = 0; i < 6; ++i) { clients.push(await Client.open(url)); await clients[i].next('session.created'); }
    assert.deepEqual(await active(), [2, 2, 2]);

    // Drained: idle clients learn it with 1001, later sessions go elsewhere, nobody sees an error.
    replicas[0].child.kill('SIGTERM');
    const drained = await Promise.all(clients.map((client) => Promise.race([client.closed, new Promise((r) => setTimeout(r, 1500, undefined))])));
    assert.deepEqual(drained.filter(Boolean).map((close) => close.code), [1001, 1001]);
    assert.equal((await replicas[0].exited).code, 0);
    for (let i = 0; i < 6; ++i) assert.equal((await vllmRun(url, audio)).text, expected);

    // Killed in mid-utterance: its clients see the connection end, the others finish, new ones are served.
    const busy = clients.filter((_, i) => drained[i] === undefined);
    for (const client of busy) {
      client.send({ type: 'session.update', model: 'demo' });
      client.send({ type: 'input_audio_buffer.commit' });
      client.send(append(audio));
      await client.next('transcription.delta');
    }
    replicas[1].child.kill('SIGKILL');
    await replicas[1].exited;
    let lost = 0;
    for (const client of busy) {
      client.send({ type: 'input_audio_buffer.commit', final: true });
      const done = await client.next('transcription.done').catch(() => undefined);
      if (done === undefined) { ++lost; assert.equal((await client.closed).code, 1006); } else assert.equal(done.text, expected);
    }
    assert.equal(lost, 2);
    for (let i = 0; i < 6; ++i) assert.equal((await vllmRun(url, audio)).text, expected);
    assert.equal(JSON.parse((await upload(`http://127.0.0.1:${port}`, {}, wav(audio))).text).text, expected.trimStart());
    busy.forEach((client) => client.socket.terminate());
  } finally {
    proxy.kill('SIGKILL');
    await Promise.all(replicas.map((replica) => replica.stop()));
  }
});
