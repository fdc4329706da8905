// One scenario with the types of openapi-typescript and the client of openapi-fetch.
//
// Usage: node client.js ORIGIN CLIENT_ID CLIENT_SECRET. Every step is checked; the process fails
// with the first that is wrong. The address of the API comes from the document itself.

import createClient from "openapi-fetch";
import type { components, paths, webhooks } from "./schema.js";

declare const process: { argv: string[] };

type Schemas = components["schemas"];

// A payment of the sandbox takes about a second.
const WAIT_MILLIS = 60_000;
const FUNDED = 500_000;
const SENT = 100_000;

const [origin, clientId, clientSecret] = process.argv.slice(2);
const document = (await (await fetch(`${origin}/openapi.json`)).json()) as {
  servers: { url: string }[];
};
const baseUrl = document.servers[0]?.url ?? "";
check(baseUrl.startsWith(`${origin}/`), `${baseUrl} is an address of ${origin}`);
const client = createClient<paths>({
  baseUrl,
  headers: { Authorization: `Basic ${btoa(`${clientId}:${clientSecret}`)}` },
});

function check(holds: boolean, claim: string): asserts holds {
  if (!holds) throw new Error(`wrong: ${claim}`);
}

function present<T>(answer: { data?: T; error?: Schemas["Error"] }): T {
  if (answer.data === undefined) throw new Error(`refused: ${JSON.stringify(answer.error)}`);
  return answer.data;
}

async function balance(customerId: string): Promise<[string, number]> {
  const page = present(
    await client.GET("/customers/internal-accounts", {
      params: { query: { customerId, currency: "USD" } },
    }),
  );
  const [account] = page.data;
  check(account !== undefined && page.data.length === 1, "a customer has one account in USD");
  return [account.id, account.balance.amount];
}

function quoteRequest(sourceId: string, destinationId: string): Schemas["CreateQuote"] {
  return {
    source: { sourceType: "ACCOUNT", accountId: sourceId },
    destination: { destinationType: "ACCOUNT", accountId: destinationId },
    lockedCurrencySide: "SENDING",
    lockedCurrencyAmount: SENT,
  };
}

async function completed(transactionId: string): Promise<Schemas["Transaction"]> {
  const deadline = Date.now() + WAIT_MILLIS;
  while (Date.now() < deadline) {
    const transaction = present(
      await client.GET("/transactions/{transactionId}", { params: { path: { transactionId } } }),
    );
    if (transaction.status === "COMPLETED") return transaction;
    check(transaction.status === "PROCESSING", `${transaction.status} leads to COMPLETED`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${transactionId} is not COMPLETED after ${WAIT_MILLIS} ms`);
}

// What a receiver does with an event: the type selects what `data` is.
type Delivered = webhooks["OUTGOING_PAYMENT"]["post"]["requestBody"]["content"]["application/json"];

function paymentOf(event: Schemas["Event"]): Delivered["data"] | undefined {
  switch (event.type) {
    case "OUTGOING_PAYMENT":
      return event.data;
    default:
      return undefined;
  }
}

const customer = present(
  await client.POST("/customers", {
    params: { header: { "Idempotency-Key": "typescript-customer" } },
    body: { customerType: "INDIVIDUAL", fullName: "Ada Lovelace" },
  }),
);
check(customer.customerType === "INDIVIDUAL", "the customer is a person");
check(customer.fullName === "Ada Lovelace", "the person has its name");

const [accountId, empty] = await balance(customer.id);
check(empty === 0, "a new account is empty");
present(
  await client.POST("/sandbox/internal-accounts/{accountId}/fund", {
    params: { path: { accountId } },
    body: { amount: FUNDED },
  }),
);
check((await balance(customer.id))[1] === FUNDED, "the account was funded");

const external = present(
  await client.POST("/customers/external-accounts", {
    body: {
      customerId: customer.id,
      currency: "EUR",
      accountInfo: {
        accountType: "EUR_ACCOUNT",
        iban: "DE89370400440532013000",
        beneficiary: { beneficiaryType: "INDIVIDUAL", fullName: "Ada Lovelace" },
      },
    },
  }),
);
check(external.accountInfo.accountType === "EUR_ACCOUNT", "the account has its type");
check(external.accountInfo.iban === "DE89370400440532013000", "the account has its IBAN");

const quote = present(
  await client.POST("/quotes", { body: quoteRequest(accountId, external.id) }),
);
check(quote.totalSendingAmount === SENT, "the locked amount is sent");
present(
  await client.POST("/quotes/{quoteId}/execute", { params: { path: { quoteId: quote.id } } }),
);
const transaction = await completed(quote.transactionId);
check(transaction.receivedAmount?.amount === quote.totalReceivingAmount, "as much arrives");
check((await balance(customer.id))[1] === FUNDED - SENT, "the account was debited");

const feed = present(
  await client.GET("/events", { params: { query: { type: "OUTGOING_PAYMENT", limit: 100 } } }),
);
const sent = feed.data.map(paymentOf).filter((payment) => payment?.id === transaction.id);
check(sent.at(-1)?.status === "COMPLETED", "the last event of the payment is its completion");

const refused = await client.POST("/quotes", {
  body: quoteRequest(accountId, "ExternalAccount:nothing"),
});
check(refused.response.status === 400, "an id that is none is refused");
const code: Schemas["Error"]["code"] | undefined = refused.error?.code;
check(code === "INVALID_INPUT", `${code} names the refusal`);
check(refused.error?.details?.["field"] === "destination.accountId", "the field is named");
console.log(`typescript client: ${transaction.id} is COMPLETED`);
