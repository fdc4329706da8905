"""A small institution of UMA on the reference SDK of Python, for tests to pay and to be paid by.

Usage: uma_peer.py PORT [BEHAVIOUR]

It answers on 127.0.0.1:PORT, which is its domain too. Every name but `unknown` is a customer's. The
behaviour is a JSON object whose fields are those of BEHAVIOUR. A test steers the peer with

    POST /control/behave             a behaviour; absent fields are as in BEHAVIOUR
    POST /control/pay                pays an address (Peer.pay), and reports every answer
    POST /control/rotate             new keys at once, without a time of overlap
    POST /control/post-transaction   {"url"}: a signed post-transaction callback
    GET  /control/seen               the requests of other institutions, each with its error
    POST /control/read               {"invoice"}: its facts
    POST /control/invoice            {"msat", "description"}: an invoice, for peers that make none
    POST /control/key                a key pair with a certificate, for the same peers
"""

import datetime
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import ecies
import requests
import uma
from uma.version import select_highest_supported_version

import uma_faults
import uma_invoices
from uma_keys import KeyPair

# A fault of `keys`, `lookup` or `pay_request` is a name in `uma_faults`, or one of TRANSPORT.
BEHAVIOUR = {
    "keys": None,
    "lookup": None,
    "pay_request": None,
    # Settlement between servers, which the peer does not know.
    "settle": None,
    # Major versions that are spoken.
    "majors": [1, 0],
    # Facts about the payer that are asked for, and whether each must be given.
    "payer_data": {"name": False},
    "currencies": ["USD", "EUR"],
    "fee_msat": 0,
    "key_seconds": 600,
}

TRANSPORT = ("hang", "closed", "redirect", "oversized", "html", "not_json", "error")

# Millisatoshi of a cent, as the server's own rates have it.
CURRENCIES = {
    "USD": ("United States dollar", "$", 10_000.0),
    "EUR": ("Euro", "€", 11_550.0),
}
MIN_MINOR, MAX_MINOR, DECIMALS = 1, 100_000_000, 2
MAX_SATS = 10_000_000_000
METADATA = json.dumps([["text/plain", "Pay a customer of the peer"]])

# Facts about any payer and payee of this institution.
FACTS = {
    "name": "Bo Peer",
    "email": "bo@peer.example",
    "birthDate": "1990-01-01",
    "nationality": "DE",
    "countryOfResidence": "DE",
    "phoneNumber": "+49301234567",
}

# No request of a test takes longer; the SDK itself sets no limit.
WITHIN_SECONDS = 30

# Equal requests that are sent at once.
AT_ONCE = 8


class Closed(Exception):
    """The connection is closed without an answer."""


class InvoiceMaker(uma.IUmaInvoiceCreator):
    """Makes the invoice of a pay request, with a fault of it."""

    def __init__(self, node_key, fault):
        self.node_key, self.fault = node_key, fault

    def create_uma_invoice(self, amount_msats, metadata, receiver_identifier):
        network = "bc" if self.fault == "other_network" else uma_invoices.REGTEST
        age = 2 * uma_invoices.EXPIRY_SECONDS if self.fault == "expired_invoice" else 0
        msat = amount_msats * 2 if self.fault == "other_amount" else amount_msats
        return uma_invoices.made(self.node_key, msat, metadata, network, age)


class Peer:
    """The institution: its keys, and all that it remembers."""

    def __init__(self, port, behaviour):
        self.domain = f"127.0.0.1:{port}"
        self.rotate_keys()
        # The keys of an institution that this one could be mistaken for.
        self.foreign = KeyPair("foreign")
        self.node_key = KeyPair("node").private
        self.behaviour = BEHAVIOUR | behaviour
        self.seen = []
        self.key_cache = uma.InMemoryPublicKeyCache()
        oldest = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=10)
        self.nonces = uma.InMemoryNonceCache(oldest)
        # The first answer of each kind, for a peer that repeats itself.
        self.first_answers = {}

    def rotate_keys(self):
        self.signing, self.encryption = KeyPair("signing"), KeyPair("encryption")

    def tampering_keys(self):
        return self.signing.private, self.foreign.private

    def keys_of(self, domain):
        return uma.fetch_public_key_for_vasp(domain, self.key_cache)

    def remember(self, kind, message, check):
        """Keeps a request with the error of its check, which is raised too."""
        entry = {"kind": kind, "message": message, "verified": False, "error": None}
        self.seen.append(entry)
        try:
            entry.update(check() or {})
            entry["verified"] = True
        except Exception as error:
            entry["error"] = named(error)
            raise
        return entry

    # Being paid.

    def key_document(self):
        now = datetime.datetime.now(datetime.timezone.utc)
        expiry = now + datetime.timedelta(seconds=self.behaviour["key_seconds"])
        self.seen.append({"kind": "keys"})
        certificates = self.signing.certificate, self.encryption.certificate
        return uma.create_pubkey_response(*certificates, expiry).to_dict()

    def configuration(self):
        return {"name": "Peer of Python", "uma_major_versions": self.behaviour["majors"]}

    def answer_lookup(self, path):
        fault = self.behaviour["lookup"]
        self.check_version(path)
        request = uma.parse_lnurlp_request(f"http://{self.domain}{path}")
        if not request.is_uma_request():
            code = uma.ErrorCode.NON_UMA_LNURL_NOT_SUPPORTED
            raise uma.InvalidRequestException("only UMA is spoken here", code)

        def check():
            keys = self.keys_of(request.vasp_domain)
            uma.verify_uma_lnurlp_query_signature(request, keys, self.nonces)
            return {"version": request.uma_version}

        self.remember("lookup", path, check)
        receiver = request.receiver_address
        if fault == "unknown_user" or receiver.startswith("$unknown@"):
            raise uma.InvalidRequestException("no such user", uma.ErrorCode.USER_NOT_FOUND)
        if fault == "replayed" and "lookup" in self.first_answers:
            return self.first_answers["lookup"]
        asked = uma.create_counterparty_data_options(self.behaviour["payer_data"])
        response = uma.create_uma_lnurlp_response(
            request=request,
            signing_private_key=self.signing.private,
            requires_travel_rule_info=True,
            callback=f"http://{self.domain}/pay/{receiver.split('@')[0]}",
            encoded_metadata=METADATA,
            min_sendable_sats=1,
            max_sendable_sats=MAX_SATS,
            payer_data_options=asked,
            currency_options=[currency(code) for code in self.behaviour["currencies"]],
            receiver_kyc_status=uma.KycStatus.VERIFIED,
        )
        message = uma_faults.lookup_answer(
            fault, response.to_dict(), receiver, self.tampering_keys()
        )
        return self.first_answers.setdefault("lookup", message) if fault == "replayed" else message

    def check_version(self, path):
        """Refuses a major version that the behaviour does not have."""
        majors = self.behaviour["majors"]
        for version in parse_qs(urlsplit(path).query).get("umaVersion", []):
            if int(version.split(".")[0]) not in majors:
                raise uma.UnsupportedVersionException(version, majors)

    def answer_pay_request(self, user, body):
        fault = self.behaviour["pay_request"]
        request = uma.parse_pay_request(body)
        payer = request.payer_data["identifier"]

        def check():
            keys = self.keys_of(uma.get_vasp_domain_from_uma_address(payer))
            uma.verify_pay_request_signature(request, keys, self.nonces)
            return {"travelRule": self.opened_travel_rule(request)}

        entry = self.remember("pay_request", json.loads(body), check)
        if fault == "replayed" and "pay_request" in self.first_answers:
            return self.first_answers["pay_request"]
        _, _, rate = CURRENCIES[request.receiving_currency_code]
        fee = -1_000 if fault == "negative_fee" else self.behaviour["fee_msat"]
        payee = f"{user}@{self.domain}"
        wanted = request.requested_payee_data or {}
        response = uma.create_pay_req_response(
            request=request,
            invoice_creator=InvoiceMaker(self.node_key, fault),
            metadata=METADATA,
            receiving_currency_code=request.receiving_currency_code,
            receiving_currency_decimals=DECIMALS,
            msats_per_currency_unit=rate * 10 if fault == "rate_x10" else rate,
            receiver_fees_msats=fee,
            receiver_node_pubkey=None,
            utxo_callback=f"http://{self.domain}/utxo",
            payee_identifier=payee,
            signing_private_key=self.signing.private,
            payee_data={key: FACTS[key] for key in wanted if key in FACTS},
        )
        message = uma_faults.pay_answer(
            fault, response.to_dict(), [payer, payee], self.tampering_keys()
        )
        if fault == "replayed":
            self.first_answers["pay_request"] = message
        entry["answer"] = message
        return message

    def opened_travel_rule(self, request):
        sealed = uma.compliance_from_payer_data(request.payer_data).encrypted_travel_rule_info
        if not sealed:
            return None
        return ecies.decrypt(self.encryption.private, bytes.fromhex(sealed)).decode()

    def answer_post_transaction(self, body):
        callback = uma.parse_post_transaction_callback(body)

        def check():
            keys = self.keys_of(callback.vasp_domain)
            uma.verify_post_transaction_callback_signature(callback, keys, self.nonces)

        self.remember("post_transaction", json.loads(body), check)
        return {"status": "OK"}

    # Paying others.

    def pay(self, order):
        """Looks up `receiver` and asks for an invoice.

        `amount` is of `currency` when `locked` is RECEIVING, else millisatoshi. `payerData` stands
        for the facts that the payee asks for, `payeeData` names facts to ask for; `travelRule` is
        encrypted; `version` is asked for first; `lookupFault` and `payRequestFault` name faults.
        """
        report = {"lookups": [], "payRequests": []}
        found = self.look_up(order, report)
        if found is None or order.get("lookupOnly"):
            return report
        receiver, payer = order["receiver"], f"${order.get('payer', 'bo')}@{self.domain}"
        message = self.pay_request(order, payer, found)
        fault = order.get("payRequestFault")
        message = uma_faults.pay_request(fault, message, payer, self.tampering_keys())
        callback = order.get("callback") or found.callback
        body = "{" if fault == "not_json" else json.dumps(message)
        report["sentPayRequest"] = message
        for answer in sent(fault, partial(ask, "POST", callback, body.encode())):
            report["payRequests"].append(shown(answer))
        if answer.status_code == 200:
            response = uma.parse_pay_req_response(answer.text)
            report["payRequestVerified"] = verdict(
                lambda: uma.verify_pay_req_response_signature(
                    payer, receiver, response, self.keys_of(receiver.split("@")[1]), self.nonces
                )
            )
            report["invoice"] = uma_invoices.read(response.encoded_invoice)
        return report

    def look_up(self, order, report):
        """The answer to the lookup, or nothing if it is a refusal."""
        receiver, fault = order["receiver"], order.get("lookupFault")
        version = order.get("version")
        for _ in range(2):
            url = uma.create_uma_lnurlp_request_url(
                self.signing.private, receiver, self.domain, True, version
            )
            url = uma_faults.lookup_url(fault, url, receiver, self.tampering_keys())
            for answer in sent(fault, partial(ask, "GET", url)):
                report["lookups"].append(shown(answer))
            if answer.status_code != 412:
                break
            version = select_highest_supported_version(answer.json()["supportedMajorVersions"])
            if version is None:
                return None
        if answer.status_code != 200:
            return None
        found = uma.parse_lnurlp_response(answer.text)
        report["lookupVerified"] = verdict(
            lambda: uma.verify_uma_lnurlp_response_signature(
                found, self.keys_of(receiver.split("@")[1]), self.nonces
            )
        )
        return found

    def pay_request(self, order, payer, found):
        """The good pay request of an order."""
        keys = self.keys_of(order["receiver"].split("@")[1])
        compliance = uma.create_compliance_payer_data(
            receiver_encryption_pubkey=keys.get_encryption_pubkey(),
            signing_private_key=self.signing.private,
            payer_identifier=payer,
            travel_rule_info=order.get("travelRule"),
            payer_kyc_status=uma.KycStatus.VERIFIED,
            payer_utxos=[],
            payer_node_pubkey=None,
            utxo_callback=f"http://{self.domain}/utxo",
        )
        data = uma.create_payer_data(identifier=payer, compliance=compliance)
        asked = found.required_payer_data or {}
        data |= order.get("payerData", {key: FACTS[key] for key in asked if key in FACTS})
        wanted = {"identifier": True, "compliance": True} | order.get("payeeData", {})
        return uma.create_pay_request_with_payer_data(
            receiving_currency_code=order["currency"],
            amount=order["amount"],
            is_amount_in_receiving_currency=order["locked"] == "RECEIVING",
            payer_identifier=payer,
            uma_major_version=int(found.uma_version.split(".")[0]),
            payer_compliance=compliance,
            payer_data=data,
            requested_payee_data=uma.create_counterparty_data_options(wanted),
            comment=order.get("comment"),
        ).to_dict()

    def post_transaction(self, order):
        message = uma.create_post_transaction_callback([], self.domain, self.signing.private)
        return shown(ask("POST", order["url"], message.to_json().encode()))


def currency(code):
    name, symbol, rate = CURRENCIES[code]
    return uma.Currency(code, name, symbol, rate, MIN_MINOR, MAX_MINOR, DECIMALS)


def ask(method, url, body=None):
    """One request, without following redirects."""
    return requests.request(
        method,
        url,
        data=body,
        headers={"content-type": "application/json"},
        timeout=WITHIN_SECONDS,
        allow_redirects=False,
    )


def sent(fault, send):
    """The answers to a request: to one, to the same twice, or to as many at once."""
    if fault == "replayed_at_once":
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(lambda _: send(), range(AT_ONCE)))
    return [send() for _ in range(2 if fault == "replayed" else 1)]


def shown(answer):
    """Status and body of an answer, as JSON where it is."""
    try:
        body = answer.json()
    except ValueError:
        body = answer.text
    return {"status": answer.status_code, "body": body}


def named(error):
    return f"{type(error).__name__}: {error}"


def verdict(check):
    """`OK`, or the error of a check."""
    try:
        check()
        return "OK"
    except Exception as error:
        return named(error)


class Handler(BaseHTTPRequestHandler):
    """Routes requests to the peer, with faults of the transport on the way back."""

    protocol_version = "HTTP/1.1"
    peer = None

    def do_GET(self):
        self.handle_request(b"")

    def do_POST(self):
        self.handle_request(self.rfile.read(int(self.headers.get("content-length", 0))))

    def handle_request(self, body):
        path = self.path.partition("?")[0]
        try:
            fault, answer = self.route(path, body)
            self.reply(answer, fault)
        except uma.UmaException as error:
            self.write(error.to_http_status_code(), error.to_json().encode())
        except Closed:
            self.close_connection = True
        except (BrokenPipeError, ConnectionResetError):
            # The other side had enough.
            self.close_connection = True
        except Exception as error:
            self.write(500, json.dumps({"status": "ERROR", "reason": named(error)}).encode())

    def route(self, path, body):
        """The fault of the transport for a path, and what makes its answer."""
        peer, behaviour = self.peer, self.peer.behaviour
        if path == "/.well-known/lnurlpubkey":
            return behaviour["keys"], peer.key_document
        if path == "/.well-known/uma-configuration":
            return None, peer.configuration
        if path.startswith("/.well-known/lnurlp/"):
            return behaviour["lookup"], lambda: peer.answer_lookup(self.path)
        if path.startswith("/pay/"):
            user = path.removeprefix("/pay/")
            return behaviour["pay_request"], lambda: peer.answer_pay_request(user, body.decode())
        if path == "/uma/settle" and behaviour["settle"]:
            return behaviour["settle"], dict
        if path == "/utxo":
            return None, lambda: peer.answer_post_transaction(body.decode())
        if path == "/elsewhere":
            peer.seen.append({"kind": "followed_redirect"})
            return None, dict
        return None, lambda: self.control(path, json.loads(body or b"{}"))

    def control(self, path, order):
        peer = self.peer
        if path == "/control/behave":
            peer.behaviour, peer.first_answers = BEHAVIOUR | order, {}
            return peer.behaviour
        if path == "/control/seen":
            return peer.seen
        if path == "/control/pay":
            return peer.pay(order)
        if path == "/control/rotate":
            peer.rotate_keys()
            return {}
        if path == "/control/post-transaction":
            return peer.post_transaction(order)
        if path == "/control/read":
            return uma_invoices.read(order["invoice"])
        if path == "/control/invoice":
            made = uma_invoices.made(peer.node_key, order["msat"], order["description"])
            return {"invoice": made}
        if path == "/control/key":
            pair = KeyPair("peer")
            return {"private": pair.private.hex(), "certificate": pair.certificate}
        raise uma.InvalidRequestException(f"no such path: {path}", uma.ErrorCode.REQUEST_NOT_FOUND)

    def reply(self, answer, fault):
        if fault == "hang":
            threading.Event().wait(WITHIN_SECONDS)
            raise Closed
        if fault == "closed":
            raise Closed
        if fault == "redirect":
            self.write(302, b"", [("location", f"http://{self.peer.domain}/elsewhere")])
        elif fault == "html":
            self.write(200, b"<html><body>Welcome</body></html>")
        elif fault == "not_json":
            self.write(200, b"{")
        elif fault == "error":
            self.write(500, b"oops")
        else:
            message = answer()
            if fault == "oversized":
                message = message | {"padding": "x" * uma_faults.OVERSIZED_BYTES}
            self.write(200, json.dumps(message).encode())

    def write(self, status, body, headers=()):
        self.send_response(status)
        for name, value in [("content-type", "application/json"), *headers]:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Tests read `/control/seen`."""


def main(port, behaviour="{}"):
    Handler.peer = Peer(int(port), json.loads(behaviour))
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
