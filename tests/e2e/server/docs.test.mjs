// docs/server.md is true: its snippets run as they stand (addresses, key and files apart), its flags and defaults are those of `voxrt serve
// --help`, its metrics are there.
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client, bin, certificate, clip, pcm, request, root, scratch, startVoxrt, transcribe } from './harness.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const page = fs.readFileSync(path.join(root, 'docs/server.md'), 'utf8');
const snippet = (heading, language) => {
  const at = page.indexOf(heading);
  assert.ok(at >= 0, heading);
  return new RegExp('```' + language + '\\n([\\s\\S]*?)```').exec(page.slice(at))[1];
};
const file = clip('flite_slt_0.wav');
const folder = path.join(scratch, 'docs');
const run = async (command, args, env = {}) => {
  const { stdout } = await promisify(execFile)(command, args, { cwd: folder, timeout: 60000, env: { ...process.env, ...env } });
  return stdout;
};

describe('docs/server.md', () => {
  let open, locked, expected, cert;
  before(async () => {
    const pair = certificate();
    cert = pair.cert;
    open = await startVoxrt();
    locked = await startVoxrt(['--tls-port', '0', '--tls-cert', pair.cert, '--tls-key', pair.key, '--api-key', 'SECRET']);
    expected = transcribe(file);
    fs.mkdirSync(path.join(folder, 'node_modules/@mistralai'), { recursive: true });
    fs.copyFileSync(file, path.join(folder, 'talk.wav'));
  });
  after(async () => { await open?.stop(); await locked?.stop(); });

  test('curl', async () => {
    const commands = snippet('### curl', 'sh').trim().split('\n');
    assert.equal(commands.length, 4);
    for (const command of commands) {
      const words = command.replaceAll('http://127.0.0.1:8000', open.base).replaceAll('talk.mp3', 'talk.wav').replace('ffmpeg -i talk.mkv -f wav -', 'cat talk.wav').replace(' > talk.srt', '');
      const text = await run('bash', ['-c', words.replace('curl ', 'curl -sS ')]);
      const heard = text.startsWith('{') ? JSON.parse(text).text
        : text.startsWith('data:') ? JSON.parse(/data: (\{"type":"transcript.text.done".*)/.exec(text)[1]).text
          : text.split('\n').filter((line) => line && !/^\d+$|-->/.test(line)).join(' ');
      assert.equal(heard, expected, command);
    }
  });
  test('voxrt transcribe --server', async () => {
    const command = snippet('### voxrt itself', 'sh').split('\n')[0].replace(/ *#.*/, '').replace('http://HOST:8000', open.base).replace('talk.mp3', 'talk.wav');
    assert.match(await run('bash', ['-c', command.replace(/^voxrt/, path.join(bin, 'voxrt'))]), /^1\n00:00:0\d,\d{3} --> /);
  });
  for (const version of ['openai5', 'openai6', 'openai7']) {
    test(`JavaScript, ${version}: a file, then live`, async () => {
      const link = path.join(folder, 'node_modules/openai');
      fs.rmSync(link, { force: true });
      fs.symlinkSync(path.join(here, 'node_modules', version), link);
      let code = snippet('with the `openai` package', 'js').replace('https://localhost:8443', `https://localhost:${locked.tls_port}`);
      if (version !== 'openai7') code = code.replace("{ intent: 'transcription' }", /versions 5 and 6: (\{.*\})/.exec(code)[1]);
      const sending = /\/\/ then, as sound comes: (rt\.send\(.*\);)/.exec(code);
      code = code.replace(sending[0], `for (const chunk of chunks) ${sending[1]}`)
        .replace("console.log('\\n' + event.transcript)", "{ console.log('\\n' + event.transcript); rt.close(); }");
      // At 24 kHz every sample of the clip one and a half times; silence ends the utterance.
      const samples = new Int16Array(pcm(file).buffer.slice(pcm(file).byteOffset, pcm(file).byteOffset + pcm(file).length));
      const faster = Int16Array.from({ length: samples.length * 1.5 }, (_, i) => samples[Math.floor(i / 1.5)]);
      fs.writeFileSync(path.join(folder, 'sound.raw'), Buffer.concat([Buffer.alloc(24000), Buffer.from(faster.buffer), Buffer.alloc(96000)]));
      fs.writeFileSync(path.join(folder, 'openai.mjs'), `import { readFileSync } from 'node:fs';
const sound = readFileSync('sound.raw');
const chunks = Array.from({ length: Math.ceil(sound.length / 9600) }, (_, i) => sound.subarray(i * 9600, (i + 1) * 9600));
${code}`);
      const [text, deltas, completed] = (await run(process.execPath, ['openai.mjs'], { NODE_EXTRA_CA_CERTS: cert })).split('\n');
      assert.equal(text, expected);
      assert.equal(deltas, completed);
      assert.ok(completed.trim().split(' ').length > 10, completed);
    });
  }
  for (const version of ['mistral1', 'mistral2']) {
    test(`JavaScript, ${version}: live`, async () => {
      const link = path.join(folder, 'node_modules/@mistralai/mistralai');
      fs.rmSync(link, { force: true });
      fs.symlinkSync(path.join(here, 'node_modules', version), link);
      let code = snippet('### JavaScript: `@mistralai/mistralai`', 'js').replace('http://localhost:8000', locked.base);
      if (version === 'mistral1') code = code.replace("extra/realtime'", /version 1: ('.*')/.exec(code)[1].slice(1));
      fs.writeFileSync(path.join(folder, 'mistral.mjs'), `import { readFileSync } from 'node:fs';
async function* sound() { const bytes = readFileSync('talk.wav').subarray(44); for (let i = 0; i < bytes.length; i += 2560) yield bytes.subarray(i, i + 2560); }
const chunks = sound();
${code}process.exit(0);`);
      assert.equal((await run(process.execPath, ['mistral.mjs'])).trim(), expected);
    });
  }
  const python = ['python3', '/usr/bin/python3'].find((program) => spawnSync(program, ['-c', 'import websockets']).status === 0);
  test('Python', { skip: python === undefined && 'python3 has no websockets' }, async () => {
    fs.writeFileSync(path.join(folder, 'live.py'), snippet('with `websockets`', 'python').replace('ws://127.0.0.1:8000', open.base.replace('http', 'ws')));
    assert.equal((await run(python, ['live.py'])).trim(), expected);
  });

  const help = () => promisify(execFile)(path.join(bin, 'voxrt'), ['serve', '--help']).then(({ stdout }) => stdout);
  test('flags and defaults of the table of limits', async () => {
    const text = await help();
    const inHelp = (flag) => new RegExp(`^  ${flag} [A-Z]+[^=\\n]*(?:=(\\S+))?`, 'm').exec(text);
    const number = (word) => ({ auto: 'auto', none: '0' })[word] ?? String(parseFloat(word) * (word.endsWith('MiB') ? 1048576 : 1));
    const rows = [...page.slice(page.indexOf('## Limits')).matchAll(/^\| (`--[^|]*) \| ([^|]*) \|/gm)];
    assert.ok(rows.length > 10);
    for (const [, flags, defaults] of rows) {
      const values = defaults.split(', ');
      flags.split(', ').forEach((flag, i) => {
        const found = inHelp(flag.replaceAll('`', ''));
        assert.ok(found, `${flag} is no option`);
        assert.equal(number(values[i]), found[1], flag);
      });
    }
  });
  test('every option of the server is described', async () => {
    const own = (await help()).split('\n').flatMap((line) => /^  (?:-\w,)?(--[a-z-]+)/.exec(line)?.[1] ?? []).filter((flag) => !['--help', '--quiet', '--verbose', '--color', '--device', '--threads', '--head-scan', '--data-path', '--kv-type', '--backend', '--model'].includes(flag));
    assert.deepEqual(own.filter((flag) => !page.includes('`' + flag)), []);
  });
  test('metrics', async () => {
    // What is counted by kind is there from the first time on: an error, a refusal, a disconnect.
    const url = open.base.replace('http', 'ws') + '/v1/realtime';
    const clients = await Promise.all(Array.from({ length: 8 }, () => Client.open(url)));
    await assert.rejects(Client.open(url), (error) => error.response.statusCode === 503);
    clients[0].send('{');
    await clients[0].next('error');
    await Promise.all(clients.map((client) => client.close()));
    const { text } = await request(open.base, { path: '/metrics' });
    const names = [...page.slice(page.indexOf('**`/metrics`**')).split('\n- ')[0].matchAll(/`((?:vllm:|voxrt_)[a-z_]+)(?:\{([a-z,]+)\})?`/g)];
    assert.ok(names.length > 10);
    for (const [, name] of names) assert.ok(text.includes(`# HELP ${name} `), name);
  });
});
