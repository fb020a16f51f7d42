"""Prints the access token that Google's own library gets in this environment."""

import os

from google.auth import compute_engine, identity_pool
from google.auth.transport.requests import Request

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
credentials = identity_pool.Credentials.from_file(file, scopes=SCOPES) if file else compute_engine.Credentials()
credentials.refresh(Request())
print(credentials.token)
