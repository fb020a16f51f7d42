{{/* What names begin with: the release's name, with the chart's unless it is in there already. */}}
{{- define "slipway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "slipway.manager" -}}
{{- include "slipway.fullname" . }}-manager
{{- end }}

{{- define "slipway.rest" -}}
{{- include "slipway.fullname" . }}-rest
{{- end }}

{{/* Where agents reach the API: the Service of REST, unless the values say otherwise. */}}
{{- define "slipway.platformUrl" -}}
{{- if .Values.agents.platformUrl -}}
{{- .Values.agents.platformUrl -}}
{{- else if .Values.rest.enabled -}}
http://{{ include "slipway.rest" . }}.{{ .Release.Namespace }}.svc.{{ .Values.manager.clusterDomain }}
{{- end -}}
{{- end }}

{{- define "slipway.state" -}}
{{- include "slipway.fullname" . }}-state
{{- end }}

{{- define "slipway.serviceAccount" -}}
{{- default (include "slipway.manager" .) .Values.manager.serviceAccount.name -}}
{{- end }}

{{- define "slipway.restAccount" -}}
{{- default (include "slipway.rest" .) .Values.rest.serviceAccount.name -}}
{{- end }}

{{- define "slipway.stateAccount" -}}
{{- default (include "slipway.state" .) .Values.state.serviceAccount.name -}}
{{- end }}

{{/* The accounts as the API server names them. */}}
{{- define "slipway.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "slipway.serviceAccount" . }}
{{- end }}

{{- define "slipway.restUsername" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "slipway.restAccount" . }}
{{- end }}

{{- define "slipway.stateUsername" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "slipway.stateAccount" . }}
{{- end }}

{{- define "slipway.labels" -}}
{{ include "slipway.commonLabels" . }}
app.kubernetes.io/component: manager
{{- end }}

{{- define "slipway.restLabels" -}}
{{ include "slipway.commonLabels" . }}
app.kubernetes.io/component: rest
{{- end }}

{{- define "slipway.stateLabels" -}}
{{ include "slipway.commonLabels" . }}
app.kubernetes.io/component: state
{{- end }}

{{- define "slipway.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: slipway
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Immutable in a Deployment or StatefulSet: never add to these. */}}
{{- define "slipway.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: manager
{{- end }}

{{- define "slipway.restSelectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: rest
{{- end }}

{{- define "slipway.stateSelectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: state
{{- end }}

{{/* include "slipway.image" (list $ .Values.manager.image) */}}
{{- define "slipway.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end }}

{{/* The full name of a registry or repository: org/name is one of Docker Hub's. */}}
{{- define "slipway.imagePrefix" -}}
{{- $name := trimSuffix "/" . -}}
{{- if or (eq $name "index.docker.io") (hasPrefix "index.docker.io/" $name) -}}
{{- trimPrefix "index." $name -}}
{{- else if regexMatch "[.:A-Z]|^localhost$" (first (splitList "/" $name)) -}}
{{- $name -}}
{{- else if contains "/" $name -}}
docker.io/{{ $name }}
{{- else -}}
{{- fail (printf "policies.allowedImagePrefixes: %s is neither a registry (registry.example.com) nor a repository (registry.example.com/agents); of Docker Hub write docker.io/%s for all of an organization, docker.io/library/%s for one image" . . .) -}}
{{- end -}}
{{- end }}

{{/* CEL variables that tell which object is written: a Namespace is in itself, other objects of the cluster are in none. */}}
{{- define "slipway.writtenTo" -}}
- name: within
  expression: "has(request.namespace) ? request.namespace : ''"
- name: name
  expression: "has(request.name) ? request.name : ''"
- name: object
  expression: >-
    request.resource.resource + ' ' + (variables.within in ['', variables.name] ? '' : variables.within + '/') + variables.name
{{- end }}

{{/*
CEL variables that find in variables.images those that come from elsewhere, by their full names. A name is read as the
node reads it: without digest and tag, and without a registry it is one of Docker Hub's. It must be written as names are,
so that "registry.example.com/agents/../others" is nobody's.
*/}}
{{- define "slipway.foreignImages" -}}
- name: names
  expression: >-
    variables.images.map(i, i.matches('^[^@]*@[A-Za-z0-9+._-]+:[0-9a-fA-F]{32,}$') ? i.split('@')[0] : i)
    .map(i, i.lastIndexOf(':') > i.lastIndexOf('/') ? i.substring(0, i.lastIndexOf(':')) : i)
    .map(i, i.contains('/') && i.split('/')[0].matches('[.:A-Z]|^localhost$') ? i : 'docker.io/' + i)
    .map(i, i.startsWith('index.docker.io/') ? i.substring(6) : i)
    .map(i, i.startsWith('docker.io/') && i.lastIndexOf('/') == 9 ? 'docker.io/library/' + i.substring(10) : i)
# A prefix ends where a part of the name ends: "registry.example.com/agents" does not allow "registry.example.com/agents-of-others".
- name: foreign
  expression: >-
    variables.names.filter(n, !n.matches('^[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)+$') ||
    !{{ toJson . }}.exists(p, n == p || n.startsWith(p + '/')))
{{- end }}

{{/* Fits the restricted Pod Security Standard; the user is the image's. */}}
{{- define "slipway.podSecurityContext" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "slipway.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The names of the definitions in crds/, as a list in JSON. */}}
{{- define "slipway.crdNames" -}}
{{- $names := list -}}
{{- range $path, $_ := .Files.Glob "crds/*.yaml" -}}
{{- $names = append $names ($.Files.Get $path | fromYaml).metadata.name -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/*
The kinds of the group that lie in namespaces, as items of a list in YAML: "slipway.kinds" of what follows each name ("" or "/status"),
and of the kinds that are left out. What REST and the history may do with a kind is decided for each, in rest-rbac.yaml and state-rbac.yaml.
*/}}
{{- define "slipway.kinds" -}}
{{- $kinds := list -}}
{{- range list "agents" "agentreleases" "tools" "knowledgebases" "ingestions" "integrations" "skills" "datasets" "evaluationruns" "guardrailpolicies" -}}
{{- if not (has . (rest $)) -}}
{{- $kinds = append $kinds (printf "%s%s" . (first $)) -}}
{{- end -}}
{{- end -}}
{{- join ", " $kinds -}}
{{- end }}

{{/* "true" when a definition in crds/ is missing from the cluster or differs; always when there is no cluster to ask. */}}
{{- define "slipway.crdsDiffer" -}}
{{- range $path, $_ := .Files.Glob "crds/*.yaml" -}}
{{- $crd := $.Files.Get $path | fromYaml -}}
{{- $live := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $crd.metadata.name -}}
{{- if or (not $live) (ne (toJson $crd.spec.versions) (toJson (dig "spec" "versions" list $live))) -}}
true
{{- end -}}
{{- end -}}
{{- end }}

{{/* What agents' podTemplate may have in every team: what the list says, and what all agents get anyway. As JSON. */}}
{{- define "slipway.allowedPodSettings" -}}
{{- $allowed := .Values.agents.allowedPodSettings -}}
{{- $given := .Values.agents.defaults.podTemplate | default dict -}}
{{- $keys := list -}}
{{- range $given.tolerations -}}
{{- $keys = append $keys (default "*" .key) -}}
{{- end -}}
{{- dict
  "priorityClassNames" (concat $allowed.priorityClassNames (compact (list $given.priorityClassName)) | uniq)
  "runtimeClassNames" (concat $allowed.runtimeClassNames (compact (list $given.runtimeClassName)) | uniq)
  "annotations" (concat $allowed.annotations (keys ($given.annotations | default dict) | sortAlpha) | uniq)
  "labels" (concat $allowed.labels (keys ($given.labels | default dict) | sortAlpha) | uniq)
  "tolerations" (concat $allowed.tolerations $keys | uniq)
  | toJson -}}
{{- end }}

{{/*
CEL variables that find what pods are to have, did not have before, and may not have by the lists of their namespace. They are
called by the fields of a podTemplate; `now` and `before` are pods' specs, `marksNow` and `marksBefore` pods' metadata. In a
list stand names, all keys of a domain (example.com/*), and * for everything.
*/}}
{{- define "slipway.foreignPodSettings" -}}
- name: lists
  expression: "has(namespaceObject.metadata.annotations) ? namespaceObject.metadata.annotations : {}"
{{- range $list, $chart := include "slipway.allowedPodSettings" . | fromJson }}
- name: allowed{{ title $list }}
  expression: >-
    'allowed.agents.slipway.dev/{{ $list }}' in variables.lists ? variables.lists['allowed.agents.slipway.dev/{{ $list }}'].split('\n') : {{ toJson $chart }}
{{- end }}
{{- range $field, $list := dict "priorityClassName" "priorityClassNames" "runtimeClassName" "runtimeClassNames" }}
- name: {{ $field }}
  expression: >-
    [variables.now].filter(p, has(p.{{ $field }}) && p.{{ $field }} != null &&
    !(has(variables.before.{{ $field }}) && variables.before.{{ $field }} == p.{{ $field }})).map(p, string(p.{{ $field }}))
    .filter(n, !variables.allowed{{ title $list }}.exists(a, a == n || a == '*'))
{{- end }}
{{- range $field, $ours := dict "annotations" "^agents[.]slipway[.]dev/|^kubectl[.]kubernetes[.]io/restartedAt$" "labels" "^(agents[.]slipway[.]dev|app[.]kubernetes[.]io)/|^[^/]*$" }}
- name: {{ $field }}
  expression: >-
    [variables.marksNow].filter(m, has(m.{{ $field }}) && m.{{ $field }} != null)
    .map(m, m.{{ $field }}.filter(k, !k.matches('{{ $ours }}') &&
    !(has(variables.marksBefore.{{ $field }}) && variables.marksBefore.{{ $field }} != null && k in variables.marksBefore.{{ $field }} && variables.marksBefore.{{ $field }}[k] == m.{{ $field }}[k]) &&
    !variables.allowed{{ title $field }}.exists(a, a == k || a == '*' || (a.endsWith('/*') && k.startsWith(a.substring(0, a.size() - 1)))))
    .join(', ')).filter(m, m != '')
{{- end }}
# One without a key is for every taint. How long a pod stays on a node that is lost is its own business.
- name: tolerations
  expression: >-
    [variables.now].filter(p, has(p.tolerations) && p.tolerations != null)
    .map(p, p.tolerations.filter(t, !(has(variables.before.tolerations) && variables.before.tolerations != null && t in variables.before.tolerations))
    .map(t, has(t.key) && t.key != null ? string(t.key) : '')
    .filter(k, !(k in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable']) &&
    !variables.allowedTolerations.exists(a, a != '' && (a == k || a == '*' || (a.endsWith('/*') && k.startsWith(a.substring(0, a.size() - 1))))))
    .map(k, k == '' ? 'all taints' : k).join(', ')).filter(t, t != '')
{{- end }}

{{/* And what is said of it: "slipway.foreignPodSettingsRefused" of the path of a podTemplate's fields. */}}
{{- define "slipway.foreignPodSettingsRefused" -}}
{{- range list "priorityClassName" "runtimeClassName" "annotations" "labels" "tolerations" }}
- expression: variables.{{ . }}.size() == 0
  # Where what was asked for has a line break, which no message may have.
  message: "{{ $ }}{{ . }}: agents of this team may not have that; a platform admin allows it in the Team or, for all teams, in the chart's values"
  messageExpression: >-
    "{{ $ }}{{ . }}: agents of this team may not have " + variables.{{ . }}.join(', ') +
    "; a platform admin allows it in the Team or, for all teams, in the chart's values"
{{- end }}
{{- end }}

{{/* CEL that says whether a field of a spec is there: "slipway.given" of the object and the field's path in its spec. */}}
{{- define "slipway.given" -}}
{{- $path := printf "%s.spec" (first .) -}}
{{- $given := list -}}
{{- range rest . -}}
{{- $path = printf "%s.%s" $path . -}}
{{- $given = append $given (printf "has(%s) && dyn(%s) != null" $path $path) -}}
{{- end -}}
{{- join " && " $given -}}
{{- end }}

{{/* Variables of a policy: "slipway.unchangedMetadata" of fields of the metadata, each of which says whether an update leaves it as it was. */}}
{{- define "slipway.unchangedMetadata" -}}
{{- range . }}
- name: {{ . }}
  expression: >-
    request.operation == 'UPDATE' && has(object.metadata.{{ . }}) == has(oldObject.metadata.{{ . }}) &&
    (!has(object.metadata.{{ . }}) || object.metadata.{{ . }} == oldObject.metadata.{{ . }})
{{- end }}
{{- end }}

{{/* Where MLflow is, and the login there. */}}
{{- define "slipway.mlflowEnv" }}
{{- with .Values.telemetry.mlflowUri }}
- name: SLIPWAY_MLFLOW_URI
  value: {{ . | quote }}
{{- end }}
{{- with .Values.telemetry.mlflowSecret }}
{{- range $name := list "MLFLOW_TRACKING_USERNAME" "MLFLOW_TRACKING_PASSWORD" "MLFLOW_TRACKING_TOKEN" }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $.Values.telemetry.mlflowSecret }}
      key: {{ $name }}
      optional: true
{{- end }}
{{- end }}
{{- end }}
