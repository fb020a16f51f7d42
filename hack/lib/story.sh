# docs/story.md, told on a cluster of its own from a fresh checkout.
# shellcheck shell=bash

# Always the same folder, so that what an interrupted story left is found. It lies outside of this clone: Cargo reads the
# settings of all folders above.
STORY=$CACHE/story/slipway

# story_gone: takes the checkout away, with its cluster.
story_gone() {
  [[ ! -x $STORY/hack/down ]] || "$STORY/hack/down" >/dev/null || die "What an earlier story left could not be taken away." \
    "See $STORY/hack/down."
  rm -rf "${STORY:?}"
}

story_checkout() {
  [[ -z $(git -C "$ROOT" status --porcelain) ]] || say "        what is not committed is no part of it"
  mkdir -p "${STORY%/*}"
  git clone --quiet --no-hardlinks "$ROOT" "$STORY"
}

# story_tell: in the checkout, by what is documented, and then page and test.
story_tell() {
  cd "$STORY" && hack/up && hack/peers && bash -euo pipefail -c 'source hack/lib.sh && source hack/lib/cluster.sh && story_play'
}

# story_play: on the cluster of this clone.
story_play() {
  export KUBECONFIG=$LOCAL_KUBECONFIG PATH=$STATE/bin:$PATH KUBECTL=$STATE/bin/kubectl
  require_go
  step "A GitOps controller, for the story" gitops_build
  step "The story" in_turn cargo test --release --locked --workspace --test story -- --nocapture </dev/null
}
