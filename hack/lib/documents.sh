# Documents of others that tests of knowledge bases read: those that Apache Tika tests itself with, from Maven Central, and
# manuals and documentation from Debian's packages, unpacked and not installed. And the programs that read PDF.
# shellcheck shell=bash

# With their SHA-256.
DOCUMENTS=(
  org.apache.tika:tika-parser-microsoft-module:3.2.3:jar:tests=f553feb07b5351f79461473fab9612a1ffb53d21b3fb9ac838c0eb9700b7746e
  org.apache.tika:tika-parser-html-module:3.2.3:jar:tests=7665d069c3c061f64490a922620e76491bb9badfd3eeaecec35407c6790c748d
)
MAVEN_COPY=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy

documents_install() {
  local folder debian python
  folder=$(sha256sum <"$ROOT/hack/lib/documents.sh" | cut -c1-16)
  folder=$CACHE/documents/$folder
  if [[ ! -d $folder ]]; then
    install mvn=maven unzip=unzip
    mkdir -p "$CACHE/documents"
    (
      flock 9
      [[ -d $folder ]] || documents_fetch "$folder"
    ) 9>"$CACHE/documents/lock"
  fi
  install pdftotext=poppler-utils tesseract=tesseract-ocr gzip=gzip
  # Python's documentation is in a package that is named after the version.
  python=$(apt-cache depends python3-doc | awk '/Depends: python3[.0-9]*-doc$/ {print $2; exit}')
  debian=$(packages_unpack 'lib.*' "${python:-python3-doc}" debian-policy debian-reference-en developers-reference sqlite3-doc apache2-doc)
  mkdir -p "$STATE/documents"
  ln -sfn "$folder" "$STATE/documents/tika"
  ln -sfn "$debian" "$STATE/documents/debian"
}

# Made in a folder beside, then renamed, so that an interrupted installation never looks like a finished one.
documents_fetch() {
  local folder=$1 half artifact sum jar
  find "$CACHE/documents" -maxdepth 1 -name 'fetching.*' -exec rm -rf {} +
  half=$(mktemp -d "$CACHE/documents/fetching.XXXXXX")
  for artifact in "${DOCUMENTS[@]}"; do
    sum=${artifact#*=} artifact=${artifact%=*}
    mvn --quiet --batch-mode "$MAVEN_COPY" "-Dartifact=$artifact" "-DoutputDirectory=$half/jars" "-Dmaven.repo.local=$half/maven" \
      </dev/null >"$half/log" 2>&1 9>&- || { tail -n 5 "$half/log" >&2 && die "$artifact could not be fetched; see above."; }
    jar=$(find "$half/jars" -name '*.jar')
    sha256sum --check --quiet - <<<"$sum  $jar" || die "$artifact is not what hack/lib/documents.sh pins."
    unzip -q -o "$jar" 'test-documents/*' -d "$half/tika" || die "$artifact could not be unpacked."
    rm "$jar"
  done
  rm -rf "$half/maven" "$half/jars" "$half/log"
  mv "$half/tika/test-documents" "$half/documents"
  rmdir "$half/tika"
  chmod -R u=rwX,go=rX "$half"
  mv -T "$half" "$folder"
}
