{{- define "fathom.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of every object's name: the release's, unless that would say `fathom` twice. */}}
{{- define "fathom.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fathom.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fathom.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fathom.labels" -}}
{{ include "fathom.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "fathom.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "fathom.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "fathom.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What `fathom run --prometheus-sources` reads: logins are named by their files. */}}
{{- define "fathom.prometheusSources" -}}
{{- $sources := list -}}
{{- $names := list -}}
{{- range .Values.prometheus.sources -}}
{{- if has .name $names -}}
{{- fail (printf "prometheus.sources: two sources are called %s: give each a name of its own" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- $tenantHeader := .tenantHeader | default "X-Scope-OrgID" -}}
{{- range $header, $_ := .headers -}}
{{- if eq (lower $header) (lower $tenantHeader) -}}
{{- fail (printf "prometheus.sources: %s says the tenant: write its value into tenants, not into headers" $header) -}}
{{- end -}}
{{- end -}}
{{- $folder := printf "/etc/fathom/prometheus/%s" .name -}}
{{- $source := pick . "name" "url" "namespaces" "headers" "tenantHeader" "tenants" -}}
{{- if or .tokenFile .projectedToken -}}
{{- $_ := set $source "tokenFile" (printf "%s/token" $folder) -}}
{{- end -}}
{{- if .basicAuth -}}
{{- $_ := set $source "usernameFile" (printf "%s/username" $folder) -}}
{{- $_ := set $source "passwordFile" (printf "%s/password" $folder) -}}
{{- end -}}
{{- if .ca -}}
{{- $_ := set $source "caFile" (printf "%s/ca.crt" $folder) -}}
{{- end -}}
{{- $sources = append $sources $source -}}
{{- end -}}
{{- dict "sources" $sources | toJson -}}
{{- end -}}
