"""One scenario with the client that openapi-python-client generates.

Usage: client.py BASE_URL CLIENT_ID CLIENT_SECRET, with the client on the path. Every step is
checked; the process fails with the first that is wrong.
"""

import base64
import importlib
import pkgutil
import sys
import time

import switchyard_client
from switchyard_client import AuthenticatedClient
from switchyard_client.api.customers import create_customer, update_customer
from switchyard_client.api.external_accounts import create_customer_external_account
from switchyard_client.api.internal_accounts import list_customer_internal_accounts
from switchyard_client.api.quotes import create_quote, execute_quote
from switchyard_client.api.sandbox import fund_internal_account
from switchyard_client.api.transactions import get_transaction, list_transactions
from switchyard_client import models

# A payment of the sandbox takes about a second.
WAIT_SECONDS = 60
FUNDED = 500_000
SENT = 100_000


def import_everything():
    """Every generated module compiles and finds what it needs."""
    prefix = switchyard_client.__name__ + "."
    names = [info.name for info in pkgutil.walk_packages(switchyard_client.__path__, prefix)]
    for name in names:
        importlib.import_module(name)
    assert len(names) > 200, names
    return len(names)


def balance(client, customer_id):
    page = list_customer_internal_accounts.sync(
        client=client, customer_id=customer_id, currency=models.CurrencyCode.USD
    )
    assert isinstance(page, models.InternalAccountPage), page
    (account,) = page.data
    assert account.balance.currency.code is models.CurrencyCode.USD
    return account.id, account.balance.amount


def quote_request(source_id, destination_id, amount):
    return models.CreateQuote(
        source=models.AccountQuoteSource(account_id=source_id, source_type="ACCOUNT"),
        destination=models.AccountQuoteDestination(
            account_id=destination_id, destination_type="ACCOUNT"
        ),
        locked_currency_side=models.LockedSide.SENDING,
        locked_currency_amount=amount,
    )


def completed(client, transaction_id):
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        transaction = get_transaction.sync(transaction_id, client=client)
        assert isinstance(transaction, models.Transaction), transaction
        if transaction.status is models.TransactionStatus.COMPLETED:
            return transaction
        assert transaction.status is models.TransactionStatus.PROCESSING, transaction
        time.sleep(0.1)
    raise AssertionError(f"{transaction_id} is not COMPLETED after {WAIT_SECONDS} seconds")


def main(base_url, client_id, client_secret):
    modules = import_everything()
    token = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    client = AuthenticatedClient(base_url=base_url, token=token, prefix="Basic")

    customer = create_customer.sync(
        client=client,
        body=models.CreateIndividual(customer_type="INDIVIDUAL", full_name="Ada Lovelace"),
        idempotency_key="python-customer",
    )
    assert isinstance(customer, models.IndividualCustomer), customer
    changed = update_customer.sync(
        customer.id,
        client=client,
        body=models.UpdateIndividual(customer_type="INDIVIDUAL", full_name="Ada King"),
    )
    assert isinstance(changed, models.IndividualCustomer), changed
    assert changed.full_name == "Ada King"

    account_id, empty = balance(client, customer.id)
    assert empty == 0
    fund_internal_account.sync(
        account_id, client=client, body=models.FundInternalAccount(amount=FUNDED)
    )
    assert balance(client, customer.id) == (account_id, FUNDED)

    external = create_customer_external_account.sync(
        client=client,
        body=models.CreateExternalAccount(
            customer_id=customer.id,
            currency="EUR",
            account_info=models.EurAccountInfo(
                account_type="EUR_ACCOUNT",
                iban="DE89370400440532013000",
                beneficiary=models.Beneficiary(
                    beneficiary_type=models.BeneficiaryBeneficiaryType.INDIVIDUAL,
                    full_name="Ada King",
                ),
            ),
        ),
    )
    assert isinstance(external, models.ExternalAccount), external
    assert isinstance(external.account_info, models.EurAccountInfo), external

    quote = create_quote.sync(client=client, body=quote_request(account_id, external.id, SENT))
    assert isinstance(quote, models.Quote), quote
    assert quote.status is models.QuoteStatus.PENDING
    assert quote.total_sending_amount == SENT
    executed = execute_quote.sync(quote.id, client=client)
    assert isinstance(executed, models.Quote), executed
    transaction = completed(client, quote.transaction_id)
    assert transaction.received_amount.amount == quote.total_receiving_amount
    assert balance(client, customer.id) == (account_id, FUNDED - SENT)
    page = list_transactions.sync(
        client=client, customer_id=customer.id, type_=models.TransactionType.OUTGOING
    )
    assert isinstance(page, models.TransactionPage), page
    assert [found.id for found in page.data] == [transaction.id]

    refused = create_quote.sync_detailed(
        client=client, body=quote_request(account_id, "ExternalAccount:nothing", SENT)
    )
    assert refused.status_code == 400, refused
    assert isinstance(refused.parsed, models.Error), refused
    assert refused.parsed.code is models.ErrorCode.INVALID_INPUT
    assert refused.parsed.details["field"] == "destination.accountId", refused.parsed
    print(f"python client: {modules} modules, {transaction.id} is COMPLETED")


if __name__ == "__main__":
    main(*sys.argv[1:])
