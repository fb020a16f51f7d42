{{- /* The Deployments of the chart: one binary in one shape, with the roles, the account and the settings of each. */ -}}
{{- define "slipway.deployment" }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $.name }}
  namespace: {{ $.root.Release.Namespace }}
  labels:
    {{- $.labels | nindent 4 }}
spec:
  replicas: {{ $.values.replicas }}
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- $.selector | nindent 6 }}
  template:
    {{- include "slipway.pod" $ | nindent 4 }}
{{- end }}

{{- /* Their pods, and the StatefulSet's. */ -}}
{{- define "slipway.pod" -}}
{{- $caBundle := or $.root.Values.caBundle.configMap $.root.Values.caBundle.secret }}
{{- if and $.root.Values.caBundle.configMap $.root.Values.caBundle.secret }}
{{- fail "caBundle: name a configMap or a secret, not both" }}
{{- end -}}
metadata:
  labels:
    {{- with $.values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- $.labels | nindent 4 }}
  {{- with $.values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ $.account }}
  terminationGracePeriodSeconds: {{ $.values.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "slipway.podSecurityContext" $.root | nindent 4 }}
    {{- with $.fsGroup }}
    fsGroup: {{ . }}
    fsGroupChangePolicy: OnRootMismatch
    {{- end }}
  {{- with $.root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $.values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if hasKey $.values "topologySpreadConstraints" }}
  topologySpreadConstraints:
    {{- with $.values.topologySpreadConstraints }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- $.selector | nindent 10 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $.component }}
      image: {{ include "slipway.image" (list $.root (default $.root.Values.manager.image $.image)) }}
      imagePullPolicy: {{ $.root.Values.manager.image.pullPolicy }}
      env:
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        - name: SLIPWAY_PLATFORM_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        - name: SLIPWAY_SERVICE_ACCOUNT
          valueFrom:
            fieldRef:
              fieldPath: spec.serviceAccountName
        - name: SLIPWAY_LISTEN
          value: "[::]:8080"
        - name: SLIPWAY_LOG
          value: {{ $.root.Values.manager.log.level | quote }}
        - name: SLIPWAY_LOG_FORMAT
          value: {{ $.root.Values.manager.log.format }}
        - name: SLIPWAY_ROLES
          value: {{ $.roles }}
        - name: SLIPWAY_CLUSTER_DOMAIN
          value: {{ $.root.Values.manager.clusterDomain | quote }}
        {{- with $.root.Values.manager.watchNamespaces }}
        - name: SLIPWAY_WATCH_NAMESPACES
          value: {{ join "," . | quote }}
        {{- end }}
        {{- $.env | nindent 8 }}
        {{- with $.root.Values.proxy.https }}
        - name: HTTPS_PROXY
          value: {{ . | quote }}
        - name: NO_PROXY
          value: {{ compact (list "$(KUBERNETES_SERVICE_HOST)" "localhost" "127.0.0.1" ".svc" (printf ".%s" $.root.Values.manager.clusterDomain) $.root.Values.proxy.noProxy) | join "," | quote }}
        {{- end }}
        {{- if $caBundle }}
        - name: SSL_CERT_FILE
          value: /etc/slipway/ca/ca.crt
        {{- end }}
        {{- with $.values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: 8080
        {{- with $.port }}
        - name: api
          containerPort: {{ . }}
        {{- end }}
      livenessProbe:
        httpGet:
          path: /healthz
          port: http
        periodSeconds: 10
        timeoutSeconds: 3
      readinessProbe:
        httpGet:
          path: /readyz
          port: http
        periodSeconds: 5
        timeoutSeconds: 3
      {{- with $.lingers }}
      # Requests still come until all who send them have heard that this pod goes.
      lifecycle:
        preStop:
          sleep:
            seconds: {{ . }}
      {{- end }}
      resources:
        {{- toYaml $.values.resources | nindent 8 }}
      securityContext:
        {{- include "slipway.containerSecurityContext" $.root | nindent 8 }}
      {{- if or $caBundle $.scratch $.mounts }}
      volumeMounts:
        {{- if $.scratch }}
        - name: scratch
          mountPath: /tmp
        {{- end }}
        {{- with $.mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- if $caBundle }}
        - name: ca-bundle
          mountPath: /etc/slipway/ca
          readOnly: true
        {{- end }}
      {{- end }}
  {{- if or $caBundle $.scratch $.volumes }}
  volumes:
    {{- with $.scratch }}
    - name: scratch
      emptyDir:
        {{- toYaml . | nindent 8 }}
    {{- end }}
    {{- with $.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if $caBundle }}
    - name: ca-bundle
      {{- if $.root.Values.caBundle.configMap }}
      configMap:
        name: {{ $.root.Values.caBundle.configMap }}
      {{- else }}
      secret:
        secretName: {{ $.root.Values.caBundle.secret }}
      {{- end }}
        items:
          - key: {{ $.root.Values.caBundle.key }}
            path: ca.crt
    {{- end }}
  {{- end }}
{{- end }}
