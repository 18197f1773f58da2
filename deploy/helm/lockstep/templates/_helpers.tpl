{{/* Names are cut so that what is appended to them fits a label's 63 characters. */}}
{{- define "lockstep.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* What a component's objects are found by. Argument: dict "root" $ "component" NAME. */}}
{{- define "lockstep.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "lockstep.labels" -}}
{{ include "lockstep.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "lockstep.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "lockstep.address" -}}
{{ include "lockstep.name" . }}.{{ .Release.Namespace }}.svc:7070
{{- end }}

{{/* What every pod of the chart is: no root, no token, no writable files but its volumes. */}}
{{- define "lockstep.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lockstep.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Variables that all programs read; the files are those of lockstep.tlsVolume. */}}
{{- define "lockstep.tlsEnv" -}}
{{- if .Values.tls.enabled -}}
- {name: LOCKSTEP_TLS_CERTIFICATE, value: /etc/lockstep/tls/tls.crt}
- {name: LOCKSTEP_TLS_KEY, value: /etc/lockstep/tls/tls.key}
- {name: LOCKSTEP_TLS_AUTHORITIES, value: /etc/lockstep/tls/ca.crt}
{{- end }}
{{- end }}

{{- define "lockstep.tlsMount" -}}
{{- if .Values.tls.enabled -}}
- {name: tls, mountPath: /etc/lockstep/tls, readOnly: true}
{{- end }}
{{- end }}

{{/* Argument: dict "root" $ "secret" NAME. */}}
{{- define "lockstep.tlsVolume" -}}
{{- if .root.Values.tls.enabled -}}
- name: tls
  secret: {secretName: {{ .secret }}, defaultMode: 288}
{{- end }}
{{- end }}

{{/* Where the scheduler may put pods. Argument: coordinator's or workers' values. */}}
{{- define "lockstep.placement" -}}
{{- with .nodeSelector -}}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Liveness and readiness by HTTP; with TLS these two paths take no certificate. */}}
{{- define "lockstep.probes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" .Values.tls.enabled -}}
livenessProbe:
  httpGet: {path: /livez, port: http, scheme: {{ $scheme }}}
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
