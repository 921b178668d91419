{{- define "muster.labels" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/part-of: muster
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "muster.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The names of schedulers that are served, as JSON: the values', and with dropIn those of kube-batch and Volcano. */}}
{{- define "muster.schedulerNames" -}}
{{- $names := .Values.schedulerNames -}}
{{- if .Values.dropIn -}}
{{- $names = concat $names (list "kube-batch" "volcano") | uniq -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/* Not empty where kube-batch's API groups are served. */}}
{{- define "muster.legacyApis" -}}
{{- if or .Values.legacyApis .Values.dropIn }}true{{ end -}}
{{- end }}

{{/* Arguments that both programs take. */}}
{{- define "muster.arguments" -}}
{{- range fromJsonArray (include "muster.schedulerNames" .) }}
- --scheduler-name={{ . }}
{{- end }}
{{- if include "muster.legacyApis" . }}
- --legacy-apis
{{- end }}
{{- if .Values.debugState }}
- --debug-state
{{- end }}
- --log-level={{ .Values.logs.level }}
- --log-format={{ .Values.logs.format }}
{{- end }}

{{/* What all pods of ours have in common; given the values, and whose pod it is. */}}
{{- define "muster.pod" -}}
{{- $values := .root.Values -}}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- if .hostNetwork }}
hostNetwork: true
# Names of the cluster are still found.
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "muster.container" -}}
image: {{ include "muster.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  # A kubelet takes the user alone from the image; without this, processes run in group 0.
  runAsGroup: 65532
{{- end }}

{{/* The one place that programs may write to. */}}
{{- define "muster.tmp.mount" -}}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "muster.tmp.volume" -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end }}

{{/* Alive: the loop turns. Ready: as the program says of itself. A start may take a minute, and two more until there is a certificate. */}}
{{- define "muster.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: probes}
  periodSeconds: 2
  failureThreshold: 90
livenessProbe:
  httpGet: {path: /healthz, port: probes}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: probes}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{/* The labels and annotations of all pods that are the values'; given the values. */}}
{{- define "muster.podLabels" -}}
{{- with .podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "muster.podAnnotations" -}}
{{- with .podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What a program is given besides; given its values. */}}
{{- define "muster.extraArgs" -}}
{{- range .extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "muster.extraEnv" -}}
{{- with .extraEnv }}
env: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* Replicas apart from each other: never two on a node while another is free, and spread over zones. */}}
{{- define "muster.spread" -}}
affinity:
{{- with .root.Values.affinity }}
{{- toYaml . | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "muster.selector" .component | nindent 12 }}
{{- end }}
topologySpreadConstraints:
{{- with .root.Values.topologySpreadConstraints }}
{{- toYaml . | nindent 0 }}
{{- else }}
- topologyKey: topology.kubernetes.io/zone
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels: {{- include "muster.selector" .component | nindent 6 }}
{{- end }}
{{- end }}

{{- define "muster.secret" -}}
{{- if eq .Values.certificates.mode "files" }}{{ .Values.certificates.secretName }}
{{- else if eq .Values.certificates.mode "cert-manager" }}muster-webhook-certificate
{{- else }}muster-webhook-tls
{{- end -}}
{{- end }}

{{/* An amount as a number. */}}
{{- define "muster.number" -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) -}}
{{- mulf (float64 (trimSuffix $unit (toString .))) (get $factors $unit) -}}
{{- end }}

{{- /* The scheduler's actions: on an upgrade those of the installation, unless the values are other than the chart's own. */}}
{{- define "muster.actions" -}}
{{- $wanted := join ", " .Values.scheduler.actions -}}
{{- $installed := lookup "v1" "ConfigMap" .Release.Namespace "muster-scheduler" -}}
{{- if and .Release.IsUpgrade .Values.scheduler.keepActions $installed (eq $wanted "enqueue, allocate, reclaim, backfill") -}}
{{- (fromYaml (index $installed.data "scheduler.yaml")).actions | default $wanted -}}
{{- else -}}
{{- $wanted -}}
{{- end -}}
{{- end }}

{{/* Whether metrics have a port of their own, and how they are served there; given the port. */}}
{{- define "muster.metrics" -}}
{{- $monitors := or .Values.monitoring.podMonitor.enabled .Values.monitoring.serviceMonitor.enabled -}}
{{- if or .Values.monitoring.from (and $monitors .Values.monitoring.tokenReview) -}}true{{- end -}}
{{- end }}

{{- define "muster.metrics.arguments" -}}
{{- if include "muster.metrics" .root }}
- --metrics-port={{ .port }}
{{- if .root.Values.monitoring.tokenReview }}
- --metrics-tls=/certificates
{{- end }}
{{- end }}
{{- end }}

{{/* How a monitor of the Prometheus operator scrapes; given the monitor's values. */}}
{{- define "muster.scraped" -}}
{{- if .root.Values.monitoring.tokenReview }}
scheme: https
tlsConfig:
  serverName: muster-webhook.{{ .root.Release.Namespace }}.svc
  ca:
    secret: {name: {{ include "muster.secret" .root }}, key: ca.crt}
# A Secret with a token of an account that is bound to ClusterRole muster-metrics-reader: docs/operations.md.
authorization:
  credentials: {{- toYaml .monitor.credentials | nindent 4 }}
{{- end }}
{{- end }}

{{/*
Whether a webhook configuration is of a release that began with 0.1.0. The chart of that version had paths, and Helm would take
away from the live objects what the last manifest had and this one hasn't; so such a release goes on with what it looks up.
*/}}
{{- define "muster.hadPaths" -}}
{{- $found := lookup "admissionregistration.k8s.io/v1" . "" "muster" | default dict -}}
{{- if and $found (not (dig "metadata" "annotations" "muster.sh/paths" "" $found)) }}yes{{ end -}}
{{- end }}

{{/* The path that a webhook of such a release has; of others nothing, since `muster certs run` writes it. */}}
{{- define "muster.path" -}}
{{- $name := index . 1 -}}
{{- if include "muster.hadPaths" (index . 0) -}}
{{- range (lookup "admissionregistration.k8s.io/v1" (index . 0) "" "muster").webhooks -}}
{{- if eq .name $name }}{{ dig "clientConfig" "service" "path" "" . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "muster.webhookAnnotations" -}}
{{- $root := index . 0 -}}
{{- if eq $root.Values.certificates.mode "cert-manager" }}
cert-manager.io/inject-ca-from: {{ $root.Release.Namespace }}/muster-webhook
{{- end }}
{{- if not (include "muster.hadPaths" (index . 1)) }}
muster.sh/paths: muster-certs
{{- end }}
{{- end }}
