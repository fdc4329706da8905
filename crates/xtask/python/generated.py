"""One payment with the client that OpenAPI Generator makes for Python.

Usage: generated.py BASE_URL CLIENT_ID CLIENT_SECRET, with the client on the path. Every step is
checked; the process fails with the first that is wrong.
"""

import importlib
import pkgutil
import sys
import time

import switchyard_generated
from switchyard_generated import api, models

# A payment of the sandbox takes about a second.
WAIT_SECONDS = 60
FUNDED = 500_000
SENT = 100_000


def import_everything():
    """Every generated module compiles and finds what it needs."""
    prefix = switchyard_generated.__name__ + "."
    found = [info.name for info in pkgutil.walk_packages(switchyard_generated.__path__, prefix)]
    for name in found:
        importlib.import_module(name)
    assert len(found) > 150, found
    return len(found)


def usd_account(client, customer_id):
    page = api.InternalAccountsApi(client).list_customer_internal_accounts(
        customer_id=customer_id, currency=models.CurrencyCode.USD
    )
    (account,) = page.data
    return account


def completed(client, transaction_id):
    transactions = api.TransactionsApi(client)
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        transaction = transactions.get_transaction(transaction_id)
        if transaction.status is models.TransactionStatus.COMPLETED:
            return transaction
        assert transaction.status is models.TransactionStatus.PROCESSING, transaction
        time.sleep(0.1)
    raise AssertionError(f"{transaction_id} is not COMPLETED after {WAIT_SECONDS} seconds")


def pay(client):
    person = models.CreateIndividual(
        customer_type="INDIVIDUAL", full_name="Ada Lovelace", email="ada@mail.example"
    )
    customers = api.CustomersApi(client)
    made = customers.create_customer(models.CreateCustomer(person)).actual_instance
    assert isinstance(made, models.IndividualCustomer), made
    assert made.email == "ada@mail.example"

    account = usd_account(client, made.id)
    api.SandboxApi(client).fund_internal_account(
        account.id, models.FundInternalAccount(amount=FUNDED)
    )
    bank = models.CreateExternalAccount(
        customer_id=made.id,
        currency="EUR",
        account_info=models.ExternalAccountInfo(
            models.EurAccountInfo(
                account_type="EUR_ACCOUNT",
                iban="DE89370400440532013000",
                beneficiary=models.Beneficiary(
                    beneficiary_type="INDIVIDUAL", full_name="Ada Lovelace"
                ),
            )
        ),
    )
    external = api.ExternalAccountsApi(client).create_customer_external_account(bank)
    assert isinstance(external.account_info.actual_instance, models.EurAccountInfo), external

    quotes = api.QuotesApi(client)
    quote = quotes.create_quote(
        models.CreateQuote(
            source=models.QuoteSource(
                models.AccountQuoteSource(account_id=account.id, source_type="ACCOUNT")
            ),
            destination=models.QuoteDestination(
                models.AccountQuoteDestination(
                    account_id=external.id, destination_type="ACCOUNT", payment_rail="SEPA"
                )
            ),
            locked_currency_side=models.LockedSide.SENDING,
            locked_currency_amount=SENT,
            remittance_information="Invoice 7",
        )
    )
    quotes.execute_quote(quote.id)
    transaction = completed(client, quote.transaction_id)
    assert transaction.received_amount.amount == quote.total_receiving_amount
    assert transaction.direction is models.TransactionDirection.DEBIT
    assert transaction.remittance_information == "Invoice 7"
    account = usd_account(client, made.id)
    assert account.balance.amount == account.total_balance.amount == FUNDED - SENT
    return transaction


def main(base_url, client_id, client_secret):
    modules = import_everything()
    configuration = switchyard_generated.Configuration(
        host=base_url, username=client_id, password=client_secret
    )
    with switchyard_generated.ApiClient(configuration) as client:
        transaction = pay(client)
        # What is called and what is sent do not meet: no operation of a section is lost.
        webhooks = api.WebhooksApi(client)
        assert webhooks.get_webhook_keys().secret
        feed = webhooks.list_events(limit=100)
        assert any(event.actual_instance.type == "OUTGOING_PAYMENT" for event in feed.data)
        try:
            api.TransactionsApi(client).get_transaction("Transaction:nothing")
            raise AssertionError("an id that is none was found")
        except switchyard_generated.exceptions.NotFoundException as refused:
            assert "TRANSACTION_NOT_FOUND" in refused.body, refused
    print(f"OpenAPI Generator, Python: {modules} modules, {transaction.id} is COMPLETED")


if __name__ == "__main__":
    main(*sys.argv[1:])
