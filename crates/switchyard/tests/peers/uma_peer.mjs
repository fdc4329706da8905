// A small institution of UMA on the reference SDK of JavaScript, for tests to pay and be paid by.
//
// Usage: uma_peer.mjs PORT HELPER
//
// It answers on 127.0.0.1:PORT, which is its domain too. Neither Node nor the SDK makes
// certificates or BOLT 11 invoices: the Python peer at HELPER (host:port) makes them. A test steers
// it with
//
//     POST /control/pay     pays an address, and reports every answer
//     GET  /control/seen    the requests of other institutions, each with its error
//
// One key pair signs and encrypts: the SDK's key document names the signing certificate twice, so
// others encrypt to that one.

import { createServer } from "node:http";

import * as uma from "@uma-sdk/core";
import { decrypt } from "eciesjs";

const [port, helper] = process.argv.slice(2);
const domain = `127.0.0.1:${port}`;

// Millisatoshi of a cent, as the server's own rates have it.
const RATE = 10_000;
const FEE_MSAT = 0;
const MAX_MINOR = 100_000_000;
const MAX_SATS = 10_000_000_000;
const METADATA = JSON.stringify([["text/plain", "Pay a customer of the peer"]]);
const KEY_SECONDS = 600;
const NONCES_OF_MILLIS = 600_000;
// No request of a test takes longer.
const WITHIN_MILLIS = 30_000;

// Facts about any payer and payee of this institution.
const FACTS = { name: "Jo Peer", email: "jo@peer.example", birthDate: "1991-01-01" };

const seen = [];
const keyCache = new uma.InMemoryPublicKeyCache();
const nonces = new uma.InMemoryNonceValidator(Date.now() - NONCES_OF_MILLIS);

async function helped(path, body) {
  const answer = await fetch(`http://${helper}/control/${path}`, {
    method: "POST",
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`the helper answered ${answer.status}`);
  return answer.json();
}

const { private: privateHex, certificate } = await helped("key", {});
const privateKey = Buffer.from(privateHex, "hex");

const keysOf = (vaspDomain) => uma.fetchPublicKeyForVasp({ cache: keyCache, vaspDomain });

// The SDK's own function refuses a domain with a port.
const domainOf = (address) => address.slice(address.indexOf("@") + 1);

const invoiceCreator = {
  createUmaInvoice: async (msat, description) =>
    (await helped("invoice", { msat, description })).invoice,
};

// Keeps a request with the error of its check, which is thrown too.
async function remember(kind, message, check) {
  const entry = { kind, message, verified: false, error: null };
  seen.push(entry);
  try {
    const isSigned = await check(entry);
    if (!isSigned) {
      throw new uma.UmaError("the signature is wrong", uma.ErrorCode.INVALID_SIGNATURE);
    }
    entry.verified = true;
  } catch (error) {
    entry.error = String(error);
    throw error;
  }
  return entry;
}

// Being paid.

function keyDocument() {
  const expirationTimestamp = Math.floor(Date.now() / 1000) + KEY_SECONDS;
  return uma
    .getPubKeyResponse({
      signingCertChainPem: certificate,
      encryptionCertChainPem: certificate,
      expirationTimestamp,
    })
    .toJsonString();
}

async function answerLookup(url) {
  const request = uma.parseLnurlpRequest(url);
  if (!uma.isLnurlpRequestForUma(request)) {
    const code = uma.ErrorCode.NON_UMA_LNURL_NOT_SUPPORTED;
    throw new uma.UmaError("only UMA is spoken here", code);
  }
  await remember("lookup", url.pathname + url.search, async () => {
    const keys = await keysOf(request.vaspDomain);
    return uma.verifyUmaLnurlpQuerySignature(request, keys, nonces);
  });
  const user = request.receiverAddress.split("@")[0];
  if (user === "$unknown") throw new uma.UmaError("no such user", uma.ErrorCode.USER_NOT_FOUND);
  const dollar = new uma.Currency("USD", "United States dollar", "$", RATE, 1, MAX_MINOR, 2);
  const response = await uma.getLnurlpResponse({
    request,
    privateKeyBytes: privateKey,
    requiresTravelRuleInfo: true,
    callback: `http://${domain}/pay/${user}`,
    encodedMetadata: METADATA,
    minSendableSats: 1,
    maxSendableSats: MAX_SATS,
    payerDataOptions: { name: { mandatory: false } },
    currencyOptions: [dollar],
    receiverKycStatus: uma.KycStatus.Verified,
  });
  return response.toJsonString();
}

async function answerPayRequest(user, body) {
  const request = uma.PayRequest.fromJson(body);
  const entry = await remember("pay_request", JSON.parse(body), async (entry) => {
    const sealed = request.payerData.compliance.encryptedTravelRuleInfo;
    if (sealed) entry.travelRule = decrypt(privateKey, Buffer.from(sealed, "hex")).toString();
    const keys = await keysOf(domainOf(request.payerData.identifier));
    return uma.verifyPayReqSignature(request, keys, nonces);
  });
  const wanted = Object.keys(request.requestedPayeeData ?? {});
  const payeeIdentifier = `${user}@${domain}`;
  const response = await uma.getPayReqResponse({
    request,
    metadata: METADATA,
    invoiceCreator,
    conversionRate: RATE,
    receivingCurrencyCode: request.receivingCurrencyCode,
    receivingCurrencyDecimals: 2,
    receiverChannelUtxos: [],
    receiverFeesMillisats: FEE_MSAT,
    utxoCallback: `http://${domain}/utxo`,
    payeeData: factsOf(wanted),
    receivingVaspPrivateKey: privateKey,
    payeeIdentifier,
  });
  entry.answer = JSON.parse(response.toJsonString());
  return response.toJsonString();
}

const factsOf = (keys) =>
  Object.fromEntries(keys.filter((key) => key in FACTS).map((key) => [key, FACTS[key]]));

// Paying others.

// Looks up `receiver` and asks for an invoice. `amount` is of `currency` when `locked` is
// RECEIVING, else millisatoshi.
async function pay(order) {
  const report = { lookups: [], payRequests: [] };
  const found = await lookUp(order, report);
  if (!found) return report;
  const { receiver } = order;
  const keys = await keysOf(domainOf(receiver));
  const payer = `$jo@${domain}`;
  const request = await uma.getPayRequest({
    receiverEncryptionPubKey: keys.getEncryptionPubKey(),
    sendingVaspPrivateKey: privateKey,
    receivingCurrencyCode: order.currency,
    isAmountInReceivingCurrency: order.locked === "RECEIVING",
    amount: order.amount,
    payerIdentifier: payer,
    payerKycStatus: uma.KycStatus.Verified,
    payerUtxos: [],
    trInfo: order.travelRule,
    utxoCallback: `http://${domain}/utxo`,
    requestedPayeeData: { identifier: { mandatory: true }, compliance: { mandatory: true } },
    payerData: factsOf(Object.keys(found.payerData ?? {})),
    umaMajorVersion: uma.getMajorVersion(found.umaVersion),
    comment: order.comment,
  });
  report.sentPayRequest = JSON.parse(request.toJsonString());
  const answer = await send(found.callback, request.toJsonString());
  report.payRequests.push(answer);
  if (answer.status !== 200) return report;
  const response = uma.PayReqResponse.parse(answer.body);
  report.payRequestVerified = await verdict(() =>
    uma.verifyPayReqResponseSignature(response, payer, receiver, keys, nonces),
  );
  report.invoice = await helped("read", { invoice: response.pr });
  return report;
}

// The answer to the lookup, or nothing if it is a refusal.
async function lookUp({ receiver, version }, report) {
  let answer;
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const url = await uma.getSignedLnurlpRequestUrl({
      isSubjectToTravelRule: true,
      receiverAddress: receiver,
      senderVaspDomain: domain,
      signingPrivateKey: privateKey,
      umaVersionOverride: version,
    });
    answer = await send(url);
    report.lookups.push(answer);
    if (answer.status !== 412) break;
    version = uma.selectHighestSupportedVersion(answer.body.supportedMajorVersions);
  }
  if (answer.status !== 200) return undefined;
  const found = uma.LnurlpResponse.parse(answer.body);
  const keys = await keysOf(domainOf(receiver));
  report.lookupVerified = await verdict(() =>
    uma.verifyUmaLnurlpResponseSignature(found, keys, nonces),
  );
  return found;
}

async function send(url, body) {
  const answer = await fetch(url, {
    method: body === undefined ? "GET" : "POST",
    headers: { "content-type": "application/json" },
    body,
    redirect: "manual",
    signal: AbortSignal.timeout(WITHIN_MILLIS),
  });
  const text = await answer.text();
  try {
    return { status: answer.status, body: JSON.parse(text) };
  } catch {
    return { status: answer.status, body: text };
  }
}

// `OK`, or the error of a check.
async function verdict(check) {
  try {
    return (await check()) ? "OK" : "the signature is wrong";
  } catch (error) {
    return String(error);
  }
}

function route(url, body) {
  const path = url.pathname;
  if (path === "/.well-known/lnurlpubkey") return keyDocument();
  if (path === "/.well-known/uma-configuration") {
    return JSON.stringify({ name: "Peer of JavaScript", uma_major_versions: [1, 0] });
  }
  if (path.startsWith("/.well-known/lnurlp/")) return answerLookup(url);
  if (path.startsWith("/pay/")) return answerPayRequest(path.slice("/pay/".length), body);
  if (path === "/control/seen") return JSON.stringify(seen);
  if (path === "/control/pay") return pay(JSON.parse(body)).then(JSON.stringify);
  throw new uma.UmaError(`no such path: ${path}`, uma.ErrorCode.REQUEST_NOT_FOUND);
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  let [status, text] = [200, ""];
  try {
    const url = new URL(request.url, `http://${domain}`);
    text = await route(url, Buffer.concat(chunks).toString());
  } catch (error) {
    const isUma = error instanceof uma.UmaError;
    status = isUma ? error.toHttpStatusCode() : 500;
    text = isUma ? error.toJSON() : JSON.stringify({ status: "ERROR", reason: String(error) });
  }
  response.writeHead(status, { "content-type": "application/json" }).end(text);
});
server.listen(Number(port), "127.0.0.1");
