{{- define "whimbrel.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "whimbrel.labels" -}}
{{ include "whimbrel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "whimbrel.selector" -}}
app.kubernetes.io/name: whimbrel
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Homes that there may be. */ -}}
{{- define "whimbrel.homes" -}}
{{- $homes := max (int .Values.replicas) (int .Values.homesMax) -}}
{{- if gt $homes 64 }}{{ fail "an AMF set has at most 64 AMFs (TS 23.003 §2.10.1): lower replicas and homesMax" }}{{ end -}}
{{- if and .Values.postgres.url (gt $homes 32) }}{{ fail "with PostgreSQL there are at most 32 homes, one for each sqn_slot: lower replicas and homesMax" }}{{ end -}}
{{- if and .Values.persistence.existingClaim (gt (int .Values.replicas) 1) }}{{ fail "persistence.existingClaim is the volume of one home: set replicas to 1" }}{{ end -}}
{{- $homes -}}
{{- end -}}

{{- /* The variable with the address of a home's Service; kubelet sets it. */ -}}
{{- define "whimbrel.address" -}}
${{ "{" }}{{ printf "%s-%d" (include "whimbrel.name" .root) .home | upper | replace "-" "_" }}_SERVICE_HOST}
{{- end -}}

{{- /* The configuration of a home, without its peers: (dict "root" $ "home" ORDINAL). */ -}}
{{- define "whimbrel.home" -}}
{{- $given := dict
  "amf" (dict "name" (printf "%s-%d" (include "whimbrel.name" .root) .home) "pointer" .home)
  "n2" (dict "addresses" (list "${POD_IP}"))
  "n3" (dict "address" "${POD_IP}")
  "n4" (dict "node_id" "${POD_IP}")
  "store" (dict "keep_ues" "always") -}}
{{- if .root.Values.upfs -}}
{{- $upfs := list -}}
{{- range .root.Values.upfs -}}
{{- $upfs = append $upfs (mergeOverwrite (deepCopy (.entry | default dict)) (dict "name" .name "address" .address)) -}}
{{- end -}}
{{- $_ := set $given "upfs" $upfs -}}
{{- end -}}
{{- $address := ternary "0.0.0.0" "127.0.0.1" .root.Values.serviceMonitor.enabled -}}
{{- $own := dict
  "store" (dict "path" "/var/lib/whimbrel/whimbrel.db" "key_file" "/var/lib/whimbrel/whimbrel.key")
  "unit" (dict "enabled" true "directory" "/run/whimbrel")
  "api" (dict "address" (printf "%s:%d" $address (int .root.Values.api.port))) -}}
{{- if .root.Values.postgres.url -}}
{{- $_ := mergeOverwrite $own.store (dict
  "postgres" .root.Values.postgres.url
  "postgres_password_file" "/run/credentials/postgres/password"
  "postgres_ca_file" "/run/credentials/postgres/ca.pem"
  "sqn_slot" .home) -}}
{{- end -}}
{{- if .root.Values.otlp.endpoint -}}
{{- $_ := set $own "otlp" (dict "endpoint" .root.Values.otlp.endpoint) -}}
{{- end -}}
{{- $home := index .root.Values.homes (toString .home) | default dict -}}
{{- mergeOverwrite $given (deepCopy .root.Values.configuration) (deepCopy $home) $own | toYaml -}}
{{- end -}}

{{- /* The same with its peers. Of two AMFs the one with the lower pointer connects. */ -}}
{{- define "whimbrel.configuration" -}}
{{- $root := .root -}}
{{- $home := .home -}}
{{- $configuration := include "whimbrel.home" . | fromYaml -}}
{{- $homes := int (include "whimbrel.homes" $root) -}}
{{- if gt $homes 1 -}}
{{- $amfs := list -}}
{{- range $peer := until $homes -}}
{{- if ne $peer $home -}}
{{- $of := include "whimbrel.home" (dict "root" $root "home" $peer) | fromYaml -}}
{{- $amf := dict "name" $of.amf.name "pointer" $of.amf.pointer "tacs" $of.tacs "replicas" (int $root.Values.peerReplicas) -}}
{{- range $key := list "region" "set" -}}
{{- if hasKey $of.amf $key }}{{ $_ := set $amf $key (index $of.amf $key) }}{{ end -}}
{{- end -}}
{{- if gt $peer $home -}}
{{- $_ := set $amf "addresses" (list (printf "%s:7390" (include "whimbrel.address" (dict "root" $root "home" $peer)))) -}}
{{- end -}}
{{- $amfs = append $amfs $amf -}}
{{- end -}}
{{- end -}}
{{- $_ := set $configuration "peer_amfs" (dict "listen" "${POD_IP}:7390" "key_file" "/run/credentials/peers/peers.key" "amfs" $amfs) -}}
{{- end -}}
{{- $configuration | toYaml -}}
{{- end -}}

{{- /* Those of all homes. */ -}}
{{- define "whimbrel.configurations" -}}
{{- range $home := until (int (include "whimbrel.homes" .)) }}
  {{ include "whimbrel.name" $ }}-{{ $home }}.yaml: |
    {{- include "whimbrel.configuration" (dict "root" $ "home" $home) | nindent 4 }}
{{- end }}
{{- end -}}

{{- /* "true" if homes have a UPF of their own. */ -}}
{{- define "whimbrel.hasUpf" -}}
{{- $upfs := (include "whimbrel.home" (dict "root" . "home" 0) | fromYaml).upfs | default list -}}
{{- $own := empty $upfs -}}
{{- range $upfs }}{{ if not .address }}{{ $own = true }}{{ end }}{{ end -}}
{{- if $own }}true{{ end -}}
{{- end -}}

{{- /* "true" if the core's own SCTP over raw IP may serve N2. */ -}}
{{- define "whimbrel.hasRawSctp" -}}
{{- $n2 := (include "whimbrel.home" (dict "root" . "home" 0) | fromYaml).n2 -}}
{{- if has ($n2.sctp | default "auto") (list "auto" "raw") }}true{{ end -}}
{{- end -}}

{{- /* The configuration of a UPF: (dict "root" $ "upf" ITEM). */ -}}
{{- define "whimbrel.upf" -}}
{{- $given := dict
  "n3" (dict "address" "${POD_IP}")
  "n4" (dict "node_id" "${POD_IP}" "listen" .upf.address "peers" .root.Values.upfPeers) -}}
{{- with (.root.Values.configuration).data_networks }}{{ $_ := set $given "data_networks" . }}{{ end -}}
{{- $own := dict
  "store" (dict "path" "/var/lib/whimbrel/whimbrel.db")
  "api" (dict "address" (printf "127.0.0.1:%d" (int .root.Values.api.port))) -}}
{{- mergeOverwrite (deepCopy $given) (deepCopy (.upf.configuration | default dict)) $own | toYaml -}}
{{- end -}}
