// The pages in Chromium with a fake microphone that plays a clip: the right words appear, live and from a file, in both colour schemes and
// at phone size, without a request to anywhere else. Screenshots go to VOXRT_SCREENSHOTS when it is set.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { bin, clip, noise, pcm, scratch, startFake, startVoxrt, transcribe, wav } from './harness.mjs';

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((file) => fs.existsSync(file));
const real = fs.existsSync(path.join(bin, 'voxrt'));
const file = clip('flite_slt_0.wav');
const words = (text) => text.toLowerCase().replace(/[^a-z0-9' ]/g, ' ').split(/\s+/).filter(Boolean);

describe('pages', { skip: executablePath === undefined && 'chromium is not installed' }, () => {
  let server, browser, expected;
  before(async () => {
    server = real ? await startVoxrt(['--served-model-name', 'demo']) : await startFake();
    // The fake device plays its file in a loop; silence after the clip keeps the words apart.
    const microphone = path.join(scratch, 'microphone.wav');
    fs.writeFileSync(microphone, wav(Buffer.concat([Buffer.alloc(16000), real ? pcm(file) : noise(100000), Buffer.alloc(32000 * 20)])));
    expected = real ? transcribe(file) : '';
    browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--use-fake-ui-for-media-stream', '--use-fake-device-for-media-stream', `--use-file-for-fake-audio-capture=${microphone}`] });
  });
  after(async () => { await browser?.close(); await server?.stop(); });

  async function open(options, target = '/') {
    const page = await (await browser.newContext({ permissions: ['microphone'], ...options })).newPage();
    const problems = [];
    page.on('pageerror', (error) => problems.push(error.message));
    page.on('request', (request) => { if (!/^(blob|data):/.test(request.url()) && new URL(request.url()).host !== `127.0.0.1:${server.port}`) problems.push('outside: ' + request.url()); });
    await page.goto(server.base + target);
    return { page, problems };
  }
  const shot = async (page, name) => process.env.VOXRT_SCREENSHOTS && page.screenshot({ path: path.join(process.env.VOXRT_SCREENSHOTS, name + '.png') });
  const transcript = (page) => page.$$eval('#lines p:not(#empty) span', (spans) => spans.map((span) => span.textContent).join(' '));

  test('microphone to captions', async () => {
    const { page, problems } = await open({ colorScheme: 'light', viewport: { width: 1000, height: 800 } });
    await page.click('#mic');
    await page.waitForSelector('#mic[aria-pressed=true]');
    await page.waitForFunction(() => Number(document.getElementById('meter').getAttribute('aria-valuenow')) > 10);
    await page.waitForTimeout(1000 * pcm(file).length / 32000 + 2500);
    await shot(page, 'live-light');
    await page.click('#mic');
    await page.waitForFunction(() => document.getElementById('state').textContent === 'Done.');
    const got = words(await transcript(page));
    assert.ok(got.length > 0);
    if (real) {
      const wanted = words(expected), heard = new Set(got);
      const found = wanted.filter((word) => heard.has(word)).length / wanted.length;
      assert.ok(found >= 0.7, `heard "${got.join(' ')}", expected "${wanted.join(' ')}"`);
    }
    assert.match(await page.textContent('#lines time'), /^\d\d:\d\d$/);
    assert.deepEqual(problems, []);
  });

  for (const [name, options] of [['dark', { colorScheme: 'dark', viewport: { width: 1000, height: 800 } }], ['phone', { colorScheme: 'light', viewport: { width: 375, height: 740 }, isMobile: true, hasTouch: true }]]) {
    test(`a file, ${name}`, async () => {
      const { page, problems } = await open(options);
      await page.setInputFiles('#file', file);
      await page.waitForFunction(() => document.getElementById('state').textContent.startsWith('Done:'), undefined, { timeout: 60000 });
      if (real) assert.equal(await transcript(page), expected);
      await shot(page, 'file-' + name);
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= options.viewport.width, `${width} px wide`);
      const [download] = await Promise.all([page.waitForEvent('download'), page.click('#srt')]);
      assert.match(fs.readFileSync(await download.path(), 'utf8'), /^1\n00:00:0\d,\d{3} --> 00:00:\d\d,\d{3}\n/);
      await page.click('#clear');
      assert.equal(await transcript(page), '');
      assert.deepEqual(problems, []);
    });
  }

  test('an error is shown in words', async () => {
    const { page } = await open({});
    const bad = path.join(scratch, 'bad.wav');
    fs.writeFileSync(bad, 'no sound');
    await page.setInputFiles('#file', bad);
    await page.waitForSelector('#state.error');
    assert.match(await page.textContent('#state'), /cannot be read/);
  });

  test('status', async () => {
    const { page, problems } = await open({ colorScheme: 'dark' }, '/status');
    await page.waitForFunction(() => document.querySelectorAll('figure strong').length === 8 && document.querySelector('.line').getAttribute('d')?.includes('L'));
    assert.match(await page.textContent('#state'), /^Healthy/);
    await shot(page, 'status-dark');
    assert.deepEqual(problems, []);
  });
});
