{{- define "whimbrel.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "whimbrel.labels" -}}
app.kubernetes.io/name: whimbrel
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "whimbrel.selector" -}}
app.kubernetes.io/name: whimbrel
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "whimbrel.configuration" -}}
{{- $own := dict
  "store" (dict "path" "/var/lib/whimbrel/whimbrel.db" "key_file" "/var/lib/whimbrel/whimbrel.key")
  "unit" (dict "enabled" true "directory" "/run/whimbrel")
  "api" (dict "address" (printf "127.0.0.1:%d" (int .Values.api.port))) -}}
{{- if .Values.otlp.endpoint -}}
{{- $_ := set $own "otlp" (dict "endpoint" .Values.otlp.endpoint) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .Values.configuration) $own | toYaml -}}
{{- end -}}
