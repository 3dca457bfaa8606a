{{- define "bothy.labels" -}}
app.kubernetes.io/name: bothy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bothy.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-bothy
{{- end }}

{{- /* The settings of every host; its start fills in what is its own. */ -}}
{{- define "bothy.settings" -}}
{{- $own := dict
  "home" .Values.state.hostPath
  "listen" (printf "0.0.0.0:%d" (int .Values.api.port))
  "shutdown_seconds" (int .Values.shutdownSeconds)
  "cluster" (dict
    "name" "@NAME@"
    "listen" (printf "@ADDRESS@:%d" (int .Values.cluster.port))
    "lease_seconds" (int .Values.cluster.leaseSeconds)
    "labels" .Values.cluster.labels)
-}}
{{- if .Values.api.tlsSecret }}
{{- $_ := set $own "tls" (dict "cert_file" "/etc/bothy/tls/tls.crt" "key_file" "/etc/bothy/tls/tls.key") }}
{{- else }}
{{- $_ := set $own "insecure" true }}
{{- end }}
{{- if .Values.api.linkDomain }}
{{- $_ := set $own "link_domain" .Values.api.linkDomain }}
{{- end }}
{{- if .Values.metrics.enabled }}
{{- $_ := set $own "metrics_listen" (printf "@ADDRESS@:%d" (int .Values.metrics.port)) }}
{{- end }}
{{- toYaml (mergeOverwrite (deepCopy .Values.settings) $own) }}
{{- end }}
