"""Invoices for tests: real BOLT 11 texts of a node that does not exist, so nothing pays them."""

import secrets
import time
from hashlib import sha256

import bolt11
from bolt11.models.features import Feature, Features, FeatureState
from bolt11.models.tags import TagChar, Tags

REGTEST = "bcrt"
EXPIRY_SECONDS = 600
# Blocks that the last hop may take: the least of LDK.
FINAL_CLTV_DELTA = 144


def made(node_key, msat, description, network=REGTEST, age_seconds=0):
    """An invoice that commits to the hash of a description."""
    tags = Tags()
    tags.add(TagChar.payment_hash, sha256(secrets.token_bytes(32)).hexdigest())
    tags.add(TagChar.payment_secret, secrets.token_hex(32))
    tags.add(TagChar.description_hash, sha256(description.encode()).hexdigest())
    tags.add(TagChar.expire_time, EXPIRY_SECONDS)
    tags.add(TagChar.min_final_cltv_expiry, FINAL_CLTV_DELTA)
    # Readers refuse a payment secret without the two features that announce it.
    announced = [Feature.var_onion_optin, Feature.payment_secret]
    features = {feature: FeatureState.required for feature in announced}
    tags.add(TagChar.features, Features.from_feature_list(features))
    date = int(time.time()) - age_seconds
    invoice = bolt11.Bolt11(network, date, tags, bolt11.MilliSatoshi(msat))
    return bolt11.encode(invoice, node_key.hex())


def read(text):
    """The facts of an invoice that a test compares."""
    invoice = bolt11.decode(text)
    return {
        "currency": invoice.currency,
        "msat": invoice.amount_msat,
        "descriptionHash": invoice.description_hash,
        "paymentHash": invoice.payment_hash,
        "payee": invoice.payee,
        "expirySeconds": invoice.expiry,
        "hasExpired": invoice.has_expired(),
    }
