"""Tokens bound to a key: every check of RFC 9449, section 4.3, the resource server, and our own client against it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey

from tests.auth.authorization_server.support import Contents, server_store
from tests.auth.client_site import browse
from tests.auth.resource_support import (
    AUDIENCE,
    ISSUER,
    NOW,
    FakeFetcher,
    claims,
    ec_key,
    encoded,
    jwks,
    public,
    reason,
    rsa_key,
    sign,
    token,
    verifier,
)
from tests.auth.served import free_port, served
from tests.transports.http.serving_support import Workshop, modern, tool
from trunkline import Client, ConfigError, Context, IntrospectionVerifier, JWTVerifier, OAuth, Server
from trunkline.auth.credential_store import MemoryStore
from trunkline.auth.dpop import ProofVerifier
from trunkline.auth.jose import digest
from trunkline.auth.resource_server import ResourceServer
from trunkline.auth.verifiers import PROOF_ALGORITHMS, RequestTarget, TargetedHeaders
from trunkline.errors import TrunklineError
from trunkline.protocol.caller import Principal
from trunkline.store.memory import MemoryEngine

URL = AUDIENCE
HOLDER = ECKey.generate_key("P-256", private=True)
OTHER = ECKey.generate_key("P-256", private=True)
BOUND = token(cnf={"jkt": HOLDER.thumbprint()})
PLAIN = token()
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
ALGORITHMS = f'algs="{" ".join(PROOF_ALGORITHMS)}"'


def bare(key: Any) -> dict[str, Any]:
    """The public key as a proof has it."""
    return {
        name: value for name, value in key.as_dict(private=False).items() if name in ("kty", "crv", "x", "y", "n", "e")
    }


def proof(*, key: Any = HOLDER, given: str = BOUND, head: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """A good proof, but for what is changed; None leaves something out."""
    said = {"jti": "one", "htm": "POST", "htu": URL, "iat": int(NOW), "ath": digest(given), **changes}
    header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": bare(key), **(head or {})}
    payload = {name: value for name, value in said.items() if value is not None}
    return sign(json.dumps(payload).encode(), {k: v for k, v in header.items() if v is not None}, key)


def asking(shown: str | None, given: str = BOUND, scheme: str = "DPoP", method: str = "POST") -> Mapping[str, str]:
    """The headers of a request with a token and a proof, as the endpoint passes them on."""
    head = {"authorization": f"{scheme} {given}", **({} if shown is None else {"dpop": shown})}
    return TargetedHeaders(head, RequestTarget(method, (URL,)))


def checks(**options: Any) -> JWTVerifier:
    """A verifier that takes tokens that are bound to a key."""
    return verifier(**{"dpop": "allowed", **options})


# --- a good proof -----------------------------------------------------------------------------------------------------


async def test_a_bound_token_with_its_proof_is_accepted() -> None:
    found = await checks().verify(asking(proof()))
    assert found is not None
    assert (found.subject, found.claims["cnf"] if found.claims else None) == ("ada", {"jkt": HOLDER.thumbprint()})


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        pytest.param(rsa_key(), "RS256", id="RS256"),
        pytest.param(rsa_key(), "PS256", id="PS256"),
        pytest.param(OKPKey.generate_key("Ed25519", private=True), "Ed25519", id="Ed25519"),
        pytest.param(ECKey.generate_key("P-384", private=True), "ES384", id="ES384"),
    ],
)
async def test_keys_of_several_kinds_are_accepted(key: Any, algorithm: str) -> None:
    given = token(cnf={"jkt": key.thumbprint()})
    shown = proof(key=key, given=given, head={"alg": algorithm})
    assert (await reason(checks(), asking(shown, given))).startswith("taken: Principal")


@pytest.mark.parametrize(
    "written",
    ["HTTPS://MCP.example.com/mcp", "https://mcp.example.com:443/mcp", f"{URL}?a=1", f"{URL}#x"],
    ids=["case", "usual port", "query", "fragment"],
)
async def test_equivalent_urls_in_a_proof_are_accepted(written: str) -> None:
    assert (await reason(checks(), asking(proof(htu=written)))).startswith("taken")


# --- RFC 9449, 4.3 ----------------------------------------------------------------------------------------------------


def _unsigned() -> str:
    head = {"typ": "dpop+jwt", "alg": "none", "jwk": bare(HOLDER)}
    said = {"jti": "one", "htm": "POST", "htu": URL, "iat": int(NOW), "ath": digest(BOUND)}
    return f"{encoded(head)}.{encoded(said)}."


def _symmetric() -> str:
    head = {"typ": "dpop+jwt", "alg": "HS256", "jwk": {"kty": "oct", "k": "AAAA"}}
    return sign(b"{}", head, OctKey.generate_key(256))


def _critical() -> str:
    head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": bare(HOLDER), "crit": ["b64"]}
    return f"{encoded(head)}.e30.AA"


def _tampered() -> str:
    first, _, last = proof().split(".")
    said = {"jti": "two", "htm": "POST", "htu": URL, "iat": int(NOW), "ath": digest(BOUND)}
    return f"{first}.{encoded(said)}.{last}"


FORMED = "The DPoP header is not a signed JWT with alg, typ and jwk"
CLAIMS = "The proof lacks jti, htm, htu or iat, or one of them has the wrong type"
WAY = "The proof's signature algorithm is not accepted here"
ADDRESS = "The proof is for another URL"
TIME = "The proof is too old or from the future: check the clock"
PRIVATE = "The proof contains a private key, which is now compromised"
BROKEN = "The signature of the proof is not valid"
OTHER_TYPE = "The JWT in the DPoP header is not of type dpop+jwt"
OTHER_KEY = "The proof is signed with another key than the token is bound to"
FIT = "The key in the proof does not fit its signature algorithm"


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        pytest.param(lambda: f"{proof()}, {proof(jti='two')}", FORMED, id="1: two of them in one header"),
        pytest.param(lambda: "", FORMED, id="2: empty"),
        pytest.param(lambda: "a.b", FORMED, id="2: two parts"),
        pytest.param(lambda: f"{proof()}.x", FORMED, id="2: four parts"),
        pytest.param(lambda: f"{encoded([1])}.e30.x", FORMED, id="2: header is no object"),
        pytest.param(lambda: "ÿ" * 20 + ".a.b", FORMED, id="2: no text"),
        pytest.param(lambda: proof(jti="x" * 9000), FORMED, id="2: far too long"),
        pytest.param(lambda: proof(head={"jwk": None}), FORMED, id="3: no key"),
        pytest.param(lambda: proof(jti=None), CLAIMS, id="3: no jti"),
        pytest.param(lambda: proof(jti=""), "The jti of the proof is empty", id="3: empty jti"),
        pytest.param(lambda: proof(htm=None), CLAIMS, id="3: no htm"),
        pytest.param(lambda: proof(htu=None), CLAIMS, id="3: no htu"),
        pytest.param(lambda: proof(iat=None), CLAIMS, id="3: no iat"),
        pytest.param(lambda: proof(iat="now"), CLAIMS, id="3: iat is no time"),
        pytest.param(lambda: proof(iat=True), CLAIMS, id="3: iat is true"),
        pytest.param(lambda: proof(head={"typ": None}), FORMED, id="4: no type"),
        pytest.param(lambda: proof(head={"typ": "JWT"}), OTHER_TYPE, id="4: another type"),
        pytest.param(_unsigned, WAY, id="5: not signed"),
        pytest.param(_symmetric, WAY, id="5: symmetric"),
        pytest.param(_critical, "The proof has critical header parameters that are not supported here", id="5: crit"),
        pytest.param(_tampered, BROKEN, id="6: changed"),
        pytest.param(lambda: proof(key=OTHER, head={"jwk": bare(HOLDER)}), BROKEN, id="6: signed by another key"),
        pytest.param(lambda: proof(head={"jwk": bare(rsa_key())}), FIT, id="6: key of another kind"),
        pytest.param(lambda: proof(head={"jwk": {"kty": "EC"}}), FIT, id="6: half a key"),
        pytest.param(lambda: proof(head={"jwk": HOLDER.as_dict(private=True)}), PRIVATE, id="7: private key"),
        pytest.param(lambda: proof(htm="GET"), "The proof is for another method", id="8: method"),
        pytest.param(lambda: proof(htm="post"), "The proof is for another method", id="8: case of the method"),
        pytest.param(lambda: proof(htu="https://mcp.example.com/other"), ADDRESS, id="9: path"),
        pytest.param(lambda: proof(htu="https://evil.example.com/mcp"), ADDRESS, id="9: host"),
        pytest.param(lambda: proof(htu="http://mcp.example.com/mcp"), ADDRESS, id="9: scheme"),
        pytest.param(lambda: proof(htu="https://mcp.example.com:8443/mcp"), ADDRESS, id="9: port"),
        pytest.param(lambda: proof(htu="https://x@mcp.example.com/mcp"), ADDRESS, id="9: user"),
        pytest.param(lambda: proof(htu="https://[::1/mcp"), ADDRESS, id="9: no URL"),
        pytest.param(lambda: proof(iat=int(NOW) - 61), TIME, id="11: too old"),
        pytest.param(lambda: proof(iat=int(NOW) + 31), TIME, id="11: from the future"),
        pytest.param(lambda: proof(ath=None), "The proof is for another token", id="12: no ath"),
        pytest.param(lambda: proof(given=PLAIN), "The proof is for another token", id="12: ath of another token"),
        pytest.param(lambda: proof(ath="é"), "The proof is for another token", id="12: ath is no digest"),
        pytest.param(lambda: proof(key=OTHER), OTHER_KEY, id="12: another key"),
    ],
)
async def test_an_invalid_proof_is_refused(shown: Callable[[], str], why: str) -> None:
    assert await reason(checks(), asking(shown())) == why


async def test_a_header_that_is_given_twice_is_refused() -> None:
    call = modern(Workshop(auth=checks()).asgi(), tool("add"), authorization=f"DPoP {BOUND}", dpop=proof())
    call.scope["headers"].append((b"dpop", proof(jti="two").encode()))
    answered = await call.whole()
    assert (answered.status, b"more than once: dpop" in answered.body) == (400, True)


# --- single use and expiry --------------------------------------------------------------------------------------------


async def test_a_proof_is_accepted_once() -> None:
    taking = checks()
    assert (await reason(taking, asking(proof()))).startswith("taken")
    assert await reason(taking, asking(proof())) == "The proof was used before: each request needs its own"
    assert (await reason(taking, asking(proof(jti="two")))).startswith("taken")


async def test_a_proof_that_failed_is_not_remembered() -> None:
    taking = checks()
    await reason(taking, asking(proof(), method="GET"))
    assert (await reason(taking, asking(proof()))).startswith("taken")


async def test_two_keys_may_use_the_same_jti() -> None:
    taking, theirs = checks(), token(cnf={"jkt": OTHER.thumbprint()})
    assert (await reason(taking, asking(proof()))).startswith("taken")
    assert (await reason(taking, asking(proof(key=OTHER, given=theirs), theirs))).startswith("taken")


USED = "The proof was used before: each request needs its own"


async def test_used_proofs_are_forgotten_once_they_have_expired() -> None:
    now = [NOW]
    contents = Contents(lambda: now[0])
    taking = checks()
    taking.binding._share(server_store(MemoryEngine(contents)))
    assert (await reason(taking, asking(proof()))).startswith("taken")
    now[0] += 119
    assert await reason(taking, asking(proof())) == USED
    now[0] += 2
    assert (await reason(taking, asking(proof()))).startswith("taken")


async def test_one_key_cannot_fill_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.auth.dpop._MOST_OF_ONE", 3)
    taking, theirs = checks(), token(cnf={"jkt": OTHER.thumbprint()})
    answers = [await reason(taking, asking(proof(jti=str(number)))) for number in range(5)]
    assert [answer == USED for answer in answers] == [False] * 3 + [True] * 2
    assert (await reason(taking, asking(proof(key=OTHER, given=theirs), theirs))).startswith("taken")


async def test_while_too_many_proofs_are_remembered_none_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.auth.dpop._MOST_PROOFS", 3)
    taking, theirs = checks(), token(cnf={"jkt": OTHER.thumbprint()})
    for number in range(3):
        assert (await reason(taking, asking(proof(jti=str(number))))).startswith("taken")
    assert await reason(taking, asking(proof(key=OTHER, given=theirs), theirs)) == USED


async def test_a_proof_is_accepted_by_one_worker_only() -> None:
    contents = Contents(lambda: NOW)
    workers = [checks(), checks()]
    for worker in workers:
        worker.binding._share(server_store(MemoryEngine(contents)))
    answers = [await reason(worker, asking(proof())) for worker in workers]
    assert [answer == USED for answer in answers] == [False, True]


async def test_proofs_of_before_a_loss_of_writes_count_as_used() -> None:
    contents, taking = Contents(lambda: NOW), checks()
    store = MemoryEngine(contents)
    await store.connect()
    taking.binding._share(server_store(store))
    assert (await reason(taking, asking(proof(jti="before")))).startswith("taken")
    contents.lose_writes()
    assert (await reason(taking, asking(proof(iat=NOW - 1)))).startswith("The proof is too old")
    assert (await reason(taking, asking(proof(iat=NOW + 1)))).startswith("taken")


def test_the_workers_of_a_server_accept_the_nonces_of_each_other() -> None:
    nonces = []
    for keys in ([b"a" * 32], [b"a" * 32], [b"b" * 32]):
        proofs = ProofVerifier(now=lambda: NOW, nonces=True)
        proofs.share(server_store(MemoryEngine(Contents(lambda: NOW)), keys))
        nonces.append(proofs.nonce())
    assert (nonces[0] == nonces[1], nonces[0] == nonces[2]) == (True, False)


# --- nonces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonce", [None, "made-up", "é"], ids=["none", "made up", "odd"])
async def test_a_proof_without_our_nonce_is_refused(nonce: str | None) -> None:
    taking = checks(dpop_nonces=True)
    assert (
        await reason(taking, asking(proof(nonce=nonce)))
        == "The proof needs the nonce of this response's DPoP-Nonce header"
    )


async def test_a_proof_with_our_nonce_is_accepted() -> None:
    taking = checks(dpop_nonces=True)
    assert (await reason(taking, asking(proof(nonce=taking.binding.proofs.nonce())))).startswith("taken")


@pytest.mark.parametrize(("later", "good"), [(299.0, True), (601.0, False)], ids=["soon", "late"])
def test_a_nonce_expires(later: float, good: bool) -> None:
    now = [0.0]
    proofs = ProofVerifier(now=lambda: now[0], nonces=True)
    nonce = proofs.nonce()
    now[0] = later
    assert (nonce in (proofs.nonce(), proofs.nonce(1))) is good


def test_processes_that_share_a_secret_accept_each_others_nonces() -> None:
    one, two, other = (ProofVerifier(now=lambda: NOW, nonces=secret) for secret in ("shared", "shared", "another"))
    assert (one.nonce() == two.nonce(), one.nonce() == other.nonce()) == (True, False)


# --- which tokens -----------------------------------------------------------------------------------------------------


UNBOUND_ONLY = "The token is bound to a key, and this server accepts only unbound tokens"
AS_DPOP = "The token is bound to a key: send it as DPoP, with a proof"
NO_PROOF = "The token is bound to a key, and the DPoP header with the proof is missing"
NOT_DPOP = "The token is not bound to a key, so it is not a DPoP token"
BOUND_ONLY = "This server accepts only tokens that are bound to a key (DPoP)"
UNCHECKED = "The token is bound to a key, and its proof cannot be checked here: method and URL are not known"
ELSEWHERE = {"authorization": f"DPoP {BOUND}", "dpop": proof()}


@pytest.mark.parametrize(
    ("mode", "headers", "why"),
    [
        pytest.param("off", asking(proof()), "taken: None", id="off: DPoP is not known"),
        pytest.param("off", asking(proof(), scheme="Bearer"), UNBOUND_ONLY, id="off: bound"),
        pytest.param(
            "allowed", asking(proof(), scheme="Bearer"), AS_DPOP, id="allowed: bound, as Bearer, with a proof"
        ),
        pytest.param("allowed", asking(None, scheme="Bearer"), AS_DPOP, id="allowed: bound, as Bearer"),
        pytest.param("allowed", asking(None), NO_PROOF, id="allowed: no proof"),
        pytest.param("allowed", asking(proof(given=PLAIN), PLAIN), NOT_DPOP, id="allowed: plain, as DPoP"),
        pytest.param("required", asking(None, PLAIN, "Bearer"), BOUND_ONLY, id="required: plain"),
        pytest.param("allowed", ELSEWHERE, UNCHECKED, id="allowed: headers from elsewhere"),
    ],
)
async def test_tokens_and_proofs_must_match_the_mode(mode: str, headers: Mapping[str, str], why: str) -> None:
    assert await reason(verifier(dpop=mode), headers) == why


async def test_a_bearer_token_is_accepted_if_dpop_is_optional() -> None:
    assert (await reason(checks(), asking(None, PLAIN, "Bearer"))).startswith("taken: Principal")


@pytest.mark.parametrize(
    "bound",
    [{"x5t#S256": "x"}, {"jkt": HOLDER.thumbprint(), "x5t#S256": "x"}, {"jkt": 7}, {}, "jkt", []],
    ids=["certificate", "both", "no text", "nothing", "text", "list"],
)
async def test_a_token_that_is_bound_to_something_else_is_refused(bound: Any) -> None:
    given = token(cnf=bound)
    why = "The token is not bound by a key thumbprint (jkt), which is the only binding supported"
    assert await reason(checks(), asking(proof(given=given), given)) == why


async def test_a_cached_token_needs_a_proof_each_time() -> None:
    taking = checks()
    assert (await reason(taking, asking(proof()))).startswith("taken")
    assert "is missing" in await reason(taking, asking(None))
    assert "send it as DPoP" in await reason(taking, asking(None, scheme="Bearer"))


async def test_an_introspected_token_may_be_bound_too() -> None:
    said = {"active": True, **claims(cnf={"jkt": HOLDER.thumbprint()})}
    taking = IntrospectionVerifier(
        "https://auth.example.com/introspect",
        issuer=ISSUER,
        audience=AUDIENCE,
        client_id="c",
        client_secret="s",
        dpop="required",
        fetcher=FakeFetcher({"https://auth.example.com/introspect": said}),  # type: ignore[arg-type]
        now=lambda: NOW,
    )
    assert (await reason(taking, asking(proof()))).startswith("taken: Principal")
    assert "used before" in await reason(taking, asking(proof()))
    assert "send it as DPoP" in await reason(taking, asking(None, scheme="Bearer"))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"dpop": "sometimes"}, "off"), ({"dpop_nonces": True}, "dpop_nonces= needs")],
    ids=["no mode", "nonces without proofs"],
)
def test_invalid_settings_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        verifier(**options)


# --- the resource server ----------------------------------------------------------------------------------------------


async def _answer(auth: Any, **headers: Any) -> Any:
    return await modern(Workshop(auth=auth).asgi(resource=AUDIENCE), tool("add", a=1, b=2), **headers).whole()


async def test_a_request_with_token_and_proof_is_accepted_and_its_copy_refused() -> None:
    app = Workshop(auth=checks()).asgi()
    head: dict[str, Any] = {"authorization": f"DPoP {BOUND}", "dpop": proof()}
    first = await modern(app, tool("add", a=1, b=2), **head).whole()
    again = await modern(app, tool("add", a=1, b=2), **head).whole()
    assert (first.status, again.status) == (200, 401)


@pytest.mark.parametrize(
    ("options", "headers", "challenge"),
    [
        pytest.param(
            {"dpop": "allowed"},
            {},
            f'Bearer resource_metadata="{METADATA}", DPoP resource_metadata="{METADATA}", {ALGORITHMS}',
            id="allowed",
        ),
        pytest.param({"dpop": "required"}, {}, f'DPoP resource_metadata="{METADATA}", {ALGORITHMS}', id="required"),
        pytest.param(
            {"dpop": "required"},
            {"authorization": f"Bearer {BOUND}"},
            'DPoP error="invalid_token", '
            'error_description="The token is bound to a key: send it as DPoP, with a proof", '
            f'resource_metadata="{METADATA}", {ALGORITHMS}',
            id="as Bearer",
        ),
        pytest.param(
            {"dpop": "allowed"},
            {"authorization": f"DPoP {BOUND}", "dpop": "x"},
            f'DPoP error="invalid_dpop_proof", error_description="{FORMED}", resource_metadata="{METADATA}", '
            f'{ALGORITHMS}, Bearer resource_metadata="{METADATA}"',
            id="a bad proof",
        ),
    ],
)
async def test_challenges_name_the_needed_credentials(options: Any, headers: dict[str, str], challenge: str) -> None:
    call = await _answer(verifier(**options), **headers)
    assert (call.status, call.headers["www-authenticate"]) == (401, challenge)


async def test_a_refusal_for_a_missing_nonce_contains_one() -> None:
    auth = checks(dpop_nonces=True)
    app = Workshop(auth=auth).asgi()
    head: dict[str, Any] = {"authorization": f"DPoP {BOUND}"}
    refused = await modern(app, tool("add", a=1, b=2), **head, dpop=proof()).whole()
    assert 'DPoP error="use_dpop_nonce"' in refused.headers["www-authenticate"]
    nonce = refused.headers["dpop-nonce"]
    taken = await modern(app, tool("add", a=1, b=2), **head, dpop=proof(jti="two", nonce=nonce)).whole()
    assert taken.status == 200


@pytest.mark.parametrize(
    ("mode", "said"),
    [("off", (None, None)), ("allowed", (list(PROOF_ALGORITHMS), None)), ("required", (list(PROOF_ALGORITHMS), True))],
    ids=["off", "allowed", "required"],
)
def test_metadata_advertises_dpop(mode: Any, said: tuple[Any, Any]) -> None:
    found = ResourceServer(verifier(dpop=mode), path="/mcp", name="s").metadata(origin="https://x", path="/mcp")
    names = ("dpop_signing_alg_values_supported", "dpop_bound_access_tokens_required")
    assert tuple(found.get(name) for name in names) == said


@pytest.mark.parametrize(
    ("resource", "url", "known"),
    [
        pytest.param(None, "http://10.0.0.1/mcp", ("http://10.0.0.1/mcp",), id="not known"),
        pytest.param(AUDIENCE, "http://10.0.0.1/mcp", (AUDIENCE, AUDIENCE), id="known"),
        pytest.param(
            "https://x.example.com/api/mcp",
            "http://10.0.0.1/mcp",
            ("https://x.example.com/mcp", "https://x.example.com/api/mcp"),
            id="below another path",
        ),
        pytest.param(AUDIENCE, "http://evil.example.com/sse", ("https://mcp.example.com/sse",), id="beside it"),
    ],
)
def test_with_a_configured_resource_no_other_url_is_accepted_in_a_proof(
    resource: str | None, url: str, known: tuple[str, ...]
) -> None:
    resource_server = ResourceServer(
        verifier(dpop="allowed", audience="books"), path="/mcp", name="s", resource=resource
    )
    assert resource_server._known_as(url) == known


async def test_a_wrapped_or_subclassed_verifier_keeps_every_check() -> None:
    inner = checks()

    class Stricter(JWTVerifier):
        async def verify(self, headers: Mapping[str, str]) -> Principal | None:
            found = await inner.verify(headers)
            return None if found is None or found.subject == "ada" else found

    strict = Stricter(issuer=ISSUER, audience=AUDIENCE, keys=jwks(ec_key()), dpop="allowed")
    assert (await _answer(strict, authorization=f"DPoP {BOUND}", dpop=proof())).status == 401
    assert (await _answer(inner.verify, authorization=f"DPoP {BOUND}", dpop=proof(jti="two"))).status == 200
    assert (await _answer(inner.verify, authorization=f"DPoP {BOUND}")).status == 401


# --- our own client ---------------------------------------------------------------------------------------------------


class Issuing(JWTVerifier):
    """Takes tokens and, for the test, gives them out at the same address: bound to the key that asks."""

    def __init__(self, origin: str, **options: Any) -> None:
        super().__init__(issuer=origin, audience=f"{origin}/mcp", keys=public(ec_key()), **options)
        self.given: list[str] = []

    def routes(self) -> Mapping[str, Any]:
        """Serve an authorization server that allows everything."""
        pages = {
            "/.well-known/oauth-authorization-server": self._metadata,
            "/register": lambda scope, body: (201, {"client_id": "registered"}, ()),
            "/authorize": self._authorize,
            "/token": self._token,
        }
        return {path: _page(answer) for path, answer in pages.items()}

    def _metadata(self, scope: Any, body: bytes) -> Any:
        ways = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in _PLACES.items()}
        return (
            200,
            {
                "issuer": self.issuer,
                **ways,
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "dpop_signing_alg_values_supported": ["ES256"],
            },
            (),
        )

    def _authorize(self, scope: Any, body: bytes) -> Any:
        query = dict(parse_qsl(scope["query_string"].decode()))
        back = urlencode({"code": "code", "state": query["state"], "iss": self.issuer})
        return 302, {}, ((b"location", f"{query['redirect_uri']}?{back}".encode()),)

    def _token(self, scope: Any, body: bytes) -> Any:
        shown = dict(scope["headers"]).get(b"dpop")
        said = {"iss": self.issuer, "aud": f"{self.issuer}/mcp", "sub": "ada", "iat": NOW, "exp": NOW * 2}
        if shown is not None:
            first = shown.decode().split(".")[0]
            key = json.loads(base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)))["jwk"]
            said["cnf"] = {"jkt": ECKey.import_key(key).thumbprint()}
        head = {"alg": "ES256", "kid": "first", "typ": "at+jwt"}
        self.given.append(sign(json.dumps(said).encode(), head, ec_key()))
        kind = "Bearer" if shown is None else "DPoP"
        return 200, {"access_token": self.given[-1], "token_type": kind, "expires_in": 3600}, ()


_PLACES = {"authorization": "authorize", "token": "token", "registration": "register"}


def _page(answer: Callable[[Any, bytes], Any]) -> Any:
    async def serve_page(scope: Any, receive: Any, send: Any) -> None:
        status, said, headers = answer(scope, (await receive()).get("body", b""))
        body = json.dumps(said).encode()
        own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
        await send({"type": "http.response.start", "status": status, "headers": own})
        await send({"type": "http.response.body", "body": body})

    return serve_page


@asynccontextmanager
async def protected(**options: Any) -> AsyncIterator[tuple[str, Issuing]]:
    """Serve a server whose tokens are bound to keys; give its URL and who gives them out."""
    port = free_port()
    auth = Issuing(f"http://127.0.0.1:{port}", **options)
    server = Server("protected", auth=auth)

    @server.tool
    async def who(ctx: Context) -> str:
        return "" if ctx.auth is None or ctx.auth.claims is None else str(sorted(ctx.auth.claims.get("cnf", {})))

    async with served(server.asgi(), port):
        yield f"http://127.0.0.1:{port}/mcp", auth


@pytest.mark.parametrize(
    ("mode", "key", "nonces", "revision"),
    [
        ("required", "auto", False, "2025-11-25"),
        ("allowed", True, True, "2025-11-25"),
        ("required", "auto", True, "2026-07-28"),
    ],
    ids=["required", "allowed, with nonces", "stateless, with nonces"],
)
async def test_our_client_and_our_server_agree_on_proofs(mode: str, key: Any, nonces: bool, revision: str) -> None:
    async with protected(dpop=mode, dpop_nonces=nonces) as (url, _):
        options = OAuth(store=MemoryStore(), open_browser=browse, dpop=key)
        async with Client(url, auth=options, revision=revision) as client:
            assert [(await client.call_tool("who")).text for _ in range(3)] == ["['jkt']"] * 3


async def test_a_copied_bound_token_is_refused() -> None:
    async with protected(dpop="required") as (url, auth):
        async with Client(url, auth=OAuth(store=MemoryStore(), open_browser=browse)) as client:
            await client.call_tool("who")
        with pytest.raises(TrunklineError) as refusal:
            await Client(url, auth=auth.given[-1]).__aenter__()
    assert getattr(refusal.value, "status", 0) == 401


async def test_our_client_uses_bearer_tokens_if_dpop_is_optional() -> None:
    login = OAuth(store=MemoryStore(), open_browser=browse)
    async with protected(dpop="allowed") as (url, _), Client(url, auth=login) as client:
        assert (await client.call_tool("who")).text == "[]"
