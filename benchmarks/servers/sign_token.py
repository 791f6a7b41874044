"""Sign a token for the bench's server and print it as JSON, with the public key that it can be checked with."""

import json
import sys
import time

from joserfc import jwt
from joserfc.jwk import ECKey

ISSUER = "https://issuer.example"
AUDIENCE = "https://bench.example/mcp"
LIFETIME_SECONDS = 3600


def issue() -> dict[str, object]:
    """Make a key and a token of it."""
    key = ECKey.generate_key("P-256", {"use": "sig", "alg": "ES256"}, auto_kid=True)
    now = int(time.time())
    times = {"iat": now, "exp": now + LIFETIME_SECONDS}
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "bench", "client_id": "bench", "scope": "tools:call", "jti": "1"}
    token = jwt.encode({"alg": "ES256", "kid": key.kid, "typ": "at+jwt"}, claims | times, key)
    return {"key": key.as_dict(private=False), "token": token}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(issue()))
