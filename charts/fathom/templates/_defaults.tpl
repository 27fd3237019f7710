{{/*
Fill in what an earlier chart did not have: `helm upgrade --reuse-values` brings the values of that
one, and none of values.yaml. Each template begins with it. A test holds it against values.yaml.
*/}}
{{- define "fathom.defaults" -}}
{{- include "fathom.fill" (dict "values" .Values "defaults" (include "fathom.defaultValues" . | fromYaml)) -}}
{{- end -}}

{{- define "fathom.defaultValues" -}}
replicas: 1
image:
  repository: ghcr.io/fathom-dev/operator
  pullPolicy: IfNotPresent
crds:
  install: true
  keep: true
rbac:
  create: true
  aggregate: true
serviceAccount:
  create: true
fixedUser: true
hub:
  enabled: true
metrics:
  service: true
  podMonitor:
    intervalSeconds: 30
  dashboards:
    labels:
      grafana_dashboard: "1"
  rules:
    runbookURL: https://github.com/fathom-dev/fathom/blob/main/docs/runbooks
prometheus: {}
page:
  enabled: true
{{- end -}}

{{/* Labels are the user's own: one that is taken out stays out. */}}
{{- define "fathom.fill" -}}
{{- range $key, $default := .defaults -}}
{{- $given := index $.values $key -}}
{{- if kindIs "invalid" $given -}}
{{- $_ := set $.values $key $default -}}
{{- else if and (kindIs "map" $default) (ne $key "labels") -}}
{{- include "fathom.fill" (dict "values" $given "defaults" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}
