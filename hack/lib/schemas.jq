# From the API server's OpenAPI document to schemas as kubeconform names them: no field that is not
# declared, and the two types whose JSON is not the declared string.
def kubeconform_name:
  (.kind | ascii_downcase) + (if .group == "" then "" else "-" + (.group | split(".")[0]) end) + "-" + .version + ".json";

.definitions
| with_entries(
    if .key == "io.k8s.apimachinery.pkg.util.intstr.IntOrString" or .key == "io.k8s.apimachinery.pkg.api.resource.Quantity" then
      .value = {oneOf: [{type: "string"}, {type: "number"}]}
    elif .value.properties and (.value.additionalProperties | not) and (.value["x-kubernetes-preserve-unknown-fields"] | not) then
      .value.additionalProperties = false
    else . end)
| {
    kinds: [
      to_entries[] | .key as $definition
      | (.value["x-kubernetes-group-version-kind"] // [])
      | select(length == 1) | {definition: $definition, file: (.[0] | kubeconform_name)}
    ],
    definitions: (walk(
      if type == "object" then
        (if (.["$ref"] | type) == "string" then .["$ref"] |= sub("^#/definitions/"; "definitions.json#/definitions/") else . end)
        | (if .format == "int-or-string" then del(.type) else . end)
        | (if (.properties | type) == "object" or has("format") then del(.format) else . end)
      else . end))
  }
