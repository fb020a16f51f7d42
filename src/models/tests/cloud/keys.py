"""Prints the keys that AWS's own library finds in this environment."""

import botocore.session

keys = botocore.session.Session().get_credentials().get_frozen_credentials()
print(keys.access_key, keys.secret_key, keys.token)
