# A bill of materials (CycloneDX 1.6) of one image. Nothing in it tells when or where it was made, so that the same
# content has the same bill.
#   $meta    what `cargo metadata` says, in a list     $crates     names and versions, "NAME VERSION" a line
#   $locked  "NAME VERSION SHA256" a line              $others     components that are no crates, one object a line
def purl: "pkg:cargo/\(.name)@\(.version | @uri)";

# Old manifests separate alternatives by a slash.
def licence: if . == null then {} else {licenses: [{expression: gsub("(?<! ) ?/ ?"; " OR ")}]} end;

($crates | split("\n") | map(select(. != "") | {(.): true}) | add // {}) as $wanted
| ($locked | split("\n") | map(select(. != "") | split(" ") | {("\(.[0]) \(.[1])"): .[2]}) | add // {}) as $sums
| ($meta[0].packages // [] | map(select($wanted["\(.name) \(.version)"]))) as $packages
| ($packages | map({(.id): purl}) | add // {}) as $named
| ([$wanted | keys[]] - [$packages[] | "\(.name) \(.version)"]) as $unknown
| if $unknown != [] then error("cargo metadata does not know of \($unknown)") else . end
| ([$others | split("\n")[] | select(. != "") | fromjson] | unique_by(."bom-ref")) as $more
| {
    "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: {component: {type: "container", "bom-ref": $image, name: $image, version: $version}},
    components: ([$packages[] | {
        type: "library", "bom-ref": purl, name, version, purl: purl,
      } + (.license | licence)
        + ($sums["\(.name) \(.version)"] // null | if . == null then {} else {hashes: [{alg: "SHA-256", content: .}]} end)
      ] + $more | sort_by(."bom-ref")),
    dependencies: (
      [{ref: $image, dependsOn: ([$packages[] | select(.name == $program) | purl] + [$more[]."bom-ref"] | sort)}]
      + ([($meta[0].resolve.nodes // [])[] | select($named[.id])
          | {ref: $named[.id], dependsOn: ([.deps[] | select(any(.dep_kinds[]; .kind == null)) | $named[.pkg] // empty] | unique)}]
        | sort_by(.ref)))
  }
