"""Recomputes the checksums of release artifacts, with nothing but Python's own library.

Each argument is a file. The checksum is SHA-256 of the file in which the first line that begins with two spaces and
`checksum:` has become `  checksum: ''`.
"""

import hashlib
import re
import sys

for name in sys.argv[1:]:
    with open(name, "rb") as file:
        text = file.read()
    line = re.compile(rb"^  checksum: (.*)$", re.MULTILINE)
    found = line.search(text).group(1).strip(b'"').decode()
    computed = hashlib.sha256(line.sub(b"  checksum: ''", text, count=1)).hexdigest()
    if found != computed:
        sys.exit(f"{name}: says {found}, but makes {computed}")
    print(name, computed)
