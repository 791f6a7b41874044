"""The server made of an OpenAPI document: schemas, requests, answers, and documents that mean harm."""
