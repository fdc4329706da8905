"""Misbehaviours of a peer: how a good message is made a bad one.

A fault is a name. Those of signatures fit every signed message, which is given by its signed part
(a dictionary with nonce, time and signature) and the addresses that the signature covers.
"""

import time
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import uma

# Longer than any clock is wrong.
FAR_SECONDS = 3600

# More than anyone reads of an answer.
OVERSIZED_BYTES = 10_000_000

# The domain of TCP's discard service, where nothing listens.
NOWHERE = "127.0.0.1:9"

# Names of nonce, time and signature in the two kinds of signed messages.
IN_JSON = ("signatureNonce", "signatureTimestamp", "signature")
IN_QUERY = ("nonce", "timestamp", "signature")


def sign(part, names, addresses, key):
    """Signs the nonce and time of a signed part anew."""
    nonce, timestamp, signature = names
    payload = "|".join([*addresses, part[nonce], str(part[timestamp])])
    part[signature] = uma.sign_payload(payload.encode(), key)


def tamper(fault, part, names, addresses, keys):
    """Applies a fault of signatures. `keys` are the sender's own and another institution's."""
    own, foreign = keys
    nonce, timestamp, _ = names
    if fault == "wrong_signature":
        part[nonce] = uma.generate_nonce()
    elif fault == "foreign_signature":
        sign(part, names, addresses, foreign)
    elif fault in ("stale", "future"):
        shift = -FAR_SECONDS if fault == "stale" else FAR_SECONDS
        # Text in a query, a number in JSON.
        part[timestamp] = type(part[timestamp])(int(time.time()) + shift)
        sign(part, names, addresses, own)


def lookup_url(fault, url, receiver, keys):
    """The URL of a lookup with a fault."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    tamper(fault, query, IN_QUERY, [receiver], keys)
    if fault == "missing_parameter":
        del query["signature"]
    elif fault == "plain":
        query = {}
    elif fault == "keys_elsewhere":
        query["vaspDomain"] = NOWHERE
    elif fault == "malformed_version":
        query["umaVersion"] = "one"
    return urlunsplit(parts._replace(query=urlencode(query)))


def lookup_answer(fault, message, receiver, keys):
    """The answer to a lookup with a fault."""
    tamper(fault, message["compliance"], IN_JSON, [receiver], keys)
    if fault == "min_over_max":
        for currency in message["currencies"]:
            currency["convertible"] = {"min": 1_000, "max": 1}
    elif fault == "negative_rate":
        for currency in message["currencies"]:
            currency["multiplier"] = -currency["multiplier"]
    elif fault == "no_callback":
        del message["callback"]
    elif fault == "callback_elsewhere":
        message["callback"] = f"http://{NOWHERE}/pay"
    elif fault == "unsigned":
        del message["compliance"]
    return message


def pay_request(fault, message, payer, keys):
    """A pay request with a fault."""
    compliance = message["payerData"]["compliance"]
    tamper(fault, compliance, IN_JSON, [payer], keys)
    if fault == "unsigned":
        del message["payerData"]["compliance"]
    elif fault == "other_currency":
        message["amount"] = message["amount"].split(".")[0] + ".XTS"
    elif fault == "unknown_currency":
        message["amount"], message["convert"] = "100.XTS", "XTS"
    elif fault == "two_dots":
        message["amount"] += ".USD.USD"
    elif fault == "negative_amount":
        message["amount"] = "-" + message["amount"]
    elif fault == "too_much":
        message["amount"] = "9" * 15 + "." + message["convert"]
    elif fault == "other_payer":
        # Another institution's customer, signed by the right key for its own domain.
        message["payerData"]["identifier"] = f"$eve@{NOWHERE}"
        sign(compliance, IN_JSON, [f"$eve@{NOWHERE}"], keys[0])
    elif fault == "unknown_payee_data":
        message["payeeData"] = {"shoeSize": {"mandatory": True}}
    return message


def pay_answer(fault, message, addresses, keys):
    """The answer to a pay request with a fault."""
    payee = message.get("payeeData", {}).get("compliance")
    if payee:
        tamper(fault, payee, IN_JSON, addresses, keys)
    if fault == "other_currency":
        message["converted"]["currencyCode"] = "JPY"
    elif fault == "other_decimals":
        message["converted"]["decimals"] += 1
    elif fault == "unsigned":
        del message["payeeData"]
    elif fault == "other_payee":
        message["payeeData"]["identifier"] = "$eve@" + addresses[1].split("@")[1]
    elif fault == "no_invoice":
        message["pr"] = "lnbcrt1"
    return message
