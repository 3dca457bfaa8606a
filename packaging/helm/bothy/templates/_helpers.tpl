{{- define "bothy.labels" -}}
app.kubernetes.io/name: bothy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bothy.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-bothy
{{- end }}

{{- /* The pools of nodes: one without a name, unless there are several. */ -}}
{{- define "bothy.pools" -}}
{{- if .Values.pools }}{{ toJson .Values.pools }}{{ else }}{{ list (dict "nodeSelector" .Values.nodeSelector) | toJson }}{{ end }}
{{- end }}

{{- /* The name of a pool's objects. These take a list of the root and the pool. */ -}}
{{- define "bothy.poolName" -}}
{{ include "bothy.name" (first .) }}{{ with (last .).name }}-{{ . }}{{ end }}
{{- end }}

{{- define "bothy.poolLabels" -}}
{{ include "bothy.labels" (first .) }}
{{- with (last .).name }}
bothy.dev/pool: {{ quote . }}
{{- end }}
{{- end }}

{{- /* The URL of the bucket, with what is known of the storage. */ -}}
{{- define "bothy.blobs" -}}
{{- $query := list }}
{{- range $key, $value := dict "endpoint" .endpoint "region" .region "sse" .sse "kms_key" .kmsKey "path_style" (ternary "true" "" .pathStyle)
    "ca_file" (ternary "/etc/bothy/blobs-ca/ca.crt" "" (ne .caSecret "")) }}
{{- if $value }}
{{- $query = append $query (printf "%s=%s" $key (urlquery $value)) }}
{{- end }}
{{- end }}
{{- .url }}{{ if $query }}?{{ join "&" $query }}{{ end }}
{{- end }}

{{- /* The settings of every host of a pool; its start fills in what is its own. */ -}}
{{- define "bothy.settings" -}}
{{- $pool := last . }}
{{- with first . }}
{{- $own := dict
  "home" .Values.state.hostPath
  "listen" (printf "0.0.0.0:%d" (int .Values.api.port))
  "shutdown_seconds" (int .Values.shutdownSeconds)
  "cluster" (dict
    "name" "@NAME@"
    "listen" (printf "@ADDRESS@:%d" (int .Values.cluster.port))
    "lease_seconds" (int .Values.cluster.leaseSeconds)
    "labels" (mergeOverwrite (deepCopy .Values.cluster.labels) ($pool.labels | default dict)))
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
{{- if .Values.blobs.url }}
{{- $_ := set $own "blobs" (include "bothy.blobs" .Values.blobs) }}
{{- end }}
{{- toYaml (mergeOverwrite (deepCopy .Values.settings) ($pool.settings | default dict) $own) }}
{{- end }}
{{- end }}

{{- /* How a host starts. */ -}}
{{- define "bothy.start" -}}
#!/bin/sh
# Starts the host of this node: its name is the node's, and its key that of all.
set -eu
home={{ .Values.state.hostPath | quote }}
mkdir -p -m 711 "$home"
if [ ! -e "$home/secrets.key" ]; then
  install -m 600 /etc/bothy/key/secrets.key "$home/secrets.key.new"
  mv "$home/secrets.key.new" "$home/secrets.key"
fi
name=$(printf %s "$NODE_NAME" | tr 'A-Z._' 'a-z--' | cut -c1-63 | sed 's/-*$//')
case $NODE_ADDRESS in *:*) NODE_ADDRESS="[$NODE_ADDRESS]" ;; esac
sed -e "s/@NAME@/$name/" -e "s/@ADDRESS@/$NODE_ADDRESS/" /etc/bothy/settings/bothy.yaml >/run/bothy.yaml
mkdir -p -m 700 "$XDG_CONFIG_HOME/bothy"
exec bothy serve --config /run/bothy.yaml --bootstrap-credentials "$XDG_CONFIG_HOME/bothy/credentials.json"
{{- end }}
