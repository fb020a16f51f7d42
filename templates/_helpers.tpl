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
