"""The server made of an OpenAPI document: schemas, requests, responses, and hostile documents."""
