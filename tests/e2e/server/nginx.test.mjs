// Three replicas behind nginx with the configuration of docs/server.md: TLS ends there, one replica drains, one is killed; new sessions and
// uploads go to the others.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Client, append, certificate, expectedText, freePort, metric, noise, request, root, scratch, startFake, until, upload, vllmRun, wav } from './harness.mjs';

const nginx = ['/usr/sbin/nginx', '/usr/bin/nginx'].find((file) => fs.existsSync(file));

test('drain and loss of a replica', { skip: nginx === undefined && 'nginx is not installed' }, async () => {
  const replicas = [await startFake(), await startFake(), await startFake()];
  const port = await freePort(), { cert, key } = certificate();
  const page = fs.readFileSync(path.join(root, 'docs/server.md'), 'utf8');
  let index = 0;
  const site = /```nginx\n([\s\S]*?)```/.exec(page)[1].replace('listen 443 ssl', `listen 127.0.0.1:${port} ssl`).replace('cert.pem', cert).replace('key.pem', key)
    .replace(/10\.0\.0\.\d+:8000/g, () => `127.0.0.1:${replicas[index++].port}`);
  assert.equal(index, 3);
  const folder = path.join(scratch, 'nginx'), file = path.join(folder, 'nginx.conf');
  fs.mkdirSync(folder);
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${folder}/${name};`).join(' ');
  // User root where the test runs as root: the scratch folder is closed to others.
  const user = process.getuid() === 0 ? 'user root;' : '';
  fs.writeFileSync(file, `${user} daemon off; worker_processes 1; pid ${folder}/pid; error_log ${folder}/error.log; events {} http { access_log off; ${temporary}\n${site}}\n`);
  const check = spawnSync(nginx, ['-t', '-e', `${folder}/error.log`, '-c', file], { encoding: 'utf8' });
  assert.equal(check.status, 0, check.stderr);
  const proxy = spawn(nginx, ['-e', `${folder}/error.log`, '-c', file], { stdio: 'ignore' });
  try {
    const url = `wss://127.0.0.1:${port}/v1/realtime`, audio = noise(30000, 9);
    const expected = await expectedText(replicas[0], audio);
    await until(async () => { try { return (await vllmRun(url, audio)).text === expected; } catch { return false; } }, 'nginx serves');
    const active = () => Promise.all(replicas.map((replica) => metric(replica.base, 'vllm:websocket_connections_active')));
    await until(async () => (await active()).every((count) => count === 0), 'the first session is over');

    // Least connections: six sessions spread two by two.
    const clients = [];
    for (let i = 0; i < 6; ++i) { clients.push(await Client.open(url)); await clients[i].next('session.created'); }
    assert.deepEqual(await active(), [2, 2, 2]);

    // Draining, held open by an utterance: idle clients learn it with 1001; sessions and uploads that nginx sends there are passed on.
    for (const client of clients) { client.send({ type: 'session.update', model: 'demo' }); client.send({ type: 'input_audio_buffer.commit' }); client.send(append(audio)); await client.next('transcription.delta'); }
    replicas[0].child.kill('SIGTERM');
    await until(async () => (await request(replicas[0].base, { path: '/ready' })).status === 503, 'draining');
    const post = async () => JSON.parse((await upload(`https://127.0.0.1:${port}`, {}, wav(audio))).text).text;
    for (let i = 0; i < 3; ++i) assert.equal(await post(), expected.trimStart());
    for (let i = 0; i < 6; ++i) assert.equal((await vllmRun(url, audio)).text, expected);

    // Killed in mid-utterance: its clients see the connection end, all others finish; those of the draining one get their 1001.
    replicas[1].child.kill('SIGKILL');
    await replicas[1].exited;
    const codes = [];
    for (const client of clients) {
      client.send({ type: 'input_audio_buffer.commit', final: true });
      const done = await client.next('transcription.done').catch(() => undefined);
      if (done !== undefined) assert.equal(done.text, expected);
      codes.push(done === undefined ? (await client.closed).code : await Promise.race([client.closed.then((close) => close.code), new Promise((r) => setTimeout(r, 1500, 'open'))]));
    }
    assert.deepEqual(codes.sort(), [1001, 1001, 1006, 1006, 'open', 'open']);
    for (let i = 0; i < 6; ++i) assert.equal((await vllmRun(url, audio)).text, expected);
    assert.equal(await post(), expected.trimStart());
    clients.forEach((client) => client.socket.terminate());
  } finally {
    proxy.kill('SIGKILL');
    await Promise.all(replicas.map((replica) => replica.stop()));
  }
});
