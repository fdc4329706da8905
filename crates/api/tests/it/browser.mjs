// Opens pages in Chromium at two widths, in light and in dark, and prints what is wrong with each.
// Standard input: {"chromium": path, "origin": url, "credentials": [id, secret],
// "shots": folder?,
// "pages": [{"name", "path", "isApp"?, "form"?}]}.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const { chromium: executablePath, origin, credentials, pages, shots } = JSON.parse(readFileSync(0));
const SIZES = [{ width: 1280, height: 800 }, { width: 390, height: 844 }];
const quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
  "--disable-background-networking", "--disable-component-update"];

/** How often a page is looked at that is moving: texts fade in, and a bar runs while it loads. */
const LOOKS = 10;

/** What axe calls serious or worse, once the page has come to rest. */
async function violations(page) {
  // Through the driver, whose scripts the page's policy does not stop.
  await page.evaluate(axe);
  let found = [];
  for (let look = 0; look < LOOKS; look++) {
    if (look > 0) await page.waitForTimeout(500);
    const seen = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
    found = seen.violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .flatMap(({ id, nodes }) => nodes.map((one) => `${id}: ${one.target} ${one.failureSummary}`));
    if (found.length === 0) break;
  }
  return found;
}

/** Scrolls through an app whose parts are drawn when they are seen. */
async function readWhole(page) {
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  for (let y = 0; y < height; y += 600) {
    await page.evaluate((y) => window.scrollTo(0, y), y);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  await page.evaluate(() => window.scrollTo(0, 0));
}

/** Reads the documentation and tries an operation out, and notes what is wrong. */
async function useApp(page, wrong) {
  await page.waitForSelector("h1");
  await readWhole(page);
  wrong.push(...(await violations(page)));
  const tryOut = page.getByRole("button", { name: /test request/i }).first();
  await tryOut.scrollIntoViewIfNeeded();
  await tryOut.click();
  const dialog = page.getByRole("dialog").first();
  await dialog.getByRole("textbox", { name: /username/i }).first().fill(credentials[0]);
  await dialog.getByLabel(/password/i).first().fill(credentials[1]);
  await dialog.getByRole("button", { name: /^send/i }).first().click();
  await dialog.getByText("200 OK").first().waitFor();
  wrong.push(...(await violations(page)).map((text) => `after trying out: ${text}`));
}

/** Fills a form in and sends it, past what the browser would hold back. */
async function submit(page, form) {
  for (const [name, value] of Object.entries(form)) await page.fill(`[name="${name}"]`, value);
  await page.evaluate(() => (document.forms[0].noValidate = true));
  await Promise.all([page.waitForNavigation(), page.locator("button").first().click()]);
  await page.locator(".mistake").first().waitFor();
}

const browser = await chromium.launch({
  executablePath,
  args: process.getuid?.() === 0 ? ["--no-sandbox", ...quiet] : quiet,
});
const report = {};
for (const viewport of SIZES) {
  for (const colorScheme of ["light", "dark"]) {
    for (const { name, path, isApp, form } of pages) {
      const context = await browser.newContext({ viewport, colorScheme });
      const page = await context.newPage();
      const wrong = [];
      page.on("request", (request) => {
        const { protocol, origin: asked } = new URL(request.url());
        if (protocol.startsWith("http") && asked !== origin) wrong.push(`asks ${request.url()}`);
      });
      page.on("pageerror", (error) => wrong.push(`script failed: ${error.message}`));
      page.on("console", (message) => {
        const isStatus = message.text().startsWith("Failed to load resource") &&
          message.location().url === origin + path;
        if (message.type() === "error" && !isStatus) wrong.push(`console: ${message.text()}`);
      });
      await page.goto(origin + path);
      if (form) await submit(page, form);
      if (isApp) await useApp(page, wrong);
      else wrong.push(...(await violations(page)));
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      if (width > viewport.width) wrong.push(`is ${width} pixels wide`);
      const title = await page.title();
      const key = `${name} at ${viewport.width}, ${colorScheme}`;
      report[key] = { title, wrong: [...new Set(wrong)] };
      if (shots) await page.screenshot({ path: join(shots, `${key.replaceAll(/\W+/g, "-")}.png`) });
      await context.close();
    }
  }
}
await browser.close();
console.log(JSON.stringify(report));
