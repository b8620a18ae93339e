// One real SDK through its paths, printed as JSON. Run by sdk.test.mjs in a process of its own, because NODE_EXTRA_CA_CERTS is read at start.
//   node sdk_child.mjs PACKAGE HTTP_BASE HTTPS_BASE CLIP
import fs from 'node:fs';
import { pcm, wav } from './harness.mjs';

const [, , name, httpBase, httpsBase, file] = process.argv;
const results = {};
const samples = pcm(file);

// 16 kHz to the 24 kHz that beta clients cannot avoid: linear is enough, the words have to survive.
function to24k(bytes) {
  const count = bytes.length / 2, out = Buffer.alloc(Math.floor(count * 1.5) * 2);
  for (let i = 0; i < out.length / 2; ++i) {
    const at = i / 1.5, k = Math.floor(at), a = bytes.readInt16LE(2 * k), b = k + 1 < count ? bytes.readInt16LE(2 * k + 2) : a;
    out.writeInt16LE(Math.round(a + (b - a) * (at - k)), 2 * i);
  }
  return out;
}

async function realtime(rt, update, bytes) {
  const got = { deltas: '' };
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('timeout; got ' + JSON.stringify(got))), 40000);
    const finish = (error) => { clearTimeout(timer); error ? reject(error) : resolve(); };
    rt.on('error', (error) => finish(error));
    rt.on('session.created', () => {
      rt.send(update);
      for (let i = 0; i < bytes.length; i += 9600) rt.send({ type: 'input_audio_buffer.append', audio: bytes.subarray(i, i + 9600).toString('base64') });
      rt.send({ type: 'input_audio_buffer.commit' });
    });
    rt.on('session.updated', (event) => { got.updated = event.session; });
    rt.on('transcription_session.updated', (event) => { got.updated = event.session; });
    rt.on('input_audio_buffer.committed', (event) => { got.committed = event.item_id; });
    rt.on('conversation.item.input_audio_transcription.delta', (event) => { got.deltas += event.delta; });
    rt.on('conversation.item.input_audio_transcription.completed', (event) => {
      got.text = event.transcript;
      got.same = event.item_id === got.committed && got.deltas === event.transcript && got.updated !== undefined;
      finish();
    });
  });
  rt.close();
  return got.same ? got.text : 'inconsistent: ' + JSON.stringify(got);
}

async function openai(pkg) {
  const { default: OpenAI, toFile } = await import(pkg);
  const major = Number(pkg.slice(6));
  const client = new OpenAI({ apiKey: 'sk-test', baseURL: httpsBase + '/v1', maxRetries: 0 });
  const plain = new OpenAI({ apiKey: 'sk-test', baseURL: httpBase + '/v1', maxRetries: 0 });
  results.models = (await plain.models.list()).data[0].id;
  results.model = (await plain.models.retrieve('demo')).id;
  results.json = (await plain.audio.transcriptions.create({ model: 'demo', file: fs.createReadStream(file) })).text;
  results.json_tls = (await client.audio.transcriptions.create({ model: 'demo', file: await toFile(fs.readFileSync(file), 'clip.wav') })).text;
  const verbose = await plain.audio.transcriptions.create({ model: 'demo', file: fs.createReadStream(file), response_format: 'verbose_json', timestamp_granularities: ['word'] });
  results.verbose = typeof verbose.duration === 'number' && verbose.words.length > 3 ? verbose.text : 'bad verbose_json';
  results.json_24k = (await plain.audio.transcriptions.create({ model: 'demo', file: await toFile(wav(to24k(samples), 24000), 'clip.wav') })).text;
  results.vtt = String(await plain.audio.transcriptions.create({ model: 'demo', file: fs.createReadStream(file), response_format: 'vtt' })).startsWith('WEBVTT');
  let streamed = '', final = null;
  for await (const event of await plain.audio.transcriptions.create({ model: 'demo', file: fs.createReadStream(file), stream: true })) {
    if (event.type === 'transcript.text.delta') streamed += event.delta;
    if (event.type === 'transcript.text.done') final = event.text;
  }
  results.stream = streamed === final ? final : 'deltas differ from done: ' + streamed + ' / ' + final;
  try {
    await plain.audio.transcriptions.create({ model: 'nope', file: fs.createReadStream(file) });
    results.error = 'no error';
  } catch (error) {
    results.error = error.status + ' ' + error.code;
  }
  const beta = (await import(pkg + '/beta/realtime/ws')).OpenAIRealtimeWS;
  results.beta = await realtime(new beta({ model: 'demo' }, client),
    { type: 'transcription_session.update', session: { input_audio_format: 'pcm16', input_audio_transcription: { model: 'demo' } } }, to24k(samples));
  if (major >= 5) {
    const ga = (await import(pkg + '/realtime/ws')).OpenAIRealtimeWS;
    const update = { type: 'session.update', session: { type: 'transcription', audio: { input: { format: { type: 'audio/pcm', rate: 16000 }, transcription: { model: 'demo' }, turn_detection: null } } } };
    results.ga = await realtime(new ga(major >= 7 ? { intent: 'transcription' } : { model: 'demo' }, client), update, samples);
  }
  if (major >= 5 && globalThis.WebSocket) {  // the browser class: keys go as subprotocols
    const web = (await import(pkg + '/realtime/websocket')).OpenAIRealtimeWebSocket;
    const browser = new OpenAI({ apiKey: 'sk-test', baseURL: httpsBase + '/v1', maxRetries: 0, dangerouslyAllowBrowser: true });
    const update = { type: 'session.update', session: { type: 'transcription', audio: { input: { format: { type: 'audio/pcm', rate: 16000 } } } } };
    results.browser = await realtime(new web(major >= 7 ? { intent: 'transcription', dangerouslyAllowBrowser: true } : { model: 'demo', dangerouslyAllowBrowser: true }, browser), update, samples);
  }
}

async function mistral(pkg) {
  const { Mistral } = await import(pkg);
  const client = new Mistral({ apiKey: 'sk-test', serverURL: httpBase });
  const blob = () => new File([fs.readFileSync(file)], 'clip.wav');
  results.models = (await client.models.list()).data[0].id;
  results.json = (await client.audio.transcriptions.complete({ model: 'demo', file: blob() })).text;
  const timed = await client.audio.transcriptions.complete({ model: 'demo', file: blob(), timestampGranularities: ['segment'] });
  results.segments = timed.segments.length > 0 && typeof timed.segments[0].start === 'number' ? timed.text : 'no segments';
  let streamed = '', final = null;
  for await (const event of await client.audio.transcriptions.stream({ model: 'demo', file: blob() })) {
    if (event.event === 'transcription.text.delta') streamed += event.data.text;
    if (event.event === 'transcription.done') final = event.data.text;
  }
  results.stream = streamed === final ? final : 'deltas differ from done: ' + streamed + ' / ' + final;
  const { RealtimeTranscription, AudioEncoding } = await import(pkg + (pkg === 'mistral1' ? '/extra/realtime/index.js' : '/extra/realtime'));
  for (const [key, base] of [['realtime', httpBase], ['realtime_tls', httpsBase]]) {
    const live = new RealtimeTranscription({ apiKey: 'sk-test', serverURL: base });
    const chunks = async function* () { for (let i = 0; i < samples.length; i += 7680) yield new Uint8Array(samples.subarray(i, i + 7680)); };
    let deltas = '', done = null;
    for await (const event of live.transcribeStream(chunks(), 'demo', { audioFormat: { encoding: AudioEncoding.PcmS16le, sampleRate: 16000 }, timeoutMs: 30000 })) {
      if (event.type === 'transcription.text.delta') deltas += event.text;
      if (event.type === 'transcription.done') { done = event.text; break; }
      if (event.type === 'error') throw new Error(JSON.stringify(event));
    }
    results[key] = deltas === done ? done : 'deltas differ from done: ' + deltas + ' / ' + done;
  }
}

await (name.startsWith('openai') ? openai(name) : mistral(name));
console.log(JSON.stringify(results));
process.exit(0);
