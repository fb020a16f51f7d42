# PostgreSQL in the local cluster, for Slipway's own data: hack/images makes its image, config/local says how it runs.
# shellcheck shell=bash

DATABASE_SECRET=slipway-database

# The password lies beside the data that it opens: a copy of one is a copy of both. Applied again, nothing changes but
# what a new image brings. The data's folder belongs to the user of the image.
postgres_up() {
  local folder=$STATE/postgres
  (umask 077 && mkdir -p "$folder")
  command install -d -o 65532 -g 65532 -m 700 "$folder/volume"
  [[ -s $folder/password ]] || (umask 077 && openssl rand -hex 24 | tr -d '\n' >"$folder/password.new" && mv "$folder/password.new" "$folder/password")
  kubectl create namespace slipway-system --dry-run=client -o yaml | kubectl apply --server-side -f - >/dev/null
  postgres_secrets "$folder/password" | kubectl apply --server-side -f - >/dev/null
  postgres_manifest "$folder/volume" | kubectl apply --server-side -f - >/dev/null
  kubectl --namespace slipway-system rollout status statefulset/postgres --timeout=120s >/dev/null || {
    kubectl --namespace slipway-system logs statefulset/postgres --tail 10 >&2 || true
    kubectl --namespace slipway-system describe pods --selector app.kubernetes.io/name=postgres | tail -n 15 >&2
    die "PostgreSQL did not become ready in the cluster; its log and events are above."
  }
}

# What Helm must be told.
postgres_settings() { printf '%s\n' --set "database.existingSecret=$DATABASE_SECRET"; }

# The password goes through a pipe: arguments of processes can be read by everyone on the machine.
postgres_secrets() {
  jq -cR --arg name "$DATABASE_SECRET" '
    def secret(name; data): {apiVersion: "v1", kind: "Secret", metadata: {name: name, namespace: "slipway-system"}, stringData: data};
    {apiVersion: "v1", kind: "List", items: [
      secret("postgres"; {password: .}),
      secret($name; {url: "postgres://postgres:\(.)@postgres:5432/postgres?sslmode=disable"})
    ]}' "$1"
}

postgres_manifest() {
  local image folder line
  image=$(image_name slipway-postgres)
  folder=$(jq -n --arg folder "$1" '$folder')
  while IFS= read -r line; do
    line=${line/IMAGE/"$image"}
    printf '%s\n' "${line/FOLDER/"$folder"}"
  done <"$ROOT/config/local/postgres.yaml"
}
