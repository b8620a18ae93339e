// What the server tests share: starting servers, speaking to them, reading clips, waiting for things to become true.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { execFileSync } from 'node:child_process';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import WebSocket from 'ws';

const here = path.dirname(fileURLToPath(import.meta.url));
export const root = path.resolve(here, '../../..');
export const bin = process.env.VOXRT_BIN_DIR ?? path.join(root, 'build/dev/bin');
export const demo = path.join(root, 'models/demo');
export const clip = (name) => path.join(demo, 'clips', name);
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// A directory of this test process, gone with it.
export const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'voxrt-e2e-'));
process.on('exit', () => fs.rmSync(scratch, { recursive: true, force: true }));

export function certificate(name = 'cert') {
  const cert = path.join(scratch, `${name}.pem`), key = path.join(scratch, `${name}-key.pem`);
  if (!fs.existsSync(cert)) {
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out', cert, '-days', '2',
      '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'], { stdio: 'ignore' });
  }
  return { cert, key };
}

const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));

// The server on the fake engine. `command(line)` returns its JSON answer.
export async function startFake(options = {}) {
  const args = Object.entries(options).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).flatMap((v) => [`--${name}`, String(v)]));
  const child = spawn(path.join(bin, 'voxrt_test_server'), args, { stdio: ['pipe', 'pipe', options.log ? 'pipe' : 'inherit'] });
  const log = [];
  if (options.log) readline.createInterface({ input: child.stderr }).on('line', (line) => log.push(line));
  children.add(child);
  const exited = new Promise((resolve) => child.on('exit', (code, signal) => { children.delete(child); resolve({ code, signal }); }));
  const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const first = await lines.next();
  if (first.done) throw new Error('the test server did not start');
  const ports = JSON.parse(first.value);
  return {
    ...ports, child, exited, log, pid: child.pid,
    base: `http://127.0.0.1:${ports.port}`,
    async command(line) {
      child.stdin.write(line + '\n');
      return JSON.parse((await lines.next()).value);
    },
    async stop() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

// `voxrt serve` with the demo model and 8 places unless told otherwise; resolves when it is ready.
export async function startVoxrt(args = []) {
  const child = spawn(path.join(bin, 'voxrt'), ['serve', '--model', demo, '--port', '0', ...(args.includes('--max-sessions') ? [] : ['--max-sessions', '8']), ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
  children.add(child);
  const exited = new Promise((resolve) => child.on('exit', (code, signal) => { children.delete(child); resolve({ code, signal }); }));
  const log = [];
  const ready = await new Promise((resolve, reject) => {
    readline.createInterface({ input: child.stderr }).on('line', (line) => {
      log.push(line);
      const match = /server\.ready .*port=(-?\d+) tls_port=(-?\d+)/.exec(line);
      if (match) resolve({ port: Number(match[1]), tls_port: Number(match[2]) });
    });
    child.on('exit', () => reject(new Error('voxrt serve ended: ' + log.join('\n'))));
  });
  return { ...ready, child, exited, log, pid: child.pid, base: `http://127.0.0.1:${ready.port}`, async stop() { child.kill('SIGKILL'); await exited; } };
}

// Text of a clip by `voxrt transcribe`.
export function transcribe(file) {
  return execFileSync(path.join(bin, 'voxrt'), ['transcribe', '--model', demo, '--quiet', file], { encoding: 'utf8' }).trim();
}

// The samples of a 16-bit mono WAV file.
export function pcm(file) {
  const bytes = fs.readFileSync(file);
  for (let at = 12; at + 8 <= bytes.length;) {
    const size = bytes.readUInt32LE(at + 4);
    if (bytes.toString('latin1', at, at + 4) === 'data') return bytes.subarray(at + 8, at + 8 + size);
    at += 8 + size + (size & 1);
  }
  throw new Error('no data chunk in ' + file);
}

// Deterministic sound for the fake engine: s16 bytes.
export function noise(samples, seed = 1) {
  const bytes = Buffer.alloc(samples * 2);
  let state = seed >>> 0 || 1;
  for (let i = 0; i < samples; ++i) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes.writeInt16LE((state >>> 16) - 32768 >> 2, i * 2);
  }
  return bytes;
}

export const wav = (data, rate = 16000, bits = 16) => {
  const head = Buffer.alloc(44);
  head.write('RIFF', 0); head.writeUInt32LE(36 + data.length, 4); head.write('WAVEfmt ', 8); head.writeUInt32LE(16, 16); head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22); head.writeUInt32LE(rate, 24); head.writeUInt32LE(rate * bits / 8, 28); head.writeUInt16LE(bits / 8, 32); head.writeUInt16LE(bits, 34);
  head.write('data', 36); head.writeUInt32LE(data.length, 40);
  return Buffer.concat([head, data]);
};

// A WebSocket with an inbox: next(type) waits for the next message (of that type; others are kept in `all`).
export class Client {
  static async open(url, options = {}, protocols = []) {
    const client = new Client(new WebSocket(url, protocols, { rejectUnauthorized: false, ...options }));
    await new Promise((resolve, reject) => {
      client.socket.on('open', resolve);
      client.socket.on('error', reject);
      client.socket.on('unexpected-response', (_request, response) => reject(Object.assign(new Error('HTTP ' + response.statusCode), { response })));
    });
    return client;
  }
  constructor(socket) {
    this.socket = socket;
    this.all = [];
    this.waiting = [];
    this.closed = new Promise((resolve) => socket.on('close', (code, reason) => { this.closeCode = code; this.wake(); resolve({ code, reason: String(reason) }); }));
    socket.on('message', (data) => { this.all.push(JSON.parse(String(data))); this.wake(); });
    socket.on('error', () => {});
    this.seen = 0;
  }
  wake() { this.waiting.splice(0).forEach((resolve) => resolve()); }
  send(event) { this.socket.send(typeof event === 'string' || Buffer.isBuffer(event) ? event : JSON.stringify(event)); }
  async next(type, timeoutMs = 20000) {
    const end = Date.now() + timeoutMs;
    for (;;) {
      while (this.seen < this.all.length) {
        const event = this.all[this.seen++];
        if (type === undefined || event.type === type) return event;
      }
      if (this.closeCode !== undefined) throw new Error(`closed with ${this.closeCode} while waiting for ${type}`);
      const left = end - Date.now();
      if (left <= 0) throw new Error(`no ${type} within ${timeoutMs} ms; got ${this.all.map((e) => e.type).join(' ')}`);
      await new Promise((resolve) => { this.waiting.push(resolve); setTimeout(resolve, left).unref(); });
    }
  }
  close() { this.socket.close(); return this.closed; }
}

const b64 = (bytes) => Buffer.from(bytes).toString('base64');
export const append = (bytes, type = 'input_audio_buffer.append') => ({ type, audio: b64(bytes) });
export function sendAudio(client, bytes, step = 4096, type = undefined) {
  for (let i = 0; i < bytes.length; i += step) client.send(append(bytes.subarray(i, i + step), type));
}

// vLLM's example client, frame by frame: created, update, commit, append x N, final, deltas, done.
export async function vllmRun(url, bytes, { step = 4096, model = 'demo', options = {}, client = undefined } = {}) {
  const socket = client ?? await Client.open(url, options);
  if (!client) await socket.next('session.created');
  const from = socket.all.length;
  socket.send({ type: 'session.update', model });
  socket.send({ type: 'input_audio_buffer.commit' });
  sendAudio(socket, bytes, step);
  socket.send({ type: 'input_audio_buffer.commit', final: true });
  const done = await socket.next('transcription.done');
  const deltas = socket.all.slice(from).filter((e) => e.type === 'transcription.delta').map((e) => e.delta).join('');
  if (!client) await socket.close();
  return { text: done.text, deltas, usage: done.usage };
}

// One HTTP request over a fresh connection; resolves with status, headers and text, also when the server ends the body early.
export function request(base, { method = 'GET', path: target = '/', headers = {}, body = undefined } = {}) {
  return new Promise((resolve, reject) => {
    const url = new URL(base);
    const call = (url.protocol === 'https:' ? https : http).request({ rejectUnauthorized: false, host: url.hostname, port: url.port, method, path: target, headers, agent: false }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text: Buffer.concat(parts).toString() }));
      response.on('error', reject);
    });
    call.on('error', reject);
    if (body !== undefined) call.write(body);
    call.end();
  });
}

export function form(fields, file, { boundary = 'XXboundaryXX', name = 'file', filename = 'a.wav' } = {}) {
  const parts = Object.entries(fields).flatMap(([key, values]) => (Array.isArray(values) ? values : [values]).map((value) =>
    Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${key}"\r\n\r\n${value}\r\n`)));
  if (file) parts.push(Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"; filename="${filename}"\r\nContent-Type: application/octet-stream\r\n\r\n`), file, Buffer.from('\r\n'));
  parts.push(Buffer.from(`--${boundary}--\r\n`));
  return { body: Buffer.concat(parts), headers: { 'content-type': `multipart/form-data; boundary=${boundary}` } };
}
export async function upload(base, fields, file, headers = {}) {
  const { body, headers: type } = form(fields, file);
  return request(base, { method: 'POST', path: '/v1/audio/transcriptions', headers: { ...type, 'content-length': body.length, ...headers }, body });
}

export async function metric(base, name) {
  const { text } = await request(base, { path: '/metrics' });
  let sum = 0;
  for (const line of text.split('\n')) if (line.startsWith(name + '{') || line.startsWith(name + ' ')) sum += Number(line.slice(line.lastIndexOf(' ') + 1));
  return sum;
}
export async function until(check, what, timeoutMs = 20000) {
  const end = Date.now() + timeoutMs;
  for (;;) {
    if (await check()) return;
    if (Date.now() > end) throw new Error('never became true: ' + what);
    await sleep(50);
  }
}
export const residentMb = (pid) => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024;
export const freePort = () => new Promise((resolve) => {
  const probe = net.createServer().listen(0, '127.0.0.1', () => { const { port } = probe.address(); probe.close(() => resolve(port)); });
});
export const rawSocket = (port) => new Promise((resolve, reject) => {
  const socket = net.connect(port, '127.0.0.1', () => resolve(socket));
  socket.on('error', reject);
});
export async function expectedText(server, bytes) {
  const file = path.join(scratch, `raw-${Math.random()}.s16`);
  fs.writeFileSync(file, bytes);
  return (await server.command('transcribe ' + file)).text;
}
