{{/* Labels of everything that belongs to a component; call with (dict "component" "router" "root" $). */}}
{{- define "sunfleet.labels" -}}
app.kubernetes.io/name: sunfleet-{{ .component }}
app.kubernetes.io/component: {{ .component }}
{{ include "sunfleet.shared" .root }}
{{- end }}

{{/* Labels of everything. */}}
{{- define "sunfleet.shared" -}}
app.kubernetes.io/part-of: sunfleet
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image by its short name; call with (dict "name" "router" "root" $). A digest wins over a tag. */}}
{{- define "sunfleet.image" -}}
{{- $images := .root.Values.images -}}
{{- $image := index $images .name -}}
{{- $repository := $image.repository | default (printf "%s/%s" (trimSuffix "/" $images.prefix) .name) -}}
{{- $tag := $image.tag | default $images.tag -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else if $tag -}}
{{ $repository }}:{{ $tag }}
{{- else -}}
{{ $repository }}
{{- end -}}
{{- end }}

{{/* Who may read metrics, as NetworkPolicy peers. */}}
{{- define "sunfleet.prometheus" -}}
{{- with .Values.monitoring.from -}}
{{ toYaml . }}
{{- else -}}
- namespaceSelector: {}
  podSelector:
    matchLabels:
      app.kubernetes.io/name: prometheus
{{- end -}}
{{- end }}

{{/* What both Deployments' pods have in common; call with (dict "component" "router" "values" .Values.router "root" $). */}}
{{- define "sunfleet.pod" -}}
serviceAccountName: sunfleet-{{ .component }}
automountServiceAccountToken: true
enableServiceLinks: false # a Service's variables (SUNFLEET_ROUTER_PORT) would pass for settings
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .root.Values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Metadata of pods; called as sunfleet.pod. */}}
{{- define "sunfleet.podMetadata" -}}
labels:
  app.kubernetes.io/name: sunfleet-{{ .component }}
  app.kubernetes.io/component: {{ .component }}
  app.kubernetes.io/part-of: sunfleet
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: "9090"
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Security context of both containers. */}}
{{- define "sunfleet.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Binds a ClusterRole: everywhere, or in each namespace that is served; call with (dict "component" "router" "root" $). */}}
{{- define "sunfleet.binding" -}}
{{- $component := .component -}}
{{- $root := .root -}}
{{- range ($root.Values.namespaces | default (list "")) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if . }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  name: sunfleet-{{ $component }}
  {{- if . }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "sunfleet.labels" (dict "component" $component "root" $root) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: sunfleet-{{ $component }}
subjects:
- kind: ServiceAccount
  name: sunfleet-{{ $component }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}
{{- end }}

{{/* An object of manifests/components as part of this release; call with (dict "text" YAML "labels" .Values.monitoring.labels "root" $). */}}
{{- define "sunfleet.monitoring" -}}
{{- $object := fromYaml .text -}}
{{- $_ := set $object.metadata "namespace" .root.Release.Namespace -}}
{{- $_ := set $object.metadata "labels" (merge (include "sunfleet.shared" .root | fromYaml) (.labels | default dict)) -}}
{{- $namespaces := .root.Values.namespaces -}}
{{- if and $namespaces (dig "spec" "namespaceSelector" "any" false $object) -}}
{{- $_ := set $object.spec "namespaceSelector" (dict "matchNames" $namespaces) -}}
{{- end -}}
{{ toYaml $object }}
{{- end }}
