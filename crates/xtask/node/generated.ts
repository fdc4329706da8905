// One payment with the client that OpenAPI Generator makes for TypeScript (`typescript-fetch`).
//
// Usage: node generated.js BASE_URL CLIENT_ID CLIENT_SECRET. Every step is checked; the process
// fails with the first that is wrong.

import * as client from "./generated/index.js";

declare const process: { argv: string[] };

// A payment of the sandbox takes about a second.
const WAIT_MILLIS = 60_000;
const FUNDED = 500_000;
const SENT = 100_000;

const [basePath = "", username = "", password = ""] = process.argv.slice(2);
const configuration = new client.Configuration({ basePath, username, password });
const accounts = new client.InternalAccountsApi(configuration);
const transactions = new client.TransactionsApi(configuration);

function check(holds: boolean, claim: string): asserts holds {
  if (!holds) throw new Error(`wrong: ${claim}`);
}

async function usdAccount(customerId: string): Promise<client.InternalAccount> {
  const page = await accounts.listCustomerInternalAccounts({ customerId, currency: "USD" });
  const [account] = page.data;
  check(account !== undefined && page.data.length === 1, "a customer has one account in USD");
  return account;
}

async function completed(transactionId: string): Promise<client.Transaction> {
  const deadline = Date.now() + WAIT_MILLIS;
  while (Date.now() < deadline) {
    const transaction = await transactions.getTransaction({ transactionId });
    if (transaction.status === "COMPLETED") return transaction;
    check(transaction.status === "PROCESSING", `${transaction.status} leads to COMPLETED`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${transactionId} is not COMPLETED after ${WAIT_MILLIS} ms`);
}

const customer = await new client.CustomersApi(configuration).createCustomer({
  createCustomer: { customerType: "INDIVIDUAL", fullName: "Ada Lovelace", currencies: ["USD"] },
});
check(customer.customerType === "INDIVIDUAL", "the customer is a person");
check(customer.currencies?.[0] === "USD", "the customer has its currencies");
const account = await usdAccount(customer.id);
await new client.SandboxApi(configuration).fundInternalAccount({
  accountId: account.id,
  fundInternalAccount: { amount: FUNDED },
});
const external = await new client.ExternalAccountsApi(configuration).createCustomerExternalAccount({
  createExternalAccount: {
    customerId: customer.id,
    currency: "EUR",
    accountInfo: {
      accountType: "EUR_ACCOUNT",
      iban: "DE89370400440532013000",
      beneficiary: { beneficiaryType: "INDIVIDUAL", fullName: "Ada Lovelace" },
    },
  },
});
check(external.accountInfo.accountType === "EUR_ACCOUNT", "the account has its type");

const quotes = new client.QuotesApi(configuration);
const quote = await quotes.createQuote({
  createQuote: {
    source: { sourceType: "ACCOUNT", accountId: account.id },
    destination: { destinationType: "ACCOUNT", accountId: external.id, paymentRail: "SEPA" },
    lockedCurrencySide: "SENDING",
    lockedCurrencyAmount: SENT,
    remittanceInformation: "Invoice 7",
  },
});
await quotes.executeQuote({ quoteId: quote.id });
const transaction = await completed(quote.transactionId);
check(transaction.receivedAmount?.amount === quote.totalReceivingAmount, "as much arrives");
check(transaction.direction === "DEBIT", "the money has left the account");
check(transaction.remittanceInformation === "Invoice 7", "the text went with the payment");
const left = await usdAccount(customer.id);
check(left.totalBalance.amount === FUNDED - SENT, "the account was debited");

const webhooks = new client.WebhooksApi(configuration);
check((await webhooks.getWebhookKeys()).secret !== "", "the keys are those of the platform");
const refused = await transactions
  .getTransaction({ transactionId: "Transaction:nothing" })
  .catch((error: unknown) => error);
check(refused instanceof client.ResponseError, "an id that is none is an error");
check(refused.response.status === 404, "an id that is none is not found");
console.log(`OpenAPI Generator, TypeScript: ${transaction.id} is COMPLETED`);
